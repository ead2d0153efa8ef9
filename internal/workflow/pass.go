package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

const (
	maxTries  = 5               // limit of begins of a change whose operations end without effect
	recheckIn = 5 * time.Second // first pause before it is begun again, at most eight times this: a read soon after a write may be old
	settleIn  = time.Minute     // how long a change whose answer was lost may still take effect: an undo waits for it

	firstPoll                = time.Second / 4 // of an operation; the next ones as Azure asks
	firstPause, longestPause = time.Second, 30 * time.Second
	credentialWait           = time.Minute     // retry limit for refused credentials before the first change
	planDeadline             = 5 * time.Minute // retry limit for lock and record before the first change
)

// A Pass is one call of an act.
type Pass struct {
	run    *run
	action Action
}

func (p *Pass) step() journal.Step { return p.run.record().Steps[p.action.Step.ID] }

func (p *Pass) set(change func(st *journal.Step)) {
	p.run.update(func(r *journal.Record) {
		st := r.Steps[p.action.Step.ID]
		change(&st)
		*r = with(*r, p.action.Step.ID, st)
	})
}

// Save writes the record, with the workflow's state, and returns once the pool lock is
// valid. After it the act may make its change.
func (p *Pass) Save(ctx context.Context) error { return p.run.save(ctx) }

// Before returns the state that a step found: it reads it once, and saves it ahead of the
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
	return true, json.Unmarshal(raw, v)
}

// Forget drops what Before saved. It is for an act that has changed nothing yet, and observes again.
func (p *Pass) Forget() { p.set(func(st *journal.Step) { st.Before = nil }) }

// Since returns the time since the action began; a recovery restarts it.
func (p *Pass) Since() time.Duration { return p.run.lock.clock().Sub(p.step().Begun) }

// Note reports a message that is also part of the result at the end.
func (p *Pass) Note(format string, args ...any) {
	p.run.report(p.action, EventNote, fmt.Sprintf(format, args...), -1)
}

// Progress reports how far a long pass is.
func (p *Pass) Progress(percent int32, format string, args ...any) {
	p.run.report(p.action, EventProgress, fmt.Sprintf(format, args...), percent)
}

// Ensure makes a change in Azure, in passes. It polls an operation in progress; if none is, and
// inEffect does not observe the effect, it saves and begins the change, and saves its token. An
// operation's result alone proves nothing.
func (p *Pass) Ensure(ctx context.Context, c fleet.Change, inEffect func(context.Context) (bool, error)) (Wait, error) {
	name := named(c)
	recheck := func() (Wait, error) {
		return Wait{RequeueAfter: recheckIn << min(max(p.step().Tries-1, 0), 3), Percent: -1, Status: "waiting for the effect"}, nil
	}
	st := p.step()
	over := st.Token != "" && st.Change == name // an operation of this change has ended, with err
	var ended error
	if st.Token != "" {
		progress, err := p.run.Cloud.Poll(ctx, fleet.Token(st.Token))
		switch {
		case err == nil && !progress.Done:
			verb, _, _ := strings.Cut(st.Change, " /") // of this change or the one before
			return Wait{RequeueAfter: max(progress.Wait, firstPoll), Percent: progress.Percent,
				Status: strings.TrimSuffix("Azure: "+verb+": "+progress.Status, ": ")}, nil
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
	ok, err := inEffect(ctx)
	switch unknown := p.run.Now().Sub(st.Asked); {
	case ok && err == nil && p.action.Undo && st.Change != name && unknown < settleIn:
		return Wait{RequeueAfter: settleIn - unknown, Percent: -1, Status: "waiting for the effect of: " + st.Change}, nil
	case ok || err != nil:
		return Wait{}, err
	case over && st.Tries > 0 && fleet.Is(ended, fleet.KindInvalid, fleet.KindDenied, fleet.KindUnsupported):
		return Wait{}, ended // a retry would fail the same way
	case over:
		return recheck()
	case st.Change != name:
		p.set(func(st *journal.Step) { st.Change, st.Tries, st.Error = name, 0, "" })
	case st.Tries >= maxTries && !p.action.Undo:
		err := fmt.Errorf("no effect after %d operations, the last ended with: %s", st.Tries, cmp.Or(st.Error, "success"))
		return Wait{}, &fleet.Error{Op: c.Verb(), Resource: string(c.Target()), Kind: fleet.KindUnknown, Err: err}
	}
	p.set(func(st *journal.Step) { st.Asked = p.run.Now() })
	if err := p.Save(ctx); err != nil {
		return Wait{}, err
	}
	token, err := p.run.Cloud.Begin(ctx, c)
	if err == nil {
		p.set(func(st *journal.Step) {
			st.Token, st.Asked, st.Tries, st.Error = string(token), time.Time{}, st.Tries+1, ""
		})
		if token != "" { // saved although the pass may be canceled
			return Wait{RequeueAfter: firstPoll, Percent: -1, Status: "Azure: " + c.Verb()}, p.Save(context.WithoutCancel(ctx))
		}
	} else {
		if refused(err) { // an earlier pass's request may still take effect
			p.set(func(now *journal.Step) { now.Change, now.Asked, now.Tries = st.Change, st.Asked, st.Tries })
		}
		if _, again := retry(err, p.action.Undo, true, 1, 0); again {
			return Wait{}, err
		}
	}
	// A refused change may have begun: the refusal may be a proxy's.
	switch ok, lookErr := inEffect(ctx); {
	case ok && lookErr == nil:
		return Wait{}, nil
	case err != nil || lookErr != nil:
		return Wait{}, cmp.Or(err, lookErr)
	}
	return recheck()
}

// Preempts forgets an operation in progress that is not of this change, for an undo whose change
// ends the operation that Do began.
func (p *Pass) Preempts(c fleet.Change) {
	if st := p.step(); st.Token != "" && st.Change != named(c) {
		p.set(func(st *journal.Step) { st.Token, st.Asked = "", time.Time{} })
	}
}

func named(c fleet.Change) string { return c.Verb() + " " + string(c.Target()) }

// Begun reports whether a change that Do requested may have begun and has not succeeded. It is
// false if none was requested, or the service refused it.
func (p *Pass) Begun() bool { return p.step().Change != "" }

// Accepted reports whether the service accepted the change when Do last asked for it, and
// its operation has succeeded. It is for what cannot be read back: if the answer is not
// known, it is false.
func (p *Pass) Accepted() bool {
	st := p.step()
	return st.Tries > 0 && st.Asked.IsZero() && st.Token == "" && st.Error == ""
}

// IsDone reports whether another step of the run is done, or was before it.
func (p *Pass) IsDone(step string) bool {
	state := p.run.record().Steps[step].State
	return state == journal.Done || state == journal.Skipped
}

// Failure returns how the last operation of the step's change failed, or why its last pass did;
// "" if neither did.
func (p *Pass) Failure() string { return p.step().Error }

// refused reports whether the service itself answered that it does not make a change, now
// or later. What is without a code may be the answer of a proxy.
func refused(err error) bool {
	e := new(fleet.Error)
	return errors.As(err, &e) && e.Code != "" && slices.Contains([]fleet.Kind{
		fleet.KindDenied, fleet.KindUnauthenticated, fleet.KindInvalid, fleet.KindUnsupported, fleet.KindBlocked,
	}, e.Kind)
}

// retry is the only policy that repeats a pass: it returns the pause before the next one, 1 s, 2
// s, 4 s … 30 s, or false if the action has failed. failures counts failed passes in a row, with
// this one; changed: the run has changed something.
func retry(err error, undo, changed bool, failures int, since time.Duration) (time.Duration, bool) {
	pause := max(min(firstPause<<min(failures-1, 5), longestPause), azure.RetryAfter(err))
	if errors.Is(err, ErrReplan) {
		return 0, false
	}
	switch fleet.KindOf(err) {
	case fleet.KindHeld: // the pool lock, which may expire
		return firstPause, true
	case fleet.KindStale, fleet.KindTransient, fleet.KindThrottled, fleet.KindConflict, fleet.KindTimedOut:
		return pause, changed || since <= planDeadline
	case fleet.KindUnauthenticated:
		return pause, changed || since+pause <= credentialWait
	}
	return pause, undo
}

// repeat calls try until it succeeds, or has failed by the same policy.
func repeat(ctx context.Context, now func() time.Time, changed bool, try func() error) error {
	begun := now()
	for failures := 1; ctx.Err() == nil; failures++ {
		err := try()
		if fleet.Is(err, fleet.KindHeld) { // the API server answers
			begun, failures = now(), 1
		}
		pause, again := retry(err, false, changed, failures, now().Sub(begun))
		if err == nil || !again {
			return err
		}
		_ = azure.Sleep(ctx, pause)
	}
	return context.Cause(ctx)
}
