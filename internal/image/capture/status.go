package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/fresh"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// PoolStatus is what there is to know of one pool's prototypes.
type PoolStatus struct {
	Pool          fleet.Pool       `json:"pool"`
	Definition    fleet.ResourceID `json:"definition"`
	Versions      []VersionStatus  `json:"versions"` // newest first by publishing date
	Instances     []InstanceStatus `json:"instances"`
	Capture       *RunStatus       `json:"capture,omitempty"`       // newest capture or rollback, open or ended; nil if none
	Canary        *CanaryStatus    `json:"canary,omitempty"`        // nil if Azure has none of the pool
	Fresh         []FreshStatus    `json:"fresh,omitempty"`         // donors that captures raised, and that are there
	Cordoned      []string         `json:"cordoned,omitempty"`      // nodes that a watch cordoned as it took their version back
	Renewing      []string         `json:"renewing,omitempty"`      // nodes that a rollout has begun and not ended, out of service
	Standby       string           `json:"standby,omitempty"`       // standby pools of a Flexible set, and how to renew their machines
	Problem       string           `json:"problem,omitempty"`       // why the rest could not be read; "" if all is there
	Unread        bool             `json:"unread,omitempty"`        // the scale set itself could not be read
	Gone          bool             `json:"gone,omitempty"`          // Azure has no such scale set
	Elsewhere     string           `json:"elsewhere,omitempty"`     // which other namespace has its lock and record, and what to do
	JournalDenied bool             `json:"journalDenied,omitempty"` // these credentials may not read its journal's Secret
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
	VMID        string           `json:"-"`
	Power       fleet.PowerState `json:"power"`
	Image       string           `json:"image"`       // version name, or the image's URN or id
	LatestModel bool             `json:"latestModel"` // applied, or else its image is the model's
	Created     time.Time        `json:"created,omitzero"`
}

// RunStatus is what the journal says of the newest capture or rollback.
type RunStatus struct {
	Name    string       `json:"name"`
	Kind    string       `json:"kind"` // "capture" or "rollback"
	Donor   string       `json:"donor,omitempty"`
	Fresh   bool         `json:"fresh,omitempty"` // it raises its donor
	Begun   time.Time    `json:"begun"`
	Steps   []string     `json:"steps,omitempty"`   // that were attempted, by id, sorted
	Running []string     `json:"running,omitempty"` // when the journal was last written
	Undo    []string     `json:"undo,omitempty"`    // what is still to be undone unless the run is resumed
	Why     string       `json:"why,omitempty"`     // of the undo, if that was begun
	Ended   *journal.End `json:"ended,omitempty"`   // nil where it runs or can be resumed
	Holder  string       `json:"holder,omitempty"`  // process that works on the pool, by its Lease
	Resumes bool         `json:"resumes,omitempty"` // no process works on the pool, and the same command resumes the run
}

// CanaryStatus is the scale set in which a capture proves a version of the pool.
type CanaryStatus struct {
	ID        fleet.ResourceID `json:"id"`
	Instances int64            `json:"instances"`
	Capture   string           `json:"capture"` // name of the capture that made it, by a tag
	Expires   time.Time        `json:"expires"`
	Obsolete  bool             `json:"obsolete,omitempty"` // expired, and no open capture will delete it
}

// FreshStatus is a donor that a capture raised.
type FreshStatus struct {
	Instance string `json:"instance"` // as Azure's commands take it
	Node     string `json:"node,omitempty"`
	Capture  string `json:"capture"`
	Delete   string `json:"delete,omitempty"` // the command that deletes it; "" while the capture runs
}

// Status reports on pools; on all that the cluster's nodes are in if pools is empty, with
// each canary in its pool's status. A pool that cannot be read says so in its Problem.
func (s *Service) Status(ctx context.Context, pools []fleet.ResourceID) (_ []PoolStatus, err error) {
	all := len(pools) == 0
	nodes, err := clones.Nodes(ctx, s.Cluster)
	if err == nil && all {
		pools, err = s.pools(ctx, nodes)
	}
	if err != nil && (all || !fleet.Is(err, fleet.KindDenied)) {
		return nil, err
	}
	out := make([]PoolStatus, len(pools))
	var group errgroup.Group
	group.SetLimit(4) // pools at once
	for i, id := range pools {
		group.Go(func() error {
			out[i] = s.status(ctx, id, nodes)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil || !all {
		return out, err
	}
	return s.withoutCanaries(ctx, out, nodes), nil
}

// withoutCanaries returns the pools' statuses, also of a pool of which only the canary has
// Nodes. A canary that was deleted may have Nodes for some minutes. The canary of a pool
// that Azure no longer has stays.
func (s *Service) withoutCanaries(ctx context.Context, all []PoolStatus, nodes []fleet.Node) (out []PoolStatus) {
	for _, st := range all {
		of, _, canary := st.Pool.Canary()
		if slices.ContainsFunc(all, func(o PoolStatus) bool {
			return !o.Gone && (canary && o.Pool.ID.Equal(of) || st.Gone && st.Pool.ID.Equal(fleet.CanaryOf(o.Pool.ID)))
		}) {
			continue
		}
		if canary {
			if pool := s.status(ctx, of, nodes); !pool.Gone {
				st = pool
			}
		}
		out = append(out, st)
	}
	return out
}

func (s *Service) status(ctx context.Context, id fleet.ResourceID, nodes []fleet.Node) PoolStatus {
	st := PoolStatus{Pool: fleet.Pool{ID: id, Name: id.Name()}, Definition: plan.DefinitionOf(id)}
	pool, poolErr := s.Cloud.Pool(ctx, id)
	versions, definitions, versionErr := s.History(ctx, cmp.Or(pool.ID, id), pool.Model.Image)
	st.Definition = cmp.Or(plan.NamedDefinition(id, pool.Model.Image), st.Definition)
	instances, instErr := s.Cloud.Instances(ctx, id)
	canary, canaryErr := s.Cloud.Pool(ctx, fleet.CanaryOf(id))
	holding, locked, leaseErr := s.Cluster.Holding(ctx, string(id)) // before the journal: the Lease goes last
	rec, jrErr := s.Journal.Load(ctx, string(id))
	var raised fresh.Donor
	if jrErr == nil {
		st.Capture, raised = s.captureStatus(rec)
		if leaseErr == nil && rec.Open() {
			if st.Capture.Resumes = !locked || !s.Now().Before(holding.Until); !st.Capture.Resumes {
				st.Capture.Holder = holding.Holder
			}
		}
	}
	if err := cmp.Or(poolErr, fleet.IgnoreNotFound(versionErr), instErr, fleet.IgnoreNotFound(canaryErr),
		fleet.IgnoreNotFound(jrErr)); err != nil {
		st.Problem = err.Error()
	}
	if refused := new(workflow.Refused); errors.As(s.elsewhere(plan.DefinitionsOf(id, definitions)...), &refused) {
		st.Elsewhere = refused.Problems[0].What + ": " + refused.Problems[0].WayOut
	}
	if of, expires, is := canary.Canary(); canaryErr == nil && is && of.Equal(id) {
		st.Canary = &CanaryStatus{ID: canary.ID, Instances: canary.Capacity, Capture: canary.Tags[fleet.TagCapture], Expires: expires}
		mayDelete := fleet.IgnoreNotFound(jrErr) != nil || jrErr == nil && rec.Open() && rec.Name == st.Canary.Capture
		st.Canary.Obsolete = !mayDelete && expires.Before(s.Cloud.Now())
	}
	st.Gone, st.JournalDenied = fleet.Is(poolErr, fleet.KindNotFound), fleet.Is(jrErr, fleet.KindDenied)
	if st.Unread = poolErr != nil; !st.Unread {
		st.Pool, st.Standby = pool, s.Standby(ctx, pool)
	}
	for _, c := range prove.Pair(instances, nodes) {
		mark := ""
		if c.Node != nil {
			mark = c.Node.Annotations[fleet.AnnotationFresh]
		}
		if chosen := c.Instance.ID.Equal(raised.Instance); mark != "" || chosen {
			f := FreshStatus{Instance: c.Instance.ID.Name(), Capture: cmp.Or(mark, rec.Name), Delete: fresh.ManualDelete(id, c.Instance.ID)}
			if chosen {
				f.Delete = workflow.SkipIf(st.Capture.Holder == "", abandonCommand(id))
			}
			if c.Node != nil {
				f.Node = c.Node.Name
			}
			st.Fresh = append(st.Fresh, f)
		}
		if n := c.Node; n != nil && n.Unschedulable && n.Annotations[fleet.AnnotationCordoned] != "" {
			st.Cordoned = append(st.Cordoned, n.Name)
		}
		if n := c.Node; n != nil && n.Annotations[fleet.AnnotationRollout] != "" {
			st.Renewing = append(st.Renewing, n.Name)
		}
	}
	used, _ := plan.VersionOf(versions, st.Pool.Model.Image, st.Pool.Location)
	made := map[string]int{}
	for _, i := range instances {
		image, exact := i.Image.Text(), i.Image.Exact()
		made[strings.ToLower(string(exact))]++
		if plan.IsDefinitionOf(id, exact.Parent()) {
			image = exact.Name()
		}
		st.Instances = append(st.Instances, InstanceStatus{
			InstanceID: i.InstanceID, Name: i.Name, HostName: i.HostName, VMID: i.VMID, Power: i.Power, Image: image, Created: i.Created,
			// A model that changed back, or whose userData changed, makes LatestModelApplied false for all.
			LatestModel: i.LatestModelApplied || i.Image.Same(st.Pool.Model.Image),
		})
	}
	for _, v := range plan.NewestFirst(versions) {
		builtAt, _ := time.Parse(fleet.BuiltAtLayout, v.Tags[fleet.TagBuiltAt])
		st.Versions = append(st.Versions, VersionStatus{
			ImageVersion: v, BuiltFrom: v.Tags[fleet.TagBuiltFrom], BuiltAt: builtAt, InModel: v.ID.Equal(used.ID),
			RolledBack: plan.RolledBack(v), Instances: made[strings.ToLower(string(v.ID))],
		})
	}
	return st
}

// captureStatus is what a record says, without its secrets, and the donor that it raised.
func (s *Service) captureStatus(rec journal.Record) (c *RunStatus, raised fresh.Donor) {
	c = &RunStatus{Name: rec.Name, Kind: rec.Kind, Donor: rec.Subject, Begun: rec.Begun, Ended: rec.Ended}
	for _, id := range slices.Sorted(maps.Keys(rec.Steps)) {
		state := rec.Steps[id].State
		if state != journal.Pending && state != journal.Skipped {
			c.Steps = append(c.Steps, id)
		}
		if rec.Open() && state == journal.Running {
			c.Running = append(c.Running, id)
		}
	}
	if !rec.Open() {
		return c, raised
	}
	c.Why = rec.Why
	w := s.capture(Request{})
	if table, _, err := w.Restore(rec); err == nil && rec.Kind == Kind {
		rec.Phase = journal.Undo // if it does not go on
		c.Undo = fleet.Each(workflow.Remaining(table, rec), func(row workflow.Step) string { return row.Undo.ID })
		raised, c.Fresh = w.s.Fresh, w.req.Fresh != ""
		c.Donor = cmp.Or(c.Donor, raised.Node)
	}
	return c, raised
}

// Progress returns how many steps the open capture of a record has, and how many of them are done; 0, 0
// for the record of another kind. Steps that its plan does not need are not counted.
func (s *Service) Progress(rec journal.Record) (done, all int) {
	table, _, err := s.capture(Request{}).Restore(rec)
	if err != nil || rec.Kind != Kind {
		return 0, 0
	}
	for _, row := range table {
		state := rec.Steps[row.ID].State
		if state == journal.Skipped {
			continue
		}
		if all++; state == journal.Done || state == journal.Undoing || state == journal.Undone { // as a donor that goes back
			done++
		}
	}
	return done, all
}

// Standby says which standby pools a Flexible scale set has, and how to renew their machines, which
// keep the image that they were made of (inferred); "" for none. It asks Azure once, and for no
// Uniform set, which cannot have one.
func (c Config) Standby(ctx context.Context, pool fleet.Pool) string {
	if !pool.Flexible() {
		return ""
	}
	all, err := c.Cloud.StandbyPools(ctx, pool.ID)
	if err != nil {
		return fmt.Sprintf("whether the scale set has a standby pool could not be read: %v", err)
	}
	return strings.Join(fleet.Each(all, func(s fleet.StandbyPool) string {
		return fmt.Sprintf("standby pool %s holds up to %s (%s), which come into the scale set with the image that they were made of; to renew them: "+
			"az standby-vm-pool update --name %s --resource-group %s --max-ready-capacity 0, and again with %d", s.ID.Name(), fleet.Count(int(s.Machines), "machine"),
			s.State, s.ID.Name(), s.ID.Segment("resourceGroups"), s.Machines)
	}), "; ")
}
