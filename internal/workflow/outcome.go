package workflow

import (
	"errors"
	"fmt"
	"strings"
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

// A Problem is one reason not to begin.
type Problem struct {
	Code   string `json:"code"`
	On     string `json:"on,omitempty"`
	What   string `json:"what"`
	WayOut string `json:"wayOut,omitempty"`
}

func (p Problem) String() string {
	s := p.Code + ": " + p.What
	if p.On != "" {
		s = p.Code + " (" + p.On + "): " + p.What
	}
	if p.WayOut != "" {
		s += "; " + p.WayOut
	}
	return s
}

// Refused means that nothing was begun: all reasons at once.
type Refused struct{ Problems []Problem } //nolint:errname // an outcome

func (e *Refused) Error() string {
	lines := []string{fmt.Sprintf("refused for %d reason(s), nothing was changed", len(e.Problems))}
	for _, p := range e.Problems {
		lines = append(lines, "  - "+p.String())
	}
	return strings.Join(lines, "\n")
}

// Failed means that a step failed and all changes were undone.
type Failed struct { //nolint:errname // an outcome
	Step string
	Err  error
}

func (e *Failed) Error() string {
	return fmt.Sprintf("step %s: %v; all changes were undone", e.Step, e.Err)
}

// Unwrap gives the cause.
func (e *Failed) Unwrap() error { return e.Err }

// NeedsPerson means that something is left that Ortet cannot undo or finish. The same
// command again tries what is left first.
type NeedsPerson struct { //nolint:errname // an outcome
	Step string
	Left []string // what is left, each with what to do
	Err  error
}

func (e *NeedsPerson) Error() string {
	return strings.Join(append([]string{fmt.Sprintf("step %s: %v; this needs a person", e.Step, e.Err)}, e.Left...), "\n  - ")
}

// Unwrap gives the cause.
func (e *NeedsPerson) Unwrap() error { return e.Err }

// Interrupted means that the run was stopped and the same command resumes it.
type Interrupted struct { //nolint:errname // an outcome
	Step string
	Left []string // what could not be undone until then
	Err  error
}

func (e *Interrupted) Error() string {
	return strings.Join(append([]string{fmt.Sprintf("interrupted at step %s: %v; run the same command to resume", e.Step, e.Err)}, e.Left...), "\n  - ")
}

// Unwrap gives the cause.
func (e *Interrupted) Unwrap() error { return e.Err }
