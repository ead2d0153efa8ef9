package engine

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
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

// TestKilledAnywhere: a process that dies at any boundary between recording and
// acting, then the same command again: the same end state, no second image, no
// orphan, the donor whole.
func TestKilledAnywhere(t *testing.T) {
	total := boundaries(t, newWorld, request())
	if total < 100 {
		t.Fatalf("only %d boundaries", total)
	}
	for at := 1; at <= total; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.machine = map[string]string{}
				w.donor().Annotations["other"] = "theirs"
				e, p, ctx, _ := w.process(t, "killed", at)
				_, err := e.Capture(ctx, request())
				if !p.dead {
					return // the tail of a run may have fewer
				}
				where := p.trace[len(p.trace)-1]
				e, _, ctx, _ = w.process(t, "next", 0)
				result, err2 := e.Capture(ctx, request())
				if err2 != nil {
					t.Fatalf("killed %s (%v); then %v", where, err, err2)
				}
				if w.donor().Annotations["other"] != "theirs" {
					t.Errorf("an annotation of others is gone")
				}
				delete(w.donor().Annotations, "other")
				w.whole(t)
				w.tidy(t)
				w.live(t, today)
				if w.builds != 1 || w.stops > 1 || len(w.versions) != 1 {
					t.Errorf("%d versions built, %d there, donor stopped %d times", w.builds, len(w.versions), w.stops)
				}
				if t.Failed() {
					t.Errorf("killed %s; then %+v", where, result)
				}
			})
		})
	}
}

// TestKilledTwice: the process that goes on dies, too.
func TestKilledTwice(t *testing.T) {
	total := boundaries(t, newWorld, request())
	for at := 3; at <= total; at += 7 {
		for again := 1; again <= total-at; again += 11 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e, _, ctx, _ := w.process(t, "first", at)
				_, _ = e.Capture(ctx, request())
				e, _, ctx, _ = w.process(t, "second", again)
				_, _ = e.Capture(ctx, request())
				e, _, ctx, _ = w.process(t, "third", 0)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Errorf("killed at %d, then at %d: %v", at, again, err)
				}
				w.whole(t)
				w.tidy(t)
				w.live(t, today)
				if w.builds != 1 || w.stops > 1 {
					t.Errorf("killed at %d, then at %d: %d versions built, donor stopped %d times", at, again, w.builds, w.stops)
				}
			})
		}
	}
}

// TestKilledWhileUndoing: a capture that fails, killed anywhere on the way to
// and through putting back.
func TestKilledWhileUndoing(t *testing.T) {
	broken := func() *world {
		w := newWorld()
		w.outcome = "secrets"
		return w
	}
	total := boundaries(t, broken, request())
	for at := 1; at <= total; at++ {
		synctest.Test(t, func(t *testing.T) {
			w := broken()
			e, p, ctx, _ := w.process(t, "killed", at)
			_, _ = e.Capture(ctx, request())
			if !p.dead {
				return
			}
			e, _, ctx, _ = w.process(t, "next", 0)
			_, err := e.Capture(ctx, request())
			if ExitCode(err) != ExitFailed {
				t.Errorf("killed %s: exit %d, %v", p.trace[len(p.trace)-1], ExitCode(err), err)
			}
			w.whole(t)
			w.tidy(t)
			if w.pool.Model.Image.ID != "" || len(w.versions) > 0 {
				t.Errorf("killed %s: model %+v, versions %v", p.trace[len(p.trace)-1], w.pool.Model.Image, w.versions)
			}
		})
	}
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

// TestKilledRollback: a rollback that dies anywhere is finished by the next.
func TestKilledRollback(t *testing.T) {
	for at := 1; ; at++ {
		died := false
		synctest.Test(t, func(t *testing.T) {
			w := twoVersions()
			e, p, ctx, _ := w.process(t, "killed", at)
			_, _ = e.Rollback(ctx, RollbackRequest{Pool: poolID, To: "1999.12.30"})
			died = p.dead
			e, _, ctx, _ = w.process(t, "next", 0)
			result, err := e.Rollback(ctx, RollbackRequest{Pool: poolID, To: "1999.12.30"})
			if err != nil {
				t.Errorf("killed at %d: %v", at, err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.catchUp()
			from := w.versions[low(versionID("1999.12.31"))]
			if w.pool.Model.Image.ID.Name() != "1999.12.30" || from.Tags[fleet.TagRolledBack] == "" || len(w.lease) > 0 {
				t.Errorf("killed at %d: %+v; model %+v, tags %v, Lease %v", at, result, w.pool.Model.Image, from.Tags, w.lease)
			}
			if w.customData != "#cloud-config\nold" {
				t.Errorf("killed at %d: customData %q", at, w.customData)
			}
		})
		if !died {
			break
		}
	}
}
