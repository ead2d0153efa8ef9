package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

func gallery(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	change := fleet.CreateGallery{ID: f.Names.Gallery, Location: f.Location, Tags: map[string]string{
		fleet.TagCreatedBy: "ortet " + r.e.config.Version, fleet.TagReason: "prototypes of scale sets in " + f.Pool.Segment("resourceGroups"),
	}}
	return t.change(ctx, prototype.StepGallery, change, func(ctx context.Context) (bool, error) {
		_, ok, err := found(ctx, t, func(ctx context.Context) (fleet.Gallery, error) { return r.e.cloud.Gallery(ctx, f.Names.Gallery) })
		return ok, err
	})
}

func definition(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	return t.change(ctx, prototype.StepDefinition, fleet.CreateDefinition{Definition: f.Definition}, func(ctx context.Context) (bool, error) {
		d, ok, err := found(ctx, t, func(ctx context.Context) (fleet.Definition, error) {
			return r.e.cloud.Definition(ctx, f.Names.Definition)
		})
		return ok && !busy(d.ProvisioningState), err
	})
}

// versionAt reads a version as it is now.
func (t *task) versionAt(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, bool, error) {
	return found(ctx, t, func(ctx context.Context) (fleet.ImageVersion, error) { return t.r.e.cloud.Version(ctx, id) })
}

// heldVersion is versionAt for one that was there.
func (t *task) heldVersion(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, bool, error) {
	return held(ctx, t, func(ctx context.Context) (fleet.ImageVersion, error) { return t.r.e.cloud.Version(ctx, id) })
}

// versions lists a definition's versions, with the one that a model is known to use:
// the list may be of before that was made. That there is none at all has been said twice.
func (t *task) versions(ctx context.Context, definition, used fleet.ResourceID) ([]fleet.ImageVersion, error) {
	read := func(ctx context.Context) ([]fleet.ImageVersion, error) {
		versions, err := t.r.e.cloud.Versions(ctx, definition)
		return versions, ignoreMissing(err)
	}
	versions, err := ask(ctx, t, read)
	if err == nil && len(versions) == 0 && used.Parent().Equal(definition) { // one has to be there
		if err = t.wait(ctx, lookAgain, forOwn); err == nil {
			versions, err = ask(ctx, t, read)
		}
	}
	if _, listed := prototype.FindVersion(versions, used); err != nil || listed || !used.Parent().Equal(definition) {
		return versions, err
	}
	v, there, err := t.versionAt(ctx, used)
	if there {
		versions = append(versions, v)
	}
	return versions, err
}

// A failedVersionError is one that Azure could not build.
type failedVersionError struct{ why string }

func (e *failedVersionError) Error() string {
	return "the image version is Failed: " + first(e.why, "Azure does not say why")
}

// versionEvery is how often a version is read for its progress: it takes half an
// hour, and its operation is polled besides.
const versionEvery = 45 * time.Second

// builds is how often a version is built that Azure fails to build.
const builds = 3

// version builds the image version: zone-redundant, or else not. One in the
// making is adopted, one that is Failed is deleted and made anew.
func version(ctx context.Context, t *task) error {
	r := t.r
	id := r.get().Names.Version
	var read time.Time
	progress := int32(-1)
	t.percent = func(ctx context.Context) int32 {
		if now := r.e.now(); now.Sub(read) >= versionEvery {
			read = now
			if v, err := r.e.cloud.Version(ctx, id); err == nil {
				progress = v.Progress
			}
		}
		return progress
	}
	for try := 1; ; try++ {
		err := t.buildVersion(ctx)
		var failed *failedVersionError
		switch {
		case err == nil:
			r.drop(undoVersion)
			return nil
		case fleet.Is(err, fleet.KindUnsupported) && r.get().StorageType != fleet.LRS:
			t.progress(-1, "zone-redundant images are not supported here: %v", err)
			if err := t.deleteVersion(ctx, id, true); err != nil {
				return err
			}
			err := r.amend(func(rec *journal.Record, f *facts) {
				f.StorageType = fleet.LRS
				delete(rec.Intents, prototype.StepVersion)
			})
			if err != nil {
				return err
			}
		case errors.As(err, &failed) && try < builds:
			t.progress(-1, "%v: deleting it, to build it anew", err)
			if err := t.deleteVersion(ctx, id, true); err != nil {
				return err
			}
			if err := r.forget(prototype.StepVersion); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (t *task) buildVersion(ctx context.Context) error {
	r := t.r
	f := r.get()
	id := f.Names.Version
	for n := 0; ; n++ {
		v, ok, err := t.versionAt(ctx, id)
		switch {
		case err != nil:
			return err
		case ok && prototype.RolledBack(v):
			return &fleet.Error{Op: "create image version", Resource: string(id), Kind: fleet.KindInvalid, Err: errors.New("it was rolled back meanwhile"), Remedy: "say --again to make another"}
		case ok && v.ProvisioningState == prototype.Succeeded:
			return nil
		case ok && v.ProvisioningState == prototype.Failed:
			return &failedVersionError{v.FailureMessage}
		case ok && (v.ProvisioningState == prototype.Deleting || v.Tags[fleet.TagCapture] != r.captureName()):
			// Somebody else's, in the making or going: its end is waited for.
			if n == 0 && v.ProvisioningState != prototype.Deleting {
				t.progress(v.Progress, "adopted version %s, which is %s", v.Name, v.ProvisioningState)
			} else {
				t.progress(v.Progress, "Azure: %s", v.ProvisioningState)
			}
			if err := t.wait(ctx, 15*time.Second, forWorld); err != nil {
				return t.timedOut(ctx, "wait for image version", string(id), err)
			}
		default:
			return t.createVersion(ctx)
		}
	}
}

// createVersion makes the version from the generalised snapshot, and from no other.
func (t *task) createVersion(ctx context.Context) error {
	r := t.r
	f := r.get()
	id := f.Names.Version
	source, ok, err := t.heldSnapshot(ctx, f.Names.Generalized)
	if err != nil {
		return err
	}
	if !ok || source.Tags[fleet.TagGeneralized] == "" || source.Tags[fleet.TagCapture] == "" {
		return &fleet.Error{Op: "create image version", Resource: string(id), Kind: fleet.KindInvalid,
			Err: fmt.Errorf("there is no snapshot %s of a generalised disk to make it from", f.Names.Generalized.Name())}
	}
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	tags := r.tags(nil)
	for _, k := range []string{fleet.TagGeneralized, fleet.TagCustomData, fleet.TagSecrets, fleet.TagBuiltFrom, fleet.TagBuiltAt} {
		if v := source.Tags[k]; v != "" {
			tags[k] = v
		}
	}
	change := fleet.CreateVersion{
		ID: id, Location: f.Location, Source: f.Names.Generalized, Replicas: o.Replicas,
		StorageType: first(f.StorageType, fleet.ZRS), ReplicationMode: fleet.ReplicationFull,
		ExcludeFromLatest: o.ExcludeFromLatest || prototype.AgainNamed(id.Name()), Tags: tags,
	}
	if o.Bake && !change.ExcludeFromLatest {
		// Where the pool's model refers to the definition, new nodes would be made from
		// the version before the model's customData is the one that they need.
		pool, err := t.pool(ctx, f.Pool)
		if err != nil {
			return err
		}
		change.ExcludeFromLatest = pool.Model.Image.LatestOf().Equal(f.Names.Definition)
	}
	if o.Shallow {
		change.Replicas, change.StorageType, change.ReplicationMode = 1, fleet.LRS, fleet.ReplicationShallow
	}
	if err := r.amend(func(rec *journal.Record, _ *facts) { addUndo(rec, undoVersion, nil) }); err != nil {
		return err
	}
	return t.change(ctx, prototype.StepVersion, change, func(ctx context.Context) (bool, error) {
		v, ok, err := t.versionAt(ctx, id)
		if err == nil && ok && v.ProvisioningState == prototype.Failed {
			err = &failedVersionError{v.FailureMessage}
		}
		return ok && v.ProvisioningState == prototype.Succeeded, err
	})
}

// deleteVersion deletes a version; with onlyFailed, one that is Failed and ours.
func (t *task) deleteVersion(ctx context.Context, id fleet.ResourceID, onlyFailed bool) error {
	if v, ok, err := t.heldVersion(ctx, id); err != nil || !ok {
		return err
	} else if onlyFailed && (v.ProvisioningState != prototype.Failed && v.ProvisioningState != prototype.Deleting || !prototype.Ours(v.Tags)) {
		return fmt.Errorf("image version %s is %s, and not ours to delete", v.Name, v.ProvisioningState)
	}
	return t.change(ctx, "delete/"+string(id), fleet.DeleteVersion{ID: id}, deleted(t, func(ctx context.Context) (fleet.ImageVersion, error) {
		return t.r.e.cloud.Version(ctx, id)
	}))
}

// A temporary is a resource that a capture makes for the time of its work, and
// its entry on the undo list.
type temporary struct {
	undo string
	id   fleet.ResourceID
}

func (f facts) snapshots() []temporary {
	return []temporary{{undoSnapshot, f.Names.Snapshot}, {undoGeneralized, f.Names.Generalized}}
}

// deleteSnapshots takes away both snapshots, and what an earlier capture left
// under their names.
func deleteSnapshots(ctx context.Context, t *task) error {
	f := t.r.get()
	var failed []error
	for _, s := range f.snapshots() {
		there, ok, err := t.heldSnapshot(ctx, s.id)
		if err == nil && ok && there.Tags[fleet.TagCapture] != "" {
			err = t.deleteSnapshot(ctx, s.id)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		t.r.drop(s.undo)
	}
	return errors.Join(failed...)
}

// pruneOne bounds the deletion of one version.
const pruneOne = 15 * time.Minute

// prune deletes what lies beyond the history. What cannot be deleted is named,
// and is no failure.
func prune(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	tried := map[string]bool{}
	for {
		versions, err := t.versions(ctx, f.Names.Definition, f.Names.Version)
		if err != nil {
			return err
		}
		// Who refers to what is asked anew before each deletion.
		uses, err := ask(ctx, t, func(ctx context.Context) ([]fleet.ImageUse, error) { return r.e.cloud.Uses(ctx, f.Names.Definition) })
		if err != nil {
			return err
		}
		doomed, spared := prototype.Prune(versions, uses, f.Names.Version, o.History)
		var next *fleet.ImageVersion
		for i := range doomed {
			if !tried[strings.ToLower(doomed[i].Name)] {
				next = &doomed[i]
			}
		}
		if next == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, s := range spared {
				r.kept = append(r.kept, s.Version.Name+": "+s.Why)
			}
			return nil
		}
		tried[strings.ToLower(next.Name)] = true
		one, cancel := context.WithTimeout(ctx, pruneOne)
		err = t.deleteVersion(one, next.ID, false)
		cancel()
		if ctx.Err() != nil {
			return err
		}
		r.mu.Lock()
		if err != nil {
			r.kept = append(r.kept, next.Name+": "+err.Error())
		} else {
			r.pruned = append(r.pruned, next.Name)
		}
		r.mu.Unlock()
	}
}

// exclude takes versions that were made with --again out of the definition's
// latest. It comes after the model, which may have stood for one of them.
func exclude(ctx context.Context, t *task) error {
	f := t.r.get()
	versions, err := t.versions(ctx, f.Names.Definition, f.Names.Version)
	if err != nil {
		return err
	}
	uses, err := ask(ctx, t, func(ctx context.Context) ([]fleet.ImageUse, error) { return t.r.e.cloud.Uses(ctx, f.Names.Definition) })
	if err != nil {
		return err
	}
	var failed []error
	for _, v := range t.r.excludable(versions, uses) {
		failed = append(failed, t.change(ctx, prototype.StepExclude+"/"+v.Name, fleet.ExcludeVersion{ID: v.ID}, func(ctx context.Context) (bool, error) {
			now, ok, err := t.heldVersion(ctx, v.ID)
			return !ok || now.ExcludeFromLatest && now.ProvisioningState == prototype.Succeeded, err
		}))
	}
	return errors.Join(failed...)
}

// excludable is prototype.Excludable with those whose update a process began that died: an
// update that fails leaves a version that nothing can be made from, until the next.
func (r *run) excludable(versions []fleet.ImageVersion, uses []fleet.ImageUse) []fleet.ImageVersion {
	all := prototype.Excludable(versions, uses, r.get().Pool)
	for _, v := range versions {
		if _, ok := prototype.FindVersion(all, v.ID); !ok && r.intended(prototype.StepExclude+"/"+v.Name) {
			all = append(all, v)
		}
	}
	return all
}
