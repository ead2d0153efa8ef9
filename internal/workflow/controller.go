package workflow

import (
	"context"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Pass drives a workflow as a controller does: it makes one pass of each action that is
// due, writes the record and says when to call again; 0 means that the run has ended,
// with Run's outcome. A record with a pool alone is planned first. Holder stays the same
// from call to call, and one call follows the other.
func (r *Runner) Pass(ctx context.Context, rec *journal.Record, w Workflow) (next time.Duration, err error) {
	x := r.newRun(ctx, fleet.ResourceID(rec.Pool), w)
	x.rec = *rec
	defer func() { *rec = x.record() }()
	switch _, err := x.lock.hold(ctx); {
	case rec.Ended != nil || fleet.Is(err, fleet.KindHeld):
		return 0, err
	case err != nil:
		return longestPause, nil // asked again
	case !rec.Open():
		if nothing, err := x.plan(ctx); err != nil || nothing {
			x.lock.release()
			return 0, err
		}
		return time.Millisecond, x.save(ctx)
	}
	if x.table, _, err = w.Restore(*rec); err != nil {
		return 0, err
	}
	open := Next(x.table, x.rec, nil)
	if len(open) == 0 {
		defer x.lock.release()
		return 0, x.outcome(ctx)
	}
	next = longestPause
	for _, a := range open {
		x.update(func(r journal.Record) journal.Record { return Started(r, a, x.lock.clock()) })
		if in := x.record().Steps[a.Step.ID].Due.Sub(x.Now()); in > 0 {
			next = min(next, in)
			continue
		}
		wait, err := x.once(ctx, a)
		if err != nil || wait.In == 0 {
			x.finish(a, err)
			return time.Millisecond, x.save(ctx) // what is open has changed
		}
		next = min(next, wait.In)
		(&Pass{x, a}).set(func(st *journal.Step) { st.Due = x.Now().Add(wait.In) })
	}
	return next, x.save(ctx)
}
