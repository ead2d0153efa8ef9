// Package capture makes a node's OS disk the image of its pool's new nodes.
//
// plan.go observes. table.go lists the rows, each of which says by what was observed whether it is
// skipped. Its act, in the file or part of its subject, is one pass of internal/workflow: it
// observes, and asks for what is missing. The rows of all parts in their order, with what each
// waits for, are the table of docs/reference/capture.md, which a test compares with the code.
package capture

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/fresh"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// Kind is that of a capture's record.
const Kind = "capture"

// A Request says which node to capture, and how.
type Request = plan.Request

// Published is an image version as another tool needs it.
type Published = version.Published

// A Result says what a capture did, as far as it came if it failed.
type Result struct {
	Capture         string           `json:"capture,omitempty"`
	Pool            fleet.ResourceID `json:"pool,omitempty"`
	Donor           string           `json:"donor"`
	Version         fleet.ResourceID `json:"version,omitempty"`   // that the model uses now, or that was published
	Published       *Published       `json:"published,omitempty"` // if the version is only published
	BuiltFrom       string           `json:"builtFrom,omitempty"` // node of the version
	NothingToDo     bool             `json:"nothingToDo,omitempty"`
	DonorLost       bool             `json:"donorLost,omitempty"` // others deleted the donor that was raised, as Spot does
	Abandoned       bool             `json:"abandoned,omitempty"` // an open capture was undone and closed
	Left            []string         `json:"left,omitempty"`      // by one that was abandoned, each with what to do
	Resumed         bool             `json:"resumed,omitempty"`
	Pruned          []string         `json:"pruned,omitempty"`
	Kept            []string         `json:"kept,omitempty"`         // beyond the history, with the reason
	Irreversible    []string         `json:"irreversible,omitempty"` // not saved, and deleted from the model
	Notes           []string         `json:"notes,omitempty"`
	PoolCredentials []string         `json:"poolCredentials,omitempty"` // accepted, by path
	AcceptedSecrets []string         `json:"acceptedSecrets,omitempty"`
	RemovedSecrets  []string         `json:"removedSecrets,omitempty"`
	Prepared        []string         `json:"prepared,omitempty"` // the last lines of a fresh donor's preparation, redacted
	Canary          []prove.Finding  `json:"canary,omitempty"`   // of each clone, as it was seen last
	NewNodes        []plan.NewNode   `json:"newNodes,omitempty"` // that were added
	Timing          Timing           `json:"timing"`
}

// Timing says where the time went.
type Timing struct {
	Begin time.Time             `json:"begin"`
	End   time.Time             `json:"end"`
	Steps []workflow.StepTiming `json:"steps,omitempty"`
}

// A Config is what a Service works with.
type Config struct {
	Cloud               azure.Cloud
	Cluster             cluster.Cluster
	Journal             journal.Store
	Log                 *slog.Logger
	Report              func(workflow.Event) // may be nil; it must not block
	Now                 func() time.Time
	Version             string // Ortet's own
	Image, PullSecret   string // container image with ortet-node
	Namespace, SelfNode string
	Holder              string // unique for the process
	LockFor             time.Duration
	Next                []fleet.Change // of what follows a capture: preflight asks for their rights as well
	// Accesses gives what preflight asks RBAC for. The pool may be "".
	Accesses func(pool fleet.ResourceID) []cluster.Access
	// Boot returns what is known of a machine's boot beside its Node, for clones of tuned versions;
	// nil for nothing.
	Boot func(ctx context.Context, node fleet.Node) prove.Boot
	// UserData returns how long user data took on a machine, by its own boot reports; 0 if none shows it.
	UserData func(ctx context.Context, node fleet.Node) time.Duration // nil: none does
	// Others gives the workflow of another kind, whose open record is undone first.
	Others func(kind string) (workflow.Workflow, error)
}

// Runner returns the runner of one run, whose name is unique for the holder.
func (c Config) Runner(name string, s *workflow.Summary) *workflow.Runner {
	return &workflow.Runner{
		Cloud: c.Cloud, Journal: c.Journal, Locks: c.Cluster, LockFor: c.LockFor, Now: c.Now, Log: c.Log,
		Holder: c.Holder + "/" + name, Report: s.Reporter(c.Report),
		Claim:    func(ctx context.Context, pool fleet.ResourceID) error { return c.claim(ctx, pool, s.Note) },
		Workflow: c.Others,
	}
}

// ClockNote says that this machine's clock is more than a minute off the API server's; "" if not.
func (c Config) ClockNote() string {
	ahead := c.Now().Sub(c.Cluster.Now()).Round(10 * time.Second)
	way := cmp.Or(workflow.SkipIf(ahead < 0, "behind"), "ahead of")
	return workflow.SkipIf(ahead.Abs() > time.Minute, "this machine's clock is "+ahead.Abs().String()+" "+way+
		" the API server's; set it, since the times of versions and records are by it")
}

// A Service captures. It may be used from several goroutines.
type Service struct {
	Config
	runs atomic.Int64
}

// New makes a Service.
func New(config Config) *Service { return &Service{Config: config} }

// Workflow returns what undoes an open record of a capture for a workflow of another kind.
func (s *Service) Workflow() workflow.Workflow { return s.capture(Request{}) }

// A capture is one call of Capture or Plan, as a workflow.
type capture struct {
	*Service
	workflow.Summary
	asked    Request // by this command
	checks   []func(context.Context) error
	abandons bool             // undoes the open record and begins nothing
	found    fleet.ResourceID // the pool that findPool returned, whose lock and record are this run's; "" for none

	donor   donor.Donor
	fresh   fresh.Raising
	version version.Version
	canary  canary.Canary
	model   model.Model

	mu     sync.Mutex
	req    Request // of the record
	name   string  // of the capture
	begun  time.Time
	s      state
	result Result

	// Of this process alone.
	definitions []fleet.ResourceID        // of the pool, as the plan found them, with that of the version
	inspected   bool                      // the inspection pod is created
	noUserData  bool                      // the donor's disk shows that it got none
	lost        []string                  // workbenches, by node: another that can serve takes their place
	gone        bool                      // the donor of the open record: its instance, or its Node as a member of the scale set
	sizes       map[string]fleet.SizeInfo // that were looked up, by lower-case name
}

func (s *Service) capture(q Request) *capture {
	q = q.WithDefaults()
	c := &capture{Service: s, asked: q, req: q, result: Result{Donor: q.Node}}
	c.parts()
	return c
}

// Capture captures a node. An open record of the pool is resumed (the same donor) or
// undone first. Errors are *workflow.Refused or *workflow.Outcome, or of a cluster
// that does not answer. When ctx ends, the donor is returned to service first. A capture that is not
// resumed calls checks under the pool lock before anything is changed; an error of one ends it.
func (s *Service) Capture(ctx context.Context, q Request, checks ...func(context.Context) error) (Result, error) {
	c := s.capture(q)
	c.checks = checks
	begin := s.Now()
	err := c.run(ctx)
	r, st := &c.result, c.get()
	r.Pool, r.PoolCredentials, r.AcceptedSecrets, r.RemovedSecrets = st.Pool, st.Credentials, st.AcceptedSecrets, st.RemovedSecrets
	if !r.NothingToDo && workflow.ExitCode(err) != workflow.ExitRefused {
		r.Capture = c.name
	}
	if st.ModelChanged || r.NothingToDo || c.req.PublishOnly && err == nil {
		r.Version, r.Irreversible, r.BuiltFrom = st.Names.Version, st.Unsaved, cmp.Or(st.BuiltFrom, c.req.Node)
	}
	if c.model.Grew {
		r.NewNodes = st.Growth.Nodes
	}
	if c.req.PublishOnly && err == nil {
		p, unread := c.version.Read(ctx)
		if r.Published = &p; unread != nil {
			c.Note("what was published could not be read: %v", unread)
		}
	}
	r.Prepared, r.DonorLost = c.fresh.Lines, c.fresh.Lost && workflow.ExitCode(err) == workflow.ExitFailed
	notes, steps := c.Recorded()
	r.Pruned, r.Kept, r.Canary = c.version.Pruned, c.version.Kept, c.canary.Findings
	r.Notes, r.Timing = slices.Concat(notes, st.ScanNotes), Timing{begin, s.Now(), steps}
	if note := c.asked.OtherTunings(r.Version.Name(), st.Tuned); note != "" && r.Version != "" {
		r.Notes = append(r.Notes, note)
	}
	return *r, err
}

func (c *capture) run(ctx context.Context) error {
	pool, err := c.findPool(ctx)
	c.found = pool
	if err != nil { // a record may be open
		return &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "preflight", Err: err}
	}
	if pool == "" {
		found, err := c.Plan(ctx, journal.Record{})
		if err == nil {
			err = &workflow.Refused{Problems: found.Problems}
		}
		return err
	}
	err = c.Runner(fmt.Sprint(c.runs.Add(1)), &c.Summary).Run(ctx, pool, c)
	if refused, is := errors.AsType[*workflow.Refused](err); is && workflow.ExitCode(err) == workflow.ExitFailed && c.asked.Fresh == "" {
		return refused // the inspection changes nothing
	}
	out, _ := errors.AsType[*workflow.Outcome](err)
	switch {
	case out == nil:
	case out.Exit == workflow.ExitFailed:
		out.Ended = c.canary.Ended(out.Step)
	case out.Exit == workflow.ExitNeedsPerson && out.Step == model.StepGrow:
		ended, left := c.model.Ended()
		out.Ended, out.Left = ended, append(out.Left, left...)
	case out.Exit == workflow.ExitInterrupted && c.req.Fresh != "":
		if up := c.get().Fresh.Node; up != "" && out.Step != "preflight" && len(out.Left) == 0 {
			out.Left = []string{"the fresh donor " + up + " stays, cordoned (" + abandonCommand(pool) + " deletes it)"}
		}
	case out.Exit == workflow.ExitInterrupted && out.Step != "preflight" && len(out.Left) == 0:
		out.Left = []string{"node " + c.req.Node + " is in service as it was found"}
	}
	return err
}

// findPool returns the donor's pool: that of its open record if its Node was deleted, or is no
// member of a scale set by now; "" if neither exists or the Node may not be read, as preflight
// then says.
func (c *capture) findPool(ctx context.Context) (fleet.ResourceID, error) {
	if c.asked.Fresh != "" {
		return c.asked.Fresh, c.findFresh(ctx)
	}
	n, nodeErr := c.Cluster.Node(ctx, c.asked.Node)
	if fleet.Is(nodeErr, fleet.KindDenied) {
		return "", nil
	}
	if fleet.IgnoreNotFound(nodeErr) != nil {
		return "", nodeErr
	}
	if nodeErr == nil {
		id, err := n.Instance()
		var pool fleet.ResourceID
		if err == nil {
			pool, err = azure.PoolOf(ctx, c.Cloud, id)
		}
		if err == nil || !Unplaced(err) {
			return pool, err
		}
	}
	nodes, err := clones.Nodes(ctx, c.Cluster)
	if err != nil {
		return "", err
	}
	pools, err := c.pools(ctx, nodes)
	for _, pool := range pools {
		rec, err := c.Journal.Load(ctx, string(pool))
		if err == nil && rec.Open() && rec.Subject == c.asked.Node {
			var s state
			if nodeErr == nil {
				c.gone = true
			} else if json.Unmarshal(rec.State, &s) == nil && s.Instance != "" {
				_, err = donor.Used{Instance: s.Instance, VMID: s.VMID}.Read(ctx, c.Cloud)
				c.gone = fleet.Is(err, fleet.KindNotFound) // if it cannot be read, preflight says so
			}
			return pool, nil
		} else if fleet.IgnoreNotFound(err) != nil && !fleet.Is(err, fleet.KindDenied) {
			return "", err
		}
	}
	return "", err
}

// Unplaced reports why a Node has no scale set: it is not of one, its machine is gone, or these
// credentials may not read it, as in another cluster's resource group.
func Unplaced(err error) bool {
	return fleet.Is(err, fleet.KindInvalid, fleet.KindNotFound, fleet.KindDenied)
}

// pools returns those of nodes, sorted.
func (s *Service) pools(ctx context.Context, nodes []fleet.Node) (pools []fleet.ResourceID, err error) {
	places := azure.Places{Reader: s.Cloud}
	for _, n := range nodes {
		place, err := places.Of(ctx, n)
		if err == nil && !slices.ContainsFunc(pools, place.Pool.Equal) {
			pools = append(pools, place.Pool)
		}
		if err != nil && !Unplaced(err) {
			return nil, err
		}
	}
	slices.Sort(pools)
	return pools, nil
}

// State implements workflow.Workflow. The key that opens what is saved does not
// outlive the run.
func (c *capture) State(closed bool) any {
	s := c.get()
	if closed {
		s.Key = nil
	}
	return s
}

func (c *capture) Kind() string { return Kind }

// Restore implements workflow.Workflow. Names are derived from the pool, and instances
// checked: who can write the Secret must not have Ortet change or delete what is not the pool's.
// The id of a virtual machine does not name its pool, so acts on it ask Azure (donor.Used).
func (c *capture) Restore(r journal.Record) (t workflow.Table, why string, err error) {
	var q Request
	var s state
	if err := cmp.Or(json.Unmarshal(r.Request, &q), json.Unmarshal(r.State, &s)); err != nil {
		return nil, "", fmt.Errorf("decode request and state: %w", err)
	}
	s.Names = plan.NamesOf(s.Pool, "").Of(cmp.Or(s.Names.Definition, plan.DefinitionOf(s.Pool)), s.Names.Version.Name())
	s.Definition.ID = s.Names.Definition
	instance := s.Instance
	if q.Fresh != "" { // before it is up, none is the donor
		instance = cmp.Or(s.Instance, s.Fresh.Instance, s.Pool.Child("virtualMachines", "0"))
	}
	machine, err := fleet.ParseMachine("azure://" + string(instance))
	_, benchErr := fleet.ParseMachine("azure://" + string(cmp.Or(s.Bench.Instance, instance))) // of any pool
	if cmp.Or(err, benchErr) != nil || !s.Pool.Equal(fleet.ResourceID(r.Pool)) || !plan.IsDefinitionOf(s.Pool, s.Names.Definition) ||
		machine.UniformPool() != "" && !machine.UniformPool().Equal(s.Pool) ||
		!fleet.ValidName(s.Names.Version.Name()) {
		return nil, "", fmt.Errorf("the state is not of the pool %s", r.Pool)
	}
	c.req, c.name, c.begun = q.WithDefaults(), r.Name, r.Begun
	if q.Fresh != "" {
		c.req.Node = s.Fresh.Node
	}
	c.set(func(old *state) { *old = s })
	snapshot := r.Steps[donor.StepSnapshot].State
	copied := snapshot == journal.Done || snapshot == journal.Skipped
	own := r.Subject != "" && r.Subject == c.SelfNode && !copied // this process would evict itself
	recent := copied || c.Now().Sub(r.Begun) < 24*time.Hour      // versions are named by the day
	same := c.asked.PublishOnly == q.PublishOnly                 // what becomes of the model is never the other command's choice
	asked, err := json.Marshal(c.asked)
	differs := err == nil && string(asked) != string(r.Request)
	switch {
	case c.abandons:
		why = abandoned
	case r.Subject != c.asked.Node:
		why = "this command captures " + cmp.Or(c.asked.Node, freshDonor)
	case !q.Fresh.Equal(c.asked.Fresh):
		why = "only one of the two commands has --fresh"
	case c.gone:
		why = "its donor was deleted"
	case r.Phase == journal.Undo:
		why = "it was being undone"
	case !same:
		why = "only one of the two commands has --publish-only"
	case c.asked.Again && differs:
		why = "this command has --again and other options"
	case own:
		why = "its donor runs this process"
	case !recent:
		why = "it is older than 24 hours and took no snapshot"
	}
	c.result.Resumed = why == ""
	c.model.Grew = why == "" && r.Steps[model.StepGrow].State == journal.Done // it is one capture
	if differs && why == "" {
		c.Note("the options of the open capture are used, not those of this command: to capture with these, give them again with --again")
	}
	return c.table(view{}), why, nil
}
