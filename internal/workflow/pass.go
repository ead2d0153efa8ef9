package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// maxTries is how often a Do begins a change whose operation ends without effect.
const maxTries = 5

// recheckIn is the pause before a change without effect is begun again, doubled with each
// try up to eight times: a read soon after a write may be old.
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

// Before gives the state that a step found: it reads it once, and saves it ahead of the
// step's first change.
func Before[T any](ctx context.Context, p *Pass, read func() (T, error)) (was T, err error) {
	if there, err := p.Saved(&was); there || err != nil {
		return was, err
	}
	if was, err = read(); err != nil {
		return was, err
	}
	raw, err := json.Marshal(was)
	if err != nil {
		return was, fmt.Errorf("encode the state found by step %s: %w", p.action.ID(), err)
	}
	p.set(func(st *journal.Step) { st.Before = raw })
	return was, p.Save(ctx)
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
func (p *Pass) Since() time.Duration { return p.run.lock.clock().Sub(p.step().Begun) }

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
	recheck := func() (Wait, error) {
		return Wait{In: recheckIn << min(max(p.step().Tries-1, 0), 3), Percent: -1, Status: "waiting for the effect"}, nil
	}
	st := p.step()
	over := st.Token != "" && st.Change == name // an operation of this change has ended, with err
	var ended error
	if st.Token != "" {
		progress, err := p.run.Cloud.Poll(ctx, fleet.Token(st.Token))
		switch {
		case err == nil && !progress.Done:
			verb, _, _ := strings.Cut(st.Change, " /") // of this change or the one before
			return Wait{In: max(progress.Wait, firstPause), Percent: progress.Percent, Status: strings.TrimSuffix("Azure: "+verb+": "+progress.Status, ": ")}, nil
		case err != nil && !progress.Done && !fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindInvalid):
			return Wait{}, err // the poll failed, the operation goes on
		}
		p.set(func(st *journal.Step) {
			st.Token, st.Error = "", ""
			if over && err != nil {
				ended, st.Error = err, err.Error()
			}
		})
	}
	ok, err := is(ctx)
	switch unknown := p.run.Now().Sub(st.Asked); {
	case ok && err == nil && p.action.Undo && st.Change != name && unknown < settleIn:
		return Wait{In: settleIn - unknown, Percent: -1, Status: "waiting for the effect of: " + st.Change}, nil
	case ok || err != nil:
		return Wait{}, err
	case over && st.Tries > 0 && slices.Contains([]fleet.Kind{fleet.KindInvalid, fleet.KindDenied, fleet.KindUnsupported}, fleet.KindOf(ended)):
		return Wait{}, ended // as another try would
	case over:
		return recheck()
	case st.Change != name:
		p.set(func(st *journal.Step) { st.Change, st.Tries, st.Error = name, 0, "" })
	case st.Tries >= maxTries && !p.action.Undo:
		err := fmt.Errorf("operation reported success %d times, resource unchanged", st.Tries)
		if st.Error != "" {
			err = fmt.Errorf("operation failed %d times: %s", st.Tries, st.Error)
		}
		return Wait{}, &fleet.Error{Op: c.Verb(), Resource: string(c.Target()), Kind: fleet.KindUnknown, Err: err}
	}
	p.set(func(st *journal.Step) { st.Asked = p.run.Now() })
	if err := p.Save(ctx); err != nil {
		return Wait{}, err
	}
	token, err := p.run.Cloud.Begin(ctx, c)
	if err == nil {
		p.set(func(st *journal.Step) {
			st.Token, st.Asked, st.Tries = string(token), time.Time{}, st.Tries+1
		})
		if token != "" { // saved although the pass may be canceled
			return Wait{In: firstPause, Percent: -1, Status: "Azure: " + c.Verb()}, p.Save(context.WithoutCancel(ctx))
		}
	} else if _, again := retry(err, p.action.Undo, true, 1, 0); again {
		return Wait{}, err
	}
	// Refused, it may have begun all the same.
	switch ok, lookErr := is(ctx); {
	case ok && lookErr == nil:
		return Wait{}, nil
	case err != nil || lookErr != nil:
		return Wait{}, cmp.Or(err, lookErr)
	}
	return recheck()
}
