package auto

import (
	"context"
	"iter"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
)

// A Service captures: capture.Service.
type Service interface {
	Capture(ctx context.Context, request capture.Request, checks ...func(context.Context) error) (capture.Result, error)
	Plan(ctx context.Context, request capture.Request) (plan.Plan, error)
	Status(ctx context.Context, pools []fleet.ResourceID) ([]capture.PoolStatus, error)
}

// Nodes are the cluster's; cluster.Cluster has them.
type Nodes interface {
	Nodes(ctx context.Context) iter.Seq2[fleet.Node, error]
}

// Places finds the scale sets of Nodes; azure.Places does.
type Places interface {
	Of(ctx context.Context, n fleet.Node) (fleet.Place, error)
}

// Config is what an Auto works with. Service, Nodes, Places and Now are required.
type Config struct {
	// Service gives that for one pool, so that what it reports can name the pool.
	Service func(pool fleet.ResourceID) Service
	Nodes   Nodes
	Cluster Nodes         // all, where Nodes are those of one pool; nil: Nodes are all
	Places  func() Places // for one list of Nodes
	Policy  donors.Policy // one that Check accepts
	// Groups are the resource groups that all pools are looked for in: a Node's own word is
	// not enough to work on a scale set.
	Groups []fleet.ResourceID
	// Request is that of every capture, but for its Node.
	Request capture.Request
	// Fresh has each capture raise its donor: no node has to qualify.
	Fresh bool
	// MaxParallel is how many pools are captured at a time; less than 1 means 4.
	MaxParallel int
	Now         func() time.Time
}

// Auto captures pools. It is safe for concurrent use.
type Auto struct{ c Config }

// New makes an Auto. It asks nothing of Azure or the cluster.
func New(c Config) *Auto {
	if c.MaxParallel < 1 {
		c.MaxParallel = 4
	}
	return &Auto{c}
}

// A Observation is what is seen of a pool, before anything is changed.
type Observation struct {
	donors.Choice
	// Left says why the pool is left out: AKS or Cluster API owns it, it is gone, not
	// Linux, a control plane, or a canary. "" where it is not.
	Left string `json:"left,omitempty"`
	// Resumes is the donor of an interrupted capture of the pool, which is finished
	// first, and may be under way; "" without one.
	Resumes string `json:"resumes,omitempty"`
	// Refused are reasons why the pool cannot be captured though it is not left out.
	Refused []fleet.Problem `json:"refused,omitempty"`
	// Unread are those of Refused for which something could not be read.
	Unread []fleet.Problem `json:"-"`
	// Blockers are reasons why the capture that is due would be refused, as far as the
	// cluster's Nodes show.
	Blockers  []fleet.Problem             `json:"blockers,omitempty"`
	instances map[string]fleet.ResourceID // of the pool's Nodes, by name
	// Notes name annotations of its Nodes, and ignored names, that have no effect.
	Notes []string `json:"notes,omitempty"`
}

// An Outcome is what became of a pool.
type Outcome string

// The outcomes.
const (
	Captured Outcome = "captured"
	NotDue   Outcome = "not due"  // nothing to do, Because says why
	LeftOut  Outcome = "left out" // see Observation.Left
	Planned  Outcome = "planned"  // a dry run
	Ended    Outcome = "failed"   // Exit and Error say how
)

// A Result is what became of a pool in one run.
type Result struct {
	Pool    fleet.ResourceID `json:"pool"`
	Outcome Outcome          `json:"outcome"`
	// Because is why: the choice's, or why it is left out.
	Because string `json:"because,omitempty"`
	Donor   string `json:"donor,omitempty"`
	Exit    int    `json:"exit"` // workflow.ExitCode of Err
	Error   string `json:"error,omitempty"`
	// Problems are why it was refused, Left is what needs a person.
	Problems []fleet.Problem `json:"problems,omitempty"`
	Left     []string        `json:"left,omitempty"`
	// Passed are donors that were chosen first and could not be used.
	Passed  []PassedOver    `json:"passed,omitempty"`
	Notes   []string        `json:"notes,omitempty"` // the Observation's
	Capture *capture.Result `json:"capture,omitempty"`
	Plan    *plan.Plan      `json:"plan,omitempty"`
	Err     error           `json:"-"`
}

// PassedOver is a donor that could not be used, and why.
type PassedOver struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}
