package push

import (
	"crypto/ed25519"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// MaxAfterGeneration is more than any pool reaches, and far from nodeconfig.MaxGeneration:
// a node that reports wrongly cannot bring the pool to the end of the numbers.
const MaxAfterGeneration = 1_000_000

// A Request says what is pushed, and how.
type Request struct {
	Config nodeconfig.Config
	Key    ed25519.PrivateKey // signs the document
	// Keys, where there are some, are what nodes accept from then on. Empty keeps those
	// that the model's document names. Documents that one of them signed are believed.
	Keys []nodeconfig.PublicKey
	// Canary is the Node that is first; "" is the first by name that is Ready.
	Canary string
	// MaxUnavailable is how many nodes are changed at once, "3" or "25%"; "" is "1".
	MaxUnavailable string
	Timeout        time.Duration // of one node's answer; 0 is 5 min
	// Retry takes a new generation where nodes failed the newest one of the same content.
	Retry bool
	// ReplaceUserData overwrites userData that is not Ortet's.
	ReplaceUserData bool
	// SkipNodes are Nodes that are left as they are, with their instances.
	SkipNodes []string
	// ResetGeneration has generations beyond nodeconfig.MaxGeneration not count, also on
	// nodes that have one.
	ResetGeneration bool
	// AfterGeneration is a generation that nodes know and whose document was lost: the push
	// takes a higher one. 0 for none; MaxAfterGeneration at most.
	AfterGeneration int64

	rollback bool  // Config is that of an earlier generation
	to       int64 // the generation; 0 chooses
}

// A Node is a node of a pool with what it answered.
type Node struct {
	Name       string    `json:"name"`     // "" for an instance without a Node
	Instance   string    `json:"instance"` // "pool1_3"
	Ready      bool      `json:"ready"`
	Generation int64     `json:"generation"`      // that it has; 0 for none
	Wanted     int64     `json:"wanted"`          // by the Node's annotation
	State      string    `json:"state,omitempty"` // wire.ConfigurationState; "" for no answer
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	At         time.Time `json:"at,omitzero"` // when State began
	Drift      []string  `json:"drift,omitempty"`
}

// An Entry is a generation in a pool's history.
type Entry struct {
	Generation int64     `json:"generation"`
	Digest     string    `json:"digest"` // of the Config
	By         string    `json:"by,omitempty"`
	At         time.Time `json:"at"`
	ContentOf  int64     `json:"contentOf,omitempty"` // generation to which it was a rollback
}

// A Status is what a pool has.
type Status struct {
	Pool         fleet.ResourceID `json:"pool"`
	Model        int64            `json:"model"` // generation in the model; 0 for none
	ModelForeign bool             `json:"modelForeign,omitempty"`
	Nodes        []Node           `json:"nodes"`             // by name
	Without      []string         `json:"without,omitempty"` // instances without a Node
	History      []Entry          `json:"history"`           // newest first
}

// A Plan is what a push would do.
type Plan struct {
	Pool       fleet.ResourceID    `json:"pool"`
	Generation int64               `json:"generation"` // that a push would take
	From       int64               `json:"from"`       // that Changes compare with: the model's; 0 for none
	Changes    []nodeconfig.Change `json:"changes"`
	Restarts   []string            `json:"restarts,omitempty"` // of all Changes, sorted
	Nodes      []Node              `json:"nodes"`
	Expected   time.Duration       `json:"expected"` // one node at a time; text in JSON
	Notes      []string            `json:"notes,omitempty"`
}

// A Result is what a push reached, in full or until it stopped.
type Result struct {
	Pool       fleet.ResourceID `json:"pool"`
	Generation int64            `json:"generation"`
	ContentOf  int64            `json:"contentOf,omitempty"` // of a rollback
	Nodes      []Node           `json:"nodes"`
	Left       []Node           `json:"left,omitempty"` // not reached; Message says why
	Took       time.Duration    `json:"took"`           // text in JSON
}
