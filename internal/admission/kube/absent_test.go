//go:build e2e

package kube_test

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A deleted Node does not prove that its kubelet stopped: for a minute a pod of the machine
// gets no token, from any replica. Machines that never had a kubelet, or that left, do not
// wait.
func TestDeletedNodeIsNotSilent(t *testing.T) {
	w := newWorld(t, "ortet-absent")
	base := time.Now()
	w.now = func() time.Time { return base }
	c, other := w.open(), w.open()
	m := w.member("absent001", "1", machineA)
	ask := func(c *kube.Cluster) (time.Duration, error) {
		state, err := c.Node(w.ctx, "absent001")
		must(t, err)
		_, err = c.Admit(w.ctx, m, wire.K3s, state)
		var f *fleet.Error
		if errors.As(err, &f) {
			return f.RetryAfter, err
		}
		return 0, err
	}
	for range 2 { // the agent restarted before it used the token
		if _, err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	w.nodeReady("absent001", "azure://"+string(m.Instance))
	base = base.Add(time.Hour)
	must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, "absent001", metav1.DeleteOptions{}))
	secrets := w.admin.CoreV1().Secrets(metav1.NamespaceSystem)
	_, err := secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "absent001.node-password.k3s"}}, metav1.CreateOptions{})
	must(t, err)
	refused := func(c *kube.Cluster, when string) {
		t.Helper()
		if after, err := ask(c); !errors.Is(err, admission.ErrHeard) || !fleet.Is(err, fleet.KindConflict) || after <= 0 || after > time.Minute {
			t.Errorf("%s: %v, come back after %s", when, err, after)
		}
	}
	refused(c, "at once")
	base = base.Add(59 * time.Second)
	refused(c, "a second before")
	base = base.Add(time.Second)
	refused(other, "another replica")
	// A Lease that is renewed although the Node is gone.
	leases := w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renewed := metav1.NewMicroTime(base)
	if _, err := secrets.Get(w.ctx, "absent001.node-password.k3s", metav1.GetOptions{}); err != nil {
		t.Errorf("a refused request deleted the password of the agent: %v", err)
	}
	_, err = leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "absent001"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, metav1.CreateOptions{})
	must(t, err)
	w.Cleanup(func() { _ = leases.Delete(w.ctx, "absent001", metav1.DeleteOptions{}) })
	refused(c, "renewed Lease")
	base = base.Add(time.Minute)
	if _, err := ask(c); err != nil {
		t.Errorf("a machine whose Node was away for a minute: %v", err)
	}
	// Deleted, registered again and deleted again: the minute restarts.
	base = base.Add(time.Hour)
	refused(c, "the second time")
	w.nodeReady("absent001", "azure://"+string(m.Instance))
	base = base.Add(90 * time.Second)
	if _, err := ask(c); !errors.Is(err, admission.ErrReady) {
		t.Errorf("while it is there: %v", err)
	}
	must(t, w.admin.CoreV1().Nodes().Delete(w.ctx, "absent001", metav1.DeleteOptions{}))
	refused(c, "the third time")
	// A machine that left has stopped its kubelet.
	must(t, c.Forget(w.ctx, "absent001", ""))
	if _, err := ask(c); err != nil {
		t.Errorf("a machine that left: %v", err)
	}
	must(t, c.Forget(w.ctx, "absent001", ""))
}
