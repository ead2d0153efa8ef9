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
	Usual, Deadline time.Duration // Deadline counts from the saved begin; 0 is DefaultDeadline
	Every           time.Duration // longest pause between two passes; 0: as the pass asks
	After           []string      // steps or undos that must have succeeded
	Skip            string        // why the plan does not need it; "" runs it
	Taken           bool          // with Skip: what Do takes is there, so its Undo is due
	Optional        bool          // a failure is a note
	Commits         bool          // once it is done, a later failure needs a person
	Do              Act
	Undo            *Undo
}

// DefaultDeadline is that of a row without one.
const DefaultDeadline = 15 * time.Minute

// An Undo returns what Do took: as soon as When says in the good case, at once after a
// failure or an interruption.
type Undo struct {
	ID, Title       string
	Usual, Deadline time.Duration
	Every           time.Duration
	When            []string      // good case: once these steps succeeded; empty: only after a failure
	After           []string      // undos that must have ended first
	Needs           []string      // undos that must have succeeded first
	Keep            journal.State // Running or Done: from there on an interruption leaves it for the next run
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

// A Redo is the error of an act that lost what earlier steps took: the rows are undone
// and done again, at most maxRedos times in a run.
type Redo struct { //nolint:errname // an instruction to the scheduler
	Steps []string
	Err   error
}

const maxRedos = 3

func (e *Redo) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Redo) Unwrap() error { return e.Err }

// owner gives the row that has id as its own or its undo's.
func (t Table) owner(id string) (Step, bool) {
	i := slices.IndexFunc(t, func(s Step) bool { return s.ID == id || s.Undo != nil && s.Undo.ID == id })
	if i < 0 {
		return Step{}, false
	}
	return t[i], true
}

// Check reports what is wrong with a table: unknown or repeated ids, cycles, a step or
// an undo that can never run.
func (t Table) Check() error {
	waits := map[string][]string{} // what each id waits for in the good case
	undos := map[string]*Undo{}
	for _, s := range t {
		if s.ID == "" || s.Do == nil {
			return fmt.Errorf("step %q has no ID or no Do", s.ID)
		}
		if _, again := waits[s.ID]; again {
			return fmt.Errorf("two rows have the id %q", s.ID)
		}
		waits[s.ID] = s.After
		u := s.Undo
		if u == nil {
			continue
		}
		if _, again := waits[u.ID]; again {
			return fmt.Errorf("two rows have the id %q", u.ID)
		}
		if u.ID == "" || u.Do == nil || !slices.Contains([]journal.State{"", journal.Running, journal.Done}, u.Keep) {
			return fmt.Errorf("undo %q of %s has no ID, no Do or a wrong Keep", u.ID, s.ID)
		}
		waits[u.ID] = slices.Concat([]string{s.ID}, u.When, u.After, u.Needs)
		undos[u.ID] = u
	}
	for _, s := range t {
		for _, id := range s.After {
			if u := undos[id]; u != nil && len(u.When) == 0 {
				return fmt.Errorf("step %s waits for undo %s, which runs only after a failure", s.ID, id)
			}
		}
		if s.Undo == nil {
			continue
		}
		for _, id := range s.Undo.When {
			if undos[id] != nil {
				return fmt.Errorf("undo %s: When names undo %s, not a step", s.Undo.ID, id)
			}
		}
		for _, id := range slices.Concat(s.Undo.After, s.Undo.Needs) {
			switch u := undos[id]; {
			case u == nil:
				return fmt.Errorf("undo %s waits for %q, which is no undo", s.Undo.ID, id)
			case len(s.Undo.When) > 0 && len(u.When) == 0:
				return fmt.Errorf("undo %s waits for undo %s, which runs only after a failure", s.Undo.ID, id)
			case s.Undo.Keep == "" && u.Keep != "":
				return fmt.Errorf("undo %s waits for undo %s, which an interruption leaves out", s.Undo.ID, id)
			}
		}
	}
	return acyclic(waits)
}

// acyclic reports an unknown id or a cycle.
func acyclic(waits map[string][]string) error {
	state := map[string]int{} // 1: being visited, 2: finished
	var visit func(id, from string) error
	visit = func(id, from string) error {
		after, known := waits[id]
		switch {
		case !known:
			return fmt.Errorf("%s waits for the unknown id %q", from, id)
		case state[id] == 1:
			return fmt.Errorf("%s and %s wait for each other", from, id)
		case state[id] == 2:
			return nil
		}
		state[id] = 1
		for _, next := range after {
			if err := visit(next, id); err != nil {
				return err
			}
		}
		state[id] = 2
		return nil
	}
	for id := range waits {
		if err := visit(id, ""); err != nil {
			return err
		}
	}
	return nil
}
