package simulate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// A version that Azure fails to build is built three times; then the capture fails, and no version is left.
func TestOutcomeVersionThatAzureCannotBuild(t *testing.T) {
	for fails, exit := range map[int]int{2: workflow.ExitDone, 9: workflow.ExitFailed} {
		s := Story{Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}}, Happen: each(1, fails, putVersion, "operation fails")}
		asked(t, s, func(w *world, ps []*process) {
			built := w.counted(strings.TrimPrefix(putVersion, "azure "))
			if text := fmt.Sprint(ps[0].err); built != 3 || ps[0].code() != exit || exit == workflow.ExitFailed && !strings.Contains(text, "Azure failed to build it: ") {
				t.Errorf("built %d times, exit %d: %s", built, ps[0].code(), text)
			}
			if made := w.versions()[low(w.todays())]; (made != nil) != (exit == workflow.ExitDone) {
				t.Errorf("exit %d leaves %v", exit, made)
			}
		})
	}
}

// An image definition of another kind that others make meanwhile is left alone, and the same command takes
// another one.
func TestOutcomeDefinitionOfAnotherKindMadeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: fresh})
		defer w.finish()
		p := w.beginCommand(t, Ask{Do: "capture", Once: true})
		w.until(t, "gallery", func() bool { return w.stored(w.names.Gallery) != "" })
		w.azure.Instant(true)
		w.make(http.MethodPut, plan.DefinitionOf(w.pool), galleryAPI, object{"location": location, "properties": object{"osType": "Linux", "osState": "Generalized",
			"hyperVGeneration": "V1", "architecture": "x64", "identifier": object{"publisher": "o", "offer": "o", "sku": "o"}}})
		w.azure.Instant(false)
		if w.await(p); p.code() != workflow.ExitFailed || !strings.Contains(p.err.Error(), "it exists by now, and is of another kind; repeat the command, which takes another") {
			t.Errorf("exit %d: %v", p.code(), p.err)
		}
		if p = w.do(t, Ask{Do: "capture", Once: true}); p.code() != workflow.ExitDone || p.capture.Version.Parent() == plan.DefinitionOf(w.pool) {
			t.Errorf("the same command: exit %d, %s: %v", p.code(), p.capture.Version, p.err)
		}
	})
}
