package workflow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Exit codes of a run.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitRefused     = 3
	ExitNeedsPerson = 4
	ExitInterrupted = 5
)

// ExitCode gives the exit code for what a run returned.
func ExitCode(err error) int {
	var outcome *Outcome
	var refused *Refused
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &outcome):
		return outcome.Exit
	case errors.As(err, &refused):
		return ExitRefused
	}
	return ExitFailed
}

// Refused means that nothing was begun: all reasons at once.
type Refused struct{ Problems []fleet.Problem } //nolint:errname // an outcome

func (e *Refused) Error() string {
	s := fmt.Sprintf("refused for %d reason(s), nothing was changed", len(e.Problems))
	for _, p := range e.Problems {
		s += "\n  - " + p.String()
	}
	return s
}

// An Outcome is the end of a run that is not done: ExitFailed, all changes were undone;
// ExitNeedsPerson, something is left or not finished that Ortet cannot put right;
// ExitInterrupted, the same command resumes.
type Outcome struct { //nolint:errname // an outcome
	Exit int
	Step string   // "" if all steps are done
	Left []string // what is left, each with what to do
	Err  error
}

func (e *Outcome) Error() string {
	s := fmt.Sprintf("%v; ", e.Err)
	if e.Step != "" {
		s = "step " + e.Step + ": " + s
	}
	s += map[int]string{ExitFailed: "all changes were undone", ExitNeedsPerson: "this needs a person", ExitInterrupted: "interrupted, run the same command to resume"}[e.Exit]
	return strings.Join(append([]string{s}, e.Left...), "\n  - ")
}

// Unwrap gives the cause.
func (e *Outcome) Unwrap() error { return e.Err }
