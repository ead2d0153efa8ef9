// Package cluster is what Ortet asks of Kubernetes, in the fleet's words: the
// port and the contract suite that every implementation passes. The adapter to
// a real API server is cluster/kube.
//
// Every method returns a *fleet.Error. Reads are fresh and never list the whole
// cluster into memory. Leases.Hold and a read-only job make Ortet's namespace where
// it is missing and that is allowed; what else writes there is fleet.KindInvalid,
// with the remedy, where it does not exist.
package cluster

import (
	"context"
	"iter"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// Nodes observes and marks nodes. A missing node is fleet.KindNotFound.
type Nodes interface {
	Node(ctx context.Context, name string) (fleet.Node, error)
	// Nodes walks all nodes, page by page.
	Nodes(ctx context.Context) iter.Seq2[fleet.Node, error]
	// Annotate sets annotations of a node; a nil value removes one. Setting
	// what is there changes nothing.
	Annotate(ctx context.Context, node string, annotations map[string]*string) error
	// AnnotateUnchanged is Annotate of a Node that is unchanged since it was read: else it
	// changes nothing and is fleet.KindConflict. With node.Unschedulable set it cordons in the same write.
	AnnotateUnchanged(ctx context.Context, node fleet.Node, annotations map[string]*string) error
	// SetUnschedulable cordons or uncordons. It changes nothing where the node
	// is so already.
	SetUnschedulable(ctx context.Context, node string, unschedulable bool) error
	// Isolate cordons a node, and labels it so that no external load balancer sends it requests.
	Isolate(ctx context.Context, node string) error
	// ForgetPassword deletes the node password that a server of k3s or RKE2 ("k3s", "rke2") has of a
	// node, so that the node may register with a new disk. A missing one is no error.
	ForgetPassword(ctx context.Context, node, distribution string) error
	// Machine returns the annotations of the Cluster API Machine that owns the node,
	// and false where no Machine or no such API is known.
	Machine(ctx context.Context, node fleet.Node) (annotations map[string]string, known bool, err error)
	// AnnotateMachine sets annotations of the Cluster API Machine that owns the
	// node, where there is one: it reports the values before, nil for an absent
	// one, and false where no Machine or no such API is known.
	AnnotateMachine(ctx context.Context, node fleet.Node, annotations map[string]*string) (before map[string]*string, known bool, err error)
}

// Records reads what outlives what it is about: ConfigMaps in Ortet's namespace.
type Records interface {
	// Records walks those with all of the labels, page by page. A missing namespace has none.
	Records(ctx context.Context, labels map[string]string) iter.Seq2[fleet.Record, error]
}

// DrainOptions are kubectl drain's.
type DrainOptions struct {
	// UID is that of the Node which is meant; "" is the one that is there at the
	// beginning. Names are used again: another Node of the name is left alone, and the
	// drain is then fleet.KindNotFound.
	UID         string
	GracePeriod time.Duration // of each pod; negative means its own
	Deadline    time.Duration // for all evictions; has to be positive
	// Force deletes what is left at the deadline, and pods that nothing would
	// create again; it may take a grace period and a minute beyond the deadline.
	// Without it the drain fails, naming what blocked: at the deadline, or at
	// once where waiting cannot help.
	Force bool
	// Leave names pods in Ortet's namespace that stay, whatever they are: they end
	// by themselves.
	Leave []string
	// Fit makes the drain fit into Deadline, for a machine that goes then in any
	// case: each pod's own grace period is cut to what is left, never below a second,
	// the pods of the highest priority are told first, and pods that nothing would
	// create again go too. Budgets hold as long as there is time; Force overrides
	// them, and shortens graces that would last longer, while a pod has half of the
	// time, or all of its own grace, still before it. It ends at the deadline: what
	// runs still is a *BlockedError. GracePeriod, where not negative, bounds each pod's.
	// Until then a pod that was told and has ended is waited for until its kubelet has
	// deleted it.
	Fit bool
}

// DrainEvent is something that a person who watches wants to see.
type DrainEvent struct {
	Pod     string // "namespace/name"
	What    string // "evicting", "evicted", "blocked", "deleted by force"
	Because string // the budget that blocks, "PodDisruptionBudget namespace/name"
	Left    int    // pods still to go
}

// BlockedError says which pods a drain could not evict, and why.
// It is wrapped in a *fleet.Error of KindBlocked.
type BlockedError struct {
	Node string
	Pods []fleet.BlockedPod
}

// Drainer evicts.
type Drainer interface {
	// Drain evicts the node's pods as kubectl drain does: DaemonSets' and mirror
	// pods stay, emptyDir data goes, PodDisruptionBudgets hold. The node has to
	// be cordoned, or it is fleet.KindInvalid. It returns when the pods are gone,
	// and on ctx's end at once: then no request follows, and what had blocked
	// until then is in the error's chain as a *BlockedError. report, which may be
	// nil, is called by one goroutine at a time.
	Drain(ctx context.Context, node string, options DrainOptions, report func(DrainEvent)) error
}

// EvictionBlockers says beforehand what a drain would meet.
type EvictionBlockers interface {
	// EvictionBlockers returns the pods that a drain without force would not evict however long
	// it waits: those without a controller, and those of budgets that allow no eviction
	// with all their pods healthy. leave is DrainOptions.Leave. It changes nothing.
	EvictionBlockers(ctx context.Context, node string, leave []string) ([]fleet.BlockedPod, error)
}

// Pods observes pods.
type Pods interface {
	// Pods lists the pods bound to a node, also those that ended or are being deleted. A
	// missing node has none.
	Pods(ctx context.Context, node string) ([]fleet.Pod, error)
}

// Job is a pod that works on a disk attached to a node.
type Job struct {
	Name    string // of the pod; deterministic
	Node    string // it runs there, bypassing the scheduler, tolerating everything
	Image   string // container image with ortet-node
	Command []string
	// PullSecret names a Secret of the pod's namespace; may be empty.
	PullSecret string
	Labels     map[string]string
	Deadline   time.Duration // activeDeadlineSeconds
	// HostPID shows the pod the node's processes: without them systemctl cannot reach the node's systemd.
	HostPID bool
	// ReadOnly gives the pod the node's root to read, with the capability that
	// reading all of it needs and no other.
	ReadOnly bool
}

// JobState is how far it is.
type JobState struct {
	Exists   bool
	Done     bool
	ExitCode int32 // -1 where no container's end was seen
	Ran      bool  // its container started
	// Why is set where the pod cannot start or was lost, in Kubernetes' words.
	Why string
	// Output is what it printed, on standard error too, since a pod's log does
	// not tell them apart: the last 4,000 lines and at most 4 MiB. While the job
	// runs it is what could be read; it is complete once Done. Where the pod was
	// lost it may be empty, and Why says so.
	Output []byte
}

// Jobs runs pods on a node. The pod is privileged unless it is read-only, sees the
// node's root at /host, and has no service account token.
type Jobs interface {
	// StartJob creates the pod; one of that name that is there is left as it is. For
	// a read-only one it makes Ortet's namespace, as Leases.Hold does, since a dry run
	// takes no Lease. It is fleet.KindConflict while that one is being deleted, and
	// fleet.KindInvalid where Ortet did not make it.
	StartJob(ctx context.Context, job Job) error
	Job(ctx context.Context, name string) (JobState, error)
	// DeleteJob asks for the deletion of the pod, once, and reports whether the pod is
	// gone: call it again until it is. A pod on a node that does not answer stays.
	DeleteJob(ctx context.Context, name string) (gone bool, err error)
	// ForceDeleteJob removes the pod without its kubelet. What the pod does may go
	// on: only for a node whose machine is known to be off. A missing one is no
	// error.
	ForceDeleteJob(ctx context.Context, name string) error
}

// MaxTestFile bounds NodeTest.File, in bytes.
const MaxTestFile = 64 << 10

// A NodeTest is a user's test of one node: the pod template of a Job, which runs there once.
type NodeTest struct {
	File    string // one Job of batch/v1, as YAML or JSON
	Node    string
	Pool    fleet.ResourceID // whose clone the node is; by it what is left is found
	Capture string
}

// NodeTests run in the namespace that the file names, with the ServiceAccount that it names. A file
// that is refused is fleet.KindInvalid in each method.
type NodeTests interface {
	// CheckTest asks the API server whether it would take the test's pod: it changes nothing.
	// Whether the namespace's quota and Pod Security allow the pod, the answer says too.
	CheckTest(ctx context.Context, test NodeTest) error
	// StartTest creates the pod; one that is there is left as it is. Errors are StartJob's, and
	// fleet.KindDenied where quota or admission refuse the pod.
	StartTest(ctx context.Context, test NodeTest) error
	// Test reads the pod, and once it is Done the end of its log. It is Done with Ran false where
	// its containers did not start in time, or where it was evicted from the node.
	Test(ctx context.Context, test NodeTest) (JobState, error)
	// DeleteTests removes the pods of all tests of the pool in the file's namespace without their
	// kubelets: only once the clones' machines are deleted.
	DeleteTests(ctx context.Context, file string, pool fleet.ResourceID) error
}

// SecretStore keeps what cannot be read back from Azure, in a Secret for each pool in
// Ortet's namespace, keyed by the SHA-256 of the data.
type SecretStore interface {
	// PutSecret stores data under its pool, kind and hash, and never overwrites. Where the
	// Secret is full, the oldest items make room, but for those whose SHA-256 needed
	// gives, which is called only then.
	PutSecret(ctx context.Context, item SecretItem, needed func(context.Context) ([]string, error)) error
	// GetSecret returns an item of a pool, or fleet.KindNotFound.
	GetSecret(ctx context.Context, pool fleet.ResourceID, kind, sha256 string) (SecretItem, error)
	// DropSecret removes an item of a pool; one that is not there counts as removed.
	DropSecret(ctx context.Context, pool fleet.ResourceID, kind, sha256 string) error
}

// Kinds of a SecretItem besides those of wire.SealedKind.
const (
	ExtensionSettings = "extensionSettings" // an extension's public settings
	Manifest          = "manifest"          // what is in an image version: a wire.Manifest, packed
)

// SecretItem is one item of a SecretStore.
type SecretItem struct {
	Kind   string // "customData", "protectedSettings", ExtensionSettings, Manifest
	Name   string // extension name; "" for customData and a manifest
	SHA256 string // lower-case hex, of Data
	Data   fleet.Secret
	Pool   fleet.ResourceID
	Donor  string
	At     time.Time
}

// Holding is somebody's hold on a pool.
type Holding struct {
	Holder  string // "host/pid/capture", for people
	Since   time.Time
	Renewed time.Time
	Until   time.Time // it expires then, unless it is renewed
	// TookFrom is the holder of a hold that had run out and that this call took over; "" for none.
	TookFrom string
}

// Leases keep captures of one pool apart.
type Leases interface {
	// Hold takes or renews the pool's Lease for the duration, which is at least a
	// second. Where another holder has it, the error is fleet.KindHeld, the
	// Holding says who, and RetryAfter when it will have run out unless renewed:
	// that it ran out is known by watching it, so ask again through the same
	// Leases. name is the pool's ARM id, compared without letter case.
	Hold(ctx context.Context, name, holder string, duration time.Duration) (Holding, error)
	// Holding reads who has the pool's Lease, and false where nobody has. It changes
	// nothing, and does not judge whether the hold ran out.
	Holding(ctx context.Context, name string) (Holding, bool, error)
	// Release gives it up where holder has it; else it changes nothing.
	Release(ctx context.Context, name, holder string) error
}

// Neighbours are other controllers that have to wait meanwhile.
type Neighbours interface {
	// HoldReboots takes kured's lock for the holder, with a time to live, so
	// that no node reboots beside an attached copy of its own disk. known is
	// false where there is no kured. fleet.KindHeld where a node reboots now, or
	// another holder has it. Again by the same holder, the time begins anew.
	HoldReboots(ctx context.Context, holder string, ttl time.Duration) (known bool, err error)
	// ReleaseReboots gives kured's lock back where the holder has it.
	ReleaseReboots(ctx context.Context, holder string) error
}

// An Access is one thing that RBAC has to allow.
type Access struct {
	Verb, Group, Resource, Subresource, Namespace, Name string
}

// String returns it as "verb resource/subresource.group name in namespace".
func (a Access) String() string {
	text := a.Verb + " " + a.Resource
	for _, x := range [][2]string{{"/", a.Subresource}, {".", a.Group}, {" ", a.Name}, {" in ", a.Namespace}} {
		if x[1] != "" {
			text += x[0] + x[1]
		}
	}
	return text
}

// Accesses asks what the credentials may do.
type Accesses interface {
	// Denied returns those that are not allowed, by SelfSubjectAccessReview.
	Denied(ctx context.Context, accesses []Access) ([]Access, error)
}

// Recorder tells the cluster's users what happens.
type Recorder interface {
	// Event records a Kubernetes Event on the node. Failing to is not an error
	// for the caller's work: it is logged.
	Event(ctx context.Context, node fleet.Node, warning bool, reason, message string)
}

// Cluster is all of it. Journals lie in the cluster, beside the Lease.
type Cluster interface {
	// Now returns the API server's time, as of its last answer, with fleet.ClockPrecision.
	Now() time.Time
	Nodes
	Drainer
	EvictionBlockers
	Pods
	Jobs
	NodeTests
	SecretStore
	Leases
	Neighbours
	Accesses
	Recorder
	Journals() journal.Store
}
