package capture

import (
	"context"
	"errors"
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
		return err == nil, missing(err)
	})
}

func (c *capture) definition(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	return p.Ensure(ctx, fleet.CreateDefinition{Definition: s.Definition}, func(ctx context.Context) (bool, error) {
		d, err := c.Cloud.Definition(ctx, s.Names.Definition)
		return err == nil && !busy(d.ProvisioningState), missing(err)
	})
}

const (
	maxBuilds    = 3                // how often a version is built that Azure fails to build
	versionEvery = 15 * time.Second // how often another's version is read until it ends
)

// version builds the image version: zone-redundant, or locally redundant if the region
// refuses that. A version that another capture builds is waited for, a Failed one is built again.
func (c *capture) version(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if s.DonorGone {
		return done, errors.New("the donor was deleted during the capture")
	}
	id := s.Names.Version
	change, err := c.newVersion(ctx)
	if err != nil {
		return done, err
	}
	var there fleet.ImageVersion
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, id)
		there = v
		switch {
		case fleet.Is(err, fleet.KindNotFound) && change.Tags[fleet.TagGeneralized] == "":
			return false, invalid("create image version", string(id), "", "no snapshot %s of a generalised disk exists to make it from", s.Names.Generalized.Name())
		case err != nil:
			return false, missing(err)
		case prototype.RolledBack(v):
			return false, invalid("create image version", string(id), "say --again to make another", "it was rolled back since")
		case v.ProvisioningState == prototype.Failed && !c.failed: // Ensure gives the operation's error
			c.failed = true
			c.set(func(s *state) { s.Builds++ })
			return false, nil
		}
		ours := v.Tags[fleet.TagCapture] == c.name && v.ProvisioningState != prototype.Deleting
		return !ours || !busy(v.ProvisioningState), nil
	})
	switch {
	case fleet.Is(err, fleet.KindUnsupported) && s.StorageType != fleet.LRS && !c.req.Shallow:
		c.set(func(s *state) { s.StorageType = fleet.LRS })
		return in(time.Millisecond, "building it locally redundant: %v", err), nil
	case err != nil || w.In > 0 || there.ProvisioningState == prototype.Succeeded:
		return w, err
	case there.ProvisioningState == prototype.Failed && prototype.Ours(there.Tags):
		if c.get().Builds > maxBuilds {
			return done, invalid("create image version", string(id), "", "Azure failed to build it: %s", first(there.FailureMessage, "no reason given"))
		}
		c.failed = false
		return goOn(p.Ensure(ctx, fleet.DeleteVersion{ID: id}, gone(c.Cloud.Version, id)))
	}
	return workflow.Wait{In: versionEvery, Percent: there.Progress, Status: "Azure: " + there.ProvisioningState}, nil // another's, or being deleted
}

// newVersion makes the version from the generalised snapshot, and from no other.
func (c *capture) newVersion(ctx context.Context) (fleet.CreateVersion, error) {
	s := c.get()
	if c.create == nil {
		source, err := c.Cloud.Snapshot(ctx, s.Names.Generalized)
		if missing(err) != nil {
			return fleet.CreateVersion{}, err
		}
		tags := c.tags(nil)
		for _, k := range []string{fleet.TagGeneralized, fleet.TagCustomData, fleet.TagSecrets, fleet.TagBuiltFrom, fleet.TagBuiltAt} {
			if v := source.Tags[k]; v != "" && source.Tags[fleet.TagCapture] != "" {
				tags[k] = v
			}
		}
		id := s.Names.Version
		change := fleet.CreateVersion{
			ID: id, Location: s.Location, Source: s.Names.Generalized, Replicas: c.req.Replicas, ReplicationMode: fleet.ReplicationFull,
			ExcludeFromLatest: c.req.ExcludeFromLatest || prototype.AgainNamed(id.Name()), Tags: tags,
		}
		if c.req.Shallow {
			change.Replicas, change.ReplicationMode, change.StorageType = 1, fleet.ReplicationShallow, fleet.LRS
		}
		if c.req.Bakes() && !change.ExcludeFromLatest {
			// New nodes of a model that refers to the definition would get the version before
			// the customData that goes with it.
			pool, err := c.Cloud.Pool(ctx, s.Pool)
			if err != nil {
				return change, err
			}
			change.ExcludeFromLatest = pool.Model.Image.LatestOf().Equal(s.Names.Definition)
		}
		c.create = &change
	}
	change := *c.create
	change.StorageType = first(change.StorageType, s.StorageType, fleet.ZRS)
	return change, nil
}

// deleteVersion deletes a version that is not complete.
func (c *capture) deleteVersion(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	id := c.get().Names.Version
	return p.Ensure(ctx, fleet.DeleteVersion{ID: id}, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, id)
		kept := err == nil && (v.ProvisioningState == prototype.Succeeded || v.Tags[fleet.TagCapture] != c.name)
		return kept || fleet.Is(err, fleet.KindNotFound), missing(err)
	})
}

// prune deletes what lies beyond the history, one version after the other. Who refers to
// what is read again before each. What cannot be deleted is named, and is no failure.
func (c *capture) prune(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.deleting == "" {
		if err := c.nextToPrune(ctx); err != nil || c.deleting == "" {
			return done, err
		}
	}
	id, kept := c.deleting, ""
	w, err := p.Ensure(ctx, fleet.DeleteVersion{ID: id}, gone(c.Cloud.Version, id))
	if err != nil {
		switch kind := fleet.KindOf(err); {
		case ctx.Err() != nil, kind == fleet.KindTransient, kind == fleet.KindThrottled, kind == fleet.KindTimedOut, kind == fleet.KindConflict:
			return w, err
		}
		kept = err.Error()
	} else if w.In > 0 {
		return w, nil
	}
	c.pruned(id.Name(), kept)
	c.deleting = ""
	return in(time.Millisecond, "deleted %s", id.Name()), nil
}

func (c *capture) nextToPrune(ctx context.Context) error {
	s := c.get()
	versions, err := c.Cloud.Versions(ctx, s.Names.Definition)
	if err != nil {
		return err
	}
	uses, err := c.Cloud.Uses(ctx, s.Names.Definition)
	if err != nil {
		return err
	}
	old, kept := prototype.Prune(versions, uses, s.Names.Version, c.req.History)
	for _, v := range old {
		if !c.tried[v.Name] {
			c.deleting = v.ID
			return nil
		}
	}
	for _, x := range kept {
		if !c.tried[x.Version.Name] {
			c.pruned(x.Version.Name, x.Why)
		}
	}
	return nil
}

func (c *capture) pruned(name, kept string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried[name] = true
	if kept == "" {
		c.result.Pruned = append(c.result.Pruned, name)
	} else {
		c.result.Kept = append(c.result.Kept, name+": "+kept)
	}
}
