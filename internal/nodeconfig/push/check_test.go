package push_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/file"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/workflow"
)

func TestRefused(t *testing.T) {
	for code, change := range map[string]string{
		"UpgradePolicy":     `{"properties": {"upgradePolicy": {"mode": "Automatic"}}}`,
		"ManagedByAKS":      `{"tags": {"aks-managed-poolName": "pool1"}}`,
		"OwnedByClusterAPI": `{"tags": {"sigs.k8s.io_cluster-api-provider-azure_cluster_prod": "owned"}}`,
		"ForeignUserData":   `{"properties": {"virtualMachineProfile": {"userData": "` + base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n# setup\nexport TOKEN=ghp_012345678901234567890123456789012345\n")) + `"}}}`,
	} {
		t.Run(code, func(t *testing.T) {
			play(t, 2, func(w *world) {
				w.send("PATCH", change)
				_, err := w.push("one")
				w.refused(err, code)
				if w.arm.puts != 0 || w.kube.Get("configmaps", namespace, push.HistoryName(pool)) != nil {
					t.Error("something was changed")
				}
				plan, err := w.rollout().Plan(w.ctx, pool, config("one"))
				if code == "ForeignUserData" {
					if err != nil || !strings.Contains(strings.Join(plan.Notes, "\n"), `"#!/bin/sh"`) {
						t.Errorf("the plan is %+v, %v; want a note of what the userData is", plan, err)
					}
					w.must("one", func(o *push.Request) { o.ReplaceUserData = true })
					w.has(1, name(0), name(1))
					return
				}
				w.refused(err, code)
			})
		})
	}
}

func TestFlexible(t *testing.T) {
	play(t, 2, func(w *world) {
		set := pool.In("virtualMachineScaleSets", "flexible")
		op, err := w.arm.Resources.Send(w.ctx, "create", "PUT", set, version, json.RawMessage(`{"location": "westeurope", "sku": {"name": "Standard_D2s_v5", "capacity": 1},
			"properties": {"orchestrationMode": "Flexible", "platformFaultDomainCount": 1,
			"virtualMachineProfile": {"osProfile": {"computerNamePrefix": "flex", "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
			"storageProfile": {"imageReference": {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}}}}}`))
		if err == nil {
			_, err = op.Wait(w.ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.rollout().Plan(w.ctx, set, config("one"))
		w.refused(err, "NotUniform")
		_, err = w.rollout().Push(w.ctx, set, push.Request{Config: config("one"), Key: w.key})
		w.refused(err, "NotUniform")
		_, err = w.rollout().Status(w.ctx, set)
		w.refused(err, "NotUniform")
	})
}

// The model's userData is empty, but somebody gave an instance its own: it is left alone,
// whether the instance is the canary or of a wave.
func TestForeignInstance(t *testing.T) {
	foreign := base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"))
	play(t, 2, func(w *world) {
		w.send("PUT", `{"properties": {"userData": "`+foreign+`"}}`, "virtualMachines", "0")
		_, err := w.push("one")
		w.refused(err, "ForeignUserData")
	})
	play(t, 3, func(w *world) {
		w.send("PUT", `{"properties": {"userData": "`+foreign+`"}}`, "virtualMachines", "1")
		_, err := w.push("one")
		if w.refused(err, "ForeignUserData"); w.arm.puts != 0 || w.userData("1") != foreign {
			t.Errorf("%d PUTs, and the instance has %q", w.arm.puts, w.userData("1"))
		}
		w.must("one", func(o *push.Request) { o.ReplaceUserData = true })
		w.has(1, name(0), name(1), name(2))
	})
}

func TestKeys(t *testing.T) {
	play(t, 2, func(w *world) {
		old := w.key
		next := ed25519.NewKeyFromSeed([]byte(strings.Repeat("n", ed25519.SeedSize)))
		w.must("one")
		_, err := w.push("two", func(o *push.Request) { o.Key = next })
		w.refused(err, "KeyNotAccepted")

		both := []nodeconfig.PublicKey{nodeconfig.PublicKeyOf(old.Public().(ed25519.PublicKey)), nodeconfig.PublicKeyOf(next.Public().(ed25519.PublicKey))}
		// The same content with other keys is a new generation.
		if got := w.must("one", func(o *push.Request) { o.Keys = both }).Generation; got != 2 {
			t.Errorf("the rotation has generation %d, want 2", got)
		}
		w.key = next
		// Who owns the new key says that the old one is known: anybody could have named the
		// new one in a document.
		_, err = w.push("two", func(o *push.Request) { o.Keys = both[1:] })
		if w.refused(err, "KeyNotAccepted"); !strings.Contains(fmt.Sprint(err), fmt.Sprint(both[0])+" signed its document, which is neither the signing key nor one that --accept-key names") {
			t.Errorf("the signer is not named: %v", err)
		}
		if got := w.must("two", func(o *push.Request) { o.Keys = both }).Generation; got != 3 {
			t.Errorf("the push with the new key has generation %d, want 3", got)
		}
		if got := w.must("two", func(o *push.Request) { o.Keys = both[1:] }).Generation; got != 4 {
			t.Errorf("the push without the old key has generation %d, want 4", got)
		}
		w.key = old
		_, err = w.push("three")
		w.refused(err, "KeyNotAccepted")
	})
	// Who goes back believes what any key signed that the model's document lists.
	play(t, 1, func(w *world) {
		both := []nodeconfig.PublicKey{public(w.key), public(thief())}
		for i, key := range []ed25519.PrivateKey{w.key, thief(), w.key} {
			w.key = key
			w.must(fmt.Sprint(i), func(o *push.Request) { o.Keys = both })
		}
		w.rollback(2, 4, "1")
	})
}

// The key is lost: the model's userData is removed, nodes are replaced by some that accept
// a new key, and the new key pushes. Nodes that were not replaced are named before
// anything changes.
func TestKeyLost(t *testing.T) {
	play(t, 2, func(w *world) {
		w.must("one")
		w.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("n", ed25519.SeedSize)))
		_, err := w.push("two")
		w.refused(err, "KeyNotAccepted")
		w.send("PATCH", `{"properties": {"virtualMachineProfile": {"userData": ""}}}`)
		_, err = w.push("two")
		if w.refused(err, "GenerationNotSigned"); w.model() != 0 {
			t.Errorf("old nodes: model %d", w.model())
		}
		w.send("PATCH", `{"sku": {"name": "Standard_D2s_v5", "capacity": 4}}`)
		for id, node := range w.instances() {
			if id == "0" || id == "1" {
				w.send("DELETE", "", "virtualMachines", id)
				w.kube.Remove("nodes", "", node)
			} else {
				w.join(id, node)
			}
		}
		if w.must("two"); w.model() != 1 {
			t.Errorf("replaced nodes: the model has generation %d, want 1", w.model())
		}
	})
}

// Reservations that leave less than pods request name the node and the pods.
func TestReservations(t *testing.T) {
	pod := func(name string, requests corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "pool1000001",
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	}
	memory := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q)}
	}
	for _, c := range []struct {
		kubelet map[string]any
		want    string // "" fits
	}{
		{map[string]any{"kubeReserved": map[string]any{"memory": "1Gi"}}, ""},
		{map[string]any{"kubeReserved": map[string]any{"memory": "3Gi"}, "systemReserved": map[string]any{"memory": "3Gi"}}, "default/big (2Gi), default/small (512Mi)"},
		{map[string]any{"evictionHard": map[string]any{"memory.available": "80%"}}, "default/big"},
		{map[string]any{"systemReserved": map[string]any{"memory": "9Gi"}}, "nodes pool1000000, pool1000001: 9Gi of memory would be reserved, of the 8Gi"},
		{map[string]any{"maxPods": 1}, "maxPods 1"},
		{map[string]any{"maxPods": 2}, ""},
		{map[string]any{"serializeImagePulls": false}, ""},
	} {
		play(t, 2, func(w *world) {
			for _, n := range []string{name(0), name(1)} {
				w.change(n, func(n *corev1.Node) { n.Status.Capacity = memory("8Gi") })
			}
			w.kube.Put(pod("big", memory("2Gi")))
			w.kube.Put(pod("small", memory("512Mi")))
			done := pod("done", memory("8Gi"))
			done.Status.Phase = corev1.PodSucceeded
			w.kube.Put(done)
			_, err := w.rollout().Plan(w.ctx, pool, nodeconfig.Config{Kubelet: c.kubelet})
			if c.want == "" {
				if err != nil {
					t.Errorf("%v: %v", c.kubelet, err)
				}
				return
			}
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: got %v; want it refused with %q", c.kubelet, err, c.want)
			}
			_, err = w.rollout().Push(w.ctx, pool, push.Request{Config: nodeconfig.Config{Kubelet: c.kubelet}, Key: w.key})
			if workflow.ExitCode(err) != workflow.ExitRefused || w.arm.puts != 0 {
				t.Errorf("%v: the push ended with %v and %d PUTs", c.kubelet, err, w.arm.puts)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	play(t, 2, func(w *world) {
		r := push.New(push.Options{ARM: w.arm, Cloud: changer{w.arm.cloud, w.arm}, Kube: w.client, Namespace: namespace, Now: time.Now, CheckKubelet: file.CheckKubelet})
		w.change(name(0), func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.31.9" })
		w.change(name(1), func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.31.9" })
		newer := nodeconfig.Config{Kubelet: map[string]any{"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "1m"}}}
		_, err := r.Plan(w.ctx, pool, newer)
		if w.refused(err, "KubeletField"); err == nil || !strings.Contains(err.Error(), "the pool has v1.31.9;") || problems(err)[0].On != string(pool) {
			t.Errorf("got %v; want the version once", err)
		}
		_, err = r.Push(w.ctx, pool, push.Request{Config: newer, Key: w.key})
		w.refused(err, "KubeletField")
		w.must("one")
		plan, err := r.Plan(w.ctx, pool, config("two"))
		if err != nil || plan.Generation != 2 || plan.From != 1 || len(plan.Changes) != 1 || plan.Changes[0].What != nodeconfig.Changed || len(plan.Nodes) != 2 || plan.Expected <= 0 {
			t.Errorf("the plan is %+v, %v", plan, err)
		}
		if plan, err = r.Plan(w.ctx, pool, config("one")); err != nil || plan.Generation != 1 || len(plan.Changes) != 0 || len(plan.Notes) != 0 {
			t.Errorf("the plan of what is there is %+v, %v", plan, err)
		}
		w.behave(name(0), "fail")
		if _, err := w.push("two"); err == nil {
			t.Error("the push succeeded on a node that fails")
		}
		if plan, err = r.Plan(w.ctx, pool, config("two")); err != nil || plan.Generation != 3 || !strings.Contains(plan.Notes[0], "a push needs --retry") {
			t.Errorf("the plan of what failed is %+v, %v", plan, err)
		}
	})
}

// What lacks in the cluster is said with what to do.
func TestClusterNotPrepared(t *testing.T) {
	play(t, 1, func(w *world) {
		w.kube.Remove("namespaces", "", namespace)
		if _, err := w.push("one"); err == nil || !strings.Contains(err.Error(), "kubectl create namespace "+namespace) {
			t.Errorf("without the namespace: %v", err)
		}
		w.kube.Users["operator"] = nil
		if _, err := w.push("one"); err == nil || !strings.Contains(err.Error(), "grant get on configmaps in namespace "+namespace) {
			t.Errorf("without permissions: %v", err)
		}
		if w.arm.puts != 0 {
			t.Error("an instance was changed")
		}
	})
}

// A rollback signs what an earlier generation has, so one that another key signed, or that
// has another number, is refused.
func TestHistoryIsNotBelieved(t *testing.T) {
	play(t, 1, func(w *world) {
		w.must("one")
		w.must("two")
		foreign, err := nodeconfig.Document{Pool: strings.ToLower(string(pool)), Generation: 1, Config: config("mine")}.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
		if err != nil {
			t.Fatal(err)
		}
		w.kube.Change("configmaps", namespace, push.HistoryName(pool), func(o runtime.Object) {
			o.(*corev1.ConfigMap).Data["generation-1"] = `{"generation": 1, "digest": "sha256:0", "userData": "` + foreign + `"}`
		})
		_, err = w.rollout().Rollback(w.ctx, pool, 0, push.Request{Key: w.key})
		w.refused(err, "HistoryNotTrusted")
		w.kube.Change("configmaps", namespace, push.HistoryName(pool), func(o runtime.Object) {
			data := o.(*corev1.ConfigMap).Data
			data["generation-9"] = strings.Replace(data["generation-2"], `"generation":2`, `"generation":9`, 1)
		})
		for _, to := range []int64{1, 9} {
			_, err = w.rollout().Rollback(w.ctx, pool, to, push.Request{Key: w.key})
			w.refused(err, "HistoryNotTrusted")
		}
	})
}

// userData that another program wrote to nodes that are configured already, and to an
// instance without a Node, is named at once before anything changes, and is read again
// right before it is replaced.
func TestHole05ForeignUserDataOfConfiguredNodes(t *testing.T) {
	foreign := base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"))
	put := func(w *world, instance string) {
		w.send("PUT", `{"properties": {"userData": "`+foreign+`"}}`, "virtualMachines", instance)
	}
	play(t, 4, func(w *world) {
		w.kube.Remove("nodes", "", name(3))
		w.must("one")
		put(w, "1")
		put(w, "2")
		put(w, "3")
		puts := w.arm.puts
		_, err := w.push("two")
		w.refused(err, "ForeignUserData")
		if all := problems(err); len(all) != 1 || all[0].On != "instances pool1_1, pool1_2, pool1_3" || w.arm.puts != puts || w.model() != 1 {
			t.Errorf("got %+v, %d PUTs, model %d", all, w.arm.puts-puts, w.model())
		}
		// The push does not look at skipped nodes.
		_, err = w.push("two", skip(name(1)))
		if all := problems(err); len(all) != 1 || all[0].On != "instances pool1_2, pool1_3" {
			t.Errorf("got %+v", all)
		}
		w.must("two", func(o *push.Request) { o.ReplaceUserData = true })
		w.has(2, name(0), name(1), name(2))
	})
	play(t, 3, func(w *world) {
		w.must("one")
		w.arm.hook = func(id fleet.ResourceID, _ int) {
			if id.Name() == "0" { // after the preflight checks
				w.arm.hook = nil
				put(w, "2")
			}
		}
		_, err := w.push("two")
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !fleet.Is(err, fleet.KindBlocked) || !strings.Contains(err.Error(), "pool1_2") || !strings.Contains(err.Error(), `its userData is not Ortet's: 10 bytes that begin with "#!/bin/sh"`) || !strings.Contains(err.Error(), "--replace-user-data") || w.userData("2") != foreign {
			t.Errorf("got %v, and the instance has %q", err, w.userData("2"))
		}
		w.has(2, name(0), name(1))
	})
}
