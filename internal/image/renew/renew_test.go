package renew_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// wants wants the sentence of an error, and its exit code.
func wants(t *testing.T, err error, exit int, sentence ...string) {
	t.Helper()
	for _, s := range sentence {
		if workflow.ExitCode(err) != exit || err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("exit %d: %v\nwant %d with %q", workflow.ExitCode(err), err, exit, s)
		}
	}
}

// Six nodes come to the model's image with two at a time out of service at most, and the first alone.
func TestRolloutOfSixNodes(t *testing.T) {
	play(t, 6, func(w *world) {
		p, err := renew.New(w.config(w.Context())).Plan(w.Context(), request())
		if err != nil || len(p.Nodes) != 6 || p.MaxUnavailable != 2 || len(p.Problems)+len(p.LeftOut) > 0 || p.Nodes[0].From != version(1).Name() || p.Nodes[0].Why != renew.Older {
			t.Fatalf("plan %+v, %v", p, err)
		}
		if disk := p.Nodes[0].Disk; !slices.Equal(disk, []string{"emptyDir cache of pod default/web-pool1000000"}) || len(p.Differs) != 1 || !strings.Contains(strings.Join(p.Notes, ""), "each Node keeps its taints") {
			t.Errorf("what goes with the disk: %q; what else the model gives: %q; notes %q", disk, p.Differs, p.Notes)
		}
		w.requests, w.out = map[string]int{}, 0
		begun, drains, renewed := time.Now(), 0, false
		w.on = func(what string) {
			renewed = renewed || strings.HasSuffix(what, ": renewed")
			if strings.HasSuffix(what, ": drain it") {
				if drains++; drains > 1 && !renewed {
					t.Error("a second node is begun before the first has passed")
				}
			}
		}
		r, err := w.rollout(w.Context(), request())
		w.on = nil
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(r.Renewed)), w.nodes()) || !r.Image.Equal(version(2)) {
			t.Errorf("%+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		w.has(2)
		total := 0
		for _, n := range w.requests {
			total += n
		}
		t.Logf("%d requests to Azure (%v) for 6 nodes in %s, at most %d out of service", total, w.requests, time.Since(begun), w.out)
		if w.out != 2 || total > 6*40 {
			t.Errorf("%d nodes were out of service at once, want 2; %d requests to Azure, want at most %d", w.out, total, 6*40)
		}
		if len(w.drained) != 6 {
			t.Errorf("drained %v, want each node", w.drained)
		}
		before := w.boots()
		r, err = w.rollout(w.Context(), request())
		if err != nil || len(r.Renewed) > 0 || !maps.Equal(before, w.boots()) {
			t.Errorf("again: %+v, %v", r, err)
		}
	})
}

// A node that does not come back stops the rollout, stays cordoned and is named; once its machine is
// mended, the same command does the rest.
func TestNodeThatDoesNotComeBack(t *testing.T) {
	play(t, 4, func(w *world) {
		q := request()
		q.MaxUnavailable = "1"
		w.bad["pool1000001"] = true
		r, err := w.rollout(w.Context(), q)
		wants(t, err, workflow.ExitNeedsPerson, "node pool1000001 could not be brought to 2026.11.02", "ready: ", "node pool1000001 stays cordoned", "1 node renewed, 2 not begun")
		if r.Failed != "pool1000001" || !slices.Equal(r.Renewed, []string{"pool1000000"}) || !w.kube.Node("pool1000001").Spec.Unschedulable {
			t.Errorf("%+v\n%s", r, strings.Join(w.lines, "\n"))
		}
		before := w.boots()
		if before["pool1000002"] != 1 || before["pool1000003"] != 1 {
			t.Errorf("the rest was touched: %v", before)
		}
		w.bad["pool1000001"] = false
		w.restart("pool1000001")
		if r, err = w.rollout(w.Context(), q); err != nil || r.Renewed[0] != "pool1000001" || len(r.Renewed) != 3 {
			t.Errorf("mended: %+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		w.has(2)
	})
}

// Interrupted anywhere, the same command goes on; a node whose disk was not replaced yet is in service.
func TestInterruptedRolloutGoesOn(t *testing.T) {
	for _, at := range []string{"drain it", "give its machine the model", "wait until it is back"} {
		play(t, 3, func(w *world) {
			ctx, cancel := context.WithCancel(w.Context())
			w.on = func(what string) {
				if strings.HasSuffix(what, at) {
					cancel()
				}
			}
			r, err := w.rollout(ctx, request())
			wants(t, err, workflow.ExitInterrupted, "ortet rollout pool1 goes on with 2026.11.02")
			if len(r.Renewed) > 0 || r.Failed != "" {
				t.Errorf("at %s: %+v", at, r)
			}
			if drains := strings.HasPrefix(at, "drain"); drains {
				w.has(1)
			}
			w.on = nil
			if r, err = w.rollout(w.Context(), request()); err != nil || len(r.Renewed) != 3 {
				t.Errorf("at %s: again: %+v, %v\n%s", at, r, err, strings.Join(w.lines, "\n"))
			}
			w.has(2)
		})
	}
}

// A model that was changed and changed back leaves nothing to do, whatever latestModelApplied says.
func TestModelChangedAndBack(t *testing.T) {
	play(t, 2, func(w *world) {
		w.model(object{"id": string(version(1))}, "Manual")
		list, err := w.config(w.Context()).Cloud.Instances(w.Context(), pool)
		if err != nil || list[0].LatestModelApplied {
			t.Fatalf("azsim calls it up to date, which Azure does not: %+v, %v", list, err)
		}
		if p, err := renew.New(w.config(w.Context())).Plan(w.Context(), request()); err != nil || len(p.Nodes)+len(p.LeftOut) > 0 {
			t.Fatalf("the plan is %+v, %v", p, err)
		}
		if r, err := w.rollout(w.Context(), request()); err != nil || len(r.Renewed)+len(r.Left) > 0 || len(w.drained) > 0 {
			t.Errorf("%+v, %v, drained %v", r, err, w.drained)
		}
	})
}

// A node that a budget of pods keeps is named and stays in service, and the others are renewed.
func TestBudgetOfPodsKeepsNode(t *testing.T) {
	play(t, 3, func(w *world) {
		w.budget("web-pool1000000")
		r, err := w.rollout(w.Context(), request())
		if err != nil || len(r.Renewed) != 2 || len(r.Left) != 1 || r.Left[0].Node != "pool1000000" || !strings.Contains(r.Left[0].Why, "PodDisruptionBudget default/keep") {
			t.Errorf("%+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		w.has(2, "pool1000000")
		if n := w.kube.Node("pool1000000"); n.Spec.Unschedulable || len(n.Annotations) > 0 || slices.Contains(w.drained, n.Name) {
			t.Errorf("%+v; drained %v", n, w.drained)
		}
	})
}

// What is not for a rollout is refused, with who does it instead, and nothing is touched.
func TestRefusals(t *testing.T) {
	marketplace := object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}
	v2 := object{"id": string(version(2))}
	for code, c := range map[string]struct {
		change func(w *world)
		wayOut string
	}{
		"MarketplaceLatest": {func(w *world) { w.model(marketplace, "Manual") }, "az vmss update --enable-auto-os-upgrade"},
		"RollingUpgrade":    {func(w *world) { w.model(v2, "Rolling") }, "az vmss rolling-upgrade get-latest"},
		"AutomaticUpgrade":  {func(w *world) { w.model(v2, "Automatic") }, "Azure gives its instances the model by itself"},
		plan.CodeRolledBack: {func(w *world) {
			w.tag(version(2), fleet.TagQuarantine, "ready: failed", fleet.TagRolledBack, "2026-11-29T00:00:00Z")
		}, "ortet rollback pool1"},
		plan.CodeOwnedByClusterAPI: {func(w *world) { w.tag(pool, "sigs.k8s.io_cluster-api-provider-azure_cluster_c1", "owned") }, "AzureMachinePool"},
		"ManagedByAKS":             {func(w *world) { w.tag(pool, "aks-managed-poolName", "pool1") }, "az aks nodepool upgrade"},
		"PoolNotFound":             {func(w *world) { w.send(http.MethodDelete, pool, computeAPI, object{}) }, "check its name"},
		"NoVersion":                {func(w *world) { w.send(http.MethodDelete, version(2), galleryAPI, object{}) }, "ortet rollback pool1"},
		"OpenRecord": {func(w *world) {
			rec := journal.Record{Kind: "capture", Name: "20261129-000000", Pool: strings.ToLower(string(pool)), Subject: "pool1000000", Begun: time.Now()}
			w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ortet-system"}})
			if _, err := w.config(w.Context()).Journal.Save(w.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}, "ortet capture --abandon pool1"},
	} {
		play(t, 2, func(w *world) {
			c.change(w)
			time.Sleep(10 * time.Minute)
			before := w.boots()
			_, err := w.rollout(w.Context(), request())
			p, planErr := renew.New(w.config(w.Context())).Plan(w.Context(), request())
			if !workflow.RefusedFor(err, code) || !strings.Contains(err.Error(), c.wayOut) || planErr != nil || len(p.Problems) != 1 || p.Problems[0].Code != code {
				t.Errorf("want %s: %v; plan %+v, %v", code, err, p.Problems, planErr)
			}
			if len(w.drained) > 0 || !maps.Equal(before, w.boots()) {
				t.Errorf("%s: drained %v, boots %v, before %v", code, w.drained, w.boots(), before)
			}
		})
	}
	for _, text := range []string{"", "0", "-1", "0%", "101%", "many"} {
		if _, err := (&renew.Service{}).Rollout(t.Context(), renew.Request{MaxUnavailable: text}); !fleet.Is(err, fleet.KindInvalid) {
			t.Errorf("--max-unavailable %q: %v", text, err)
		}
	}
}

// Nodes that others keep are named with what to do and left; one that a person cordoned stays so, and
// counts in the budget.
func TestLeftOut(t *testing.T) {
	play(t, 6, func(w *world) {
		annotate := func(node, key string) {
			w.change(node, func(n *corev1.Node) { n.Annotations = map[string]string{key: "x"} })
		}
		w.change("pool1000000", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		annotate("pool1000001", fleet.AnnotationCapture)
		annotate("pool1000002", fleet.AnnotationWorkbench)
		w.send(http.MethodPut, pool.Child("virtualMachines", "3"), computeAPI, object{"location": "westeurope", "properties": object{"protectionPolicy": object{"protectFromScaleIn": true}}})
		time.Sleep(5 * time.Minute)
		w.pod("pool1000004", "batch", func(p *corev1.Pod) { p.Annotations = map[string]string{fleet.AnnotationDoNotDisrupt: "true"} })
		q := request()
		r, err := w.rollout(w.Context(), q)
		if err != nil || !slices.Equal(r.Renewed, []string{"pool1000005"}) {
			t.Errorf("%+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
		p, err := renew.New(w.config(w.Context())).Plan(w.Context(), q)
		for node, why := range map[string]string{"pool1000000": "somebody cordoned it", "pool1000001": "is the donor", "pool1000002": "is the workbench",
			"pool1000003": "is protected from scale-in", "pool1000004": "default/batch is annotated karpenter.sh/do-not-disrupt"} {
			is := func(l renew.LeftOut) bool { return l.Node == node && strings.Contains(l.Why, why) }
			if !slices.ContainsFunc(r.Left, is) || !slices.ContainsFunc(p.LeftOut, is) || err != nil {
				t.Errorf("%s: left %+v, planned %+v, %v", node, r.Left, p.LeftOut, err)
			}
		}
		if !w.kube.Node("pool1000000").Spec.Unschedulable || w.out > 2 {
			t.Errorf("a person's cordon is gone, or %d nodes were out of service at once", w.out)
		}
	})
}

// An instance that an autoscaler deletes meanwhile is done; a model that is changed stops the rollout, and
// the same command goes on with what it names then.
func TestOthersChangeThePool(t *testing.T) {
	play(t, 3, func(w *world) {
		q, once := request(), false
		q.MaxUnavailable = "1"
		w.on = func(what string) {
			if strings.HasSuffix(what, "pool1000000: drain it") && !once {
				once = true
				go w.deleteInstance("1")
			}
		}
		r, err := w.rollout(w.Context(), q)
		if err != nil || !slices.Equal(r.Renewed, []string{"pool1000000", "pool1000002"}) {
			t.Errorf("an instance deleted: %+v, %v\n%s", r, err, strings.Join(w.lines, "\n"))
		}
	})
	play(t, 3, func(w *world) {
		q, once := request(), false
		q.MaxUnavailable = "1"
		w.on = func(what string) {
			if strings.HasSuffix(what, "pool1000000: wait until it is back") && !once {
				once = true
				go w.model(object{"id": string(version(1))}, "Manual")
			}
		}
		r, err := w.rollout(w.Context(), q)
		wants(t, err, workflow.ExitInterrupted, "it names 2026.11.01 in place of 2026.11.02", "ortet rollout pool1 goes on with what the model names then")
		if !slices.Equal(r.Renewed, []string{"pool1000000"}) || len(w.drained) != 1 {
			t.Errorf("the model changed: %+v, drained %v\n%s", r, w.drained, strings.Join(w.lines, "\n"))
		}
		w.on = nil
		if r, err = w.rollout(w.Context(), q); err != nil || !slices.Equal(r.Renewed, []string{"pool1000000"}) {
			t.Errorf("again: %+v, %v", r, err)
		}
		w.has(1)
	})
}

// A Node that is down takes its place in the budget, and does not keep itself from being renewed.
func TestNodeThatIsDownCounts(t *testing.T) {
	play(t, 3, func(w *world) {
		w.stop("pool1000002")
		w.out = 0
		q := request()
		q.MaxUnavailable = "1"
		r, err := w.rollout(w.Context(), q)
		if err != nil || len(r.Renewed) != 3 || r.Renewed[0] != "pool1000002" || w.out != 1 {
			t.Errorf("%+v, %v, %d out of service at once\n%s", r, err, w.out, strings.Join(w.lines, "\n"))
		}
		w.has(2)
	})
}

// k3s has the password of the disk that goes, and would refuse the next.
func TestNodePasswordOfK3sGoes(t *testing.T) {
	play(t, 1, func(w *world) {
		w.change("pool1000000", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1" })
		w.kube.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pool1000000.node-password.k3s"}})
		if r, err := w.rollout(w.Context(), request()); err != nil || len(r.Renewed) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if w.kube.Secret("kube-system", "pool1000000.node-password.k3s") != nil {
			t.Error("the server has the password of the disk before")
		}
		w.has(2)
	})
}

// While a node reboots by kured none is begun; the lock is given back in the end.
func TestLockOfKuredIsRespected(t *testing.T) {
	play(t, 2, func(w *world) {
		lock := func() string {
			return w.kube.DaemonSet("kube-system", "kured").Annotations["weave.works/kured-node-lock"]
		}
		w.kube.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured", Annotations: map[string]string{"weave.works/kured-node-lock": `{"nodeID":"other"}`}},
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"never": "true"}, Containers: []corev1.Container{{Name: "kured", Image: "kured", Command: []string{"/usr/bin/kured"}}}}}}})
		begun := time.Now()
		time.AfterFunc(10*time.Minute, func() {
			if len(w.drained) > 0 {
				t.Errorf("drained %v while a node reboots", w.drained)
			}
			w.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) { o.(*appsv1.DaemonSet).Annotations = nil })
		})
		w.on = func(what string) {
			if strings.HasSuffix(what, "wait until it is back") && !strings.Contains(lock(), "rollout") {
				t.Errorf("a node is renewed while kured's lock is %q", lock())
			}
		}
		if r, err := w.rollout(w.Context(), request()); err != nil || len(r.Renewed) != 2 || time.Since(begun) < 10*time.Minute || lock() != "" {
			t.Errorf("%+v, %v after %s, lock %q", r, err, time.Since(begun), lock())
		}
	})
}
