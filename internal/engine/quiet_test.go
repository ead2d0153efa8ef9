package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/prototype"
)

// scale has an instance in a state from one time until another, as a scale-up or
// scale-in does.
func (w *world) scale(n int, state string, from, to time.Duration) {
	w.sabotage(from, func() {
		w.add(n)
		w.nodes[instanceNode(n)].Ready = false
		w.instances[low(instanceID(n))].ProvisioningState = state
	})
	w.sabotage(to, func() {
		if i := w.instances[low(instanceID(n))]; state == prototype.Creating {
			i.ProvisioningState = prototype.Succeeded
		} else {
			w.remove(i.HostName)
		}
	})
}

func instanceNode(n int) string { return "pool100000" + string(rune('0'+n)) }

// TestModelWaitsForScaleUp: neither the model, nor an extension, nor the capacity is
// changed while others add or remove instances, or change the scale set.
func TestModelWaitsForScaleUp(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"instance is Creating": func(w *world) { w.scale(3, prototype.Creating, 40*time.Minute, 55*time.Minute) },
		"instance is Deleting": func(w *world) { w.scale(3, prototype.Deleting, 40*time.Minute, 55*time.Minute) },
		"set is Updating": func(w *world) {
			w.sabotage(40*time.Minute, func() { w.pool.ProvisioningState = "Updating" })
			w.sabotage(55*time.Minute, func() { w.pool.ProvisioningState = prototype.Succeeded })
		},
		"again after the model": func(w *world) {
			begun := false
			w.every(2*time.Hour, func() {
				if w.pool.Model.Image.ID != "" && !begun {
					begun = true
					w.pool.ProvisioningState = "Updating"
					w.in(3*time.Minute, func() { w.pool.ProvisioningState = prototype.Succeeded })
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				prepare(w)
				e, _, ctx, seen := w.process(t, "a", 0)
				q := request()
				q.NewNodes = 1
				result, err := e.Capture(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				if w.preempted > 0 {
					t.Errorf("%d changes of the scale set preempted others'", w.preempted)
				}
				if len(result.Notes) > 0 || !seen.mentions("at rest") {
					t.Errorf("notes %v, progress of the wait %v", result.Notes, seen.mentions("at rest"))
				}
				w.whole(t)
				w.live(t, today)
			})
		})
	}
}

// TestModelWaitIsBounded: what is stuck for longer than Azure gives an instance does
// not keep the version from going live.
func TestModelWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.scale(3, prototype.Creating, 30*time.Minute, 24*time.Hour)
		e, _, ctx, _ := w.process(t, "a", 0)
		result, err := e.Capture(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, "instance 3 is Creating") {
			t.Errorf("the notes are %q", notes)
		}
		if took := result.Timing.End.Sub(result.Timing.Begin); took > 2*time.Hour {
			t.Errorf("it took %s", took)
		}
		w.live(t, today)
	})
}

// TestPlanTellsOfAutoscaler: what a drain may cost is in the plan, where there is one.
func TestPlanTellsOfAutoscaler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		tells := func() bool {
			p, err := e.Plan(ctx, request())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(strings.Join(p.Notes, "\n"), "autoscaler")
		}
		if !tells() {
			t.Error("the plan of a capture that drains does not mention autoscalers")
		}
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		if tells() {
			t.Error("the plan mentions autoscalers where there is nothing to drain")
		}
	})
}
