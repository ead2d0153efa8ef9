package simulate

import (
	"net/http"
	"path"
	"testing"
	"time"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/image/plan"
)

// A watch that stands down, as another has captured a newer version, does not keep that from being watched.
func TestOperatorWatchesTheNextVersion(t *testing.T) {
	withOperator(t, with(func(p *Pool) { p.Versions = 3 }), func(w *operating) {
		defer w.beginLead()()
		w.objects.put(w.spec(nil))
		w.until("watched", 3*time.Hour, runs("watch"))
		was := w.live()
		w.touch("model")
		w.make(http.MethodPatch, w.pool, computeAPI, object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{
			"imageReference": object{"id": w.names.Definition.Child("versions", plan.VersionName(w.begin.AddDate(0, 0, -14), false))}}}}})
		w.until("stood down", 30*time.Minute, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return s.LastRun != nil && s.LastRun.Kind == "watch" && s.LastRun.Name == path.Base(was)
		})
		w.until("watched again", 2*time.Minute, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return runs("watch")(s) && is(v1alpha1.ConditionProven, v1alpha1.ReasonWatched)(s) && s.Image != path.Base(was)
		})
	})
}
