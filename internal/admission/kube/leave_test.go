//go:build e2e

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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// before does something once, before the first request of a method.
type before struct {
	next   http.RoundTripper
	method string
	do     func()
	once   *sync.Once
}

func (b before) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == b.method {
		b.once.Do(b.do)
	}
	return b.next.RoundTrip(r)
}

// A Node that is made anew under the name of one that leaves, between the look and the
// write, is neither cordoned nor drained.
func TestLeaveMarksNoOtherNode(t *testing.T) {
	w := newWorld(t, "ortet-swap")
	w.nodeReady("swap-0", "")
	config := rest.CopyConfig(w.least)
	w.least.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return before{next, http.MethodPatch, func() {
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
	w.drainer.err = &fleet.Error{Op: "drain node", Kind: fleet.KindBlocked, Err: &cluster.BlockedError{Pods: []fleet.BlockedPod{{Pod: "ns/db"}}}}
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

// A Node that says Ready goes where an earlier machine left it and its Lease is old: a
// kubelet that renews it lives. This machine's own stays, since while the API server was
// away no Lease was renewed and its pods run.
func TestAdmitClearsReadyNodeOfAnEarlierMachine(t *testing.T) {
	w := newWorld(t, "ortet-yesterday")
	base := time.Now()
	w.now = func() time.Time { return base }
	c := w.open()
	const name = "yesterd001"
	m := w.member(name, "1", machineA)
	_, err := c.Admit(w.ctx, m, wire.K3s, admission.NodeState{})
	must(t, err)
	refused := func(m fleet.Member, when string) {
		t.Helper()
		w.nodeReady(name, m.ProviderID())
		if _, err := c.Admit(w.ctx, m, wire.K3s, admission.NodeState{Exists: true, Ready: true}); !errors.Is(err, admission.ErrReady) {
			t.Errorf("%s: %v", when, err)
		}
	}
	base = base.Add(time.Hour)
	other := w.member(name, "1", machineB)
	refused(other, "another machine, without a Lease")
	leases := w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renewed := coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: base}}
	_, err = leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: renewed}, metav1.CreateOptions{})
	must(t, err)
	w.Cleanup(func() { _ = leases.Delete(w.ctx, name, metav1.DeleteOptions{}) })
	base = base.Add(59 * time.Second)
	refused(other, "another machine, renewed 59 s ago")
	base = base.Add(time.Second)
	refused(m, "the machine that has the Node")
	password := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + ".node-password.k3s"}}
	_, err = w.admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(w.ctx, password, metav1.CreateOptions{})
	must(t, err)
	uid := w.nodeReady(name, m.ProviderID()).UID
	if _, err := c.Admit(w.ctx, other, wire.K3s, admission.NodeState{Exists: true, Ready: true}); err != nil {
		t.Errorf("another machine, a minute after the last renewal: %v", err)
	}
	if n, err := w.admin.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{}); err == nil && n.UID == uid {
		t.Error("the earlier machine's Node is there")
	}
	if got := w.remains(name); strings.Contains(got, "password") {
		t.Errorf("there is %q", got)
	}
	must(t, c.Forget(w.ctx, name, ""))
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
