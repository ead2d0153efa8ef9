package version

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

var done = workflow.Wait{}

func (x *Version) gallery(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	i := x.Of()
	change := fleet.CreateGallery{ID: i.Names.Gallery, Location: i.Location, Tags: map[string]string{
		fleet.TagCreatedBy: "ortet " + i.Ortet, fleet.TagReason: "prototypes of scale sets in " + i.Pool.Segment("resourceGroups"),
	}}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		_, err := x.Cloud.Gallery(ctx, i.Names.Gallery)
		return err == nil, fleet.IgnoreNotFound(err)
	})
}

func (x *Version) definition(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	i := x.Of()
	w, err := p.Ensure(ctx, fleet.CreateDefinition{Definition: i.Definition}, func(ctx context.Context) (bool, error) {
		d, err := x.Cloud.Definition(ctx, i.Names.Definition)
		if err == nil {
			err = x.Elsewhere(d)
		}
		if err == nil && !plan.SameKind(d, i.Definition) {
			err = fleet.Invalid("create image definition", string(d.ID), "repeat the command, which takes another", "it exists by now, and is of another kind")
		}
		return err == nil && !azure.Busy(d.ProvisioningState), fleet.IgnoreNotFound(err)
	})
	if left := ClaimSettles - p.Since(); err == nil && w.RequeueAfter == 0 && left > 0 {
		w = workflow.In(left, "reading back which namespace has the pool")
	}
	return w, err
}

const (
	maxBuilds    = 3                // how often a version is built that Azure fails to build
	versionEvery = 15 * time.Second // how often another's version is read until it ends
)

// build makes the image version: zone-redundant, or locally redundant if the region
// refuses that. A version that another capture builds is waited for, a Failed one is built again.
func (x *Version) build(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	i := x.Of()
	if i.DonorGone {
		return done, errors.New("the donor was deleted during the capture")
	}
	change, err := x.change(ctx)
	if err != nil {
		return done, err
	}
	var there fleet.ImageVersion
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		there, err = x.Cloud.Version(ctx, change.ID)
		if there.ProvisioningState == plan.Failed && x.builds == 0 { // Ensure returns the operation's error
			x.builds++
			return false, nil
		}
		return err == nil, fleet.IgnoreNotFound(err)
	})
	by := there.Tags[fleet.TagCapture]
	switch {
	case fleet.Is(err, fleet.KindConflict):
		return done, x.otherName(ctx, err)
	case err == nil && there.ID != "" && by != i.Capture && !i.Found && // preflight found none, or a Failed one of Ortet's
		(there.ProvisioningState != plan.Failed || !plan.Ours(there.Tags)):
		return done, fleet.Invalid("create image version", string(change.ID),
			"run the same command again: it uses that version, or reports why not",
			"%s made a version of this name since this capture began", cmp.Or(by, "another tool"))
	case fleet.Is(err, fleet.KindUnsupported) && change.StorageType == fleet.ZRS:
		x.Build.Set(func(b *Build) { b.StorageType = fleet.LRS })
		return workflow.In(time.Millisecond, "building it locally redundant: %v", err), nil
	case err != nil || w.RequeueAfter > 0 || there.ProvisioningState == plan.Succeeded:
		return w, err
	case there.ProvisioningState != plan.Failed || !plan.Ours(there.Tags): // begun by another process, or being deleted
		return workflow.Wait{RequeueAfter: versionEvery, Percent: there.Progress, Status: "Azure: " + there.ProvisioningState}, nil
	case x.builds >= maxBuilds:
		return done, fleet.Invalid("create image version", string(change.ID), "", "Azure failed to build it: %s",
			cmp.Or(there.FailureMessage, "no reason given"))
	}
	if w, err = p.Ensure(ctx, fleet.DeleteVersion{ID: change.ID}, workflow.Gone(x.Cloud.Version, change.ID, nil)); err == nil {
		x.builds++ // as the deletion begins: the pass after that awaits it to build again
	} else if fleet.Is(err, fleet.KindConflict) {
		err = x.otherName(ctx, err)
	}
	return workflow.GoOn(w, err)
}

// otherName plans the capture again with another name for its version, where the gallery deletes
// softly: the name of a deleted version is taken there, and a Failed one cannot be deleted
// (azure-compute-docs, soft-delete-gallery). Otherwise it returns the refusal.
func (x *Version) otherName(ctx context.Context, refusal error) error {
	names := x.Of().Names
	if g, err := x.Cloud.Gallery(ctx, names.Gallery); err != nil || !g.SoftDelete {
		return refusal
	}
	x.Rename(names.Definition.Child("versions", plan.VersionName(x.Cloud.Now(), true)))
	return workflow.Replan("gallery %s deletes softly, and version %s is made under another name: %w", names.Gallery.Name(), names.Version.Name(), refusal)
}

// change makes the version from the generalised snapshot.
func (x *Version) change(ctx context.Context) (change fleet.CreateVersion, err error) {
	i := x.Of()
	id := i.Names.Version
	change = fleet.CreateVersion{
		ID: id, Location: i.Location, Source: i.Names.Generalized, Replicas: i.Replicas, ReplicationMode: fleet.ReplicationFull,
		StorageType:       cmp.Or(x.Build.Get().StorageType, fleet.ZRS),
		ExcludeFromLatest: i.Request.ExcludeFromLatest || plan.AgainNamed(id.Name()),
		Tags:              i.Tags,
		EncryptionSet:     i.Encryption.Set,
	}
	made := x.Cloud.Now().UTC().Format(time.RFC3339)
	if change.Tags[fleet.TagNotLive] = made; i.Request.PublishOnly {
		change.Tags[fleet.TagPublished] = made
	}
	if i.Request.Shallow {
		change.Replicas, change.ReplicationMode, change.StorageType = 1, fleet.ReplicationShallow, fleet.LRS
	}
	if i.Request.Bakes() && !change.ExcludeFromLatest {
		// New nodes of a model that refers to the definition would get the version before
		// the customData that goes with it.
		var pool fleet.Pool
		pool, err = x.Set.Pool(ctx, i.Pool)
		change.ExcludeFromLatest = pool.Model.Image.LatestOf().Equal(i.Names.Definition)
	}
	x.Build.Set(func(b *Build) { b.Excluded = change.ExcludeFromLatest })
	change.ExcludeFromLatest = change.ExcludeFromLatest || change.Tags[fleet.TagCanary] != ""
	return change, err
}

// delete deletes a version that is not complete.
func (x *Version) delete(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	i := x.Of()
	id := i.Names.Version
	return p.Ensure(ctx, fleet.DeleteVersion{ID: id}, workflow.Gone(x.Cloud.Version, id, func(v fleet.ImageVersion) bool {
		return v.ProvisioningState == plan.Succeeded || v.Tags[fleet.TagCapture] != i.Capture
	}))
}
