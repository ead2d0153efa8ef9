package wire

import "time"

// LeavingMark is the annotation, with a Leaving as JSON, and the key of the taint, by
// which a Node is marked that leaves. The admission server sets both, the node itself,
// where the server is away, the annotation alone: a kubelet may not change taints.
const LeavingMark = "ortet.io/leaving"

// A Leaving is what a departure marked on a Node, so that either side undoes that and
// only that.
type Leaving struct {
	Cause    string    `json:"cause"`
	At       time.Time `json:"at"`
	Stay     bool      `json:"stay,omitempty"`     // it comes back
	BootID   string    `json:"bootId,omitempty"`   // in which it left: another one came back
	Cordoned bool      `json:"cordoned,omitempty"` // it was schedulable
	Excluded bool      `json:"excluded,omitempty"` // it was in load balancers
}
