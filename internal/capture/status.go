package capture

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// PoolStatus is what there is to know of one pool's prototypes.
type PoolStatus struct {
	Pool          fleet.Pool       `json:"pool"`
	Definition    fleet.ResourceID `json:"definition"`
	Versions      []VersionStatus  `json:"versions"` // newest first by publishing date
	Instances     []InstanceStatus `json:"instances"`
	Capture       *RunStatus       `json:"capture,omitempty"`       // newest capture or rollback, open or ended; nil if none
	Problem       string           `json:"problem,omitempty"`       // why the rest could not be read; "" if all is there
	Unread        bool             `json:"unread,omitempty"`        // the scale set itself could not be read
	Gone          bool             `json:"gone,omitempty"`          // Azure has no such scale set
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
	Power       fleet.PowerState `json:"power"`
	Image       string           `json:"image"`       // version name, or the image's URN or id
	LatestModel bool             `json:"latestModel"` // applied, or else its image is the model's
	Created     time.Time        `json:"created,omitzero"`
}

// RunStatus is what the journal says of the newest capture or rollback.
type RunStatus struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"` // "capture" or "rollback"
	Donor string    `json:"donor,omitempty"`
	Begun time.Time `json:"begun"`
	// Steps that were attempted, by id, in no order that matters.
	Steps []string `json:"steps,omitempty"`
	// Running are the steps that were under way when the journal was last written.
	Running []string `json:"running,omitempty"`
	// Undo is what is still to be undone unless the run is resumed, Why the reason if it
	// was begun.
	Undo []string `json:"undo,omitempty"`
	Why  string   `json:"why,omitempty"`
	// Ended is nil where it runs or can be resumed.
	Ended *Ending `json:"ended,omitempty"`
}

// Ending says how one ended.
type Ending struct {
	At      time.Time `json:"at"`
	Exit    int       `json:"exit"`
	Message string    `json:"message,omitempty"`
}

// Status reports on pools; on all that the cluster's nodes are in if pools is empty. A
// pool that cannot be read says so in its Problem.
func (s *Service) Status(ctx context.Context, pools []fleet.ResourceID) ([]PoolStatus, error) {
	if len(pools) == 0 {
		var err error
		if pools, err = s.pools(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]PoolStatus, len(pools))
	for i, id := range pools {
		out[i] = s.status(ctx, id)
	}
	return out, ctx.Err()
}

func (s *Service) status(ctx context.Context, id fleet.ResourceID) PoolStatus {
	st := PoolStatus{Pool: fleet.Pool{ID: id, Name: id.Name()}, Definition: prototype.DefinitionOf(id)}
	var (
		rec                                 journal.Record
		pool                                fleet.Pool
		versions                            []fleet.ImageVersion
		instances                           []fleet.Instance
		poolErr, versionErr, instErr, jrErr error
	)
	together(
		func() { pool, poolErr = s.Cloud.Pool(ctx, id) },
		func() { versions, versionErr = s.Cloud.Versions(ctx, st.Definition) },
		func() { instances, instErr = s.Cloud.Instances(ctx, id) },
		func() { rec, jrErr = s.Journal.Load(ctx, string(id)) },
	)
	if jrErr == nil {
		st.Capture = s.captureStatus(rec)
	}
	if err := cmp.Or(poolErr, missing(versionErr), instErr, missing(jrErr)); err != nil {
		st.Problem = err.Error()
	}
	st.Gone, st.JournalDenied = fleet.Is(poolErr, fleet.KindNotFound), fleet.Is(jrErr, fleet.KindDenied)
	if st.Unread = poolErr != nil; !st.Unread {
		st.Pool = pool
	}
	used, _ := prototype.VersionOf(versions, st.Pool.Model.Image, st.Pool.Location)
	made := map[string]int{}
	for _, i := range instances {
		image, exact := i.Image.Text(), i.Image.Exact()
		made[strings.ToLower(string(exact))]++
		if exact.Parent().Equal(st.Definition) {
			image = exact.Name()
		}
		st.Instances = append(st.Instances, InstanceStatus{
			InstanceID: i.InstanceID, Name: i.Name, HostName: i.HostName, Power: i.Power, Image: image, Created: i.Created,
			// A new configuration in the model's userData makes LatestModelApplied false for all.
			LatestModel: i.LatestModelApplied || i.Image.Same(st.Pool.Model.Image),
		})
	}
	for _, v := range prototype.NewestFirst(versions) {
		builtAt, _ := time.Parse(fleet.BuiltAtLayout, v.Tags[fleet.TagBuiltAt])
		st.Versions = append(st.Versions, VersionStatus{
			ImageVersion: v, BuiltFrom: v.Tags[fleet.TagBuiltFrom], BuiltAt: builtAt, InModel: v.ID.Equal(used.ID),
			RolledBack: prototype.RolledBack(v), Instances: made[strings.ToLower(string(v.ID))],
		})
	}
	return st
}

// captureStatus is what a record says, without its secrets.
func (s *Service) captureStatus(rec journal.Record) *RunStatus {
	c := &RunStatus{Name: rec.Name, Kind: rec.Kind, Donor: rec.Subject, Begun: rec.Begun}
	if rec.Ended != nil {
		c.Ended = &Ending{At: rec.Ended.At, Exit: rec.Ended.Exit, Message: rec.Ended.Message}
	}
	for id, step := range rec.Steps {
		if step.State != journal.Pending && step.State != journal.Skipped {
			c.Steps = append(c.Steps, id)
		}
		if rec.Open() && step.State == journal.Running {
			c.Running = append(c.Running, id)
		}
	}
	slices.Sort(c.Running)
	slices.Sort(c.Steps)
	if rec.Open() {
		if table, _, err := s.capture(Request{}).Restore(rec); err == nil && rec.Kind == Kind {
			rec.Phase = journal.Undo // if it does not go on
			for _, row := range workflow.Remaining(table, rec) {
				c.Undo = append(c.Undo, row.Undo.ID)
			}
		}
		c.Why = rec.Why
	}
	return c
}
