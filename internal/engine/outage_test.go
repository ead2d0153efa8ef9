package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// outageOf plays a capture and gives how long the donor was cordoned, to a tenth of
// a second.
func outageOf(t *testing.T, w *world) (CaptureResult, time.Duration, error) {
	t.Helper()
	const step = 100 * time.Millisecond
	var cordoned time.Duration
	for at := step; at < 40*time.Minute; at += step {
		w.sabotage(at, func() {
			if w.donor().Unschedulable {
				cordoned += step
			}
		})
	}
	e, _, ctx, _ := w.process(t, "a", 0)
	result, err := e.Capture(ctx, request())
	return result, cordoned, err
}

// TestOutageIsTheClouds: the donor takes pods again as soon as its Node is Ready
// after a new boot, whatever Azure's start operation does then, and Azure's
// operations are followed closely meanwhile.
func TestOutageIsTheClouds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.bootsIn = 20 * time.Second
		const needs = 5*time.Second /* drain */ + 150*time.Second /* stop */ + 6*time.Second /* snapshot */ + 20*time.Second
		_, out, err := outageOf(t, w)
		if err != nil {
			t.Fatal(err)
		}
		if out > needs+2*time.Second || out < needs {
			t.Errorf("out of service for %s; the cloud needs %s", out, needs)
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, today)
	})
}

// TestStartFailsBesideReadyNode: that is reported, and the node is not left cordoned.
func TestStartFailsBesideReadyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.bootsIn, w.halfStarted = 20*time.Second, true
		w.liesFailed["start instance"] = 10
		w.sabotage(39*time.Minute, func() { w.donorInstance().Power = fleet.PowerRunning })
		result, out, err := outageOf(t, w)
		if err != nil {
			t.Fatalf("exit %d: %v", ExitCode(err), err)
		}
		if out > 4*time.Minute {
			t.Errorf("out of service for %s", out)
		}
		if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, donorName) || !strings.Contains(notes, "start") {
			t.Errorf("the notes are %q", notes)
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, today)
	})
}

// TestStartFailsAndNodeStaysAway: the donor is left cordoned and a person is asked
// for, as soon as the start has failed.
func TestStartFailsAndNodeStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.opFails["start instance"] = 100
		e, _, ctx, _ := w.process(t, "a", 0)
		begun := time.Now()
		_, err := e.Capture(ctx, request())
		if ExitCode(err) != ExitNeedsPerson || !strings.Contains(err.Error(), donorName) || !w.donor().Unschedulable {
			t.Errorf("exit %d: %v; unschedulable %v", ExitCode(err), err, w.donor().Unschedulable)
		}
		if took := time.Since(begun); took > 20*time.Minute {
			t.Errorf("it took %s", took)
		}
		delete(w.opFails, "start instance")
		e, _, ctx, _ = w.process(t, "b", 0)
		if _, err := e.Capture(ctx, request()); ExitCode(err) != ExitDone {
			t.Errorf("then exit %d: %v", ExitCode(err), err)
		}
		w.whole(t)
	})
}

// TestRebootBeforeStop: a boot of before the stop is not taken for the one after it.
func TestRebootBeforeStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		early := 0
		w.every(20*time.Minute, func() {
			if i := w.donorInstance(); i.Power != fleet.PowerRunning && !w.donor().Unschedulable {
				early++
			}
			if i := w.donorInstance(); i.Power == fleet.PowerStopping && w.donor().BootID == "boot-0" {
				w.donor().BootID = "boot-by-itself"
			}
		})
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		if early > 0 {
			t.Errorf("the donor was schedulable for %d s before it ran", early)
		}
		w.whole(t)
		w.live(t, today)
	})
}
