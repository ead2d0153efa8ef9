package simulate

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// A canary that others delete while it is judged says nothing of the version: it is kept, not quarantined,
// and the same command makes another canary.
func TestOutcomeCanaryThatOthersDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		p, id := w.beginCommand(t, Ask{Do: "capture", Canary: 1, Once: true}), fleet.CanaryOf(w.pool)
		w.until(t, "clones", func() bool { return len(w.nodesOf(id)) > 0 })
		w.azure.Instant(true)
		w.make(http.MethodDelete, id, computeAPI, nil)
		w.azure.Instant(false)
		if w.await(p); p.code() != workflow.ExitFailed || !strings.Contains(p.err.Error(), "others deleted their scale set; run the same command again, which makes others") ||
			!strings.Contains(p.err.Error(), "the model was not changed, and 2000.01.01 is kept") {
			t.Errorf("exit %d: %v", p.code(), p.err)
		}
		if p = w.do(t, Ask{Do: "capture", Canary: 1, Once: true}); p.code() != workflow.ExitDone || p.capture.Version.Name() != "2000.01.01" || len(p.capture.Canary) != 1 {
			t.Errorf("the same command: exit %d, %s, %v: %v", p.code(), p.capture.Version, p.capture.Canary, p.err)
		}
	})
}

// A scale set with a canary's name that others made since the plan is left alone.
func TestOutcomeScaleSetOfOthersIsNoCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		p := w.beginCommand(t, Ask{Do: "capture", Canary: 1, Once: true})
		w.until(t, "version", func() bool { return w.versions()[low(w.todays())] != nil })
		id := fleet.CanaryOf(w.pool)
		w.makeSet(id, 1, false, object{"team": "others"})
		if w.await(p); p.code() != workflow.ExitFailed || !strings.Contains(p.err.Error(), "a scale set of this name exists that Ortet did not make; rename or delete it") || w.stored(id) == "" {
			t.Errorf("exit %d, it is there: %t; %v", p.code(), w.stored(id) != "", p.err)
		}
	})
}
