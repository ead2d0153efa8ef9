//go:build e2e

package kube_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Heard returns when the Lease of the kubelet was renewed, and no other Lease. If the
// kubelet's clock is behind, the API server's time of the write counts.
func TestHeard(t *testing.T) {
	w := newWorld(t, "ortet-heard")
	c := w.open()
	leases := w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	at, behind := metav1.NewMicroTime(time.Now().Add(time.Minute).Truncate(time.Microsecond)), metav1.NewMicroTime(time.Now().Add(-time.Hour))
	for name, renewed := range map[string]*metav1.MicroTime{"heard000001": &at, "heard000002": nil, "heard000004": &behind} {
		_, err := leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: renewed}}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { must(t, leases.Delete(w.ctx, name, metav1.DeleteOptions{})) })
	}
	for name, want := range map[string]time.Time{"heard000001": at.Time, "heard000002": {}, "heard000003": {}} {
		if got, err := c.Heard(w.ctx, name); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s %v, want %s", name, got, err, want)
		}
	}
	first, err := c.Heard(w.ctx, "heard000004")
	must(t, err)
	w.eventually("a renewal to count", func() bool { // managed fields tell the second
		lease, err := leases.Get(w.ctx, "heard000004", metav1.GetOptions{})
		must(t, err)
		renewed := metav1.NewMicroTime(lease.Spec.RenewTime.Add(time.Second))
		lease.Spec.RenewTime = &renewed
		_, err = leases.Update(w.ctx, lease, metav1.UpdateOptions{})
		must(t, err)
		got, err := c.Heard(w.ctx, "heard000004")
		must(t, err)
		return got.After(first)
	})
	if ago := time.Since(first); ago > 30*time.Second || ago < -30*time.Second {
		t.Errorf("a kubelet whose clock is an hour behind was heard %s ago", ago)
	}
}
