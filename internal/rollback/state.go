package rollback

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// A state is what a rollback decided. It is saved with the record.
type state struct {
	capture.Inherited
	prototype.Return
	Pool         fleet.ResourceID `json:"pool"`                 // as Azure spells it
	CustomData   string           `json:"customData,omitempty"` // SHA-256 of what the model's is replaced by; "" leaves it
	SameImage    bool             `json:"sameImage,omitempty"`  // the model had it: only its customData changes
	ModelChanged bool             `json:"modelChanged,omitempty"`
	ToRestore    []string         `json:"toRestore,omitempty"` // extensions, by name
	Restored     []string         `json:"restored,omitempty"`
}

// target gives the image that the model is pointed at, and its name for people.
func (s state) target() (fleet.ImageReference, string) {
	if s.ToOriginal {
		return s.Original.Image, s.Original.Image.Text()
	}
	return fleet.ImageReference{ID: s.To}, s.To.Name()
}

// requested reports whether this is what a request asks for.
func (s state) requested(to string) bool {
	return to == "" || to == Previous || s.ToOriginal && to == Original || !s.ToOriginal && to == s.To.Name()
}

func (r *rollback) get() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.s
}

// set changes the state. The next save writes it.
func (r *rollback) set(change func(s *state)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.s)
}

// Kind implements workflow.Workflow.
func (r *rollback) Kind() string { return Kind }

// State implements workflow.Workflow.
func (r *rollback) State(bool) any { return r.get() }

// Restore implements workflow.Workflow. It refuses a state that names what is not the
// pool's: who can write the Secret must not have Ortet change that.
func (r *rollback) Restore(rec journal.Record) (workflow.Table, bool, error) {
	var q Request
	if err := json.Unmarshal(rec.Request, &q); err != nil {
		return nil, false, fmt.Errorf("decode the request: %w", err)
	}
	var s state
	if err := json.Unmarshal(rec.State, &s); err != nil {
		return nil, false, fmt.Errorf("decode the state: %w", err)
	}
	ours := func(id fleet.ResourceID) bool {
		return id == "" || id.Equal(prototype.DefinitionOf(s.Pool).Child("versions", id.Name())) && fleet.ValidName(id.Name())
	}
	if !s.Pool.Equal(fleet.ResourceID(rec.Pool)) || !ours(s.To) || !ours(s.TagFrom) || s.ToOriginal && s.Original == nil {
		return nil, false, fmt.Errorf("the state is not of the pool %s", rec.Pool)
	}
	r.mu.Lock()
	r.req, r.name, r.s = q, rec.Name, s
	r.mu.Unlock()
	begun := rec.Begun.UTC().Format(time.RFC3339)
	if rec.Phase == journal.Undo || !s.requested(r.asked.To) {
		r.Note("%s, begun at %s, was ended first", rec.Name, begun)
		return r.table(nil), false, nil
	}
	r.result.Resumed = true
	r.Note("resumed %s, begun at %s", rec.Name, begun)
	return r.table(nil), true, nil
}
