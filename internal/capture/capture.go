// Package capture makes a node's OS disk the image of its pool's new nodes.
//
// steps.go is the table: each row names an act and its undo. plan.go decides from the
// world which rows run; nothing else does. An act is one pass of internal/workflow: it
// observes, and asks for what is not so.
package capture

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Kind is that of a capture's record.
const Kind = "capture"

// How new nodes come to join the cluster.
const (
	BootstrapKeep  = prototype.BootstrapKeep
	BootstrapBaked = prototype.BootstrapBaked
)

// A Request says which node to capture, and how.
type Request = prototype.Request

// A Result says what a capture did, as far as it came if it failed.
type Result struct {
	Capture         string           `json:"capture,omitempty"`
	Pool            fleet.ResourceID `json:"pool,omitempty"`
	Donor           string           `json:"donor"`
	Version         fleet.ResourceID `json:"version,omitempty"`   // that the model uses now
	BuiltFrom       string           `json:"builtFrom,omitempty"` // node of the version
	NothingToDo     bool             `json:"nothingToDo,omitempty"`
	Resumed         bool             `json:"resumed,omitempty"`
	Pruned          []string         `json:"pruned,omitempty"`
	Kept            []string         `json:"kept,omitempty"`         // beyond the history, with the reason
	Irreversible    []string         `json:"irreversible,omitempty"` // not saved, and deleted from the model
	Notes           []string         `json:"notes,omitempty"`
	PoolCredentials []string         `json:"poolCredentials,omitempty"` // accepted, by path
	AcceptedSecrets []string         `json:"acceptedSecrets,omitempty"`
	RemovedSecrets  []string         `json:"removedSecrets,omitempty"`
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
	// Accesses gives what preflight asks RBAC for; nil asks for nothing. The pool may be "".
	Accesses func(pool fleet.ResourceID) []cluster.Access
	// Others gives the workflow of another kind, whose open record is undone first.
	Others func(kind string) (workflow.Workflow, error)
}

// Runner gives the runner of one run, whose name is unique for the holder.
func (c Config) Runner(name string, s *workflow.Summary) *workflow.Runner {
	return &workflow.Runner{
		Cloud: c.Cloud, Journal: c.Journal, Locks: c.Cluster, LockFor: c.LockFor, Now: c.Now, Log: c.Log,
		Holder: c.Holder + "/" + name, Report: s.Reporter(c.Report),
		Workflow: func(kind string) (workflow.Workflow, error) {
			s.Note("an interrupted %s of this pool was ended first", kind)
			return c.Others(kind)
		},
	}
}

// A Service captures. It may be used from several goroutines.
type Service struct {
	Config
	runs atomic.Int64
}

// New makes a Service.
func New(config Config) *Service {
	if config.LockFor <= 0 {
		config.LockFor = 45 * time.Second
	}
	if config.Others == nil {
		config.Others = func(kind string) (workflow.Workflow, error) {
			return nil, fmt.Errorf("unknown kind of record %q", kind)
		}
	}
	return &Service{Config: config}
}

// Workflow gives what undoes an open record of a capture for a workflow of another kind.
func (s *Service) Workflow() workflow.Workflow { return s.capture(Request{}) }

// A capture is one call of Capture or Plan, as a workflow.
type capture struct {
	*Service
	*ScaleSet
	workflow.Summary
	asked Request // by this command

	mu      sync.Mutex
	req     Request // of the record
	name    string  // of the capture
	begun   time.Time
	s       state
	nothing bool
	result  Result

	// Of this process alone.
	patch     *fleet.PatchModel
	create    *fleet.CreateVersion
	failed    bool             // the version was seen Failed
	deleting  fleet.ResourceID // version that prune deletes
	tried     map[string]bool  // versions that it tried to delete
	inspected bool             // the inspection pod is created
	grew      bool             // the capacity was asked for, maybe by an earlier process
}

var _ workflow.Workflow = (*capture)(nil)

func (s *Service) capture(q Request) *capture {
	q = q.WithDefaults()
	return &capture{Service: s, ScaleSet: NewScaleSet(s.Config), asked: q, req: q, result: Result{Donor: q.Node}, tried: map[string]bool{}}
}

// Capture captures a node. An open record of the pool is resumed (the same donor) or
// undone first. Errors are *workflow.Refused or *workflow.Outcome, or of a cluster
// that does not answer. When ctx ends, the donor is returned to service first.
func (s *Service) Capture(ctx context.Context, q Request) (Result, error) {
	c := s.capture(q)
	c.result.Timing.Begin = s.Now()
	err := c.run(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Timing.End = s.Now()
	c.fill()
	if workflow.ExitCode(err) == workflow.ExitRefused {
		c.result.Capture = "" // it was not begun
	}
	return c.result, err
}

func (c *capture) run(ctx context.Context) error {
	pool, err := c.findPool(ctx)
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
	var refused *workflow.Refused
	if workflow.ExitCode(err) == workflow.ExitFailed && errors.As(err, &refused) {
		return refused // the inspection changes nothing
	}
	if out := new(workflow.Outcome); errors.As(err, &out) && out.Exit == workflow.ExitInterrupted && out.Step != "preflight" && len(out.Left) == 0 {
		out.Left = []string{"node " + c.req.Node + " is in service as it was found"}
	}
	return err
}

// findPool gives the donor's pool, that of its open record if its Node was deleted; ""
// if neither exists or the Node may not be read.
func (c *capture) findPool(ctx context.Context) (fleet.ResourceID, error) {
	n, err := c.Cluster.Node(ctx, c.asked.Node)
	switch {
	case err == nil:
		id, _ := fleet.ParseProviderID(n.ProviderID) // preflight says what is wrong with it
		return id.Parent(), nil
	case fleet.Is(err, fleet.KindDenied):
		return "", nil // preflight names all that is denied
	case !fleet.Is(err, fleet.KindNotFound):
		return "", err
	}
	pools, err := c.pools(ctx)
	for _, pool := range pools {
		rec, err := c.Journal.Load(ctx, string(pool))
		if err == nil && rec.Open() && rec.Subject == c.asked.Node {
			return pool, nil
		} else if missing(err) != nil && !fleet.Is(err, fleet.KindDenied) {
			return "", err
		}
	}
	return "", err
}

// pools gives those of the cluster's nodes, sorted.
func (s *Service) pools(ctx context.Context) (pools []fleet.ResourceID, err error) {
	for n, err := range s.Cluster.Nodes(ctx) {
		if err != nil {
			return nil, err
		}
		if id, err := fleet.ParseProviderID(n.ProviderID); err == nil {
			pools = append(pools, id.Parent())
		}
	}
	slices.SortFunc(pools, func(a, b fleet.ResourceID) int {
		return strings.Compare(strings.ToLower(string(a)), strings.ToLower(string(b)))
	})
	return slices.CompactFunc(pools, fleet.ResourceID.Equal), nil
}

// fill completes the result from the state.
func (c *capture) fill() {
	r, s := &c.result, c.s
	r.NothingToDo, r.Pool = c.nothing, s.Pool
	if c.name != "" && !c.nothing {
		r.Capture = c.name
	}
	r.PoolCredentials, r.AcceptedSecrets, r.RemovedSecrets = s.Credentials, s.AcceptedSecrets, s.RemovedSecrets
	r.Notes, r.Timing.Steps = c.Booked()
	r.Notes = append(r.Notes, s.ScanNotes...)
	if s.ModelChanged || c.nothing {
		r.Version, r.Irreversible, r.BuiltFrom = s.Names.Version, s.Unsaved, first(s.BuiltFrom, c.req.Node)
	}
}

// released records a Kubernetes Event on the donor's Node at the end of its protection.
func (c *capture) released(ctx context.Context, node fleet.Node) {
	failure, lost := "", false
	_, steps := c.Booked()
	for _, s := range steps {
		if s.Failure != "" && (failure == "" || s.Step == "start") {
			failure, lost = s.Step+": "+s.Failure, s.Step == "start"
		}
	}
	switch {
	case lost:
		c.Cluster.Event(ctx, node, true, "CaptureDonorLost", "did not come back after its disk was captured: "+failure)
	case failure != "":
		c.Cluster.Event(ctx, node, true, "CaptureFailed", "its disk was not captured; step "+failure)
	default:
		c.Cluster.Event(ctx, node, false, "CaptureGaveBack", "returned to service ("+c.name+")")
	}
}

func first(values ...string) string { return cmp.Or(values...) }

// State implements workflow.Workflow. The key that opens what is saved does not
// outlive the run.
func (c *capture) State(closed bool) any {
	s := c.get()
	if closed {
		s.Key = nil
	}
	return s
}

// Kind implements workflow.Workflow.
func (c *capture) Kind() string { return Kind }

// resumableFor is how old an open record may be whose donor was not copied yet: its
// version is named by a day.
const resumableFor = 24 * time.Hour

// Restore implements workflow.Workflow.
func (c *capture) Restore(r journal.Record) (workflow.Table, bool, error) {
	var q Request
	if err := json.Unmarshal(r.Request, &q); err != nil {
		return nil, false, fmt.Errorf("decode the request: %w", err)
	}
	s, err := stateOf(r)
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	c.req, c.name, c.begun, c.s = q.WithDefaults(), r.Name, r.Begun, s
	c.mu.Unlock()
	copied := r.Steps["snapshot"].State == journal.Done || r.Steps["snapshot"].State == journal.Skipped
	own := r.Subject == c.SelfNode && !copied // this process would evict itself
	resumable := r.Subject == c.asked.Node && !own && r.Phase != journal.Undo && (copied || c.Now().Sub(r.Begun) < resumableFor)
	if resumable {
		c.result.Resumed = true
		c.Note("resumed %s, begun at %s", r.Name, r.Begun.UTC().Format(time.RFC3339))
		if asked, err := json.Marshal(c.asked); err == nil && string(asked) != string(r.Request) {
			c.Note("this command's options differ from those that %s was begun with, which are used", r.Name)
		}
	} else {
		c.Note("%s of %s, begun at %s, was undone first", r.Name, first(r.Subject, r.Pool), r.Begun.UTC().Format(time.RFC3339))
	}
	return c.table(start{}), resumable, nil
}
