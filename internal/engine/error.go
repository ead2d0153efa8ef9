package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Exit codes of a capture or rollback.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitRefused     = 3
	ExitNeedsPerson = 4
	ExitInterrupted = 5
)

// ExitCode gives the exit code for what the engine returned: 0 for nil, 1 for
// an error of no type of this package.
func ExitCode(err error) int {
	var (
		refused     *Refused
		needsPerson *NeedsPerson
		interrupted *Interrupted
	)
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &needsPerson):
		return ExitNeedsPerson
	case errors.As(err, &interrupted):
		return ExitInterrupted
	case errors.As(err, &refused):
		return ExitRefused
	}
	return ExitFailed
}

// Refused means that nothing was begun, and why: all reasons at once.
type Refused struct { //nolint:errname // callers read the outcome: *engine.Refused
	Problems []fleet.Problem
}

func (e *Refused) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("refused for %d reason(s), nothing was changed", len(e.Problems)))
	for _, p := range e.Problems {
		lines = append(lines, "  - "+p.String())
	}
	return strings.Join(lines, "\n")
}

// Failed means that a step failed and all that was changed is put back.
type Failed struct { //nolint:errname // callers read the outcome: *engine.Failed
	Step string // prototype.Step's ID
	Err  error

	unbegun bool // this run changed nothing
}

func (e *Failed) Error() string {
	return fmt.Sprintf("step %s: %v; all changes were undone", e.Step, e.Err)
}

// Unwrap gives the cause.
func (e *Failed) Unwrap() error { return e.Err }

// NeedsPerson means that something is left that only a person can put right.
// The same command again puts back what is left once that is done.
type NeedsPerson struct { //nolint:errname // callers read the outcome: *engine.NeedsPerson
	Step string   // prototype.Step's ID
	Left []string // what is left, each with what to do
	Err  error
}

func (e *NeedsPerson) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "step %s: %v; this needs a person", e.Step, e.Err)
	for _, l := range e.Left {
		b.WriteString("\n  - " + l)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *NeedsPerson) Unwrap() error { return e.Err }

// Interrupted means that the work was stopped and the same command goes on.
type Interrupted struct { //nolint:errname // callers read the outcome: *engine.Interrupted
	Step  string // where it was
	Donor string // what became of the donor
	Err   error
}

func (e *Interrupted) Error() string {
	s := fmt.Sprintf("interrupted at step %s: %v", e.Step, e.Err)
	if e.Donor != "" {
		s += "; " + e.Donor
	}
	return s + "; run the same command to resume"
}

// Unwrap gives the cause.
func (e *Interrupted) Unwrap() error { return e.Err }
