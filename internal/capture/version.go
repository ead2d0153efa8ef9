package capture

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

func (c *capture) gallery(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	change := fleet.CreateGallery{ID: s.Names.Gallery, Location: s.Location, Tags: map[string]string{
		fleet.TagCreatedBy: "ortet " + c.Version, fleet.TagReason: "prototypes of scale sets in " + s.Pool.Segment("resourceGroups"),
	}}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		_, err := c.Cloud.Gallery(ctx, s.Names.Gallery)
		return err == nil, fleet.IgnoreNotFound(err)
	})
}

func (c *capture) definition(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	return p.Ensure(ctx, fleet.CreateDefinition{Definition: s.Definition}, func(ctx context.Context) (bool, error) {
		d, err := c.Cloud.Definition(ctx, s.Names.Definition)
		return err == nil && !busy(d.ProvisioningState), fleet.IgnoreNotFound(err)
	})
}

const (
	maxBuilds    = 3                // how often a version is built that Azure fails to build
	versionEvery = 15 * time.Second // how often another's version is read until it ends
)

// version builds the image version: zone-redundant, or locally redundant if the region
// refuses that. A version that another capture builds is waited for, a Failed one is built again.
func (c *capture) version(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.get().DonorGone {
		return done, errors.New("the donor was deleted during the capture")
	}
	change, err := c.newVersion(ctx)
	if err != nil {
		return done, err
	}
	var there fleet.ImageVersion
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, change.ID)
		there = v
		if v.ProvisioningState == prototype.Failed && c.builds == 0 { // Ensure returns the operation's error
			c.builds++
			return false, nil
		}
		ours := v.Tags[fleet.TagCapture] == c.name && v.ProvisioningState != prototype.Deleting
		return err == nil && !(ours && busy(v.ProvisioningState)), fleet.IgnoreNotFound(err)
	})
	switch {
	case fleet.Is(err, fleet.KindUnsupported) && change.StorageType == fleet.ZRS:
		c.set(func(s *state) { s.StorageType = fleet.LRS })
		return in(time.Millisecond, "building it locally redundant: %v", err), nil
	case err != nil || w.In > 0 || there.ProvisioningState == prototype.Succeeded:
		return w, err
	case there.ProvisioningState != prototype.Failed || !prototype.Ours(there.Tags): // another's, or being deleted
		return workflow.Wait{In: versionEvery, Percent: there.Progress, Status: "Azure: " + there.ProvisioningState}, nil
	case c.builds > maxBuilds:
		return done, invalid("create image version", string(change.ID), "", "Azure failed to build it: %s", first(there.FailureMessage, "no reason given"))
	}
	if w, err = p.Ensure(ctx, fleet.DeleteVersion{ID: change.ID}, gone(c.Cloud.Version, change.ID)); err == nil {
		c.builds++
	}
	return goOn(w, err)
}

// newVersion makes the version from the generalised snapshot.
func (c *capture) newVersion(ctx context.Context) (change fleet.CreateVersion, err error) {
	s := c.get()
	id := s.Names.Version
	change = fleet.CreateVersion{
		ID: id, Location: s.Location, Source: s.Names.Generalized, Replicas: c.req.Replicas, ReplicationMode: fleet.ReplicationFull,
		StorageType: first(s.StorageType, fleet.ZRS), ExcludeFromLatest: c.req.ExcludeFromLatest || prototype.AgainNamed(id.Name()), Tags: c.imageTags(),
	}
	if c.req.Shallow {
		change.Replicas, change.ReplicationMode, change.StorageType = 1, fleet.ReplicationShallow, fleet.LRS
	}
	if c.req.Bakes() && !change.ExcludeFromLatest {
		// New nodes of a model that refers to the definition would get the version before
		// the customData that goes with it.
		err = c.readPool(ctx, s.Pool)
		change.ExcludeFromLatest = c.pool.Model.Image.LatestOf().Equal(s.Names.Definition)
	}
	return change, err
}

// imageTags are on the snapshot of the generalised copy and on the version made from it.
func (c *capture) imageTags() map[string]string {
	s := c.get()
	tags := c.tags(map[string]string{fleet.TagGeneralized: c.name, fleet.TagCustomData: s.CustomData, fleet.TagSecrets: s.Secrets})
	maps.DeleteFunc(tags, func(_, value string) bool { return value == "" })
	return tags
}

// deleteVersion deletes a version that is not complete.
func (c *capture) deleteVersion(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	id := c.get().Names.Version
	return p.Ensure(ctx, fleet.DeleteVersion{ID: id}, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, id)
		kept := err == nil && (v.ProvisioningState == prototype.Succeeded || v.Tags[fleet.TagCapture] != c.name)
		return kept || fleet.Is(err, fleet.KindNotFound), fleet.IgnoreNotFound(err)
	})
}

// prune deletes what lies beyond the history, one version after the other. Who refers to
// what is read again before each. What cannot be deleted is named, and is no failure.
func (c *capture) prune(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.deleting == "" {
		s := c.get()
		versions, versionsErr := c.Cloud.Versions(ctx, s.Names.Definition)
		uses, err := c.Cloud.Uses(ctx, s.Names.Definition)
		if err = cmp.Or(versionsErr, err); err != nil {
			return done, err
		}
		old, kept := prototype.Prune(versions, uses, s.Names.Version, c.req.History)
		next := slices.IndexFunc(old, func(v fleet.ImageVersion) bool { return !c.tried[v.Name] })
		if next < 0 {
			c.result.Kept = append(c.result.Kept, kept...)
			return done, nil
		}
		c.deleting = old[next].ID
	}
	name := c.deleting.Name()
	w, err := p.Ensure(ctx, fleet.DeleteVersion{ID: c.deleting}, gone(c.Cloud.Version, c.deleting))
	repeated := []fleet.Kind{fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut, fleet.KindConflict}
	switch {
	case w.In > 0, ctx.Err() != nil, err != nil && slices.Contains(repeated, fleet.KindOf(err)):
		return w, err
	case err != nil:
		c.result.Kept = append(c.result.Kept, name+": "+err.Error())
	default:
		c.result.Pruned = append(c.result.Pruned, name)
	}
	c.tried[name], c.deleting = true, ""
	return in(time.Millisecond, "deleted %s", name), nil
}
