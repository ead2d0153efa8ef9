package engine

import (
	"testing"
	"testing/synctest"
)

// boundaries counts where a process can die on the way.
func boundaries(t *testing.T, world func() *world, q CaptureRequest) int {
	t.Helper()
	n := 0
	synctest.Test(t, func(t *testing.T) {
		w := world()
		e, p, ctx, _ := w.process(t, "count", 0)
		_, _ = e.Capture(ctx, q)
		n = p.boundaries
	})
	return n
}

// TestKilledAndAnotherNode: who comes next wants another donor; the first is
// put back first.
func TestKilledAndAnotherNode(t *testing.T) {
	total := boundaries(t, newWorld, request())
	for at := 1; at <= total; at += 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e, p, ctx, _ := w.process(t, "killed", at)
			_, _ = e.Capture(ctx, request())
			e, _, ctx, _ = w.process(t, "next", 0)
			other := request()
			other.Node = "pool1000001"
			if _, err := e.Capture(ctx, other); err != nil {
				t.Errorf("killed at %d %s: %v", at, p.trace[len(p.trace)-1], err)
			}
			w.whole(t)
			w.tidy(t)
			if n := w.nodes["pool1000001"]; !n.Ready || n.Unschedulable || len(n.Annotations) > 0 {
				t.Errorf("killed at %d: the other donor is %+v", at, n)
			}
			if w.pool.Model.Image.ID.Name() != today {
				t.Errorf("killed at %d: the model uses %+v", at, w.pool.Model.Image)
			}
		})
	}
}
