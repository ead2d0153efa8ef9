package simulate

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/api/v1alpha1"
)

// A capture that failed is reported with the field that allows it, in one line and as not Ready. Once the
// spec has that field, the capture begins in the same window.
func TestOperatorFailedCapture(t *testing.T) {
	pool := fresh
	pool.Disk = "secrets"
	withOperator(t, pool, func(w *operating) {
		defer w.beginLead()()
		w.objects.put(w.spec(nil))
		w.until("failed", time.Hour, is(v1alpha1.ConditionStalled, v1alpha1.ReasonRunFailed))
		s := w.objects.get(poolName).Status
		stalled, ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		if ready.Status != metav1.ConditionFalse || ready.Message != stalled.Message {
			t.Errorf("Ready %+v beside Stalled %+v", ready, stalled)
		}
		for _, text := range append([]string{stalled.Message, s.LastRun.Message}, w.objects.events...) {
			if strings.ContainsAny(text, "\n") || strings.Contains(text, "--accept") || !strings.Contains(text, "accept them with spec.capture.acceptPoolCredentials") {
				t.Errorf("for a reader of the object: %q", text)
			}
		}
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture.AcceptPoolCredentials = true }))
		w.until("captured in the same window", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return is(v1alpha1.ConditionReady, v1alpha1.ReasonOperating)(s) && s.LastRun.Kind == "capture" && s.LastRun.Exit == 0
		})
	})
}

// An object that observes a scale set that does not exist says so.
func TestOperatorObservesNothing(t *testing.T) {
	withOperator(t, fresh, func(w *operating) {
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture, s.Watch, s.ScaleSet = nil, nil, s.ScaleSet+"x" }))
		defer w.beginLead()()
		w.until("stalled", time.Minute, is(v1alpha1.ConditionStalled, "PoolNotFound"))
		if s := w.objects.get(poolName).Status; !is(v1alpha1.ConditionReady, v1alpha1.ReasonNotReady)(s) {
			t.Errorf("status %+v", s)
		}
	})
}
