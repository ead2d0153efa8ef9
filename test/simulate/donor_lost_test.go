package simulate

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// A donor that does not come back is left cordoned and unprotected, with exit code 4 and an Event that
// says so; the same command later gives it back, and stops and captures it again.
func TestOutcomeDonorThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual, Happen: each(1, 100, start, "refused")})
		defer w.finish()
		donor := w.nodeName(0)
		p := w.do(t, Ask{Do: "capture", Once: true})
		now, says := w.stateOf(donor), "node "+donor+" did not come back: it is left cordoned. Check instance "
		if p.code() != workflow.ExitNeedsPerson || !strings.Contains(p.err.Error(), says) || !strings.Contains(p.err.Error(), "then run the same command again, or kubectl uncordon "+donor) {
			t.Errorf("exit %d: %v", p.code(), p.err)
		}
		if !now.unschedulable || now.annotations[fleet.AnnotationCapture] != "" || now.scaleIn || !w.hasEvent(donor, "CaptureDonorLost") || w.hasEvent(donor, "CaptureGaveBack") {
			t.Errorf("the lost donor: %+v, an Event says so: %t", now, w.hasEvent(donor, "CaptureDonorLost"))
		}
		p = w.do(t, Ask{Do: "capture", Once: true})
		if now, stops := w.stateOf(donor), w.counted("POST virtualMachineScaleSets/pool1/virtualMachines/0/powerOff"); p.code() != workflow.ExitDone || now.unschedulable || stops != 2 {
			t.Errorf("the same command: exit %d, cordoned: %t, stopped %d times; %v", p.code(), now.unschedulable, stops, p.err)
		}
	})
}
