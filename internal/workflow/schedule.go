package workflow

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/workflow/journal"
)

// An Action is a row's Do or its Undo.
type Action struct {
	Step Step
	Undo bool
}

// row gives what a Do and an Undo have alike.
func (a Action) row() Step {
	if u := a.Step.Undo; a.Undo {
		return Step{ID: u.ID, Title: u.Title, Usual: u.Usual, Deadline: u.Deadline, Do: u.Do}
	}
	return a.Step
}

// ID is the id that people see.
func (a Action) ID() string { return a.row().ID }

// Next gives the actions that may begin, in the table's order. inFlight names the rows
// whose Do or Undo runs in this process: such a row is offered neither. Nothing
// offered and nothing in flight means that the phase is over.
func Next(t Table, r journal.Record, inFlight map[string]bool) (open []Action) {
	for _, s := range t {
		switch {
		case inFlight[s.ID]:
		case mayDo(t, r, s):
			open = append(open, Action{Step: s})
		case mayUndo(t, r, s):
			open = append(open, Action{Step: s, Undo: true})
		}
	}
	return open
}

func mayDo(t Table, r journal.Record, s Step) bool {
	st := r.Steps[s.ID].State
	return r.Phase == journal.Forward && (st == journal.Pending || st == journal.Running) &&
		all(s.After, func(id string) bool { return succeeded(t, r, id) })
}

func mayUndo(t Table, r journal.Record, s Step) bool {
	if !taken(r, s) {
		return false
	}
	due := r.Phase == journal.Undo || r.Phase == journal.Suspend && !kept(r, s) ||
		r.Phase == journal.Forward && len(s.Undo.When) > 0 && all(s.Undo.When, func(id string) bool { return succeeded(t, r, id) })
	return (due || r.Steps[s.ID].State == journal.Undoing) &&
		all(s.Undo.After, func(id string) bool { return !taken(r, t.owner(id)) }) &&
		all(s.Undo.Needs, func(id string) bool {
			o := t.owner(id)
			return !taken(r, o) && r.Steps[o.ID].State != journal.Left
		})
}

// taken reports whether the effect of Do may exist and its Undo has not failed.
func taken(r journal.Record, s Step) bool {
	switch r.Steps[s.ID].State {
	case journal.Running, journal.Done, journal.Failed, journal.Undoing:
		return s.Undo != nil
	}
	return false
}

// kept reports whether an interruption leaves the row's effect to the next run.
func kept(r journal.Record, s Step) bool {
	st := r.Steps[s.ID].State
	return s.Undo != nil && s.Undo.Keep != "" && (st == journal.Done || st == s.Undo.Keep)
}

// succeeded reports whether the step or undo id succeeded.
func succeeded(t Table, r journal.Record, id string) bool {
	o := t.owner(id)
	switch st := r.Steps[o.ID].State; st {
	case journal.Skipped, journal.Undone:
		return true
	case journal.Done, journal.Undoing, journal.Left:
		return o.ID == id
	case journal.Failed:
		return o.ID == id && o.Optional
	}
	return false
}

// impossible reports whether id is an undo that failed, or that needs an undo that failed.
func impossible(t Table, r journal.Record, id string) bool {
	o := t.owner(id)
	if o.ID == id || o.Undo == nil {
		return false
	}
	return r.Steps[o.ID].State == journal.Left ||
		taken(r, o) && slices.ContainsFunc(o.Undo.Needs, func(id string) bool { return impossible(t, r, id) })
}

// Started returns the record after an action has begun.
func Started(r journal.Record, a Action, now time.Time) journal.Record {
	state, st := journal.Running, r.Steps[a.Step.ID]
	if a.Undo {
		state = journal.Undoing
	}
	if st.State != state { // the token stays: an undo waits for the operation that its Do began
		st.State, st.Begun, st.Tries, st.Failures = state, time.Time{}, 0, 0
	}
	if st.Begun.IsZero() {
		st.Begun = now
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
		st.State, st.Error = journal.Left, err.Error()
	case errors.Is(err, context.Canceled):
	default:
		st.State, st.Error = journal.Failed, err.Error()
	}
	r = with(r, a.Step.ID, st)
	stuck := st.State == journal.Left && slices.ContainsFunc(t, func(s Step) bool {
		return r.Steps[s.ID].State == journal.Pending && !all(s.After, func(id string) bool { return !impossible(t, r, id) })
	})
	if stuck || st.State == journal.Failed && !a.Step.Optional {
		return GoBack(r, journal.Undo, "step "+a.ID()+": "+err.Error())
	}
	return r
}

// GoBack ends the phase forward and begins another one; in other phases it does nothing.
func GoBack(r journal.Record, phase journal.Phase, why string) journal.Record {
	if r.Phase == journal.Forward {
		r.Phase, r.Why = phase, why
	}
	return r
}

// Recover prepares a record that an earlier process left open: its effects are undone, and
// undos that failed are tried again.
func Recover(r journal.Record, phase journal.Phase, why string) journal.Record {
	for id, st := range r.Steps {
		if st.State == journal.Left {
			st = journal.Step{State: journal.Undoing, Before: st.Before}
		}
		st.Begun, st.Tries, st.Failures = time.Time{}, 0, 0
		r = with(r, id, st)
	}
	if r.Phase == journal.Suspend {
		r.Phase = phase
	}
	return GoBack(r, phase, why)
}

// Resume begins the phase forward with the rows of a new plan, for a new record and for a
// suspended one. Of the earlier rows only those that an interruption kept count: unless
// the plan skips such a row, its Do runs again.
func Resume(t Table, r journal.Record) journal.Record {
	old := r.Steps
	r.Steps = map[string]journal.Step{}
	for _, s := range t {
		st := old[s.ID]
		keep := kept(journal.Record{Steps: old}, s)
		switch {
		case s.Skip != "" && (s.Taken || keep && st.State == journal.Done):
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

// Remaining returns the rows whose effect may exist after the phase although it should not.
func Remaining(t Table, r journal.Record) (rows []Step) {
	for _, s := range t {
		st := r.Steps[s.ID].State
		stays := r.Phase == journal.Suspend && kept(r, s) ||
			r.Phase == journal.Forward && st == journal.Done && (s.Undo == nil || len(s.Undo.When) == 0)
		if st == journal.Left || taken(r, s) && !stays {
			rows = append(rows, s)
		}
	}
	return rows
}

// with returns a copy of the record in which step id is st.
func with(r journal.Record, id string, st journal.Step) journal.Record {
	r.Steps = maps.Clone(r.Steps)
	if r.Steps == nil {
		r.Steps = map[string]journal.Step{}
	}
	r.Steps[id] = st
	return r
}

func all(ids []string, is func(string) bool) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !is(id) })
}
