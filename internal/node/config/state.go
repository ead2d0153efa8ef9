package config

import (
	"encoding/json"
	"fmt"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// State is what outlives the agent, beside the store's: the last generation that failed,
// which is not tried again. It names neither the machine nor its Node, so that a copy of
// the disk may keep it.
type State struct {
	Pool       string `json:"pool"` // ARM id of the scale set, in lower case
	Generation int64  `json:"generation"`
	Reason     string `json:"reason"`
	Message    string `json:"message,omitempty"`
}

// LoadState reads the state of the node with this root. One that cannot be read is an
// error: without it a document that failed would be tried again.
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

// A Store keeps the files of the document in force: files.Store.
type Store interface {
	Current() (set files.Set, record []byte, err error)
	Pending() (record []byte, pending bool, err error)
	Drift() ([]string, error)
	Forget() error
}

// Current is the document in force, nil for none. Its signature was checked when it was
// applied.
func Current(store Store) (*nodeconfig.Document, error) {
	_, record, err := store.Current()
	return documentOf(record, record != nil, err)
}

// pending is the document whose application has not ended, nil for none.
func pending(store Store) (*nodeconfig.Document, error) { return documentOf(store.Pending()) }

func documentOf(record []byte, ok bool, err error) (*nodeconfig.Document, error) {
	if err != nil || !ok {
		return nil, err
	}
	d, err := nodeconfig.ReadUnverified(string(record))
	if err != nil {
		return nil, fmt.Errorf("read kept document: %w", err)
	}
	return &d, nil
}
