package capture

import (
	"context"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

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
	w, err := c.Change(ctx, p, s.Pool, "model", change, is, func(ctx context.Context, pool fleet.Pool) error {
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
	want, last := v.Tags[fleet.TagCustomData], s.LastCustomData
	switch {
	case err != nil:
		return patch, err
	case c.req.Bakes():
		want = noopSHA
	case want == "", want == noopSHA && last == noopSHA, want != noopSHA && last == "":
		return patch, nil
	}
	data, err := CustomData(ctx, c.Cluster, s.Pool, want)
	switch {
	case fleet.Is(err, fleet.KindNotFound) && last == want:
		return patch, nil
	case fleet.Is(err, fleet.KindNotFound):
		return patch, invalid("patch model", string(v.ID), "capture with --bootstrap baked",
			"the model's customData is another, and this version's nodes need some that is not kept (SHA-256 %s)", want)
	case err == nil && last != want && !c.req.Bakes():
		p.Note("the model's customData is replaced by what the nodes of %s need", v.Name)
	}
	patch.CustomData = &data
	return patch, err
}

// usable refuses a version that the model must not be pointed at.
func (c *capture) usable(ctx context.Context) (fleet.ImageVersion, error) {
	id := c.get().Names.Version
	v, err := Usable(ctx, c.Cloud, id)
	if err == nil && prototype.RolledBack(v) {
		err = invalid("patch model", string(id), "", "it was rolled back since")
	}
	return v, err
}

// mayChange looks again at what preflight found, and refuses to go back: only a rollback
// does.
func (c *capture) mayChange(ctx context.Context, pool fleet.Pool) error {
	s := c.get()
	if err := MayPatch(pool, c.req.AllowRolling, c.req.ExcludeFromLatest, c.req.AllowOwned); err != nil {
		return err
	}
	if _, err := c.usable(ctx); err != nil {
		return err
	}
	versions, err := c.Cloud.Versions(ctx, s.Names.Definition)
	if err != nil {
		return err
	}
	used, known := prototype.VersionOf(versions, pool.Model.Image, pool.Location)
	if ours, there := prototype.FindVersion(versions, s.Names.Version); known && there && prototype.Newer(used, ours) {
		return invalid("patch model", string(pool.ID), "to use the older one: ortet rollback --to "+ours.Name,
			"the model uses %s by now, which is newer than %s", used.Name, ours.Name)
	}
	return nil
}
