package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

const otherPool = "/subscriptions/s/resourceGroups/my-group/providers/Microsoft.Compute/virtualMachineScaleSets/pool2"

// claim has a capture of another pool use the workbench.
func (w *world) claim() {
	i, n := w.bench()
	n.Annotations[fleet.AnnotationWorkbench], n.Annotations[fleet.AnnotationScaleDownDisabled] = otherPool, "true"
	i.Protection = fleet.Protection{ScaleIn: true}
}

// TestWorkbenchIsNotShared: a node that another pool's capture uses, from before ours
// or since, is neither worked on nor unprotected when ours ends.
func TestWorkbenchIsNotShared(t *testing.T) {
	for _, after := range []time.Duration{0, 30 * time.Second, 2 * time.Minute, 3 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			claimed, begun := after == 0, time.Now()
			if claimed {
				w.claim()
			}
			w.every(20*time.Minute, func() {
				on := w.worksOn()
				if !claimed && on == "" && !time.Now().Before(begun.Add(after)) {
					claimed = true
					w.claim()
				}
				if claimed && on.Equal(instanceID(1)) {
					t.Errorf("claimed after %s: both work on it", after)
				}
			})
			e, _, ctx, _ := w.process(t, "a", 0)
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Fatalf("claimed after %s: exit %d: %v", after, ExitCode(err), err)
			}
			if i, n := w.bench(); !i.Protection.ScaleIn || n.Annotations[fleet.AnnotationScaleDownDisabled] != "true" || n.Annotations[fleet.AnnotationWorkbench] != otherPool {
				t.Errorf("claimed after %s: the other capture's workbench is left %+v, %v", after, i.Protection, n.Annotations)
			}
			w.tidy(t)
			w.live(t, today)
		})
	}
}

// TestWorkbenchIsNoDonor: while another capture uses a node, it is not captured.
func TestWorkbenchIsNoDonor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.claim()
		q := request()
		q.Node = benchName
		e, _, ctx, _ := w.process(t, "a", 0)
		_, err := e.Capture(ctx, q)
		if refused := new(Refused); !errors.As(err, &refused) || refused.Problems[0].Code != "IsWorkbench" {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		if w.stops != 0 || w.drained != 0 {
			t.Error("it was taken out of service")
		}
	})
}

// TestWorkbenchClaimIsVisible while the copy is attached, so that others keep off.
func TestWorkbenchClaimIsVisible(t *testing.T) {
	for _, found := range []fleet.Protection{{}, {ScaleIn: true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			i, n := w.bench()
			i.Protection = found
			n.Annotations[fleet.AnnotationScaleDownDisabled] = "true"
			w.every(20*time.Minute, func() {
				if w.worksOn() != "" && n.Annotations[fleet.AnnotationWorkbench] != string(poolID) {
					t.Errorf("the workbench bears %v", n.Annotations)
				}
			})
			e, _, ctx, _ := w.process(t, "a", 0)
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Fatal(err)
			}
			if len(n.Annotations) != 1 || i.Protection != found {
				t.Errorf("left %v, %+v", n.Annotations, i.Protection)
			}
		})
	}
}

// TestWorkbenchLostBetweenProcesses: where it was deleted while nobody worked, the copy
// is made once, and deleted in the end.
func TestWorkbenchLostBetweenProcesses(t *testing.T) {
	total := boundaries(t, newWorld, request())
	for at := 1; at <= total; at++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e, p, ctx, _ := w.process(t, "killed", at)
			_, _ = e.Capture(ctx, request())
			w.mu.Lock()
			w.catchUp()
			w.remove(benchName)
			w.mu.Unlock()
			e, _, ctx, _ = w.process(t, "next", 0)
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Errorf("killed %s: %v", p.trace[len(p.trace)-1], err)
			}
			w.whole(t)
			w.tidy(t)
			if t.Failed() {
				t.Logf("killed %s", p.trace[len(p.trace)-1])
			}
		})
	}
}
