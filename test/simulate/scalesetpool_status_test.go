package simulate

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/api/v1alpha1"
)

// An object for which nothing can be done has all conditions, and none of them claims what was not seen.
func TestStatusOfBadObjects(t *testing.T) {
	withOperator(t, Pool{Instances: 3}, func(w *operating) {
		id := string(w.pool)
		for name, change := range map[string]func(*v1alpha1.ScaleSetPoolSpec){
			"gone": func(s *v1alpha1.ScaleSetPoolSpec) { s.ScaleSet = id + "-2" },
			"outside": func(s *v1alpha1.ScaleSetPoolSpec) {
				s.ScaleSet = strings.Replace(id, string(w.pool.Group()), string(w.pool.Group())+"-2", 1)
			},
			"schedule": func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture.Schedule = "0 0 30 2 *" },
			"younger":  func(*v1alpha1.ScaleSetPoolSpec) {},
		} {
			p := w.spec(change)
			if p.Name = name; name == "younger" {
				p.CreationTimestamp = metav1.NewTime(w.begin.Add(time.Second))
			}
			w.objects.put(p)
		}
		defer w.beginLead()()
		time.Sleep(time.Minute)
		for name, want := range map[string]struct{ image, stalled, fresh, proven string }{
			"gone":     {"", "PoolNotFound", "NotReady", "NotReady"},
			"outside":  {"", v1alpha1.ReasonOutside, "NotReady", "NotReady"},
			"younger":  {"", v1alpha1.ReasonDuplicate, "NotReady", "NotReady"},
			"schedule": {"latest", v1alpha1.ReasonScheduleInvalid, v1alpha1.ReasonDue, v1alpha1.ReasonOriginal},
		} {
			s := w.objects.get(name).Status
			for kind, reason := range map[string]string{v1alpha1.ConditionStalled: want.stalled, v1alpha1.ConditionFresh: want.fresh,
				v1alpha1.ConditionProven: want.proven, v1alpha1.ConditionReady: v1alpha1.ReasonNotReady, v1alpha1.ConditionProgressing: v1alpha1.ReasonIdle} {
				if !is(kind, reason)(s) {
					t.Errorf("%s: %s is not %s: %+v", name, kind, reason, meta.FindStatusCondition(s.Conditions, kind))
				}
			}
			if s.Image != want.image || s.NextCapture != nil || (want.image == "") != (s.Nodes == v1alpha1.NodesStatus{}) {
				t.Errorf("%s: image %q, nodes %+v, next capture %v", name, s.Image, s.Nodes, s.NextCapture)
			}
			for _, c := range s.Conditions {
				if strings.Contains(c.Message, "nothing is to be done") || strings.Contains(c.Message, "a capture begins") {
					t.Errorf("%s: %s: %s", name, c.Type, c.Message)
				}
			}
		}
	})
}

// What a capture has done is a share of all its steps, and its end says what it made, of which node.
func TestStatusOfCapture(t *testing.T) {
	withOperator(t, Pool{Instances: 3}, func(w *operating) {
		defer w.beginLead()()
		w.objects.put(w.spec(nil))
		w.until("begun", time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool { return runs("capture")(s) && s.Run.Name != "" })
		if s := w.objects.get(poolName).Status; s.Run.Percent > 30 {
			t.Errorf("at its begin: %+v", s.Run)
		}
		last := int32(0)
		w.until("ended", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			if runs("capture")(s) {
				if s.Run.Percent < last {
					t.Errorf("from %d%% to %d%%", last, s.Run.Percent)
				}
				last = s.Run.Percent
			}
			return s.LastRun != nil
		})
		s := w.objects.get(poolName).Status
		if said := s.LastRun.Message; last < 70 || !strings.HasPrefix(said, w.live()+" captured of pool1000") {
			t.Errorf("at %d%%, and then: %s", last, said)
		}
	})
}
