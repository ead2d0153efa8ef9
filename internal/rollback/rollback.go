// Package rollback points a pool's model at an earlier image version, or at what the
// model was before its first capture.
//
// It is one workflow: model, extensions, tag. What a capture deleted from the model for
// good is restored from what was saved; what cannot be restored is refused by name.
package rollback

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// Kind is that of a rollback's record.
const Kind = "rollback"

// Previous asks for the version before the one that the model uses, by publishing
// date; Original for what the model was before its first capture.
const (
	Previous = prototype.Previous
	Original = prototype.ToOriginal
)

// A Request says what to return to. Node or Pool is required.
type Request struct {
	Pool fleet.ResourceID `json:"pool,omitempty"`
	Node string           `json:"node,omitempty"` // any node of the pool
	// To is a version's name, "2026.11.20", Previous or Original; "" is Previous.
	To           string `json:"to,omitempty"`
	AllowRolling bool   `json:"allowRolling,omitempty"` // as for a capture
	AllowOwned   bool   `json:"allowOwned,omitempty"`
	// AcceptLostExtensions goes on although extensions of the original model cannot be
	// restored; the end is then workflow.ExitNeedsPerson.
	AcceptLostExtensions bool `json:"acceptLostExtensions,omitempty"`
}

// A Result says what a rollback did.
type Result struct {
	Pool        fleet.ResourceID    `json:"pool"`
	From        fleet.ResourceID    `json:"from,omitempty"` // a version's id, or "" for an image that is not a prototype
	To          fleet.ResourceID    `json:"to"`             // "" with Original
	Original    *prototype.Original `json:"original,omitempty"`
	NothingToDo bool                `json:"nothingToDo,omitempty"`
	Resumed     bool                `json:"resumed,omitempty"`
	Restored    []string            `json:"restored,omitempty"` // extensions, by name
	Lost        []string            `json:"lost,omitempty"`     // extensions that were not restored, with the reason
	Notes       []string            `json:"notes,omitempty"`
	Timing      capture.Timing      `json:"timing"`
}

// A Service rolls back. It may be used from several goroutines.
type Service struct {
	capture.Config
}

// New makes a Service. Config is a capture's; Others gives the workflow of one.
func New(config capture.Config) *Service { return &Service{Config: config} }

var errUnfinished = errors.New("not implemented")

// Workflow gives what undoes an open record of a rollback for a workflow of another kind.
func (s *Service) Workflow() workflow.Workflow { return nil }

// Rollback points the model at what is asked for. Errors are as those of
// capture.Service.Capture.
func (s *Service) Rollback(_ context.Context, q Request) (Result, error) {
	now := s.Now()
	return Result{Pool: q.Pool, Timing: capture.Timing{Begin: now, End: now.Add(time.Duration(0))}}, errUnfinished
}

// Plan says what Rollback would do, and changes nothing. Problems are in the plan, not
// in the error.
func (s *Service) Plan(context.Context, Request) (prototype.Plan, error) {
	return prototype.Plan{Kind: Kind}, errUnfinished
}
