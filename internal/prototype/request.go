package prototype

import (
	"cmp"
	"context"
	"time"
)

// How new nodes come to join the cluster.
const (
	BootstrapKeep  = "keep"  // the model's customData stays
	BootstrapBaked = "baked" // all that a node needs is on its disk: customData becomes a no-op
)

// A Request says which node to capture, and how. It is part of the record, so that a
// resumed run does the same.
type Request struct {
	Node                  string        `json:"node"`                            // the donor
	Again                 bool          `json:"again,omitempty"`                 // a second version on the same day
	Deallocate            bool          `json:"deallocate,omitempty"`            // instead of powering off
	GracePeriod           time.Duration `json:"gracePeriod,omitempty"`           // of each pod; 0 is 300 s
	ForceDrain            bool          `json:"forceDrain,omitempty"`            // delete what is left at the drain's deadline
	History               int           `json:"history,omitempty"`               // versions to keep; 0 is 3
	Replicas              int32         `json:"replicas,omitempty"`              // of the version; 0 is 3
	Shallow               bool          `json:"shallow,omitempty"`               // a version without copies, for development
	Bootstrap             string        `json:"bootstrap,omitempty"`             // "" is BootstrapKeep
	AcceptPoolCredentials bool          `json:"acceptPoolCredentials,omitempty"` // in the image
	AcceptSecrets         []string      `json:"acceptSecrets,omitempty"`         // paths of files, or of folders that end in "/"
	RemoveSecrets         bool          `json:"removeSecrets,omitempty"`         // from the copy of the disk
	ScanImages            bool          `json:"scanImages,omitempty"`            // image layers, for all kinds of secrets
	Extensions            ExtensionRule `json:"extensions"`                      // which of the model's go
	NewNodes              int64         `json:"newNodes,omitempty"`              // to add once the model is changed
	Workbench             string        `json:"workbench,omitempty"`             // node; "" is any that fits
	AllowRolling          bool          `json:"allowRolling,omitempty"`
	ExcludeFromLatest     bool          `json:"excludeFromLatest,omitempty"`
	AllowOwned            bool          `json:"allowOwned,omitempty"`
	// Check, if not nil, is called under the pool lock before anything is changed. Its
	// error ends the capture. A resumed capture is not checked.
	Check func(ctx context.Context) error `json:"-"`
}

// WithDefaults sets what is 0.
func (q Request) WithDefaults() Request {
	if q.GracePeriod <= 0 {
		q.GracePeriod = 300 * time.Second
	}
	q.History, q.Replicas, q.Bootstrap = cmp.Or(q.History, 3), cmp.Or(q.Replicas, 3), cmp.Or(q.Bootstrap, BootstrapKeep)
	return q
}

// Bakes reports whether customData becomes a no-op.
func (q Request) Bakes() bool { return q.Bootstrap == BootstrapBaked }
