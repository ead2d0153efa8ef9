package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// restFor limits how long a change waits until the scale set is at rest: Azure gives
// up on an instance that does not start within 20 minutes.
const restFor = 20 * time.Minute

// A ScaleSet changes one scale set for the rows of a run, one after the other.
type ScaleSet struct {
	config   Config
	pool     fleet.Pool // as last read, for its Etag
	restless time.Time  // since when it is not at rest
}

// NewScaleSet makes a ScaleSet.
func NewScaleSet(config Config) *ScaleSet { return &ScaleSet{config: config} }

// readPool reads the scale set unless it is known.
func (x *ScaleSet) readPool(ctx context.Context, id fleet.ResourceID) (err error) {
	if x.pool.ID == "" {
		x.pool, err = x.config.Cloud.Pool(ctx, id)
	}
	return err
}

// unrest says which operation the scale set has in progress; "" if it is at rest.
func (x *ScaleSet) unrest(ctx context.Context) (string, error) {
	if busy(x.pool.ProvisioningState) {
		return "the scale set is " + x.pool.ProvisioningState, nil
	}
	instances, err := x.config.Cloud.Instances(ctx, x.pool.ID)
	for _, i := range instances {
		if i.ProvisioningState == prototype.Creating || i.ProvisioningState == prototype.Deleting {
			return fmt.Sprintf("instance %s is %s", i.InstanceID, i.ProvisioningState), nil
		}
	}
	return "", err
}

// Change makes a change of the scale set while that is at rest, since a newer write
// preempts an older one (OperationPreempted), and only if the set is still as it was read.
// begin is called right before the write, and may refuse it.
func (x *ScaleSet) Change(ctx context.Context, p *workflow.Pass, id fleet.ResourceID, change fleet.Change, is func(fleet.Pool) bool, begin func(context.Context, fleet.Pool) error) (workflow.Wait, error) {
	if err := x.readPool(ctx, id); err != nil {
		return done, err
	}
	asked, waits := x.pool.Etag, ""
	switch c := change.(type) {
	case fleet.PatchModel:
		c.Etag = asked
		change = c
	case fleet.SetCapacity:
		c.Etag = asked
		change = c
	}
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		pool, err := x.config.Cloud.Pool(ctx, id)
		if err != nil {
			return false, err
		}
		x.pool = pool
		if !busy(pool.ProvisioningState) && is(pool) {
			return true, nil
		}
		switch why, err := x.unrest(ctx); {
		case err != nil:
			return false, err
		case why == "":
			x.restless = time.Time{}
		default:
			x.restless = cmp.Or(x.restless, x.config.Now())
			if x.config.Now().Sub(x.restless) < restFor {
				waits = why
				return false, errors.New(why)
			}
			p.Note("scale set %s was not at rest after %s (%s): it was changed nevertheless", pool.Name, restFor, why)
		}
		if is(pool) {
			return true, nil
		}
		if err = begin(ctx, pool); err == nil && pool.Etag != asked {
			err = &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindStale, Err: errors.New("scale set changed since it was read")}
		}
		return false, err
	})
	switch {
	case waits != "":
		return in(20*time.Second, "waiting until scale set %s is at rest: %s", id.Name(), waits), nil
	case fleet.Is(err, fleet.KindStale):
		x.pool = fleet.Pool{}
	}
	return w, err
}

// MayPatch repeats preflight's checks of the model, right before it is changed.
func MayPatch(pool fleet.Pool, allowRolling, excludeFromLatest, allowOwned bool) error {
	if problems := prototype.ModelProblems(pool, allowRolling, excludeFromLatest, allowOwned); len(problems) > 0 {
		return invalid("patch model", string(pool.ID), problems[0].WayOut, "%s", problems[0].What)
	}
	return nil
}

// CustomData returns the customData that has this SHA-256: the no-op of a baked model, or
// what was saved in a Secret.
func CustomData(ctx context.Context, c cluster.Cluster, pool fleet.ResourceID, sha string) (fleet.Secret, error) {
	if sha == prototype.NoopSHA256 {
		return fleet.NewSecret(prototype.NoopCustomData), nil
	}
	kept, err := c.Kept(ctx, pool, "customData", sha)
	return kept.Data, err
}

// model points the pool's model at the version. There is no undo: the operation's end is
// awaited, and before and after it the model names an image that exists.
func (c *capture) model(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if c.patch == nil {
		patch, err := c.modelPatch(ctx, p)
		if err != nil {
			return done, err
		}
		c.patch = &patch
	}
	is := func(pool fleet.Pool) bool { return pool.Model.Image.Same(c.patch.Image) }
	w, err := c.Change(ctx, p, s.Pool, *c.patch, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := c.mayChange(ctx, pool); err != nil || c.patch.CustomData == nil {
			return err
		}
		c.set(func(s *state) { s.LastCustomData = prototype.SHA256(c.patch.CustomData.Reveal()) })
		return nil
	})
	if err == nil && w.In == 0 {
		c.set(func(s *state) { s.ModelChanged = true })
	}
	return w, err
}

// modelPatch decides on the customData that goes with the version. If Ortet never set
// the model's, it stays: Azure does not show it.
func (c *capture) modelPatch(ctx context.Context, p *workflow.Pass) (fleet.PatchModel, error) {
	const noop = prototype.NoopSHA256
	s := c.get()
	version := s.Names.Version
	patch := fleet.PatchModel{Pool: s.Pool, Image: fleet.ImageReference{ID: version}}
	want, last := s.CustomData, s.LastCustomData
	switch {
	case c.req.Bakes():
		want = noop
	case want == "", want == noop && last == noop, want != noop && last == "":
		return patch, nil
	}
	data, err := CustomData(ctx, c.Cluster, s.Pool, want)
	switch {
	case fleet.Is(err, fleet.KindNotFound) && last == want:
		return patch, nil
	case fleet.Is(err, fleet.KindNotFound):
		return patch, invalid("patch model", string(version), "capture with --bootstrap baked",
			"the model's customData is another, and this version's nodes need some that is not kept (SHA-256 %s)", want)
	case err == nil && last != want && !c.req.Bakes():
		p.Note("the model's customData is replaced by what the nodes of %s need", version.Name())
	}
	patch.CustomData = &data
	return patch, err
}

// mayChange repeats preflight's checks, and refuses to go back: only a rollback does.
func (c *capture) mayChange(ctx context.Context, pool fleet.Pool) error {
	s := c.get()
	if err := MayPatch(pool, c.req.AllowRolling, c.req.ExcludeFromLatest, c.req.AllowOwned); err != nil {
		return err
	}
	versions, err := c.Cloud.Versions(ctx, s.Names.Definition)
	used, known := prototype.VersionOf(versions, pool.Model.Image, pool.Location)
	if ours, there := prototype.FindVersion(versions, s.Names.Version); known && there && prototype.Newer(used, ours) {
		return invalid("patch model", string(pool.ID), "to use the older one: ortet rollback --to "+ours.Name,
			"the model uses %s by now, which is newer than %s", used.Name, ours.Name)
	}
	return err
}

// extensions deletes what bootstrapped the donor, dependents first, until the scale set
// as it was read last has none of them. Azure shows no settings of a deleted extension:
// they are saved right before.
func (c *capture) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if err := c.readPool(ctx, s.Pool); err != nil {
		return done, err
	}
	toDelete, _ := c.req.Extensions.Doomed(c.pool.Model.Extensions)
	if len(toDelete) == 0 {
		return done, nil
	}
	name, settings := toDelete[0].Name, toDelete[0].Settings
	is := func(pool fleet.Pool) bool {
		return !slices.ContainsFunc(pool.Model.Extensions, func(e fleet.Extension) bool { return strings.EqualFold(e.Name, name) })
	}
	return goOn(c.Change(ctx, p, s.Pool, fleet.DeleteExtension{Pool: s.Pool, Name: name}, is, func(ctx context.Context, _ fleet.Pool) error {
		if settings.Reveal() == "" {
			return nil
		}
		if err := p.Save(ctx); err != nil {
			return err
		}
		return c.keep(ctx, cluster.ExtensionSettings, name, settings, nil)
	}))
}

// grow adds new nodes, once: the capacity to reach is saved ahead of the change, and from
// then on each other capacity than before came of it, or of an autoscaler since. If the
// scale set was changed before that, the capacity is computed again.
func (c *capture) grow(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if err := c.readPool(ctx, s.Pool); err != nil {
		return done, err
	}
	to := s.GrowTo
	if to == 0 {
		to = c.pool.Capacity + c.req.NewNodes
	}
	is := func(pool fleet.Pool) bool { return c.get().GrowTo != 0 && pool.Capacity != to-c.req.NewNodes }
	w, err := c.Change(ctx, p, s.Pool, fleet.SetCapacity{Pool: s.Pool, Capacity: to}, is, func(context.Context, fleet.Pool) error {
		c.set(func(s *state) { s.GrowTo = to })
		return nil
	})
	switch {
	case fleet.Is(err, fleet.KindStale): // it had no effect
		c.set(func(s *state) { s.GrowTo = 0 })
	case err == nil && w.In == 0 && c.pool.Capacity < to:
		p.Note("the capacity was changed to %d by others", c.pool.Capacity)
	}
	return w, err
}
