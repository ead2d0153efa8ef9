package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// Status implements Doors. A pool that cannot be read says so in its Problem.
func (e *Engine) Status(ctx context.Context, pools []fleet.ResourceID) ([]PoolStatus, error) {
	r, done := e.begin(ctx)
	defer done()
	t := r.task(prototype.Step{ID: "status"})
	if len(pools) == 0 {
		var err error
		if pools, err = e.allPools(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]PoolStatus, len(pools))
	for i, id := range pools {
		out[i] = r.status(ctx, t, id)
	}
	return out, ctx.Err()
}

// allPools gives the pools that the cluster's nodes are in, by name.
func (e *Engine) allPools(ctx context.Context) ([]fleet.ResourceID, error) {
	seen := map[string]fleet.ResourceID{}
	for n, err := range e.cluster.Nodes(ctx) {
		if err != nil {
			return nil, err
		}
		if id, err := fleet.ParseProviderID(n.ProviderID); err == nil {
			if key := journalKey(id.Parent()); seen[key] == "" {
				seen[key] = id.Parent()
			}
		}
	}
	var pools []fleet.ResourceID
	for _, id := range seen {
		pools = append(pools, id)
	}
	slices.SortFunc(pools, func(a, b fleet.ResourceID) int { return strings.Compare(journalKey(a), journalKey(b)) })
	return pools, nil
}

func (r *run) status(ctx context.Context, t *task, id fleet.ResourceID) PoolStatus {
	s := PoolStatus{Pool: fleet.Pool{ID: id, Name: id.Name()}, Definition: prototype.DefinitionOf(id)}
	problem := func(err error) {
		if err != nil && s.Problem == "" {
			s.Problem = err.Error()
		}
	}
	var (
		poolErr, versionErr, instanceErr, journalErr error
		versions                                     []fleet.ImageVersion
		instances                                    []fleet.Instance
		pool                                         fleet.Pool
	)
	together(
		func() { pool, poolErr = t.pool(ctx, id) },
		func() { versions, versionErr = t.versions(ctx, s.Definition, "") },
		func() {
			instances, instanceErr = ask(ctx, t, func(ctx context.Context) ([]fleet.Instance, error) { return r.e.cloud.Instances(ctx, id) })
		},
		func() {
			rec, err := r.e.cluster.Journals().Load(ctx, journalKey(id))
			if err == nil {
				s.Capture = captureStatus(rec)
			}
			journalErr = ignoreMissing(err)
		},
	)
	problem(poolErr)
	problem(versionErr)
	problem(instanceErr)
	problem(journalErr)
	s.Gone, s.JournalDenied = fleet.Is(poolErr, fleet.KindNotFound), fleet.Is(journalErr, fleet.KindDenied)
	if s.Unread = poolErr != nil; !s.Unread {
		s.Pool = pool
	}
	used, _ := prototype.VersionOf(versions, s.Pool.Model.Image, s.Pool.Location)
	made := map[string]int{}
	for _, i := range instances {
		image, exact := i.Image.Text(), i.Image.Exact()
		made[journalKey(exact)]++
		if exact.Parent().Equal(s.Definition) {
			image = exact.Name()
		}
		s.Instances = append(s.Instances, InstanceStatus{
			InstanceID: i.InstanceID, Name: i.Name, HostName: i.HostName, Power: i.Power, Image: image, LatestModel: latest(i, s.Pool.Model), Created: i.Created,
		})
	}
	for _, v := range prototype.NewestFirst(versions) {
		builtAt, err := time.Parse(fleet.BuiltAtLayout, v.Tags[fleet.TagBuiltAt])
		if err != nil {
			builtAt = time.Time{}
		}
		s.Versions = append(s.Versions, VersionStatus{
			ImageVersion: v, BuiltFrom: v.Tags[fleet.TagBuiltFrom], BuiltAt: builtAt, InModel: v.ID.Equal(used.ID),
			RolledBack: prototype.RolledBack(v), Instances: made[journalKey(v.ID)],
		})
	}
	return s
}

// latest reports whether a new instance would come from the image that i came from.
// LatestModelApplied alone will not do: a new configuration in the model's userData
// makes it false for all instances.
func latest(i fleet.Instance, m fleet.Model) bool {
	return i.LatestModelApplied || i.Image.Same(m.Image)
}

// captureStatus tells what a record says, but for its secrets.
func captureStatus(rec journal.Record) *CaptureStatus {
	c := &CaptureStatus{Name: rec.Capture, Kind: rec.Kind, Donor: rec.Donor, Begun: rec.Begun}
	for step := range rec.Intents {
		c.Steps = append(c.Steps, step)
	}
	slices.Sort(c.Steps)
	for _, u := range rec.Undo {
		c.Undo = append(c.Undo, u.Name)
	}
	if rec.Ended != nil {
		c.Ended = &Ending{At: rec.Ended.At, Exit: rec.Ended.Exit, Message: rec.Ended.Message}
	}
	var f facts
	if json.Unmarshal(rec.Facts, &f) == nil && f.Undoing != "" && c.Ended == nil {
		c.Undo = append(c.Undo, "because "+f.Undoing)
	}
	return c
}
