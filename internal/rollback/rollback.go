// Package rollback points a pool's model at an earlier image version, or at what the
// model was before its first capture.
//
// Its steps change the model, restore extensions, and tag versions. What a capture deleted
// from the model is restored from Ortet's Secrets; if that is not possible, the rollback is
// refused and names what is lost.
package rollback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
	To   string           `json:"to,omitempty"`   // a version's name, "2026.11.20", Previous or Original; "" is Previous

	AllowRolling         bool `json:"allowRolling,omitempty"` // as for a capture
	AllowOwned           bool `json:"allowOwned,omitempty"`
	AcceptLostExtensions bool `json:"acceptLostExtensions,omitempty"` // what cannot be restored ends in workflow.ExitNeedsPerson
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
	runs atomic.Int64
}

// New makes a Service. Others of config returns the workflow that undoes an open capture.
func New(config capture.Config) *Service {
	return &Service{Config: config}
}

// Workflow returns the workflow with which a capture ends an open rollback.
func (s *Service) Workflow() workflow.Workflow { return s.rollback(Request{}) }

// A rollback is one call of Rollback or Plan, as a workflow.
type rollback struct {
	*Service
	*capture.ScaleSet
	workflow.Summary
	asked Request // by this command

	mu     sync.Mutex
	req    Request // of the record
	name   string
	pool   fleet.ResourceID // of the request, or of its node
	s      state
	result Result

	// Of this process alone.
	patch   *fleet.PatchModel
	etag    string // of the scale set when the model was last asked to change
	nothing bool
	write   *fleet.WriteExtension // that is under way
	lost    []string              // extensions that are not restored, with the reason
}

var _ workflow.Workflow = (*rollback)(nil)

func (s *Service) rollback(q Request) *rollback {
	return &rollback{Service: s, ScaleSet: capture.NewScaleSet(s.Config), asked: q, req: q, pool: q.Pool}
}

// Rollback points the model at the version that q names. An open rollback with the same
// request is resumed; another open rollback is ended first, and an open capture is undone
// first. Errors are those of capture.Service.Capture.
func (s *Service) Rollback(ctx context.Context, q Request) (Result, error) {
	r := s.rollback(q)
	r.result.Timing.Begin = s.Now()
	err := r.run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Timing.End = s.Now()
	r.result.Notes, r.result.Timing.Steps = r.Booked()
	r.result.From, r.result.To, r.result.NothingToDo = r.s.From, r.s.To, r.nothing
	r.result.Restored, r.result.Lost = r.s.Restored, r.lost
	if r.s.Pool != "" {
		r.result.Pool = r.s.Pool
	}
	if r.s.ToOriginal {
		r.result.Original = r.s.Original
	}
	return r.result, err
}

func (r *rollback) run(ctx context.Context) error {
	pool, err := r.findPool(ctx)
	var refused *workflow.Refused
	switch {
	case errors.As(err, &refused):
		return err
	case err != nil: // a record may be open
		return &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "preflight", Err: err}
	}
	r.result.Pool = pool
	return r.Runner(fmt.Sprintf("rollback-%d", r.runs.Add(1)), &r.Summary).Run(ctx, pool, r)
}

// findPool gives the pool that the request names, or refuses the request.
func (r *rollback) findPool(ctx context.Context) (fleet.ResourceID, error) {
	no := func(on, what string) error {
		return &workflow.Refused{Problems: []fleet.Problem{{Code: "NoPool", On: on, What: what, WayOut: "name a pool or one of its nodes"}}}
	}
	switch {
	case r.pool != "":
		return r.pool, nil
	case r.asked.Node == "":
		return "", no("the request", "neither a pool nor a node is named")
	}
	n, err := r.Cluster.Node(ctx, r.asked.Node)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return "", no("node "+r.asked.Node, "no such node exists")
	case fleet.Is(err, fleet.KindDenied):
		return "", &workflow.Refused{Problems: prototype.DeniedProblems(prototype.Observed{DeniedCluster: []string{"get nodes"}})}
	case err != nil:
		return "", err
	}
	id, err := fleet.ParseProviderID(n.ProviderID)
	if err != nil {
		return "", no("node "+r.asked.Node, err.Error())
	}
	r.pool = id.Parent()
	return r.pool, nil
}
