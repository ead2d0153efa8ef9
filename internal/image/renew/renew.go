// Package renew brings the nodes of a pool that exist to the image of the pool's model, a few at a
// time: a rollout.
//
// Nothing is journaled. Which nodes are to be renewed is read from Azure and from the Nodes in each
// round, so an interrupted rollout goes on when it is run again. The Node object stays, and on it a
// cordon and an annotation, which outlive the machine's disk: pods come back only after the node has
// passed the gates of internal/image/prove. A node lacks the image by what it was made from, never by
// latestModelApplied.
//
// That a new disk joins under a Node that exists: a kubelet takes its Node over; the admission server
// lets it in once the Node's Lease is a minute old; k3s and RKE2 do once the node password is deleted;
// kubeadm join refuses while the Node is Ready, which it is for 40 to 50 s after its kubelet stopped.
package renew

import (
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/schedule"
)

// Step is what a rollout is called in events and outcomes.
const Step = "rollout"

// Defaults of a Request.
const (
	DefaultMaxUnavailable = "1"
	DefaultSoak           = 2 * time.Minute
	DefaultDrainTimeout   = 10 * time.Minute
)

// A Request says what to renew. Pool and MaxUnavailable are required.
type Request struct {
	Pool fleet.ResourceID
	// MaxUnavailable is how many of the pool's Nodes may be out of service at a time, whoever took them
	// out: "1", or "10%" of its instances, rounded down and at least 1; others are fleet.KindInvalid.
	MaxUnavailable string
	Soak           time.Duration   // how long the gates of the first node have to hold
	Window         schedule.Window // in which nodes are begun; the zero Window is always open
	DrainTimeout   time.Duration   // of each node
}

// Why a node is renewed, in the order in which nodes are.
const (
	Unfinished  = "unfinished"  // an earlier rollout began it
	Quarantined = "quarantined" // its image is, or was rolled back
	Older       = "older"       // its image is another than the model's
)

// A Planned node is to be renewed.
type Planned struct {
	Node     string   `json:"node,omitempty"` // "" where the machine has no Node
	Instance string   `json:"instance"`       // "pool1_3"
	Why      string   `json:"why"`            // Unfinished, Quarantined or Older
	From     string   `json:"from,omitempty"` // the version that it has, or publisher:offer:sku:version
	Disk     []string `json:"disk,omitempty"` // what goes with its disk: volumes of pods, each in words
}

// A LeftOut node has another image, and is not renewed.
type LeftOut struct {
	Node string `json:"node"` // or the instance's name where it has no Node
	Why  string `json:"why"`  // with what to do, where a person may do something
}

// A Plan is what a rollout would do now.
type Plan struct {
	Pool           fleet.ResourceID `json:"pool"`
	Image          fleet.ResourceID `json:"image"`          // of the model, "latest" resolved; or publisher:offer:sku:version
	MaxUnavailable int              `json:"maxUnavailable"` // nodes
	Nodes          []Planned        `json:"nodes"`          // in order
	Differs        []string         `json:"differs,omitempty"`
	LeftOut        []LeftOut        `json:"leftOut,omitempty"`
	Notes          []string         `json:"notes,omitempty"`
	Problems       []fleet.Problem  `json:"problems,omitempty"`
}

// A Result says how a rollout ended.
type Result struct {
	Pool    fleet.ResourceID `json:"pool"`
	Image   fleet.ResourceID `json:"image"`
	Renewed []string         `json:"renewed"`          // nodes, in the order in which they passed
	Failed  string           `json:"failed,omitempty"` // node that stays cordoned
	Why     string           `json:"why,omitempty"`    // it failed, or the rollout stopped
	Left    []LeftOut        `json:"left,omitempty"`
	Waiting string           `json:"waiting,omitempty"` // how many nodes wait, and for what: the next window
	Notes   []string         `json:"notes,omitempty"`
}

// A Service renews. It may be used from several goroutines.
type Service struct{ capture.Config }

// New makes a Service.
func New(config capture.Config) *Service { return &Service{config} }
