// Package workflow runs a table of steps on a pool, and undoes them.
//
// [Next] decides from the table and the record alone which actions may begin; [Ended]
// returns the record after an action has ended. Neither waits nor reads a clock, so a
// test plays a table 100,000 times with failures and crashes at any action.
//
// # States of a row
//
//	pending ─▶ running ─▶ done ─▶ undoing ─▶ undone
//	              └─▶ failed ───────┘  └─▶ undo failed (needs a person)
//
// In running, done, failed and undoing the effect of Do may exist. A row that the plan
// does not need is skipped.
//
// # Phases of a run
//
//   - forward: a Do begins once all steps of its After succeeded, an Undo once all of its When.
//   - undo, after a failed step: every Undo runs whose Do may have had an effect.
//   - suspend, after Ctrl-C or a crash: the same, except for rows that Keep leaves to the next run.
//
// # A crash
//
// No code resumes a step. [Runner.Run] acquires the lock and, if a record is open, undoes all but
// what Keep names, so that the donor is back in service first. Then it plans as for a new run,
// and skips what exists.
package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/journal"
)

// A Table is a workflow's rows, in the order in which people read them.
type Table []Step

// A Step is one row.
type Step struct {
	ID, Title       string        // "drain", "Drain node X"
	Usual, Deadline time.Duration // Deadline counts from the first start, after a recovery again; 0: DefaultDeadline
	Every           time.Duration // longest pause between two passes; 0: as the pass asks
	After           []string      // steps or undos that must have succeeded
	Skip            string        // why the plan does not need it; "" runs it
	EffectMayExist  bool          // with Skip: the effect of Do exists, so its Undo runs
	Optional        bool          // a failure does not end the run
	Commits         bool          // once it is done, a later failure ends with ExitNeedsPerson
	Do              Act
	Undo            *Undo
}

// SkipIf returns why a row is skipped, if it is not needed: for Step.Skip.
func SkipIf(needless bool, why string) string {
	if needless {
		return why
	}
	return ""
}

// DefaultDeadline applies to actions without a Deadline.
const DefaultDeadline = 15 * time.Minute

// An Undo reverts what Do did: once the steps of When succeeded, or at once after a failure or an
// interruption.
type Undo struct {
	ID, Title       string
	Usual, Deadline time.Duration
	When            []string      // good case: once these steps succeeded; empty: only after a failure
	After           []string      // undos that must have ended first, unless they cannot begin
	Needs           []string      // undos that must have succeeded first
	Keep            journal.State // Running or Done: from this state on an interruption leaves the row to the next run
	Do              Act
	Manual          func() string // what a person does if it fails; "" if nothing is to be undone
}

// An Act is one pass: observe; if the world is not as wanted, ask for it. It neither
// waits nor retries. Before its first change it calls Before, Ensure or Save.
type Act func(ctx context.Context, p *Pass) (Wait, error)

// A Wait says when the next pass is due. The zero Wait says that the act is done.
type Wait struct {
	RequeueAfter time.Duration
	Percent      int32 // -1: unknown
	Status       string
}

// ErrReplan is the error of an act that found the effect of earlier steps lost: the run is
// suspended and planned again, as after an interruption; the third time it fails.
var ErrReplan = errors.New("plan again")

const maxPlans = 3

// Replan returns an error that is ErrReplan.
func Replan(format string, args ...any) error { return replanError{fmt.Errorf(format, args...), false} }

// Continue returns an error that is ErrReplan and no failure: the row is done, and what the rows so
// far made decides the next plan. It does not count as one of a run's plans.
func Continue(format string, args ...any) error {
	return replanError{fmt.Errorf(format, args...), true}
}

type replanError struct {
	error
	continues bool
}

func continues(err error) bool {
	e, is := errors.AsType[replanError](err)
	return is && e.continues
}

func (e replanError) Is(target error) bool { return target == ErrReplan }

func (e replanError) Unwrap() error { return e.error }

// owner returns the row whose id, or whose undo's id, this is. workflowtest.Check proves that it
// exists.
func (t Table) owner(id string) Step {
	return t[slices.IndexFunc(t, func(s Step) bool { return s.ID == id || s.Undo != nil && s.Undo.ID == id })]
}

// An Action is a row's Do or its Undo.
type Action struct {
	Step Step
	Undo bool
}

// row returns the fields that Do and Undo share.
func (a Action) row() Step {
	if u := a.Step.Undo; a.Undo {
		return Step{ID: u.ID, Title: u.Title, Usual: u.Usual, Deadline: u.Deadline, Do: u.Do}
	}
	return a.Step
}

// ID is the id that people see.
func (a Action) ID() string { return a.row().ID }

// Next returns the actions that may begin, in the table's order. inFlight names the rows whose Do
// or Undo runs in this process: such a row is left out. The phase is over when nothing is
// returned and nothing is in flight.
func Next(t Table, r journal.Record, inFlight map[string]bool) (open []Action) {
	for _, s := range t {
		st := r.Steps[s.ID].State
		switch {
		case inFlight[s.ID]:
		case r.Phase == journal.Forward && (st == journal.Pending || st == journal.Running) && succeeded(t, r, s.After):
			open = append(open, Action{Step: s})
		case mayUndo(t, r, s):
			open = append(open, Action{Step: s, Undo: true})
		}
	}
	return open
}

func mayUndo(t Table, r journal.Record, s Step) bool {
	if !effectMayExist(r, s) {
		return false
	}
	due := r.Phase == journal.Undo || r.Phase == journal.Suspend && !kept(r, s) ||
		r.Phase == journal.Forward && len(s.Undo.When) > 0 && succeeded(t, r, s.Undo.When)
	return (due || r.Steps[s.ID].State == journal.Undoing) &&
		!slices.ContainsFunc(s.Undo.After, func(id string) bool { o := t.owner(id); return effectMayExist(r, o) && !blocked(t, r, o) }) &&
		!slices.ContainsFunc(s.Undo.Needs, func(id string) bool { return effectMayExist(r, t.owner(id)) }) && !blocked(t, r, s)
}

// blocked reports whether an undo that the row's Undo needs has failed.
func blocked(t Table, r journal.Record, s Step) bool {
	return slices.ContainsFunc(s.Undo.Needs, func(id string) bool { return r.Steps[t.owner(id).ID].State == journal.UndoFailed })
}

// effectMayExist reports whether the effect of Do may exist and its Undo has not failed.
func effectMayExist(r journal.Record, s Step) bool {
	return s.Undo != nil && slices.Contains([]journal.State{journal.Running, journal.Done, journal.Failed, journal.Undoing},
		r.Steps[s.ID].State)
}

// kept reports whether an interruption leaves the row's effect to the next run.
func kept(r journal.Record, s Step) bool {
	st := r.Steps[s.ID].State
	return s.Undo != nil && s.Undo.Keep != "" && (st == journal.Done || st == s.Undo.Keep)
}

// succeeded reports whether all of these steps and undos succeeded.
func succeeded(t Table, r journal.Record, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		o := t.owner(id)
		switch r.Steps[o.ID].State {
		case journal.Skipped, journal.Undone:
			return false
		case journal.Done, journal.Undoing, journal.UndoFailed:
			return o.ID != id
		case journal.Failed:
			return o.ID != id || !o.Optional
		}
		return true
	})
}

// Started returns the record after an action has begun.
func Started(r journal.Record, a Action, now time.Time) journal.Record {
	state, st := journal.Running, r.Steps[a.Step.ID]
	if a.Undo {
		state = journal.Undoing
	}
	if st.State != state || st.Begun.IsZero() { // the token stays: an undo waits for the operation that its Do began
		st.State, st.Begun, st.Tries, st.Failures = state, now, 0, 0
	}
	return with(r, a.Step.ID, st)
}

// Ended returns the record after an action, which is no longer in flight. A failure ends
// the phase forward if the run cannot go on; a Do that was canceled stays Running.
func Ended(t Table, r journal.Record, a Action, err error) journal.Record {
	st := r.Steps[a.Step.ID]
	switch {
	case err == nil && a.Undo:
		st = journal.Step{State: journal.Undone}
	case err == nil:
		st = journal.Step{State: journal.Done, Before: st.Before}
	case a.Undo:
		st.State, st.Error = journal.UndoFailed, err.Error()
	case errors.Is(err, context.Canceled):
	default:
		st.State, st.Error = journal.Failed, err.Error()
	}
	r = with(r, a.Step.ID, st)
	stuck := st.State == journal.UndoFailed && slices.ContainsFunc(t, func(s Step) bool {
		return r.Steps[s.ID].State == journal.Pending && slices.Contains(s.After, a.ID())
	})
	if stuck || st.State == journal.Failed && !a.Step.Optional {
		return EndForward(r, journal.Undo, "step "+a.ID()+": "+err.Error())
	}
	return r
}

// EndForward replaces the phase forward by another; in other phases it does nothing.
func EndForward(r journal.Record, phase journal.Phase, why string) journal.Record {
	if r.Phase == journal.Forward {
		r.Phase, r.Why = phase, why
	}
	return r
}

// Recover prepares a record that an earlier process left open: its effects are undone, and
// undos that failed are tried again.
func Recover(r journal.Record, phase journal.Phase, why string) journal.Record {
	for id, st := range r.Steps {
		if st.State == journal.UndoFailed {
			st.State = journal.Undoing
		}
		st.Begun = time.Time{}
		r = with(r, id, st)
	}
	if r.Phase != journal.Undo {
		r.Phase, r.Why = phase, why
	}
	return r
}

// Resume begins the phase forward with the rows of a new plan, for a new record and for a
// suspended one. Of the earlier rows only kept ones count; their Do runs again, unless the plan
// skips them.
func Resume(t Table, r journal.Record) journal.Record {
	old := r.Steps
	r.Steps = map[string]journal.Step{}
	for _, s := range t {
		st := old[s.ID]
		keep := kept(journal.Record{Steps: old}, s)
		switch {
		case s.Skip != "" && (s.EffectMayExist || keep && st.State == journal.Done):
			st.State = journal.Done
		case s.Skip != "":
			st = journal.Step{State: journal.Skipped}
		case keep:
			st.State = journal.Running
		default:
			continue
		}
		r.Steps[s.ID] = st
	}
	r.Phase, r.Why = journal.Forward, ""
	return r
}

// Remaining returns the rows whose effect may exist although this phase should have undone it.
func Remaining(t Table, r journal.Record) (rows []Step) {
	for _, s := range t {
		st := r.Steps[s.ID].State
		stays := r.Phase == journal.Suspend && kept(r, s) ||
			r.Phase == journal.Forward && st == journal.Done && (s.Undo == nil || len(s.Undo.When) == 0)
		if st == journal.UndoFailed || effectMayExist(r, s) && !stays {
			rows = append(rows, s)
		}
	}
	return rows
}

// with returns a copy of the record in which step id is st.
func with(r journal.Record, id string, st journal.Step) journal.Record {
	steps := map[string]journal.Step{}
	maps.Copy(steps, r.Steps)
	steps[id], r.Steps = st, steps
	return r
}
