//go:build e2e

package kube_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// joined admits a machine and has its Node registered, with a certificate request,
// whose name it gives.
func (w *world) joined(c *kube.Cluster, m fleet.Member) string {
	w.Helper()
	join, err := c.Admit(w.ctx, m, wire.K3s, admission.NodeState{Exists: true})
	must(w, err)
	token := join.Token[strings.Index(join.Token, "::")+2:]
	asked := w.ask(w.as(token), certificatesv1.KubeAPIServerClientKubeletSignerName, request(w, newKey(w), nodeSubject(join.NodeName)))
	_, err = w.admin.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: join.NodeName}, Spec: corev1.NodeSpec{ProviderID: join.ProviderID}}, metav1.CreateOptions{})
	must(w, err)
	_, err = w.admin.CoreV1().Secrets("kube-system").Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: join.NodeName + ".node-password.k3s"}}, metav1.CreateOptions{})
	must(w, err)
	return asked
}

// remains names what there is of a machine.
func (w *world) remains(name string) string {
	w.Helper()
	var all []string
	if _, err := w.admin.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{}); err == nil {
		all = append(all, "node")
	}
	secrets, err := w.admin.CoreV1().Secrets("kube-system").List(w.ctx, metav1.ListOptions{})
	must(w, err)
	for _, s := range secrets.Items {
		if strings.HasPrefix(s.Name, name+".") {
			all = append(all, "password")
		}
		if s.Annotations["ortet.io/node"] == name {
			all = append(all, "token")
		}
	}
	maps, err := w.admin.CoreV1().ConfigMaps(w.namespace).List(w.ctx, metav1.ListOptions{})
	must(w, err)
	for _, m := range maps.Items {
		if m.Data["node"] == name {
			all = append(all, "record")
		}
		if _, ok := m.Data[name]; ok {
			all = append(all, "name")
		}
	}
	requests, err := w.admin.CertificatesV1().CertificateSigningRequests().List(w.ctx, metav1.ListOptions{})
	must(w, err)
	for _, r := range requests.Items {
		if bootstrapped(w, &r, name) {
			all = append(all, "request")
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

const everything = "name node password record request token"

// Forgetting leaves nothing, in any state, with or without a watch; what is another
// machine's stays.
func TestForget(t *testing.T) {
	for _, watching := range []bool{false, true} {
		name := map[bool]string{false: "forget001", true: "forget002"}[watching]
		w := newWorld(t, "ortet-"+name)
		c := w.open()
		if watching {
			w.run(c)
		}
		m := w.member(name, "1", machineA)
		joined := func() {
			t.Helper()
			asked := w.joined(c, m)
			if watching {
				w.decision(asked) // or it comes while the name is forgotten
			}
		}
		joined()
		if got := w.remains(name); got != everything {
			t.Fatalf("there is %q", got)
		}
		must(t, c.Forget(w.ctx, name, "azure:///subscriptions/s/other"))
		if got := w.remains(name); got != everything {
			t.Errorf("what is another machine's was deleted: there is %q", got)
		}
		must(t, c.Forget(w.ctx, name, "AZURE://"+string(m.Instance)))
		if got := w.remains(name); got != "" {
			t.Errorf("there is %q", got)
		}
		must(t, c.Forget(w.ctx, name, ""))
		// A Node that k3s's cloud controller gave an id of its own.
		joined()
		must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}))
		_, err := w.admin.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "k3s://" + name}}, metav1.CreateOptions{})
		must(t, err)
		must(t, c.Forget(w.ctx, name, "azure:///subscriptions/s/other"))
		if got := w.remains(name); !strings.Contains(got, "node") || !strings.Contains(got, "name") {
			t.Errorf("another machine's went: there is %q", got)
		}
		must(t, c.Forget(w.ctx, name, m.ProviderID()))
		if got := w.remains(name); got != "" {
			t.Errorf("there is %q", got)
		}
		// Where it had begun before: the Node is gone, and the rest is there.
		joined()
		must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}))
		must(t, c.Forget(w.ctx, name, "azure:///subscriptions/s/other"))
		if got := w.remains(name); got == "" {
			t.Error("another machine's admission was taken away")
		}
		must(t, c.Forget(w.ctx, name, m.ProviderID()))
		if got := w.remains(name); got != "" {
			t.Errorf("there is %q", got)
		}
	}
}

// A Node that somebody writes to just before it is deleted, as the kubelet and the
// controllers of Nodes do, is forgotten all the same: its admission is gone by then, and
// nothing else says whose a Node is that k3s's cloud controller gave an id of its own.
func TestForgetANodeThatOthersWriteTo(t *testing.T) {
	const name = "forget003"
	w := newWorld(t, "ortet-"+name)
	m := w.member(name, "1", machineA)
	w.joined(w.open(), m)
	must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}))
	_, err := w.admin.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "k3s://" + name}}, metav1.CreateOptions{})
	must(t, err)
	w.least.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return before{next, http.MethodDelete, func() {
			_, err := w.admin.CoreV1().Nodes().Patch(w.ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"written":"meanwhile"}}}`), metav1.PatchOptions{})
			must(t, err)
		}, new(sync.Once)}
	})
	must(t, w.open().Forget(w.ctx, name, m.ProviderID()))
	if got := w.remains(name); got != "" {
		t.Errorf("there is %q", got)
	}
}

// Certificate requests of a node that another replica forgot, or somebody deleted, go
// too, but not those of one that is admitted still.
func TestRequestsGoWithTheirNode(t *testing.T) {
	w := newWorld(t, "ortet-requests")
	c := w.open()
	w.run(c)
	for name, admitted := range map[string]bool{"requests01": false, "requests02": true} {
		w.decision(w.joined(c, w.member(name, name[9:], machineA)))
		if !admitted {
			_, err := w.admin.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, kube.NamesName, types.JSONPatchType, []byte(`[{"op":"remove","path":"/data/`+name+`"}]`), metav1.PatchOptions{})
			must(t, err)
		}
		must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}))
	}
	w.eventually("the requests to go", func() bool { return !strings.Contains(w.remains("requests01"), "request") })
	if got := w.remains("requests02"); !strings.Contains(got, "request") {
		t.Errorf("of the one that is admitted there is %q", got)
	}
	must(t, w.open().Forget(w.ctx, "requests01", ""))
	must(t, w.open().Forget(w.ctx, "requests02", ""))
}

// The reaper's deletion holds in the state that was seen, and in no other.
func TestReap(t *testing.T) {
	w := newWorld(t, "ortet-reap")
	c := w.open()
	m := w.member("reap000001", "1", machineA)
	w.joined(c, m)
	seen := func() admission.AdmittedNode {
		t.Helper()
		all, err := c.Admitted(w.ctx)
		must(t, err)
		for _, n := range all {
			if n.Name == "reap000001" {
				return n
			}
		}
		t.Fatalf("not among %+v", all)
		return admission.AdmittedNode{}
	}
	first := seen()
	if first.Instance != m.Instance || first.Pool != m.Pool || first.VMID != machineA || !first.Exists || first.ProviderID != m.ProviderID() || first.Ready || first.Admitted.IsZero() {
		t.Errorf("%+v", first)
	}
	reap := func(n admission.AdmittedNode, want bool) {
		t.Helper()
		deleted, err := c.Reap(w.ctx, n)
		for ; err == nil && !deleted && want; deleted, err = c.Reap(w.ctx, seen()) {
			// The controller of nodes' life cycle writes to Nodes, too.
			t.Log("it changed meanwhile")
		}
		if err != nil || deleted != want {
			t.Errorf("deleted %v, %v", deleted, err)
		}
		if got := w.remains("reap000001"); (got == "") != want {
			t.Errorf("there is %q", got)
		}
	}
	w.report("reap000001", corev1.ConditionFalse, "boot-1")
	reap(first, false) // the Node changed
	for what, change := range map[string]func(*admission.AdmittedNode){
		"machine": func(n *admission.AdmittedNode) { n.VMID = machineB },
		"time":    func(n *admission.AdmittedNode) { n.Admitted = n.Admitted.Add(time.Second) },
		"node":    func(n *admission.AdmittedNode) { n.UID = "another" },
		"no node": func(n *admission.AdmittedNode) { n.Exists = false },
	} {
		n := seen()
		change(&n)
		t.Log("another", what)
		reap(n, false)
	}
	// Its kubelet is heard of again: Leases are renewed without a write to the Node.
	n := seen()
	renewed := metav1.NowMicro()
	_, err := w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "reap000001"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, metav1.CreateOptions{})
	must(t, err)
	reap(n, false)
	reap(seen(), true)
	must(t, w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(w.ctx, "reap000001", metav1.DeleteOptions{}))
	// Admitted, and never registered.
	_, err = c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	n = seen()
	_, err = c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	reap(n, false)
	reap(seen(), true)
	// A Node that was not admitted.
	w.nodeReady("reap000001", m.ProviderID())
	n = seen()
	if n.VMID != "" || !n.Ready || n.ReadySince.IsZero() {
		t.Errorf("%+v", n)
	}
	reap(seen(), true)
}
