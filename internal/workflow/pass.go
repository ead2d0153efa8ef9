package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// maxTries is how often a Do begins a change whose operation ends without effect.
const maxTries = 5

// recheckIn is the pause before an effect is checked a second time: a read soon after a
// write may be stale.
const recheckIn = 5 * time.Second

// settleIn is how long a change whose answer was lost may still take effect. Before that
// an undo does not conclude that there is nothing to undo.
const settleIn = time.Minute

// A Pass is one call of an act.
type Pass struct {
	run    *run
	action Action
}

func (p *Pass) step() journal.Step { return p.run.record().Steps[p.action.Step.ID] }

func (p *Pass) set(change func(st *journal.Step)) {
	p.run.update(func(r journal.Record) journal.Record {
		st := r.Steps[p.action.Step.ID]
		change(&st)
		return with(r, p.action.Step.ID, st)
	})
}

// Save writes the record, with the workflow's state, and returns once the pool lock is
// valid. After it the act may make its change.
func (p *Pass) Save(ctx context.Context) error { return p.run.save(ctx) }

// Before saves v, the state that the step found, and is called ahead of its first change.
// If an earlier pass has saved a value, Before reads that into v instead.
func (p *Pass) Before(ctx context.Context, v any) error {
	if there, err := p.Saved(v); there || err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the state found by step %s: %w", p.action.ID(), err)
	}
	p.set(func(st *journal.Step) { st.Before = raw })
	return p.Save(ctx)
}

// Saved reads into v what Before has saved. It reports false if nothing was saved: then
// Do has changed nothing.
func (p *Pass) Saved(v any) (bool, error) {
	raw := p.step().Before
	if raw == nil {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return false, fmt.Errorf("decode the state found by step %s: %w", p.action.ID(), err)
	}
	return true, nil
}

// Since gives the time since the action began, also in an earlier process.
func (p *Pass) Since() time.Duration { return p.run.Now().Sub(p.step().Begun) }

// Note reports a message that is also part of the result at the end.
func (p *Pass) Note(format string, args ...any) {
	p.run.report(p.action, EventNote, fmt.Sprintf(format, args...), -1)
}

// Progress reports how far a long pass is.
func (p *Pass) Progress(percent int32, format string, args ...any) {
	p.run.report(p.action, EventProgress, fmt.Sprintf(format, args...), percent)
}

// Ensure makes a change in Azure, in passes. An operation in progress is polled. If none
// is, the function is observes whether the change is in effect; if not, the change is
// saved, begun, and its token saved. An operation's result alone proves nothing.
func (p *Pass) Ensure(ctx context.Context, c fleet.Change, is func(context.Context) (bool, error)) (Wait, error) {
	name := c.Verb() + " " + string(c.Target())
	st := p.step()
	var ended error // how the operation ended
	if st.Token != "" {
		progress, err := p.run.Cloud.Poll(ctx, fleet.Token(st.Token))
		switch {
		case err == nil && !progress.Done:
			verb, _, _ := strings.Cut(st.Change, " /") // of this change or the one before
			return Wait{In: max(progress.Wait, firstPause), Percent: progress.Percent, Status: strings.TrimSuffix("Azure: "+verb+": "+progress.Status, ": ")}, nil
		case err != nil && !progress.Done && !fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindInvalid):
			return Wait{}, err // the poll failed, the operation goes on
		case st.Change == name:
			ended = err
		}
		p.set(func(st *journal.Step) {
			st.Token, st.Error = "", ""
			if ended != nil {
				st.Error = ended.Error()
			}
		})
	}
	fresh := st.Change == name && (st.Token != "" || st.Recheck) // an operation of this change ended
	ok, err := is(ctx)
	switch unknown := p.run.Now().Sub(st.Asked); {
	case ok && err == nil && p.action.Undo && st.Change != name && unknown < settleIn:
		return Wait{In: settleIn - unknown, Percent: -1, Status: "waiting for the effect of: " + st.Change}, nil
	case ok || err != nil:
		return Wait{}, err
	case fresh && !st.Recheck:
		p.set(func(st *journal.Step) { st.Recheck = true })
		if final(ended) && st.Tries > 0 {
			return Wait{}, ended
		}
		return Wait{In: recheckIn, Percent: -1, Status: "waiting for the effect"}, nil
	case st.Change != name:
		p.set(func(st *journal.Step) { st.Change, st.Tries, st.Error = name, 0, "" })
	case st.Tries >= maxTries && !p.action.Undo:
		return Wait{}, unchanged(c, st)
	}
	return p.begin(ctx, c, is)
}

func (p *Pass) begin(ctx context.Context, c fleet.Change, is func(context.Context) (bool, error)) (Wait, error) {
	p.set(func(st *journal.Step) { st.Recheck, st.Asked = false, p.run.Now() })
	if err := p.Save(ctx); err != nil {
		return Wait{}, err
	}
	token, err := p.run.Cloud.Begin(ctx, c)
	if err != nil {
		// The operation may have begun despite the error. A repeated pass observes that by itself.
		if _, again := retry(err, p.action.Undo, true, 1, 0); !again {
			if ok, lookErr := is(ctx); lookErr == nil && ok {
				return Wait{}, nil
			}
		}
		return Wait{}, err
	}
	p.set(func(st *journal.Step) {
		st.Token, st.Asked, st.Tries = string(token), time.Time{}, st.Tries+1
	})
	if token != "" {
		// The token is saved even if the pass is canceled.
		return Wait{In: firstPause, Percent: -1, Status: "Azure: " + c.Verb()}, p.Save(context.WithoutCancel(ctx))
	}
	if ok, err := is(ctx); ok || err != nil {
		return Wait{}, err
	}
	p.set(func(st *journal.Step) { st.Recheck = true })
	return Wait{In: recheckIn << min(p.step().Tries-1, 3), Percent: -1, Status: "waiting for the effect"}, nil
}

// final reports whether a repeated operation would end for the same reason.
func final(err error) bool {
	switch fleet.KindOf(err) {
	case fleet.KindInvalid, fleet.KindDenied, fleet.KindUnsupported:
		return true
	}
	return false
}

// unchanged is the error of a change that was begun maxTries times without effect.
func unchanged(c fleet.Change, st journal.Step) error {
	err := fmt.Errorf("operation reported success %d times, resource unchanged", st.Tries)
	if st.Error != "" {
		err = fmt.Errorf("operation failed %d times: %s", st.Tries, st.Error)
	}
	return &fleet.Error{Op: c.Verb(), Resource: string(c.Target()), Kind: fleet.KindUnknown, Err: err}
}
