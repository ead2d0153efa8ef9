package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// Config is what an Engine works with. Cloud, Cluster, Logger, Holder and
// Version are required.
type Config struct {
	Cloud   azure.Cloud
	Cluster cluster.Cluster
	Logger  *slog.Logger
	// Reporter is told what happens, for a person who watches; nil tells nobody.
	Reporter Reporter
	// Now is the clock for decisions, tags and names; nil means time.Now.
	Now func() time.Time
	// Version is Ortet's own, for the tag ortet.io_created-by.
	Version string
	// Image is the container image with ortet-node that works on the disk;
	// needed for a capture. PullSecret may be empty.
	Image, PullSecret string
	// Namespace is Ortet's own, where its pods, Leases and Secrets lie.
	Namespace string
	// SelfNode is the node that this process runs on; "" outside the cluster.
	// It is refused as a donor.
	SelfNode string
	// Holder names this process for the Lease, unique among all processes:
	// see LocalHolder. Each capture and rollback adds a number of its own.
	Holder string
	// Liveness says whether another holder's process still runs, where that
	// can be known, so that a restart need not wait for the Lease of a dead
	// process to run out; nil means LocalLiveness.
	Liveness func(holder string) Liveness
	// Accesses is what RBAC has to allow, asked in preflight: the cluster
	// adapter's own list. nil means CaptureAccesses and RollbackAccesses.
	Accesses []cluster.Access
	// Secrets gives the names of a pool's Secrets: preflight asks for those, which is
	// all that a Role has to name. nil asks for any Secret of the namespace.
	Secrets func(pool fleet.ResourceID) []string
	// LeaseFor is how long a hold lasts without renewal; 0 means 45 s.
	LeaseFor time.Duration
}

// Engine captures, rolls back and tells. It is safe for concurrent use; one
// pool is worked on by one process at a time, whoever asks.
type Engine struct {
	cloud    azure.Cloud
	cluster  cluster.Cluster
	log      *slog.Logger
	reporter Reporter
	now      func() time.Time
	config   Config
	runs     atomic.Int64
}

// New checks the configuration and gives an Engine. It asks nothing of anybody.
func New(config Config) (*Engine, error) {
	switch {
	case config.Cloud == nil, config.Cluster == nil:
		return nil, errors.New("engine: a cloud and a cluster are needed")
	case config.Logger == nil:
		return nil, errors.New("engine: a logger is needed")
	case config.Holder == "":
		return nil, errors.New("engine: a holder is needed: see LocalHolder")
	case config.Version == "":
		return nil, errors.New("engine: Ortet's version is needed")
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Reporter == nil {
		config.Reporter = ReporterFunc(func(Event) {})
	}
	if config.Liveness == nil {
		config.Liveness = LocalLiveness
	}
	if config.LeaseFor <= 0 {
		config.LeaseFor = 45 * time.Second
	}
	return &Engine{
		cloud: config.Cloud, cluster: config.Cluster, log: config.Logger,
		reporter: config.Reporter, now: config.Now, config: config,
	}, nil
}

// How clones come to join the cluster.
const (
	// BootstrapKeep leaves the model's customData: clones run it as before.
	BootstrapKeep = "keep"
	// BootstrapBaked replaces it by a no-op: all that a clone needs is on its
	// disk. Refused where nothing on the disk lets a clone join.
	BootstrapBaked = "baked"
)

// A CaptureRequest says which node to capture, and how. It is written to the
// journal, so that a resume does the same. Zero values mean what is said here.
type CaptureRequest struct {
	Node string `json:"node"` // the donor; required
	// Again makes a second version on the same day.
	Again bool `json:"again,omitempty"`
	// Deallocate stops the donor by deallocating rather than powering off.
	Deallocate bool `json:"deallocate,omitempty"`
	// GracePeriod of the donor's pods; 0 means 300 s. The drain is given three
	// times that.
	GracePeriod time.Duration `json:"gracePeriod,omitempty"`
	// ForceDrain deletes what is left at the drain's deadline, and pods that
	// nothing would create again.
	ForceDrain bool `json:"forceDrain,omitempty"`
	// History is how many versions to keep, this one included; 0 means 3, and
	// less than 2 is refused.
	History int `json:"history,omitempty"`
	// Replicas of the version; 0 means 3.
	Replicas int32 `json:"replicas,omitempty"`
	// Shallow makes a version without copies, in seconds, for development.
	Shallow bool `json:"shallow,omitempty"`
	// Bootstrap is BootstrapKeep or BootstrapBaked; "" means BootstrapKeep.
	Bootstrap string `json:"bootstrap,omitempty"`
	// AcceptPoolCredentials lets pool-wide credentials be in the image.
	AcceptPoolCredentials bool `json:"acceptPoolCredentials,omitempty"`
	// AcceptSecrets lists the paths of other secrets that may be in the image: files,
	// or folders that end in "/".
	AcceptSecrets []string `json:"acceptSecrets,omitempty"`
	// RemoveSecrets deletes files with other secrets from the copy of the disk.
	RemoveSecrets bool `json:"removeSecrets,omitempty"`
	// ScanImages searches image layers for all kinds of secrets.
	ScanImages bool `json:"scanImages,omitempty"`
	// Extensions says which of the model's extensions go.
	Extensions prototype.ExtensionRule `json:"extensions"`
	// NewNodes is how many to add once the model is changed.
	NewNodes int64 `json:"newNodes,omitempty"`
	// Workbench names the node to work on the disk; "" means any that fits.
	Workbench string `json:"workbench,omitempty"`
	// AllowRolling opts in to a pool in Rolling mode, whose instances Azure
	// replaces by itself once the model changes.
	AllowRolling bool `json:"allowRolling,omitempty"`
	// ExcludeFromLatest opts in to a pool with automatic OS upgrades, by
	// publishing a version that these do not take.
	ExcludeFromLatest bool `json:"excludeFromLatest,omitempty"`
	// AllowOwned opts in to a pool whose model Cluster API owns.
	AllowOwned bool `json:"allowOwned,omitempty"`
	// Check, if not nil, is called under the pool's lock and before
	// anything is changed; its error ends the capture, and is in the chain of what
	// Capture returns. A capture that is resumed is not checked.
	Check func(ctx context.Context) error `json:"-"`
}

// CaptureResult says what a capture did, also where it returns an error: as far
// as it came.
type CaptureResult struct {
	Capture string           `json:"capture,omitempty"`
	Pool    fleet.ResourceID `json:"pool,omitempty"`
	Donor   string           `json:"donor"`
	// Version is what the model uses now.
	Version fleet.ResourceID `json:"version,omitempty"`
	// BuiltFrom is the node that the version was made from; another than Donor
	// where today's version was there already.
	BuiltFrom string `json:"builtFrom,omitempty"`
	// NothingToDo is true where nothing was changed.
	NothingToDo bool `json:"nothingToDo,omitempty"`
	// Resumed is true where an interrupted capture was finished.
	Resumed bool `json:"resumed,omitempty"`
	// Pruned and Kept name versions; Kept are those beyond the history that
	// could not go, with the reason.
	Pruned []string `json:"pruned,omitempty"`
	Kept   []string `json:"kept,omitempty"`
	// Irreversible names what was not saved and is gone from the model.
	Irreversible []string `json:"irreversible,omitempty"`
	// Notes are worth knowing: "the node was cordoned before, and still is".
	Notes []string `json:"notes,omitempty"`
	// PoolCredentials lists the paths of accepted credentials in the image.
	PoolCredentials []string `json:"poolCredentials,omitempty"`
	// AcceptedSecrets lists the paths of other secrets that were accepted, RemovedSecrets
	// those of files that were removed from the copy; both as far as the report lists them.
	AcceptedSecrets []string `json:"acceptedSecrets,omitempty"`
	RemovedSecrets  []string `json:"removedSecrets,omitempty"`
	Timing          Timing   `json:"timing"`

	open bool // the journal may hold something that has not ended
}

// Previous asks for the version before the one that the model uses, by
// publishing date.
const Previous = prototype.Previous

// Original asks for what the model was before its first capture.
const Original = prototype.ToOriginal

// A RollbackRequest says what to go back to. Node or Pool is required.
type RollbackRequest struct {
	Pool fleet.ResourceID `json:"pool,omitempty"`
	Node string           `json:"node,omitempty"` // any node of the pool
	// To is a version's name, "2026.11.20", Previous or Original; "" means Previous.
	To string `json:"to,omitempty"`
	// AllowRolling as for a capture.
	AllowRolling bool `json:"allowRolling,omitempty"`
	// AllowOwned as for a capture.
	AllowOwned bool `json:"allowOwned,omitempty"`
}

// RollbackResult says what a rollback did.
type RollbackResult struct {
	Pool fleet.ResourceID `json:"pool"`
	From fleet.ResourceID `json:"from,omitempty"` // a version's id, or "" for an image that is not a prototype
	To   fleet.ResourceID `json:"to"`             // "" with Original
	// Original is what the model was before its first capture, where it went there.
	Original    *prototype.Original `json:"original,omitempty"`
	NothingToDo bool                `json:"nothingToDo,omitempty"`
	Resumed     bool                `json:"resumed,omitempty"`
	Notes       []string            `json:"notes,omitempty"`
	Timing      Timing              `json:"timing"`
}

// PoolStatus is what there is to know of one pool's prototypes.
type PoolStatus struct {
	Pool       fleet.Pool       `json:"pool"`
	Definition fleet.ResourceID `json:"definition"`
	// Versions, newest first by publishing date.
	Versions  []VersionStatus  `json:"versions"`
	Instances []InstanceStatus `json:"instances"`
	// Capture is the newest capture or rollback, running, interrupted or
	// ended; nil where there was none.
	Capture *CaptureStatus `json:"capture,omitempty"`
	// Problem says why the rest could not be read; "" where all is there. Unread is
	// true where the scale set itself could not be.
	Problem string `json:"problem,omitempty"`
	Unread  bool   `json:"unread,omitempty"`
	// Gone is true where Azure has no such scale set, JournalDenied where these
	// credentials may not read the Secret of its journal.
	Gone          bool `json:"gone,omitempty"`
	JournalDenied bool `json:"journalDenied,omitempty"`
}

// VersionStatus is one version.
type VersionStatus struct {
	fleet.ImageVersion
	BuiltFrom  string    `json:"builtFrom,omitempty"`
	BuiltAt    time.Time `json:"builtAt"` // zero where it is not said
	InModel    bool      `json:"inModel"` // named by the model, or the latest where that refers to the definition
	RolledBack bool      `json:"rolledBack"`
	Instances  int       `json:"instances"` // that run it
}

// InstanceStatus is one instance, with what it was made from.
type InstanceStatus struct {
	InstanceID  string           `json:"instanceId"`
	Name        string           `json:"name"`
	HostName    string           `json:"hostName"`
	Power       fleet.PowerState `json:"power"`
	Image       string           `json:"image"`       // version name, or the image's URN or id
	LatestModel bool             `json:"latestModel"` // applied, or else its image is the model's
	Created     time.Time        `json:"created,omitzero"`
}

// CaptureStatus is what the journal says of the newest capture or rollback.
type CaptureStatus struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"` // prototype.KindCapture or prototype.KindRollback
	Donor string    `json:"donor,omitempty"`
	Begun time.Time `json:"begun"`
	// Steps that were attempted, by id, in no order that matters.
	Steps []string `json:"steps,omitempty"`
	// Undo is what is still to be put back.
	Undo []string `json:"undo,omitempty"`
	// Ended is nil where it runs or can be resumed.
	Ended *Ending `json:"ended,omitempty"`
}

// Ending says how one ended.
type Ending struct {
	At      time.Time `json:"at"`
	Exit    int       `json:"exit"`
	Message string    `json:"message,omitempty"`
}

// Doors are what the engine does for its callers; Engine has them.
type Doors interface {
	// Capture makes the node's disk the recipe for its pool's new nodes. Where
	// an earlier capture of the pool was interrupted, it is finished first (the
	// same donor) or undone first (another). Errors are *Refused, *Failed,
	// *NeedsPerson or *Interrupted; see ExitCode. When ctx ends, the donor is
	// given back before it returns, which takes as long as a start does.
	Capture(ctx context.Context, request CaptureRequest) (CaptureResult, error)
	// Plan says what Capture would do, and changes nothing. Reasons to refuse
	// are in the plan, not in the error.
	Plan(ctx context.Context, request CaptureRequest) (prototype.Plan, error)
	// Rollback points the model at an earlier version.
	Rollback(ctx context.Context, request RollbackRequest) (RollbackResult, error)
	// PlanRollback says what Rollback would do, and changes nothing.
	PlanRollback(ctx context.Context, request RollbackRequest) (prototype.Plan, error)
	// Status tells of the pools; of all that the cluster's nodes are in where
	// none is named.
	Status(ctx context.Context, pools []fleet.ResourceID) ([]PoolStatus, error)
}

var _ Doors = (*Engine)(nil)
