package push_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// What a plan says of nodes that a push would treat otherwise.
func TestOutcomePlanOfUnevenNodes(t *testing.T) {
	play(t, 4, func(w *world) {
		w.must("one")
		notes := func(content string) string {
			w.Helper()
			p, err := w.rollout().Plan(w.ctx, pool, config(content))
			if err != nil || p.Generation != map[string]int64{"one": 1, "two": 2}[content] {
				w.Errorf("plan of %s: %+v, %v", content, p, err)
				return ""
			}
			return strings.Join(p.Notes, "\n")
		}
		if got := notes("one"); got != "" {
			t.Errorf("all nodes have it: %s", got)
		}
		w.change(name(0), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		w.change(name(1), func(n *corev1.Node) { delete(n.Annotations, wire.ConfigurationAnnotation) })
		w.change(name(2), func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d" })
		w.kube.Remove("nodes", "", name(3))
		got := notes("one")
		for _, want := range []string{"1 node(s) are not Ready: their agents apply", "node " + name(2), "it counts as no node of the pool", "2 instance(s) have no Node",
			"generation 1 has this configuration, and 1 of 2 nodes have it: a push goes on with it"} {
			if !strings.Contains(got, want) {
				t.Errorf("the plan does not say %q:\n%s", want, got)
			}
		}
		if got := notes("two"); strings.Contains(got, "has this configuration") {
			t.Errorf("another configuration: %s", got)
		}
		s, err := w.rollout().Status(w.ctx, pool)
		if err != nil || s.Model != 1 || !slices.Equal(s.Without, []string{"pool1_2", "pool1_3"}) || len(s.Nodes) != 2 || s.Nodes[0].Ready || !s.Nodes[1].Ready {
			t.Errorf("status: %+v, %v", s, err)
		}
	})
	play(t, 1, func(w *world) {
		w.behave(name(0), "refuse")
		_, _ = w.push("one") // which the node refuses
		if p, err := w.rollout().Plan(w.ctx, pool, config("one")); err != nil || p.Generation != 2 || len(p.Notes) != 0 {
			t.Errorf("the plan of what a node refused: %+v, %v", p, err)
		}
	})
}

// Whose documents count where no key is given: the model's signer, or the history's; a document
// whose signature is not its own counts for nothing.
func TestOutcomePlanWithoutAKey(t *testing.T) {
	play(t, 1, func(w *world) {
		if s, err := w.rollout().Status(w.ctx, pool); err != nil || s.Model != 0 || s.ModelForeign || len(s.History) != 0 {
			t.Errorf("status of nothing: %+v, %v", s, err)
		}
		w.must("one")
		set := func(userData string) {
			w.send("PATCH", `{"properties": {"virtualMachineProfile": {"userData": "`+userData+`"}}}`)
		}
		set("")
		p, err := w.rollout().Plan(w.ctx, pool, config("two"))
		if err != nil || p.Generation != 2 || p.From != 0 {
			t.Errorf("a model that lost its document: %+v, %v", p, err)
		}
		copied, err := nodeconfig.Document{Pool: strings.ToLower(string(pool)) + "-other", Generation: 7, Config: config("theirs")}.Sign(w.key)
		if err != nil {
			t.Fatal(err)
		}
		set(copied)
		if p, err = w.rollout().Plan(w.ctx, pool, config("two")); err != nil || p.Generation != 2 || p.From != 0 || len(p.Notes) != 0 {
			t.Errorf("a document of another pool: %+v, %v", p, err)
		}
		for what, userData := range map[string]string{"Verify": resigned(w, w.sign(9, w.key), w.sign(1, thief())),
			"a damaged document": base64.StdEncoding.EncodeToString([]byte("# ortet.io/v1alpha1 AAAA\n"))} {
			set(userData)
			p, err := w.rollout().Plan(w.ctx, pool, config("two"))
			if err != nil || p.From != 0 || p.Generation > 2 || !strings.Contains(strings.Join(p.Notes, "\n"), "the model's userData is not Ortet's (") {
				t.Errorf("%s: %+v, %v", what, p, err)
			}
			if what != "Verify" && !strings.Contains(strings.Join(p.Notes, "\n"), what) {
				t.Errorf("%s: %q", what, p.Notes)
			}
		}
	})
}

// What a node answers that nobody can read, or that is long, is shown as such, within bounds.
func TestOutcomeAnswersOfNodes(t *testing.T) {
	play(t, 2, func(w *world) {
		w.must("one")
		long := strings.Repeat("long ", 100)
		w.change(name(0), func(n *corev1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, wire.ConfigurationAnnotation, "no JSON")
		})
		var drift []string
		for i := range 25 {
			drift = append(drift, fmt.Sprintf("/etc/file-%d", i))
		}
		w.write(name(1), wire.ConfigurationAnswer{State: wire.ConfigurationFailed, Generation: 1, Wanted: 1, Message: long, Drift: drift})
		s, err := w.rollout().Status(w.ctx, pool)
		if err != nil || len(s.Nodes) != 2 {
			t.Fatalf("status: %+v, %v", s, err)
		}
		if n := s.Nodes[0]; n.Message != "annotation "+wire.ConfigurationAnnotation+" is unreadable" || n.State != "" || n.Generation != 0 {
			t.Errorf("an answer that is no JSON: %+v", n)
		}
		if n := s.Nodes[1]; len(n.Drift) != 20 || n.Drift[0] != "/etc/file-0" || n.Message != strings.TrimSpace(long) && n.Message != long {
			t.Errorf("a long answer: %+v", n)
		}
		_, err = w.push("one")
		if w.refused(err, "FailedEarlier"); err == nil || !strings.Contains(err.Error(), "…") || strings.Count(err.Error(), "long") > 50 {
			t.Errorf("the refusal has all of the answer: %v", err)
		}
		w.change(name(1), func(n *corev1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, wire.ConfigurationAnnotation, `{"state": "Applied", "generation": 1, "message": "`+strings.Repeat("x", wire.MaxConfigurationAnswer)+`"}`)
		})
		if s, err = w.rollout().Status(w.ctx, pool); err != nil || s.Nodes[1].Generation != 0 || !strings.Contains(s.Nodes[1].Message, "unreadable") {
			t.Errorf("an answer beyond what a node may write: %+v, %v", s, err)
		}
	})
}

// Of many nodes or pods, messages name some, and how many more there are.
func TestOutcomeManyNodesAreCounted(t *testing.T) {
	play(t, 9, func(w *world) {
		one := func(o *push.Request) { o.MaxUnavailable = "100%" }
		w.must("one")
		for i := 1; i < 9; i++ {
			w.behave(name(i), "fail")
		}
		_, err := w.push("two", one)
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "and 3 more nodes") || strings.Contains(err.Error(), name(8)) {
			t.Errorf("eight nodes failed: %v", err)
		}
		for i := range 9 {
			w.write(name(i), wire.ConfigurationAnswer{State: wire.ConfigurationApplied, Generation: 50})
		}
		_, err = w.push("three", one)
		if all := problems(err); len(all) == 0 || all[len(all)-1].On != "nodes "+strings.Join([]string{name(0), name(1), name(2), name(3), name(4)}, " (generation 50), ")+" (generation 50), and 4 more" {
			t.Errorf("nine nodes report wrongly: %+v", all)
		}
	})
}

// What reservations leave is said in the unit that a person would, and of the pods that request it
// the largest are named.
func TestOutcomeReservationsInTheirUnits(t *testing.T) {
	list := func(name corev1.ResourceName, q string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(q)}
	}
	for _, c := range []struct {
		name                            corev1.ResourceName
		capacity, reserved, each, wants string
	}{
		{corev1.ResourceCPU, "4", "2", "500m", "2 of cpu would be left for pods, which request 3500m: default/pod-0 (500m), default/pod-1 (500m), default/pod-2 (500m), default/pod-3 (500m), default/pod-4 (500m), and 2 more"},
		{corev1.ResourceMemory, "512Mi", "256Mi", "64Mi", "256Mi of memory would be left for pods, which request 448Mi: "},
		{corev1.ResourceCPU, "2", "3", "", "3 of cpu would be reserved, of the 2 that the node has"},
		{corev1.ResourceMemory, "2Gi", "1Gi", "0", ""},
	} {
		play(t, 1, func(w *world) {
			w.change(name(0), func(n *corev1.Node) { n.Status.Capacity = list(c.name, c.capacity) })
			for i := range 8 {
				requests := corev1.ResourceList{}
				if i < 7 && c.each != "" {
					requests = list(c.name, c.each)
				}
				w.kube.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Namespace: "default"}, Spec: corev1.PodSpec{NodeName: name(0),
					Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
			}
			_, err := w.rollout().Plan(w.ctx, pool, nodeconfig.Config{Kubelet: map[string]any{"systemReserved": map[string]any{string(c.name): c.reserved}}})
			if c.wants == "" && err != nil || c.wants != "" && (workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(problems(err)[0].What, c.wants) || strings.Contains(err.Error(), "pod-7")) {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
	play(t, 1, func(w *world) {
		_, err := w.push("", func(o *push.Request) {
			o.Config = nodeconfig.Config{Kubelet: map[string]any{"maxPods": "many"}}
		})
		if !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), "read the kubelet's reservations") || w.arm.puts != 0 {
			t.Errorf("maxPods that is no number: %v", err)
		}
	})
}

// A history that was written since it was read refuses the push, by whom it is known, also where
// nobody whose key is accepted wrote it.
func TestOutcomeHistoryChangedMeanwhile(t *testing.T) {
	for want, write := range map[string]func(data map[string]string){
		"another push, of generation 1 by ada@desk, began at": func(map[string]string) {},
		"its history was changed meanwhile, by none whose key is accepted": func(data map[string]string) {
			for key := range data {
				data[key] = `{"generation": 1, "digest": "sha256:0", "userData": "bm8="}`
			}
		},
	} {
		play(t, 2, func(w *world) {
			w.must("one")
			w.arm.onGet = func(id fleet.ResourceID) {
				if id.Segment("virtualMachines") != "" { // after the history was read
					w.arm.onGet = nil
					w.kube.Change("configmaps", namespace, push.HistoryName(pool), func(o runtime.Object) { write(o.(*corev1.ConfigMap).Data) })
				}
			}
			puts := w.arm.puts
			_, err := w.push("two")
			if w.refused(err, "OtherPush"); err == nil || !strings.Contains(err.Error(), want) || w.arm.puts != puts {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// A node that gets the generation while it waits for its turn, as by another push that goes on with
// it, is not changed again; one that is not Ready and whose machine is deleted is not left over.
func TestOutcomeNodesThatChangeBeforeTheirTurn(t *testing.T) {
	play(t, 4, func(w *world) {
		w.change(name(3), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		w.arm.hook = func(id fleet.ResourceID, put int) {
			if put == 2 { // the first after the canary: the waves are chosen
				w.write(name(2), wire.ConfigurationAnswer{State: wire.ConfigurationApplied, Generation: 1, Wanted: 1})
				if _, err := w.arm.Resources.Send(w.ctx, "delete", "DELETE", pool.Child("virtualMachines", "3"), version, nil); err != nil {
					t.Error(err)
				}
			}
			if id.Name() == "2" {
				t.Error("a node that has the generation is changed")
			}
		}
		result := w.must("one")
		if w.has(1, name(0), name(1), name(2)); w.model() != 1 || slices.ContainsFunc(result.Left, func(n push.Node) bool { return strings.Contains(n.Message, "is not Ready") }) || w.printed(name(3)+": userData has") || w.printed(name(2)+": generation 1 applied") {
			t.Errorf("model %d, %+v", w.model(), result)
		}
	})
}

// A label of AKS on one Node is enough, and a push without Ready nodes announces none.
func TestOutcomeNodesByTheirMarks(t *testing.T) {
	play(t, 2, func(w *world) {
		w.change(name(1), func(n *corev1.Node) {
			metav1.SetMetaDataLabel(&n.ObjectMeta, "kubernetes.azure.com/cluster", "MC_group_cluster_region")
		})
		_, err := w.push("two")
		if w.refused(err, "ManagedByAKS"); err == nil || !strings.Contains(err.Error(), "label kubernetes.azure.com/cluster=MC_group_cluster_region") {
			t.Errorf("a Node of AKS: %v", err)
		}
	})
	play(t, 1, func(w *world) {
		w.change(name(0), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		if w.must("one"); w.printed("0 nodes") {
			t.Errorf("no node is Ready: %q", w.lines)
		}
	})
}
