package capture

import (
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	// restFor is how long a change of the scale set waits for others': Azure gives up on
	// an instance that does not come up after 20 minutes.
	restFor = 20 * time.Minute
	// restEvery is how often a scale set is read until it is at rest.
	restEvery = 20 * time.Second
)

// unrest says what is under way in a scale set; "" if it is at rest.
func unrest(pool fleet.Pool, instances []fleet.Instance) string {
	if busy(pool.ProvisioningState) {
		return "it is " + pool.ProvisioningState
	}
	for _, i := range instances {
		if i.ProvisioningState == prototype.Creating || i.ProvisioningState == prototype.Deleting {
			return fmt.Sprintf("instance %s is %s", i.InstanceID, i.ProvisioningState)
		}
	}
	return ""
}

// changePool makes a change of the scale set true. It is asked for while the set is at
// rest, since a newer write preempts an older one (OperationPreempted), and on the
// condition that the set is as it was read. begin may refuse the change at that moment.
func (c *capture) changePool(ctx context.Context, p *workflow.Pass, row string, change func(fleet.Pool) fleet.Change, is func(fleet.Pool) bool, begin func(context.Context, fleet.Pool) error) (workflow.Wait, error) {
	id := c.get().Pool
	if c.pool.ID == "" {
		pool, err := c.Cloud.Pool(ctx, id)
		if err != nil {
			return done, err
		}
		c.pool = pool
	}
	asked := c.pool.Etag
	var waits string
	w, err := p.Ensure(ctx, change(c.pool), func(ctx context.Context) (bool, error) {
		pool, err := c.Cloud.Pool(ctx, id)
		if err != nil {
			return false, err
		}
		c.pool = pool
		var why string
		if busy(pool.ProvisioningState) {
			why = unrest(pool, nil)
		} else if is(pool) {
			return true, nil
		} else if instances, err := c.Cloud.Instances(ctx, id); err != nil {
			return false, err
		} else {
			why = unrest(pool, instances)
		}
		if why != "" && c.waitsForRest(p, row, why) {
			waits = why
			return false, &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindBlocked, Err: fmt.Errorf("it is not at rest: %s", why)}
		}
		if is(pool) {
			return true, nil
		}
		if err := begin(ctx, pool); err != nil {
			return false, err
		}
		if pool.Etag != asked {
			return false, &fleet.Error{Op: "change scale set", Resource: string(id), Kind: fleet.KindStale, Err: fmt.Errorf("it changed since it was read")}
		}
		return false, nil
	})
	if waits != "" {
		return in(restEvery, "waiting until scale set %s is at rest: %s", id.Name(), waits), nil
	}
	if fleet.Is(err, fleet.KindStale) {
		c.pool = fleet.Pool{}
	}
	return w, err
}

// waitsForRest reports whether a row still waits. After restFor it notes that it does not.
func (c *capture) waitsForRest(p *workflow.Pass, row, why string) bool {
	c.mu.Lock()
	since, waits := c.restless[row]
	if !waits {
		since = c.Now()
		c.restless[row] = since
	}
	c.mu.Unlock()
	if c.Now().Sub(since) < restFor {
		return true
	}
	p.Note("scale set %s did not come to rest within %s (%s): it was changed all the same", c.get().Pool.Name(), restFor, why)
	return false
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
	change := func(pool fleet.Pool) fleet.Change {
		patch := *c.patch
		patch.Etag = pool.Etag
		return patch
	}
	is := func(pool fleet.Pool) bool { return pool.Model.Image.Same(c.patch.Image) }
	w, err := c.changePool(ctx, p, "model", change, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := c.mayChange(ctx, pool); err != nil {
			return err
		}
		if c.patch.CustomData != nil {
			c.set(func(s *state) { s.LastCustomData = sha(c.patch.CustomData.Reveal()) })
		}
		return nil
	})
	if err != nil || w.In > 0 {
		return w, err
	}
	c.set(func(s *state) { s.ModelChanged = true })
	if s.BuiltFrom != "" && s.BuiltFrom != c.req.Node {
		p.Progress(100, "the model uses what was built from %s", s.BuiltFrom)
	}
	return done, p.Save(ctx)
}

// modelPatch decides on the customData that goes with the version. If Ortet never set
// the model's, it stays: Azure does not show it.
func (c *capture) modelPatch(ctx context.Context, p *workflow.Pass) (fleet.PatchModel, error) {
	s := c.get()
	patch := fleet.PatchModel{Pool: s.Pool, Image: fleet.ImageReference{ID: s.Names.Version}}
	v, err := c.usable(ctx)
	if err != nil {
		return patch, err
	}
	nothing := fleet.NewSecret(noop)
	want := v.Tags[fleet.TagCustomData]
	switch {
	case c.req.Bakes():
		patch.CustomData = &nothing
	case want == noopSHA && s.LastCustomData != noopSHA:
		patch.CustomData = &nothing
		p.Note("the model's customData is replaced by a no-op: the nodes of %s need none", v.Name)
	case s.LastCustomData == "" || want == "" || want == noopSHA:
	default:
		kept, err := c.Cluster.Kept(ctx, s.Pool, "customData", want)
		switch {
		case fleet.Is(err, fleet.KindNotFound) && s.LastCustomData == want:
			return patch, nil
		case fleet.Is(err, fleet.KindNotFound):
			return patch, invalid("patch model", string(v.ID), "capture with --bootstrap baked",
				"the model's customData is another, and this version's nodes need some that is not kept (SHA-256 %s)", want)
		case err != nil:
			return patch, err
		}
		patch.CustomData = &kept.Data
		if s.LastCustomData != want {
			p.Note("the model's customData becomes what %s came with", c.req.Node)
		}
	}
	return patch, nil
}

// usable refuses a version that a new instance could not be made from.
func (c *capture) usable(ctx context.Context) (fleet.ImageVersion, error) {
	id := c.get().Names.Version
	v, err := c.Cloud.Version(ctx, id)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		err = invalid("patch model", string(id), "", "it was deleted")
	case err != nil:
	case v.ProvisioningState != prototype.Succeeded:
		err = invalid("patch model", string(id), "", "it is %s", v.ProvisioningState)
	case prototype.RolledBack(v):
		err = invalid("patch model", string(id), "", "it was rolled back since")
	}
	return v, err
}

// mayChange looks again at what preflight found, and refuses to go back: only a rollback
// does.
func (c *capture) mayChange(ctx context.Context, pool fleet.Pool) error {
	s := c.get()
	if problems := prototype.ModelProblems(pool, c.req.AllowRolling, c.req.ExcludeFromLatest, c.req.AllowOwned); len(problems) > 0 {
		return invalid("patch model", string(pool.ID), problems[0].WayOut, "%s", problems[0].What)
	}
	if _, err := c.usable(ctx); err != nil {
		return err
	}
	image := pool.Model.Image
	if image.LatestOf() == "" && image.Same(s.ImageBefore) {
		return nil
	}
	versions, err := c.Cloud.Versions(ctx, s.Names.Definition)
	if err != nil {
		return err
	}
	used, known := prototype.VersionOf(versions, image, pool.Location)
	if ours, there := prototype.FindVersion(versions, s.Names.Version); known && there && prototype.Newer(used, ours) {
		return invalid("patch model", string(pool.ID), "to use the older one: ortet rollback --to "+ours.Name,
			"the model uses %s by now, which is newer than %s", used.Name, ours.Name)
	}
	return nil
}
