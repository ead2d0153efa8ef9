package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// TestAStoppedDonorWithoutNodeIsFound: the rights of an account may end at some pools. It
// starts a donor of one of those although it may not read the journals of all others.
func TestAStoppedDonorWithoutNodeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.secret = strings.ToLower("/subscriptions/s/resourceGroups/my-group/providers/Microsoft.Compute/virtualMachineScaleSets/a-pool")
		w.nodes["a-node"] = &fleet.Node{Name: "a-node", OS: "linux", ProviderID: "azure://" + w.secret + "/virtualMachines/0"}
		e, p, ctx, _ := w.process(t, "killed", 0)
		p.killWhen = "after create disk disk_pool1_work"
		_, _ = e.Capture(ctx, request())
		w.mu.Lock()
		w.catchUp()
		delete(w.nodes, donorName) // by the cloud's controller
		w.mu.Unlock()
		e, _, ctx, _ = w.process(t, "next", 0)
		started := false
		e.reporter = ReporterFunc(func(v Event) { started = started || v.Step == prototype.StepStart && v.State == StepDone })
		if _, err := e.Capture(ctx, request()); !started {
			t.Errorf("the donor was not started: %v", err)
		}
	})
}

// TestAResumedCaptureDoesNotDrainItsOwnNode: the next pod of a Job may run on the donor of
// the capture that the one before it began.
func TestAResumedCaptureDoesNotDrainItsOwnNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, p, ctx, _ := w.process(t, "killed", 0)
		p.killWhen = "after annotate " + donorName
		_, _ = e.Capture(ctx, request())
		e, _, ctx, _ = w.process(t, "on-donor", 0)
		e.config.SelfNode = donorName
		_, err := e.Capture(ctx, request())
		if refused := new(Refused); !errors.As(err, &refused) || refused.Problems[0].Code != "OwnNode" {
			t.Errorf("want a refusal, got %v", err)
		}
		w.whole(t)
	})
}

// TestDonorReturnsBeforeAllElse: whoever takes up a capture whose donor is stopped
// starts it first, and not once the workbench is protected or replaced.
func TestDonorReturnsBeforeAllElse(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e, p, ctx, _ := w.process(t, "killed", 0)
			p.killWhen = "after create disk disk_pool1_work"
			_, _ = e.Capture(ctx, request())
			if lost {
				w.mu.Lock()
				w.catchUp()
				w.remove(benchName)
				w.mu.Unlock()
			}
			e, _, ctx, _ = w.process(t, "next", 0)
			var locked, started time.Time
			e.reporter = ReporterFunc(func(v Event) {
				switch {
				case v.Step == prototype.StepJournal && v.State == StepDone:
					locked = v.At
				case v.Step == prototype.StepStart && v.State == StepStarted:
					started = v.At
				}
			})
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Fatal(err)
			}
			if started.IsZero() || started.Sub(locked) > time.Second {
				t.Errorf("workbench lost %v: the donor was left stopped for another %s", lost, started.Sub(locked))
			}
			w.whole(t)
			w.tidy(t)
		})
	}
}
