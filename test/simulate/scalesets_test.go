package simulate

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// TestJudgeOfSets shows worlds to the judge that are as they must not be.
func TestJudgeOfSets(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(w *world)
		want  string // "" for none
	}{
		"nothing":   {func(*world) {}, ""},
		"scale set": {func(w *world) { w.makeSet(w.pool+"-canary", 1, nil) }, "invariant 15: p1 ends with exit 3, and pool1-canary "},
		"pod": {func(w *world) {
			canary := w.pool + "-canary"
			w.makeSet(canary, 1, nil)
			time.Sleep(time.Hour)
			w.putPod(w.nodesOf(canary)[0], "web", 7, nil)
			w.azure.Instant(true)
			w.make(http.MethodDelete, canary, computeAPI, nil)
		}, "invariant 16: p1 ends with exit 3, and web-7 "},
		"quarantine": {func(w *world) {
			w.make(http.MethodPatch, fleet.ResourceID(w.modelNow().image), galleryAPI, object{"tags": object{tagQuarantine: "join: no Node"}})
			time.Sleep(time.Hour)
		}, "invariant 17: the model names "},
		"neighbour's model": {func(w *world) {
			w.make(http.MethodPatch, w.otherPool, computeAPI, object{"tags": object{"a": "b"}})
		}, "invariant 3: the scale set of another pool is "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Neighbour = 1 })})
				defer w.close()
				w.beginAsk()
				c.plant(w)
				w.checkEnd(&process{w: w, name: "p1", ask: Ask{Do: "rollback"}, err: &workflow.Refused{}})
				if all := strings.Join(w.violations, "\n"); c.want == "" && all != "" || !strings.HasPrefix(all, c.want) || len(w.violations) > 1 {
					t.Errorf("violations: %s, want %q", all, c.want)
				}
			})
		})
	}
}
