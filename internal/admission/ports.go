package admission

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// Directory identifies instances. Each answer was begun after its call: none is from before
// an instance was deleted.
type Directory interface {
	// Member returns one instance with its addresses. A deleted one is fleet.KindNotFound.
	// Concurrent callers share the requests.
	Member(ctx context.Context, instance fleet.ResourceID) (fleet.Member, error)
}

// ErrSpent is that of a nonce that was used before.
var ErrSpent = errors.New("the nonce was used before")

// ErrTaken is that of a name that another instance has.
var ErrTaken = errors.New("the name is another instance's")

// ErrReady is that of a name whose Node is Ready, and is this machine's, or was renewed by
// its kubelet after Heard was asked.
var ErrReady = errors.New("the Node is Ready: another machine of that name runs, or this one needs no token")

// ErrHeard means that the machine's kubelet may still run: its Node, and with it the
// Lease, was deleted less than a minute ago. The fleet.Error has RetryAfter.
var ErrHeard = errors.New("the kubelet may still run")

// ErrRevoked means that an operator revoked the machine.
var ErrRevoked = errors.New("the machine was revoked")

// NodeState is the cluster's state of a Node's name.
type NodeState struct {
	Exists, Ready bool
	ProviderID    string
}

// Cluster is what the server asks of Kubernetes. Errors are *fleet.Error, but where
// said otherwise; reads are fresh. fleet.KindConflict is of what others changed at the
// same time: asked again it may well succeed.
type Cluster interface {
	// NonceKey returns the key of the nonces' MAC, the same for all replicas; the first
	// makes it. 32 bytes.
	NonceKey(ctx context.Context) ([]byte, error)
	// Spend uses a nonce, by its name of up to 40 lower-case hex digits. A second use by
	// any client, until expires at least, returns ErrSpent.
	Spend(ctx context.Context, nonce string, expires time.Time) error
	// Node returns the state of a Node's name; one that does not exist is no error.
	Node(ctx context.Context, name string) (NodeState, error)
	// Heard returns when a Node's kubelet last reported: when its Lease in kube-node-lease
	// was renewed, by the kubelet's or the API server's clock, whichever is later. The zero
	// time is of one that has none.
	Heard(ctx context.Context, node string) (time.Time, error)
	// AdmittedAt returns when the machine was admitted that has a Node's name; the zero
	// time is of one that was not.
	AdmittedAt(ctx context.Context, node string) (time.Time, error)
	// HeldUntil returns when the Lease expires by which a capture or rollback keeps the
	// pool to itself; the zero time means that no process holds it.
	HeldUntil(ctx context.Context, pool fleet.ResourceID) (time.Time, error)
	// Admit lets the member's Node be registered and makes a token for it, of this
	// distribution, in place of an earlier one; an earlier machine's leftovers of the name,
	// as k3s's node password, are deleted. It returns once the policy knows the name.
	// ErrTaken: the name is another instance's, until that one is forgotten: ids are reused
	// with their names, but two instances have two names. ErrReady: the name's Node is
	// Ready, except if an earlier machine left it and its Lease is older than a minute: a
	// deleted machine looks Ready until it is noticed. ErrHeard: an admitted machine
	// without a Node asks again within the first minute. ErrRevoked: the machine is
	// revoked. What was signed for the machine before is no longer valid. node is what Node
	// just returned for the name: one that did not exist then is not read again.
	Admit(ctx context.Context, member fleet.Member, distribution string, node NodeState) (wire.Join, error)
	// Leave cordons the Node, takes it out of load balancers and evicts its pods
	// within the request's time, grace periods cut to fit, the most important pods
	// first. Pods that are left are no error. A Node that does not exist is drained.
	Leave(ctx context.Context, node string, request wire.LeaveRequest) (wire.Leave, error)
	// Return undoes what Leave marked on a Node, and nothing else: a machine that left
	// with Stay is back, or its event passed. Admit does so by itself, and a node that
	// is Ready after another boot is given back without being asked for. A Node that
	// does not exist, or was not marked, is no error.
	Return(ctx context.Context, node string) error
	// Forget deletes the Node with what belongs to it: its token, its admission, k3s's
	// node password, its certificate requests. What does not exist is no error. Where
	// providerID is not "", a Node of that name with another provider id stays, with
	// all that belongs to it.
	Forget(ctx context.Context, node, providerID string) error
	// Tell stores a node's report that it cannot send to the API server, where the
	// controller finds it. Exactly one of verdict and boot is not nil.
	Tell(ctx context.Context, member fleet.Member, verdict *wire.Verdict, boot *wire.BootReport) error
}

// An AdmittedNode is what the cluster holds of a machine: its admission, its Node, or
// both.
type AdmittedNode struct {
	Name string // the Node's, whether it exists or not

	// Of the admission; zero for a Node that we did not admit.
	Instance fleet.ResourceID
	Pool     fleet.ResourceID
	VMID     string // the machine's that was admitted under the name, in lower case
	Admitted time.Time

	// Of the Node; zero where there is none.
	Exists     bool
	UID        string
	Version    string // resourceVersion
	ProviderID string // spec.providerID as it stands: "azure:///…", k3s's own "k3s://…", or ""
	Ready      bool
	ReadySince time.Time // when Ready became what it is
	Created    time.Time // to the second: when its kubelet registered it
	Renewed    time.Time // of the Node's Lease in kube-node-lease; zero where there is none
}

// Admissions is what the reaper asks of Kubernetes. Errors are as those of Cluster;
// reads are fresh.
type Admissions interface {
	// Admitted lists what was admitted, with or without a Node, and the Nodes that
	// have a provider id of Azure's without having been admitted; no others. It is
	// all of them, or an error.
	Admitted(ctx context.Context) ([]AdmittedNode, error)
	// Reap deletes what Admitted returned of a name, as Cluster.Forget does, unless it
	// changed since: the name was admitted for another VMID or at another time, or the Node
	// is of another UID or Version, or exists where there was none, or its Lease was
	// renewed. Then it deletes nothing and returns false, which is no error.
	Reap(ctx context.Context, node AdmittedNode) (deleted bool, err error)
}

// Keys is what the server's TLS takes from the cluster. Errors are *fleet.Error;
// reads are fresh.
type Keys interface {
	// Authority returns the certificate and the key of the authority that signs the
	// server's own certificates, both PEM, the same for all replicas. Where there is
	// none, what fresh makes is kept; of several replicas that do so at once, the
	// first one's is kept and given to all.
	Authority(ctx context.Context, fresh func() (certificate, key []byte, err error)) (certificate, key []byte, err error)
	// ClientCAs returns the PEM of the authorities whose client certificates the API
	// server takes: kubelets' are among them.
	ClientCAs(ctx context.Context) ([]byte, error)
}
