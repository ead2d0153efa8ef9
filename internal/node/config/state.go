package config

import (
	"encoding/json"
	"fmt"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// State is what outlives the agent, beside the store's. It names neither the machine nor
// its Node, so that a copy of the disk may keep it.
type State struct {
	Pool string `json:"pool,omitempty"` // ARM id of the scale set, in lower case
	// Floor is the lowest generation that is still accepted.
	Floor int64 `json:"floor,omitempty"`
	// Trying is the generation whose application began and has not ended.
	Trying *Attempt `json:"trying,omitempty"`
	// Failed is the last generation that failed: it is not tried again.
	Failed *Attempt `json:"failed,omitempty"`
}

// An Attempt is one application of a document. Reason and Message are those of its failure.
type Attempt struct {
	Generation int64  `json:"generation"`
	Digest     string `json:"digest"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

// LoadState reads the state of the node with this root. One that cannot be read is an
// error: without its floor an older document would be accepted.
func LoadState(root string) (s State, err error) {
	text, err := readFile(bootstrap.Under(root, StateFile))
	if err == nil && text != nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return State{}, fmt.Errorf("read %s: %w", StateFile, err)
	}
	return s, nil
}

// Save writes the state.
func (s State) Save(root string) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = bootstrap.Keep(bootstrap.Under(root, StateFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", StateFile, err)
	}
	return nil
}

// end takes in how the attempt ended; one that waits for its health goes on.
func (s *State) end(a wire.ConfigurationAnswer) {
	if a.State == wire.ConfigurationApplying {
		return
	}
	t := s.Trying
	s.Trying = nil
	switch {
	case t == nil:
	case a.State == wire.ConfigurationApplied:
		s.Floor, s.Failed = max(s.Floor, t.Generation), nil
	case a.State == wire.ConfigurationFailed:
		t.Reason, t.Message = a.Reason, clip(a.Message)
		s.Floor, s.Failed = max(s.Floor, t.Generation), t
	}
}

// interrupted records that the attempt was undone because the machine or the agent
// stopped in the middle.
func (s *State) interrupted() {
	s.end(wire.ConfigurationAnswer{State: wire.ConfigurationFailed, Reason: wire.ReasonInterrupted,
		Message: "the machine or the agent stopped while this generation was applied; the files are as they were before"})
}

// A Store keeps the files of the document in force: files.Store.
type Store interface {
	Current() (set files.Set, record []byte, err error)
	Pending() (bool, error)
	Drift() ([]string, error)
	Forget() error
}

// Current is the document in force, nil for none. Its signature was checked when it was
// applied.
func Current(store Store) (*nodeconfig.Document, error) {
	_, record, err := store.Current()
	if err != nil || record == nil {
		return nil, err
	}
	signed, err := nodeconfig.Read(string(record))
	if err != nil {
		return nil, fmt.Errorf("read the document in force: %w", err)
	}
	d, err := signed.Unverified()
	if err != nil {
		return nil, fmt.Errorf("read the document in force: %w", err)
	}
	return &d, nil
}
