package workflow

import (
	"context"
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

// owner gives the row that has id as its own or its undo's, as workflowtest.Check has seen to.
func (t Table) owner(id string) Step {
	return t[slices.IndexFunc(t, func(s Step) bool { return s.ID == id || s.Undo != nil && s.Undo.ID == id })]
}
