package kube_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// When a kubelet was heard of is its own Lease's time, and no other's.
func TestHeard(t *testing.T) {
	w := newWorld(t, "ortet-heard")
	c := w.open()
	leases := w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	at := metav1.NewMicroTime(time.Now().Add(-time.Minute).Truncate(time.Microsecond))
	for name, renewed := range map[string]*metav1.MicroTime{"heard000001": &at, "heard000002": nil} {
		_, err := leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: renewed}}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { must(t, leases.Delete(w.ctx, name, metav1.DeleteOptions{})) })
	}
	for name, want := range map[string]time.Time{"heard000001": at.Time, "heard000002": {}, "heard000003": {}} {
		if got, err := c.Heard(w.ctx, name); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s %v, want %s", name, got, err, want)
		}
	}
}
