// Package journal is what a workflow writes down before it acts, so that another
// process can undo it or go on. The record says what was attempted; the world says what
// is done. It is read and written whole, under the store's revision, so that of two
// writers one fails. The store is a Secret; journaltest has one in memory.
package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Schema is the version of Record that this build writes. It rises when a reader of
// the old one would misunderstand the new one.
const Schema = 2

// MaxSize is the limit of an encoded record in bytes: a Kubernetes Secret holds 1 MiB,
// with the object around it.
const MaxSize = 1<<20 - 16<<10

// A Record is one run of a workflow on a pool.
type Record struct {
	Revision string `json:"-"` // the store's; opaque
	// Unreleased: its writer did not release the pool's lock, so it may not have reported the end.
	Unreleased bool `json:"-"`

	Schema  int             `json:"schema"`
	Kind    string          `json:"kind"`              // "capture", "rollback"
	Name    string          `json:"name"`              // unique for the pool: "20261121-090000"
	Pool    string          `json:"pool"`              // ARM id
	Subject string          `json:"subject,omitempty"` // a capture's donor
	Begun   time.Time       `json:"begun"`
	Writer  string          `json:"writer"`            // distinguishes our own lost write from another's
	Request json.RawMessage `json:"request,omitempty"` // as asked
	State   json.RawMessage `json:"state,omitempty"`   // the workflow's own: what cannot be observed again
	Phase   Phase           `json:"phase,omitempty"`
	Why     string          `json:"why,omitempty"`   // what ended the phase forward
	Steps   map[string]Step `json:"steps,omitempty"` // by the row's ID
	Ended   *End            `json:"ended,omitempty"` // nil while something is to be done or undone
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
	Pending    State = ""
	Skipped    State = "skipped" // the plan does not need it
	Running    State = "running" // saved before the first change of Do
	Done       State = "done"
	Failed     State = "failed" // Do failed; what it took may be there
	Undoing    State = "undoing"
	Undone     State = "undone"
	UndoFailed State = "left" // Undo failed: needs a person
)

// A Step is what is recorded of one row.
type Step struct {
	State    State           `json:"state,omitempty"`
	Begun    time.Time       `json:"begun,omitzero"`     // of Do, or of Undo once it is Undoing
	Failures int             `json:"failures,omitempty"` // failed passes in a row
	Before   json.RawMessage `json:"before,omitempty"`   // what was there before Do: what Undo restores

	// The change under way: saved before it is begun, its token right after.
	Change string    `json:"change,omitempty"` // verb and target
	Token  string    `json:"token,omitempty"`
	Asked  time.Time `json:"asked,omitzero"`  // when it was begun, as long as the answer is unknown
	Tries  int       `json:"tries,omitempty"` // how often this process or controller began it
	Error  string    `json:"error,omitempty"` // the last
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

// Encode returns the bytes that a store keeps. A record over MaxSize is fleet.KindInvalid.
func Encode(r Record) ([]byte, error) {
	r.Schema = Schema
	data, err := json.Marshal(r)
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("record has %d bytes, limit %d", len(data), MaxSize)
	}
	if err != nil {
		return nil, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindInvalid, Err: err}
	}
	return data, nil
}

// Decode reads what Encode wrote: unknown fields and the record of another pool are fleet.KindInvalid,
// another schema is fleet.KindUnsupported. An ended record of schema 1 becomes one of
// this schema.
func Decode(pool string, data []byte) (r Record, err error) {
	kind, remedy := fleet.KindInvalid, "inspect the Secret; delete it once nothing in it has to be undone"
	var version struct{ Schema int }
	if err = json.Unmarshal(data, &version); err == nil {
		switch version.Schema {
		case Schema:
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.DisallowUnknownFields()
			err = decoder.Decode(&r)
		case 1:
			if r, err = decodeSchema1(data); err == nil && r.Ended == nil {
				kind, remedy = fleet.KindUnsupported, "run its command again with that version, or undo by hand what it left and delete the Secret"
				err = fmt.Errorf("an earlier version of ortet began %s %s at %s and did not end it", r.Kind, r.Name, r.Begun.UTC().Format(time.RFC3339))
			}
		default:
			kind, remedy = fleet.KindUnsupported, "use the version of ortet that wrote it"
			err = fmt.Errorf("schema %d is not %d", version.Schema, Schema)
		}
	}
	if err == nil && (r.Name == "" || r.Kind == "" || !fleet.ResourceID(r.Pool).Equal(fleet.ResourceID(pool))) {
		err = fmt.Errorf("unexpected kind %q, name %q or pool %q", r.Kind, r.Name, r.Pool)
	}
	if err != nil {
		return Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: kind, Remedy: remedy, Err: err}
	}
	return r, nil
}

// noopSHA is the SHA-256 of plan.NoopCustomData.
const noopSHA = "88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f"

// decodeSchema1 reads a record of schema 1. Its State has what passes from record to record.
func decodeSchema1(data []byte) (Record, error) {
	var old struct {
		Record
		Capture, Donor string
		Facts          struct {
			Original, Return          json.RawMessage // Return is a rollback's
			CustomData, Restore, Went string          // SHA-256
			ModelChanged              bool
		}
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return Record{}, err
	}
	f, state := old.Facts, map[string]any{}
	if f.Original != nil {
		state["original"] = f.Original
	}
	// Schema 1 has the customData that the model was left with; lastCustomData is what
	// Ortet gave it: the no-op, a rollback's, or what replaced another.
	given := f.CustomData == noopSHA || f.Return != nil || f.Went == noopSHA || f.Restore != "" && f.Restore != f.CustomData
	switch {
	case f.ModelChanged && f.CustomData != "" && given:
		state["lastCustomData"] = f.CustomData
	case f.Went == noopSHA:
		state["lastCustomData"] = f.Went
	}
	raw, err := json.Marshal(state)
	return Record{Schema: Schema, Kind: old.Kind, Name: old.Capture, Pool: old.Pool, Subject: old.Donor, Begun: old.Begun, Ended: old.Ended,
		State: raw}, err
}
