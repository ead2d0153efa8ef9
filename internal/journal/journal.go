// Package journal is what a capture writes down before it acts, so that another
// process can finish it or undo it: intents, resume tokens, and the list of
// what has to be put back. This is the contract, with an in-memory store; the
// real store lies in the cluster, beside the pool's Lease (cluster/kube).
//
// The journal says what was attempted; the world says what is done. A record is
// one document: it is read and written whole, with a revision, so that two
// writers cannot both win.
package journal

import (
	"context"
	"encoding/json"
	"time"
)

// A Record is one capture's journal.
type Record struct {
	Revision string    `json:"-"` // the store's; opaque
	Schema   int       `json:"schema"`
	Capture  string    `json:"capture"` // its name, unique for the pool: "20261121-1"
	Kind     string    `json:"kind"`    // "capture" or "rollback"
	Pool     string    `json:"pool"`    // ARM id
	Donor    string    `json:"donor"`   // node name
	Begun    time.Time `json:"begun"`
	// Request is the engine's own: options as given, so that a resume does the
	// same.
	Request json.RawMessage `json:"request"`
	// Facts are the engine's own: what was observed before anything changed and
	// cannot be observed later (original values, names chosen).
	Facts json.RawMessage `json:"facts,omitempty"`
	// Intents by step id: what was about to be done, and how to ask for it.
	Intents map[string]Intent `json:"intents,omitempty"`
	// Undo is what has to be put back, oldest first; undone newest first.
	Undo []Undo `json:"undo,omitempty"`
	// Ended says how the capture ended; nil while it runs or can be resumed.
	Ended *End `json:"ended,omitempty"`
}

// An Intent is recorded before a change is begun; its token straight after. A
// later write may leave the token out once the change was seen done.
type Intent struct {
	Verb   string    `json:"verb"`
	Target string    `json:"target"`
	At     time.Time `json:"at"`
	Tries  int       `json:"tries"`
	Token  string    `json:"token,omitempty"`
	// Note is the step's own small state.
	Note json.RawMessage `json:"note,omitempty"`
}

// An Undo is one thing of ours to put back, with the value from before.
type Undo struct {
	Name string          `json:"name"` // stable: "cordon", "protection", "annotation/<key>"
	What json.RawMessage `json:"what,omitempty"`
}

// An End says how it ended.
type End struct {
	At      time.Time `json:"at"`
	Exit    int       `json:"exit"`
	Message string    `json:"message"`
}

// Store keeps one record per pool, whose ARM id it compares without letter
// case. Errors are *fleet.Error: KindNotFound where there is none, KindConflict
// where the record was written by somebody else since it was read, KindInvalid
// and KindUnsupported as Decode has them.
type Store interface {
	Load(ctx context.Context, pool string) (Record, error)
	// Save writes the record whole and gives it back with its new revision. A
	// record without a revision must not exist yet, and one with a revision must
	// not have been deleted since. KindInvalid where it is over MaxSize. After
	// KindTransient it may have been written: Load tells.
	Save(ctx context.Context, r Record) (Record, error)
}
