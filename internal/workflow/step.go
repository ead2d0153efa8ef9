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
	When            []string      // good case: once these steps succeeded; empty: only after a failure
	After           []string      // undos that must have ended first
	Needs           []string      // undos that must have succeeded first
	Keep            journal.State // Running or Done: from this state on an interruption leaves the row to the next run
	Do              Act
	Manual          func() string // what a person does if it fails
}

// An Act is one pass: observe; if the world is not as wanted, ask for it. It neither
// waits nor retries. Before its first change it calls Before, Ensure or Save.
type Act func(ctx context.Context, p *Pass) (Wait, error)

// A Wait says when the next pass is due. The zero Wait says that the act is done.
type Wait struct {
	In      time.Duration
	Percent int32 // -1: unknown
	Status  string
}

// An Again is the error of an act that found the effect of earlier steps lost: the run is
// suspended and planned again, as after an interruption; the third time it fails.
type Again struct{ Err error } //nolint:errname // an instruction to the runner

const maxPlans = 3

func (e *Again) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Again) Unwrap() error { return e.Err }

// owner gives the row that has id as its own or its undo's, as workflowtest.Check has seen to.
func (t Table) owner(id string) Step {
	return t[slices.IndexFunc(t, func(s Step) bool { return s.ID == id || s.Undo != nil && s.Undo.ID == id })]
}
