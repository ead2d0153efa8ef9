package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Inherited is the part of a state that goes from record to record of a pool, of
// captures and of rollbacks. It is read from the state of either.
type Inherited struct {
	// LastCustomData is the SHA-256 of what Ortet last gave the model, "" if never.
	LastCustomData string          `json:"lastCustomData,omitempty"`
	Original       *Original       `json:"original,omitempty"`
	Growth         Growth          `json:"growth,omitzero"` // the newest
	Unfinished     *Unfinished     `json:"unfinished,omitempty"`
	Watched        json.RawMessage `json:"watched,omitempty"` // what a watch found
}

// Unfinished is what a rollback decided that changed the model and did not end well.
type Unfinished struct {
	Return
	Name       string `json:"name"`                 // of its record
	Asked      string `json:"asked,omitempty"`      // where to
	FromFailed bool   `json:"fromFailed,omitempty"` // version From was Failed before: a tag does not repair it
	Patched    bool   `json:"patched,omitempty"`    // the model has the customData that goes with the image
}

// A NewNode is an instance that a capture added to its pool.
type NewNode struct {
	Instance string `json:"instance"` // its name
	Node     string `json:"node,omitempty"`
	Ready    bool   `json:"ready"` // the Node was seen so
	Why      string `json:"why,omitempty"`
}

// A Growth is how many instances of a version somebody wished for, and which those are. It goes
// from record to record, so that a repeat adds only what is missing.
type Growth struct {
	Version  fleet.ResourceID `json:"version"`
	Wanted   int64            `json:"wanted"`
	Done     bool             `json:"done,omitempty"` // the wish came true, whatever becomes of the nodes later
	Nodes    []NewNode        `json:"nodes,omitempty"`
	Adds     int64            `json:"adds,omitempty"`   // how many of them the capacity below adds
	Raises   int64            `json:"raises,omitempty"` // by how much it raises the capacity: less where Azure left some without an instance
	Capacity int64            `json:"capacity,omitempty"`
	Unmet    int64            `json:"unmet,omitempty"`   // capacity that an earlier capture asked for
	Etag     string           `json:"etag,omitempty"`    // of the scale set as the capacity was computed
	Before   []string         `json:"before,omitempty"`  // its instances then
	Accepted time.Time        `json:"accepted,omitzero"` // when the capacity was in effect
	Failure  string           `json:"failure,omitempty"` // of its operation
}

// Begin records what the model is before the pool's first capture. It reports whether the donor was
// made from the original's image: what its disk shows is compared with what is known, and replaces
// nothing. That Azure does not call such a donor up to date tells nothing (see fleet.Instance.Lacks).
func (h *Inherited) Begin(pool fleet.Pool, donor *fleet.Instance, now time.Time) (learns bool) {
	image := pool.Model.Image
	if NamedDefinition(pool.ID, image) != "" {
		return false
	}
	if h.Original == nil || !h.Original.Image.Same(image) {
		image.ExactVersion = ""
		h.Original = &Original{Image: image, At: now}
	}
	h.Original.Extensions = OriginalExtensions(pool.Model.Extensions, h.Original.Extensions)
	return donor != nil && donor.Image.Same(image)
}

// Deletes notes that a capture deletes an extension: the original still has it, also if a
// later capture finds the model without it, and as it is deleted, which its owner may have
// changed since the capture began.
func (h *Inherited) Deletes(deleted fleet.Extension) {
	if h.Original == nil {
		return
	}
	o := *h.Original
	o.Extensions = slices.Clone(o.Extensions)
	for i, e := range o.Extensions {
		if strings.EqualFold(e.Name, deleted.Name) && !e.Deleted {
			o.Extensions[i] = OriginalExtensions([]fleet.Extension{deleted}, o.Extensions)[0]
			o.Extensions[i].Deleted = true
		}
	}
	h.Original = &o
}
