// Package rollout brings a configuration to a pool's live nodes.
package rollout

import (
	"crypto/ed25519"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// PushOptions are what a push is given.
type PushOptions struct {
	Config         nodeconfig.Config
	Key            ed25519.PrivateKey
	Keys           []nodeconfig.PublicKey // that nodes accept from then on; empty leaves theirs
	Canary         string                 // a Node's name; "" lets the push choose
	MaxUnavailable string                 // "1", "25%"
	Timeout        time.Duration          // of one node's answer
	Retry          bool                   // try a generation again that failed
	// ReplaceUserData overwrites userData that is not Ortet's.
	ReplaceUserData bool
}

// A Node is a node of the pool, and how far it is.
type Node struct {
	Name       string    `json:"name"`
	Instance   string    `json:"instance"` // ARM id
	Ready      bool      `json:"ready"`
	Generation int64     `json:"generation"` // that it has; 0 for none
	Wanted     int64     `json:"wanted"`
	State      string    `json:"state,omitempty"` // a wire.ConfigurationState; "" where it never answered
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	At         time.Time `json:"at,omitzero"` // when State began
	Drift      []string  `json:"drift,omitempty"`
}

// An Entry is a generation of a pool's history.
type Entry struct {
	Generation int64     `json:"generation"`
	Digest     string    `json:"digest"`
	By         string    `json:"by"` // "user@host"
	At         time.Time `json:"at"`
}

// A Status is what a pool has.
type Status struct {
	Pool         fleet.ResourceID `json:"pool"`
	Model        int64            `json:"model"`                  // generation in the model; 0 for none
	ModelForeign bool             `json:"modelForeign,omitempty"` // the model's userData is not Ortet's
	Nodes        []Node           `json:"nodes"`
	Without      []string         `json:"without,omitempty"` // instances without a Node
	History      []Entry          `json:"history"`           // newest first
}

// A Plan is what a push would do.
type Plan struct {
	Pool       fleet.ResourceID    `json:"pool"`
	Generation int64               `json:"generation"` // that a push would take
	From       int64               `json:"from"`       // the present one; 0 for none
	Changes    []nodeconfig.Change `json:"changes"`
	Restarts   []string            `json:"restarts,omitempty"`
	Nodes      []Node              `json:"nodes"`
	Expected   time.Duration       `json:"expected"` // nanoseconds
	Notes      []string            `json:"notes,omitempty"`
}

// A Result is how a push ended.
type Result struct {
	Pool       fleet.ResourceID `json:"pool"`
	Generation int64            `json:"generation"`
	Nodes      []Node           `json:"nodes"`
	Left       []Node           `json:"left,omitempty"` // not reached, with why
	Took       time.Duration    `json:"took"`           // nanoseconds
}
