// Package journal is what a workflow writes down before it acts, so that another
// process can undo it or go on: schema 2. The store is a Secret beside the pool's Lease;
// journaltest has one in memory.
//
// The record says what was attempted; the world says what is done. It is read and
// written whole, under the store's revision, so that of two writers one fails.
package journal

import (
	"context"
	"encoding/json"
	"time"
)

// A Record is one run of a workflow on a pool.
type Record struct {
	Revision string          `json:"-"` // the store's; opaque
	Schema   int             `json:"schema"`
	Kind     string          `json:"kind"`              // "capture", "rollback"
	Name     string          `json:"name"`              // unique for the pool: "20261121-090000"
	Pool     string          `json:"pool"`              // ARM id
	Subject  string          `json:"subject,omitempty"` // a capture's donor
	Begun    time.Time       `json:"begun"`
	Writer   string          `json:"writer"`            // distinguishes our own lost write from another's
	Request  json.RawMessage `json:"request,omitempty"` // as asked
	State    json.RawMessage `json:"state,omitempty"`   // the workflow's own: what cannot be observed again
	Phase    Phase           `json:"phase,omitempty"`
	Why      string          `json:"why,omitempty"`   // what ended the phase forward
	Steps    map[string]Step `json:"steps,omitempty"` // by the row's ID
	Ended    *End            `json:"ended,omitempty"` // nil while something is to be done or undone
}

// Open reports whether a workflow has begun and not ended.
func (r Record) Open() bool { return r.Name != "" && r.Ended == nil }

// A Phase is the direction of a run.
type Phase string

// The phases.
const (
	Forward Phase = ""
	Undo    Phase = "undo"    // a step failed, or the run is not resumable: undo everything
	Suspend Phase = "suspend" // interrupted: undo all but what Keep names
)

// A State is how far a row is.
type State string

// The states.
const (
	Pending State = ""
	Skipped State = "skipped" // the plan does not need it
	Running State = "running" // saved before the first change of Do
	Done    State = "done"
	Failed  State = "failed" // Do failed; what it took may be there
	Undoing State = "undoing"
	Undone  State = "undone"
	Left    State = "left" // Undo failed: needs a person
)

// A Step is what is recorded of one row.
type Step struct {
	State    State     `json:"state,omitempty"`
	Begun    time.Time `json:"begun,omitzero"`     // of Do, or of Undo once it is Undoing
	Failures int       `json:"failures,omitempty"` // failed passes in a row
	// Before is what was there before Do: what Undo restores.
	Before json.RawMessage `json:"before,omitempty"`

	// The change under way: saved before it is begun, its token right after.
	Change string `json:"change,omitempty"` // verb and target
	Token  string `json:"token,omitempty"`
	// Asked is when it was begun, as long as the answer is unknown.
	Asked time.Time `json:"asked,omitzero"`
	Tries int       `json:"tries,omitempty"` // how often this process or controller began it
	Error string    `json:"error,omitempty"` // the last
}

// An End is how a run ended.
type End struct {
	At      time.Time `json:"at"`
	Exit    int       `json:"exit"`
	Message string    `json:"message,omitempty"`
}

// A Store keeps one record for each pool, whose ARM id it compares without letter
// case. Errors are *fleet.Error: KindNotFound if no record exists, KindConflict if
// another writer saved it since it was read, KindInvalid and KindUnsupported as
// Decode has them.
type Store interface {
	Load(ctx context.Context, pool string) (Record, error)
	// Save writes the record whole and returns it with its new revision. A record
	// without a revision must not exist yet; one with a revision must not have been
	// deleted since. After KindTransient it may have been written.
	Save(ctx context.Context, r Record) (Record, error)
}
