package workflow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/workflow/journal"
)

// A Table is a workflow's rows, in the order in which people read them.
type Table []Step

// A Step is one row.
type Step struct {
	ID, Title       string        // "drain", "Drain node X"
	Usual, Deadline time.Duration // Deadline counts from the first start, also in an earlier process; 0: DefaultDeadline
	Every           time.Duration // longest pause between two passes; 0: as the pass asks
	After           []string      // steps or undos that must have succeeded
	Skip            string        // why the plan does not need it; "" runs it
	Taken           bool          // with Skip: the effect of Do exists, so its Undo runs
	Optional        bool          // a failure does not end the run
	Commits         bool          // once it is done, a later failure ends with ExitNeedsPerson
	Do              Act
	Undo            *Undo
}

// DefaultDeadline applies to actions without a Deadline.
const DefaultDeadline = 15 * time.Minute

// An Undo reverts what Do did: in the good case once the steps of When succeeded, at once
// after a failure or an interruption.
type Undo struct {
	ID, Title       string
	Usual, Deadline time.Duration
	Every           time.Duration
	When            []string      // good case: once these steps succeeded; empty: only after a failure
	After           []string      // undos that must have ended first
	Needs           []string      // undos that must have succeeded first
	Keep            journal.State // Running or Done: from this state on an interruption leaves the row to the next run
	Do              Act
	Manual          func() string // what a person does if it fails
}

// An Act is one pass: observe; if the world is not as wanted, ask for it. It neither
// waits nor retries. Before its first change it calls Pass.Before, Ensure or Save.
type Act func(ctx context.Context, p *Pass) (Wait, error)

// A Wait says when the next pass is due. The zero Wait says that the act is done.
type Wait struct {
	In      time.Duration
	Percent int32 // -1: unknown
	Status  string
}

// A Redo is the error of an act that found the effect of earlier steps lost: these steps
// are undone and done again, at most maxRedos times in a run.
type Redo struct { //nolint:errname // an instruction to the scheduler
	Steps []string
	Err   error
}

const maxRedos = 3

func (e *Redo) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Redo) Unwrap() error { return e.Err }

// owner returns the row of the step or undo id, which exists in a table that Check passed.
func (t Table) owner(id string) Step {
	return t[slices.IndexFunc(t, func(s Step) bool { return s.ID == id || s.Undo != nil && s.Undo.ID == id })]
}

// Check returns an error for unknown or repeated ids, cycles, and a step or an undo that
// can never run.
func (t Table) Check() error {
	waits := map[string][]string{} // what each id waits for in the good case
	undos := map[string]*Undo{}
	add := func(id string, do Act, after ...string) error {
		if _, again := waits[id]; again || id == "" || do == nil {
			return fmt.Errorf("id %q is empty, used twice or without a Do", id)
		}
		waits[id] = after
		return nil
	}
	for _, s := range t {
		if err := add(s.ID, s.Do, s.After...); err != nil {
			return err
		}
		if u := s.Undo; u != nil {
			if err := add(u.ID, u.Do, slices.Concat([]string{s.ID}, u.When, u.After, u.Needs)...); err != nil {
				return err
			}
			undos[u.ID] = u
		}
	}
	for id, after := range waits {
		u := undos[id]
		for _, other := range after {
			switch o := undos[other]; {
			case o == nil && u != nil && (slices.Contains(u.After, other) || slices.Contains(u.Needs, other)):
				return fmt.Errorf("undo %s waits for %q, which is no undo", id, other)
			case o == nil:
			case u != nil && slices.Contains(u.When, other):
				return fmt.Errorf("undo %s: When names undo %s, not a step", id, other)
			case len(o.When) == 0 && (u == nil || len(u.When) > 0):
				return fmt.Errorf("%s waits for undo %s, which runs only after a failure", id, other)
			case o.Keep != "" && u != nil && u.Keep == "":
				return fmt.Errorf("undo %s waits for undo %s, which an interruption leaves out", id, other)
			}
		}
	}
	visited := map[string]bool{} // false while its own waits are being visited
	var visit func(id, from string) error
	visit = func(id, from string) error {
		after, known := waits[id]
		switch finished, met := visited[id]; {
		case !known:
			return fmt.Errorf("%s waits for the unknown id %q", from, id)
		case finished:
			return nil
		case met:
			return fmt.Errorf("%s and %s wait for each other", from, id)
		}
		visited[id] = false
		for _, next := range after {
			if err := visit(next, id); err != nil {
				return err
			}
		}
		visited[id] = true
		return nil
	}
	for id := range waits {
		if err := visit(id, ""); err != nil {
			return err
		}
	}
	return nil
}
