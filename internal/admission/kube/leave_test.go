package kube_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cluster"
	clusterkube "github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

func (w *world) getNode(name string) *corev1.Node {
	w.Helper()
	n, err := w.admin.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	must(w, err)
	return n
}

func taints(n *corev1.Node) string {
	var all []string
	for _, t := range n.Spec.Taints {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			all = append(all, t.Key+"="+t.Value+":"+string(t.Effect))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

const exclude = "node.kubernetes.io/exclude-from-external-load-balancers"

// swapping deletes a Node and makes another under its name, once, when it is patched
// first.
type swapping struct {
	next http.RoundTripper
	swap func()
	once *sync.Once
}

func (s swapping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		s.once.Do(s.swap)
	}
	return s.next.RoundTrip(r)
}

// A Node that is made anew under the name of one that leaves, between the look and the
// write, is neither cordoned nor drained.
func TestLeaveMarksNoOtherNode(t *testing.T) {
	w := newWorld(t, "ortet-swap")
	w.nodeReady("swap-0", "")
	config := rest.CopyConfig(w.least)
	w.least.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return swapping{next, func() {
			must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, "swap-0", metav1.DeleteOptions{}))
			w.nodeReady("swap-0", "")
		}, new(sync.Once)}
	})
	c := w.open()
	left, err := c.Leave(w.ctx, "swap-0", wire.LeaveRequest{Cause: "Preempt", Within: 30})
	if err != nil || !left.Drained {
		t.Errorf("%+v, %v", left, err)
	}
	if n := w.getNode("swap-0"); n.Spec.Unschedulable || n.Annotations[wire.LeavingMark] != "" || len(w.drainer.asked) > 0 {
		t.Errorf("the other Node: %+v; drained by %+v", n, w.drainer.asked)
	}
	w.least = config
	_, err = w.open().Leave(w.ctx, "swap-0", wire.LeaveRequest{Cause: "Preempt", Within: 30})
	must(t, err)
	if n := w.getNode("swap-0"); len(w.drainer.asked) != 1 || w.drainer.asked[0].UID != string(n.UID) {
		t.Errorf("Node %s is drained by %+v", n.UID, w.drainer.asked)
	}
}

// A node that leaves is cordoned, tainted, out of load balancers and drained; given
// back, it is as it was found, whatever it was.
func TestLeaveAndReturn(t *testing.T) {
	w := newWorld(t, "ortet-leave")
	c := w.open()
	for name, before := range map[string]func(*corev1.Node){
		"leave-plain":    func(*corev1.Node) {},
		"leave-cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"leave-excluded": func(n *corev1.Node) { n.Labels[exclude] = "theirs" },
		"leave-tainted": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "theirs", Value: "x", Effect: corev1.TaintEffectNoSchedule})
		},
	} {
		n := w.nodeReady(name, "")
		for {
			n = w.getNode(n.Name)
			n.Labels = map[string]string{"a": "b"}
			before(n)
			_, err := w.admin.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				continue
			}
			must(t, err)
			break
		}
		n = w.getNode(name)
		theirs := taints(n)
		// Twice, as after a restart in the middle.
		for range 2 {
			left, err := c.Leave(w.ctx, name, wire.LeaveRequest{Cause: "Reboot", Within: 30, Stay: true})
			must(t, err)
			if !left.Drained || len(left.Left) > 0 {
				t.Errorf("%s: %+v", name, left)
			}
		}
		now := w.getNode(name)
		if _, out := now.Labels[exclude]; !now.Spec.Unschedulable || !out || taints(now) != strings.TrimSpace("ortet.io/leaving=Reboot:NoSchedule "+theirs) {
			t.Errorf("%s left: unschedulable %v, labels %v, taints %s", name, now.Spec.Unschedulable, now.Labels, taints(now))
		}
		for range 2 {
			must(t, c.Return(w.ctx, name))
		}
		now = w.getNode(name)
		if now.Spec.Unschedulable != n.Spec.Unschedulable || !maps.Equal(now.Labels, n.Labels) || taints(now) != theirs || now.Annotations[wire.LeavingMark] != "" {
			t.Errorf("%s returned: unschedulable %v, labels %v, taints %s", name, now.Spec.Unschedulable, now.Labels, taints(now))
		}
	}
	for _, o := range w.drainer.asked {
		if !o.Fit || !o.Force || o.GracePeriod >= 0 || o.Deadline > 30*time.Second || o.Deadline <= time.Second {
			t.Errorf("drained by %+v", o)
		}
	}
	must(t, c.Return(w.ctx, "no-such-node"))
	if left, err := c.Leave(w.ctx, "no-such-node", wire.LeaveRequest{Cause: "Preempt", Within: 30}); err != nil || !left.Drained {
		t.Errorf("%+v, %v", left, err)
	}
	w.nodeReady("leave-blocked", "")
	w.drainer.err = &fleet.Error{Op: "drain node", Kind: fleet.KindBlocked, Err: &cluster.BlockedError{Pods: []cluster.BlockedPod{{Pod: "ns/db"}}}}
	left, err := c.Leave(w.ctx, "leave-blocked", wire.LeaveRequest{Cause: "Preempt", Within: 30})
	must(t, err)
	if left.Drained || !slices.Equal(left.Left, []string{"ns/db"}) {
		t.Errorf("%+v", left)
	}
}

// A node that left and is Ready after another boot is given back without being asked.
func TestNodeThatCameBackIsGivenBack(t *testing.T) {
	w := newWorld(t, "ortet-back")
	c := w.open()
	w.run(c)
	w.nodeReady("back-1", "")
	_, err := c.Leave(w.ctx, "back-1", wire.LeaveRequest{Cause: "Reboot", Within: 30, Stay: true})
	must(t, err)
	w.report("back-1", corev1.ConditionFalse, "boot-1")
	w.report("back-1", corev1.ConditionTrue, "boot-2")
	w.eventually("the node to be given back", func() bool {
		n := w.getNode("back-1")
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			w.report("back-1", corev1.ConditionTrue, "boot-2") // it counts as silent after 16 s
		}
		return !n.Spec.Unschedulable
	})
}

// The first pod is told soon after the node says that it leaves, and the drain is over
// in time though a pod would take ten minutes.
func TestLeaveDrainsInTime(t *testing.T) {
	w := newWorld(t, "ortet-intime")
	drainer, err := clusterkube.New(clusterkube.Config{REST: w.least, Namespace: w.namespace})
	must(t, err)
	w.nodeReady("intime-1", "")
	long := int64(600)
	w.eventually("the service account", func() bool {
		_, err := w.admin.CoreV1().ServiceAccounts(w.namespace).Get(w.ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	for _, name := range []string{"a", "b", "c"} {
		_, err := w.admin.CoreV1().Pods(w.namespace).Create(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: "intime-1", TerminationGracePeriodSeconds: &long, Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	c, err := kube.New(kube.Config{REST: w.least, Namespace: w.namespace, Server: w.cp.Server, CA: w.cp.CA(), Drainer: drainer})
	must(t, err)
	w.Cleanup(func() {
		none := int64(0)
		for _, name := range []string{"a", "b", "c"} {
			_ = w.admin.CoreV1().Pods(w.namespace).Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
		}
	})
	watch, err := w.admin.CoreV1().Pods(w.namespace).Watch(w.ctx, metav1.ListOptions{})
	must(t, err)
	defer watch.Stop()
	begun := time.Now()
	told := make(chan time.Duration, 1)
	go func() {
		for e := range watch.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.DeletionTimestamp != nil {
				told <- time.Since(begun)
				return
			}
		}
	}()
	left, err := c.Leave(w.ctx, "intime-1", wire.LeaveRequest{Cause: "Preempt", Within: 10})
	took := time.Since(begun)
	must(t, err)
	if left.Drained || len(left.Left) != 3 {
		t.Errorf("nobody ends these pods: %+v", left)
	}
	if took > 2*time.Minute {
		t.Errorf("it took %s of 10 s", took)
	}
	// A figure of a test machine, not a bound: bench has that.
	select {
	case after := <-told:
		t.Logf("the first pod was told after %s", after)
	case <-w.ctx.Done():
		t.Error("no pod was told")
	}
	for _, name := range []string{"a", "b", "c"} {
		pod, err := w.admin.CoreV1().Pods(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
		must(t, err)
		if pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 10 {
			t.Errorf("pod %s was given %v s", name, pod.DeletionGracePeriodSeconds)
		}
	}
}

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

// A Node that another machine of the name left goes when the next is admitted; one of
// this machine's own stays, and is given back.
func TestAdmitClears(t *testing.T) {
	w := newWorld(t, "ortet-clears")
	c := w.open()
	m := w.member("clears001", "1", machineA)
	w.joined(c, m)
	uid := w.getNode("clears001").UID
	_, err := c.Leave(w.ctx, "clears001", wire.LeaveRequest{Cause: "Redeploy", Within: 30, Stay: true})
	must(t, err)
	_, err = c.Admit(w.ctx, m, wire.K3s, admission.NodeState{Exists: true})
	must(t, err)
	if n := w.getNode("clears001"); n.UID != uid || n.Spec.Unschedulable {
		t.Errorf("its own Node: %+v", n)
	}
	if got := w.remains("clears001"); strings.Contains(got, "password") {
		t.Errorf("there is %q", got)
	}
	_, err = c.Admit(w.ctx, w.member("clears001", "1", machineB), wire.K3s, admission.NodeState{Exists: true})
	must(t, err)
	if got := w.remains("clears001"); strings.Contains(got, "node") {
		t.Errorf("the other machine's Node is there: %q", got)
	}
	must(t, c.Forget(w.ctx, "clears001", ""))
}

// Two instances of one name, as of two scale sets with one computer name prefix: while the
// one is not Ready, since it restarts, the other gets neither its Node nor its token.
func TestAdmitLeavesAnotherInstancesName(t *testing.T) {
	w := newWorld(t, "ortet-taken")
	c := w.open()
	w.joined(c, w.member("taken00001", "1", machineA))
	for what, c := range map[string]*kube.Cluster{"the replica that admitted it": c, "another replica": w.open()} {
		if _, err := c.Admit(w.ctx, w.member("taken00001", "2", machineB), wire.K3s, admission.NodeState{Exists: true}); !errors.Is(err, admission.ErrTaken) {
			t.Errorf("%s: %v", what, err)
		}
		if got := w.remains("taken00001"); got != everything {
			t.Errorf("%s: there is %q", what, got)
		}
	}
	must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, "taken00001", metav1.DeleteOptions{}))
	if _, err := c.Admit(w.ctx, w.member("taken00001", "2", machineB), wire.Kubelet, admission.NodeState{Exists: true}); !errors.Is(err, admission.ErrTaken) {
		t.Errorf("before it has registered: %v", err)
	}
	must(t, c.Forget(w.ctx, "taken00001", ""))
	_, err := c.Admit(w.ctx, w.member("taken00001", "2", machineB), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	must(t, c.Forget(w.ctx, "taken00001", ""))
}

// What ran out goes, and what did not stays.
func TestSweep(t *testing.T) {
	w := newWorld(t, "ortet-sweep")
	base := time.Now()
	w.now = func() time.Time { return base }
	c := w.open()
	must(t, c.Spend(w.ctx, "aa", base.Add(time.Minute)))
	must(t, c.Spend(w.ctx, "bb", base.Add(time.Hour)))
	m := w.member("sweep0001", "1", machineA)
	must(t, c.Tell(w.ctx, m, &wire.Verdict{}, nil))
	_, err := c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	count := func() (nonces, told int, token bool) {
		leases, err := w.admin.CoordinationV1().Leases(w.namespace).List(w.ctx, metav1.ListOptions{})
		must(t, err)
		maps, err := w.admin.CoreV1().ConfigMaps(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: kube.LabelTold})
		must(t, err)
		return len(leases.Items), len(maps.Items), strings.Contains(w.remains("sweep0001"), "token")
	}
	for _, s := range []struct {
		after        time.Duration
		nonces, told int
		token        bool
	}{{0, 2, 1, true}, {time.Minute, 2, 1, true}, {11 * time.Minute, 1, 1, false}, {25 * time.Hour, 0, 0, false}} {
		base = base.Add(s.after)
		must(t, c.Sweep(w.ctx))
		must(t, c.EndIfDone(w.ctx, "sweep0001"))
		if nonces, told, token := count(); nonces != s.nonces || told != s.told || token != s.token {
			t.Errorf("after %s: %d nonces, %d told, token %v; want %+v", s.after, nonces, told, token, s)
		}
	}
}
