package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// errLost ends everything: another process may be at work on the pool.
var errLost = errors.New("the hold on the pool was lost")

// letGo releases the hold of a run that ended its record and died before it
// could: nobody else can have a hold by its name.
func (r *run) letGo(last journal.Record) {
	var f facts
	if last.Ended == nil || json.Unmarshal(last.Facts, &f) != nil || f.Writer == "" {
		return
	}
	if err := r.e.cluster.Release(r.work, last.Pool, f.Writer); err != nil {
		r.e.log.Debug("cannot release what an earlier run held", "holder", f.Writer, "error", err)
	}
}

// A hold keeps others off a pool, and is renewed until it is released.
type hold struct {
	e      *Engine
	name   string // the pool's ARM id
	holder string
	done   chan struct{} // closed when renewing has ended
	end    context.CancelFunc

	mu      sync.Mutex
	expires time.Time
}

// holdStep gives the step the time to see another's hold run out.
func (e *Engine) holdStep(step prototype.Step) prototype.Step {
	step.Deadline = max(step.Deadline, 2*e.config.LeaseFor)
	return step
}

// renewals is how often a hold is renewed before it would run out. One that fails is
// repeated sooner.
const renewals = 3

// take holds the pool for this process. Where a process that is known to be
// dead has it, it is taken from it; where nobody renews it, it is waited for
// until it runs out; where somebody renews it, the pool is refused.
func (e *Engine) take(ctx context.Context, t *task, pool fleet.ResourceID, holder string) (*hold, error) {
	h := &hold{e: e, name: journalKey(pool), holder: holder}
	var first cluster.Holding
	for n := 0; ; n++ {
		began := e.now()
		holding, err := e.cluster.Hold(ctx, h.name, h.holder, e.config.LeaseFor)
		if err == nil {
			h.expires = began.Add(e.config.LeaseFor)
			if holding.Took {
				t.progress(-1, "took over from a process that is gone")
			}
			return h, nil
		}
		if !fleet.Is(err, fleet.KindHeld) {
			if !passing(err) {
				return nil, err
			}
			if t.backoff(ctx, n, err) != nil {
				return nil, err
			}
			continue
		}
		alive := e.config.Liveness(holding.Holder)
		if n > 0 && holding.Holder == first.Holder && holding.Renewed.After(first.Renewed) {
			alive = Alive
		}
		switch alive {
		case Alive:
			return nil, &Refused{Problems: []fleet.Problem{heldProblem(pool, holding, "")}}
		case Dead:
			if err := e.cluster.Release(ctx, h.name, holding.Holder); err == nil {
				t.progress(-1, "%s is gone: taking over", holding.Holder)
			}
			if n > 0 {
				if err := t.wait(ctx, time.Second, forOwn); err != nil {
					return nil, err
				}
			}
		default:
			t.progress(-1, "%s holds the pool since %s, last renewed %s: taking over when that runs out",
				holding.Holder, holding.Since.UTC().Format(time.RFC3339), holding.Renewed.UTC().Format(time.RFC3339))
			if err := t.wait(ctx, time.Second, forOwn); err != nil {
				return nil, err
			}
		}
		if n == 0 || holding.Holder != first.Holder {
			first = holding
		}
	}
}

func heldProblem(pool fleet.ResourceID, holding cluster.Holding, on string) fleet.Problem {
	return fleet.Problem{
		Code: "Held", On: string(pool),
		What:   fmt.Sprintf("%s holds it since %s, and is at work%s", holding.Holder, holding.Since.UTC().Format(time.RFC3339), on),
		WayOut: "wait until it is done; ortet status shows how far it is",
	}
}

// atWork gives the problem that another process works on the pool. It changes
// nothing: whether a process of which nothing is known runs shows in whether it renews
// its hold.
func (e *Engine) atWork(ctx context.Context, t *task, pool fleet.ResourceID, rec journal.Record, open bool) []fleet.Problem {
	if pool == "" {
		return nil
	}
	var before cluster.Holding
	for began, n := e.now(), 0; ; n++ {
		held := false
		holding, err := ask(ctx, t, func(ctx context.Context) (holding cluster.Holding, err error) {
			holding, held, err = e.cluster.Holding(ctx, journalKey(pool))
			return holding, err
		})
		if err != nil {
			return []fleet.Problem{{Code: "Unreadable", On: string(pool), What: "whether another process works on it cannot be read: " + err.Error(), WayOut: "try again"}}
		}
		if !held {
			return nil
		}
		alive := e.config.Liveness(holding.Holder)
		if n > 0 && (holding.Holder != before.Holder || holding.Renewed.After(before.Renewed)) {
			alive = Alive
		}
		switch {
		case alive == Alive:
			on := ""
			if open {
				on = fmt.Sprintf(" on %s %s of %s, begun %s", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool), rec.Begun.UTC().Format(time.RFC3339))
			}
			return []fleet.Problem{heldProblem(pool, holding, on)}
		case alive == Dead, e.now().Sub(began) >= e.config.LeaseFor, t.wait(ctx, time.Second, forWorld) != nil:
			return nil
		}
		if n == 0 {
			before = holding
		}
	}
}

// keep renews the hold until release. lost is called, once, when another has
// it or it could have run out.
func (h *hold) keep(ctx context.Context, lost func(error)) {
	ctx, h.end = context.WithCancel(ctx)
	h.done = make(chan struct{})
	every := h.e.config.LeaseFor / renewals
	go func() {
		defer close(h.done)
		for pause := every; sleep(ctx, pause) == nil; {
			pause = every / 3
			began := h.e.now()
			try, cancel := context.WithTimeout(ctx, every)
			_, err := h.e.cluster.Hold(try, h.name, h.holder, h.e.config.LeaseFor)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				h.mu.Lock()
				h.expires = began.Add(h.e.config.LeaseFor)
				h.mu.Unlock()
				pause = every
			case fleet.Is(err, fleet.KindHeld), !h.valid(h.e.now()):
				lost(fmt.Errorf("%w: %w", errLost, err))
				return
			default:
				h.e.log.Warn("cannot renew the hold on the pool", "lease", h.name, "error", err)
			}
		}
	}()
}

// valid reports whether nobody else can have the pool yet, by the monotonic clock and by
// the wall clock: the first stands still while a machine sleeps, the second may be set back.
func (h *hold) valid(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.expires) && now.Round(0).Before(h.expires.Round(0))
}

// release gives the pool up. Failing to is logged alone: the hold runs out.
func (h *hold) release(ctx context.Context) {
	if h.end != nil {
		h.end()
		<-h.done
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.e.config.LeaseFor)
	defer cancel()
	for n := 0; ; n++ {
		err := h.e.cluster.Release(ctx, h.name, h.holder)
		if err == nil {
			return
		}
		again := passing(err) || fleet.Is(err, fleet.KindUnauthenticated)
		if n == 5 || !again || sleep(ctx, time.Second<<n) != nil {
			h.e.log.Warn("cannot release the hold on the pool: it runs out by itself", "lease", h.name, "error", err)
			return
		}
	}
}
