package engine

import (
	"context"
	"net/netip"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// resumeSteps says what is left of a capture that another process began, by
// what the world shows. What must not be left alone is put back at once where
// it is of no more use.
func (r *run) resumeSteps(t *task) ([]prototype.Step, error) {
	ctx, cancel := context.WithTimeout(r.work, preflightDeadline)
	defer cancel()
	f := r.get()
	r.mu.Lock()
	options := optionsOf(r.record)
	r.mu.Unlock()
	pool, err := t.pool(ctx, f.Pool)
	if err != nil {
		return nil, err
	}
	versions, err := t.versions(ctx, f.Names.Definition, pool.Model.Image.Exact())
	if err != nil {
		return nil, err
	}
	uses, err := ask(ctx, t, func(ctx context.Context) ([]fleet.ImageUse, error) {
		uses, err := r.e.cloud.Uses(ctx, f.Names.Definition)
		return uses, ignoreMissing(err)
	})
	if err != nil {
		return nil, err
	}
	_, hasGallery, err := found(ctx, t, func(ctx context.Context) (fleet.Gallery, error) { return r.e.cloud.Gallery(ctx, f.Names.Gallery) })
	if err != nil {
		return nil, err
	}
	_, hasDefinition, err := found(ctx, t, func(ctx context.Context) (fleet.Definition, error) {
		return r.e.cloud.Definition(ctx, f.Names.Definition)
	})
	if err != nil {
		return nil, err
	}
	// What was never made is not asked for twice.
	snapshotOf, diskOf := t.snapshotAt, t.disk
	if _, made := r.undo(undoGeneralized); made || f.Start >= prototype.AtGeneralized {
		snapshotOf = t.heldSnapshot
	}
	generalized, hasGeneralized, err := snapshotOf(ctx, f.Names.Generalized)
	if err != nil {
		return nil, err
	}
	snapshotOf = t.snapshotAt
	if _, made := r.undo(undoSnapshot); made || f.Start >= prototype.AtSnapshot {
		snapshotOf = t.heldSnapshot
	}
	_, hasSnapshot, err := snapshotOf(ctx, f.Names.Snapshot)
	if err != nil {
		return nil, err
	}
	if _, made := r.undo(undoWorkDisk); made {
		diskOf = t.heldDisk
	}
	disk, hasDisk, err := diskOf(ctx, f.Names.WorkDisk)
	if err != nil {
		return nil, err
	}
	if f.Saved && !(hasDisk && disk.Tags[fleet.TagCapture] == r.captureName()) && !hasGeneralized {
		// Somebody deleted the generalised copy, or it was of no more use: it is made anew.
		if err := r.write(func(rec *journal.Record, f *facts) {
			f.Saved = false
			for _, k := range []string{prototype.StepGeneralize, prototype.StepWorkDisk, prototype.StepAttach, prototype.StepDetach, prototype.StepGeneralizedSnapshot} {
				delete(rec.Intents, k)
			}
		}); err != nil {
			return nil, err
		}
		f = r.get()
	}

	in := prototype.CaptureInput{
		Names: f.Names, Options: options, Pool: pool, Workbench: f.Bench.Node, DonorOut: r.donorOut(),
		Saved: f.Saved, HasGallery: hasGallery, HasDefinition: hasDefinition || f.Definition.ID == "",
		InModel:  pinned(pool.Model.Image, f.Names.Version) && (f.ModelChanged || !r.intended(prototype.StepModel)),
		Prunable: prunable(versions, uses, f.Names.Version, options.History),
	}
	in.Doomed, _ = options.Extensions.Doomed(pool.Model.Extensions)
	switch v, ok := prototype.FindVersion(versions, f.Names.Version); {
	case ok && v.ProvisioningState != prototype.Failed && v.ProvisioningState != prototype.Deleting:
		in.Course = prototype.Course{Start: prototype.AtVersion, Version: &v}
	case hasGeneralized && f.Saved && generalized.ProvisioningState == prototype.Succeeded && generalized.Tags[fleet.TagGeneralized] != "" &&
		(generalized.Tags[fleet.TagCapture] == r.captureName() || f.Start >= prototype.AtGeneralized):
		in.Course.Start = prototype.AtGeneralized
	case f.SnapshotTaken && (hasSnapshot || f.Saved):
		in.Course.Start = prototype.AtSnapshot
	case f.SnapshotTaken || f.Start >= prototype.AtSnapshot:
		// Somebody deleted it: the donor has to be stopped again.
		if err := r.write(func(rec *journal.Record, f *facts) {
			f.SnapshotTaken, f.Stopped, f.Drained = false, false, false
			dropUndo(rec, undoSnapshot)
			for _, k := range []string{prototype.StepSnapshot, prototype.StepStop, prototype.StepStart, prototype.StepWorkDisk} {
				delete(rec.Intents, k)
			}
		}); err != nil {
			return nil, err
		}
	}
	if in.Course.Start >= prototype.AtGeneralized {
		if left := r.tidy(r.care, undoJob, undoAttach, undoBench, undoReboots, undoWorkDisk); len(left) > 0 {
			r.e.log.Warn("what is left is tried again at the end", "left", left)
		}
	}
	if in.Course.Start == prototype.AtVersion {
		for _, s := range f.snapshots() {
			if _, there := r.undo(s.undo); there {
				in.Course.Stale = append(in.Course.Stale, s.id)
			}
		}
	}
	in.Course.Exclude = r.excludable(versions, uses)
	steps := prototype.CaptureSteps(in)
	for i := range steps {
		if steps[i].ID == prototype.StepExtensions && r.deletesExtensions() {
			steps[i].Skip = ""
		}
	}
	return steps, nil
}
