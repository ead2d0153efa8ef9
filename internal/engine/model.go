package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

func (t *task) pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	return surely(ctx, t, func(ctx context.Context) (fleet.Pool, error) { return t.r.e.cloud.Pool(ctx, id) })
}

// pinned reports whether a model's image is exactly the version, with nothing
// left of a marketplace image.
func pinned(image fleet.ImageReference, id fleet.ResourceID) bool {
	return image.Same(fleet.ImageReference{ID: id})
}

// model points the pool's model at the new version.
func model(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	if err := t.usable(ctx, f.Names.Version); err != nil {
		return err
	}
	has, theirs, err := t.modelHas(ctx)
	if err != nil {
		return err
	}
	made, there, err := t.heldVersion(ctx, f.Names.Version)
	if err != nil {
		return err
	}
	// Of an earlier capture of the day with --bootstrap baked, whose image is used again.
	baked := there && made.Tags[fleet.TagCustomData] == sha(noop) && has != sha(noop)
	if baked && !o.Bake {
		r.note("the model's customData becomes one that does nothing: the nodes of %s need none", f.Names.Version.Name())
	}
	var customData *fleet.Secret
	switch {
	case o.Bake, baked:
		s := fleet.NewSecret(noop)
		customData = &s
		err = t.restores(has)
	case has == sha(noop), has != "" && !theirs:
		customData, err = t.unlike(ctx, has, theirs)
	}
	if err != nil {
		return err
	}
	return t.point(ctx, fleet.PatchModel{
		Pool: f.Pool, Image: fleet.ImageReference{ID: f.Names.Version}, CustomData: customData,
	}, o.AllowRolling, o.ExcludeFromLatest, o.AllowOwned)
}

// modelHas gives the SHA-256 of the customData that the model has, as far as it is
// known, since Azure does not show it: what the version that the model uses goes with,
// or what Ortet left it with. Who sets another image leaves the customData, as Azure
// does: theirs is true where that is why it is believed.
func (t *task) modelHas(ctx context.Context) (has string, theirs bool, err error) {
	f := t.r.get()
	before := f.used()
	if !before.Parent().Equal(f.Names.Definition) {
		return f.Went, true, nil
	}
	v, there, err := t.heldVersion(ctx, before)
	if err != nil || !there {
		return f.Went, false, err
	}
	tag := v.Tags[fleet.TagCustomData]
	has = believed(tag, f.Went)
	return has, has != tag && !before.Equal(f.WentTo), nil
}

// believed decides between what the version goes with that a model uses, and what Ortet
// left the model with: whoever set another version left the customData; but that a
// version's nodes need none is known where it is said, and costs nothing to mend.
func believed(tag, went string) string {
	if went == "" || tag == sha(noop) {
		return tag
	}
	return went
}

// restores records what the model's customData is put back to where the change of the
// model is undone. Where the donor was made from the model, the donor's is.
func (t *task) restores(has string) error {
	if f := t.r.get(); has == "" || f.Learns {
		return nil
	}
	return t.r.amend(func(_ *journal.Record, f *facts) { f.Restore = has })
}

// unlike gives the customData that the version's nodes need, where the model has
// another: the no-op of an earlier capture with --bootstrap baked, or what goes with a
// version that a rollback went to. nil leaves the model's.
func (t *task) unlike(ctx context.Context, has string, theirs bool) (*fleet.Secret, error) {
	r := t.r
	f := r.get()
	made, there, err := t.heldVersion(ctx, f.Names.Version)
	want := made.Tags[fleet.TagCustomData]
	if err != nil || !there || want == "" || want == sha(noop) || want == has {
		return nil, err
	}
	baked := has == sha(noop)
	why := f.used().Name() + " went with another"
	switch {
	case baked && theirs:
		why = "somebody else set the image after a capture whose nodes needed none"
	case baked:
		why = f.used().Name() + " needed none"
	}
	kept, err := ask(ctx, t, func(ctx context.Context) (cluster.Kept, error) {
		return r.e.cluster.Kept(ctx, f.Pool, "customData", want)
	})
	if fleet.Is(err, fleet.KindNotFound) {
		what := "goes with another version"
		if baked {
			what = "does nothing"
		}
		return nil, &fleet.Error{Op: "patch model", Resource: string(f.Names.Version), Kind: fleet.KindInvalid,
			Err:    fmt.Errorf("the model's customData %s (%s), and this version's nodes need some that is not kept (SHA-256 %s)", what, why, want),
			Remedy: "capture with --bootstrap baked"}
	}
	if err != nil {
		return nil, err
	}
	r.note("the model's customData becomes what %s came with: %s", r.donorName(), why)
	if err := t.restores(has); err != nil {
		return nil, err
	}
	if theirs && f.Original != nil && f.Original.CustomData == "" {
		// Whoever set the image may have set customData of their own.
		err = r.amend(func(_ *journal.Record, f *facts) {
			original := *f.Original
			original.Replaced = true
			f.Original = &original
		})
	}
	return &kept.Data, err
}

// usable refuses a version that a new instance could not be made from.
func (t *task) usable(ctx context.Context, id fleet.ResourceID) error {
	v, ok, err := t.heldVersion(ctx, id)
	switch {
	case err != nil:
		return err
	case !ok:
		err = errors.New("it is gone")
	case v.ProvisioningState != prototype.Succeeded:
		err = errors.New("it is " + v.ProvisioningState)
	case prototype.RolledBack(v) && t.r.get().Return == nil:
		err = errors.New("it was rolled back meanwhile")
	default:
		return nil
	}
	return &fleet.Error{Op: "patch model", Resource: string(id), Kind: fleet.KindInvalid, Err: err}
}

// point changes the model's image, once the pool is seen to allow it still.
func (t *task) point(ctx context.Context, patch fleet.PatchModel, allowRolling, excludeFromLatest, allowOwned bool) error {
	earlier := t.r.intended(prototype.StepModel)
	return t.anew(ctx, func() error {
		return t.pointOnce(ctx, patch, earlier, allowRolling, excludeFromLatest, allowOwned)
	})
}

// pointOnce is point on the condition that the pool stays as it is seen. earlier
// says whether a process that died may have asked for it.
func (t *task) pointOnce(ctx context.Context, patch fleet.PatchModel, earlier, allowRolling, excludeFromLatest, allowOwned bool) error {
	r := t.r
	pool, err := t.quietPool(ctx, patch.Pool)
	if err != nil {
		return err
	}
	if problems := prototype.ModelProblems(pool, allowRolling, excludeFromLatest, allowOwned); len(problems) > 0 {
		return &fleet.Error{Op: patch.Verb(), Resource: string(patch.Pool), Kind: fleet.KindInvalid, Err: errors.New(problems[0].What), Remedy: problems[0].WayOut}
	}
	if err := t.notOlder(ctx, pool); err != nil {
		return err
	}
	err = r.amend(func(rec *journal.Record, f *facts) {
		if !hasUndo(rec, undoModel) || !earlier && !t.asked { // not ours yet
			if !f.Before.Same(pool.Model.Image) {
				f.Used = pool.Model.Image.Exact()
			}
			f.Before = pool.Model.Image
		}
		addUndo(rec, undoModel, nil)
	})
	if err != nil {
		return err
	}
	patch.Etag = pool.Etag
	// Azure does not show customData: where the image is there already, since the
	// version was made anew under the model, it is asked for all the same.
	unseen := patch.CustomData != nil && !earlier && pool.Model.Image.Same(patch.Image)
	err = t.change(ctx, prototype.StepModel, patch, func(ctx context.Context) (bool, error) {
		p, err := t.pool(ctx, patch.Pool)
		return err == nil && t.settled(p) && p.Model.Image.Same(patch.Image) && (!unseen || t.asked), err
	})
	if err != nil {
		return err
	}
	return r.write(func(rec *journal.Record, f *facts) {
		f.ModelChanged = true
		if patch.CustomData != nil {
			f.Went = sha(patch.CustomData.Reveal())
		}
		dropUndo(rec, undoModel)
	})
}

// notOlder refuses to have a capture move the model to a version older than the one
// that others have pointed it at, or published under its definition, since the
// capture was opened: only a rollback goes back.
func (t *task) notOlder(ctx context.Context, pool fleet.Pool) error {
	f, image := t.r.get(), pool.Model.Image
	if f.Return != nil || pinned(image, f.Names.Version) || image.LatestOf() == "" && image.Same(f.Before) {
		return nil
	}
	versions, err := t.versions(ctx, f.Names.Definition, image.Exact())
	if err != nil {
		return err
	}
	used, known := prototype.VersionOf(versions, image, pool.Location)
	if ours, there := prototype.FindVersion(versions, f.Names.Version); !known || !there || !prototype.Newer(used, ours) {
		return nil
	}
	return &fleet.Error{Op: "patch model", Resource: string(pool.ID), Kind: fleet.KindInvalid,
		Err:    fmt.Errorf("the model uses %s by now, which is newer than %s", used.Name, f.Names.Version.Name()),
		Remedy: "to use the older one: ortet rollback --to " + f.Names.Version.Name()}
}

// unpoint makes sure that a model whose change failed is as it was.
func unpoint(ctx context.Context, t *task) error {
	return t.anew(ctx, func() error { return t.unpointOnce(ctx) })
}

func (t *task) unpointOnce(ctx context.Context) error {
	r := t.r
	f := r.get()
	p, err := t.quietPool(ctx, f.Pool)
	if err != nil {
		return err
	}
	image := f.Before
	if p.Model.Image.Same(image) {
		r.drop(undoModel)
		return nil
	}
	theirs := !p.Model.Image.ID.Equal(f.Names.Version)
	if f.Return != nil && f.Return.Original != nil {
		theirs = !p.Model.Image.Same(f.Return.Original.Image)
	}
	if f.Return != nil && f.CustomData != "" && f.Restore == "" && r.intended(prototype.StepModel) {
		return t.cannotUnpoint(p.Model.Image, theirs)
	}
	if theirs {
		r.note("the model uses %s, which somebody else set meanwhile: that is left", p.Model.Image.Text())
		image = p.Model.Image
	}
	image.ExactVersion = ""
	patch := fleet.PatchModel{Pool: f.Pool, Image: image, Etag: p.Etag}
	switch {
	case f.Restore == "" || f.Restore == f.CustomData:
	case f.Restore == sha(noop):
		s := fleet.NewSecret(noop)
		patch.CustomData = &s
	default:
		kept, err := ask(ctx, t, func(ctx context.Context) (fleet.Secret, error) {
			k, err := r.e.cluster.Kept(ctx, f.Pool, "customData", f.Restore)
			return k.Data, err
		})
		switch {
		case err == nil:
			patch.CustomData = &kept
		case !fleet.Is(err, fleet.KindNotFound):
			return err
		}
	}
	if theirs && patch.CustomData == nil {
		r.drop(undoModel)
		return nil
	}
	err = t.change(ctx, "undo/"+prototype.StepModel, patch, func(ctx context.Context) (bool, error) {
		p, err := t.pool(ctx, f.Pool)
		return err == nil && t.settled(p) && p.Model.Image.Same(image) && (!theirs || t.asked), err
	})
	switch {
	case err == nil:
		r.drop(undoModel)
	case fleet.Is(err, fleet.KindNotFound) && f.Before.ID.Parent().Equal(f.Names.Definition):
		if _, there, lookErr := t.heldVersion(ctx, f.Before.ID); lookErr == nil && !there {
			// Nobody can put that back. It is said once, and holds up nobody after that.
			r.drop(undoModel)
			return fmt.Errorf("the model is left with %s, since somebody deleted what it used before: %w", p.Model.Image.Text(), err)
		}
	}
	return err
}

// cannotUnpoint leaves a model whose customData a rollback has replaced, and nobody has
// recorded: an image never goes with another's. What Ortet set is right, and the same
// command finishes the rollback; where others set the image since, a person is told once.
func (t *task) cannotUnpoint(image fleet.ImageReference, theirs bool) error {
	r := t.r
	if theirs {
		f := r.get()
		r.drop(undoModel)
		return &fleet.Error{Op: "restore model", Resource: string(f.Pool), Kind: fleet.KindInvalid,
			Err:    fmt.Errorf("it has %s, and may have the customData that goes with %s: what it had before is not recorded", image.Text(), f.Return.back().Name()),
			Remedy: "set image and customData by az vmss update, or name a version by ortet rollback --to"}
	}
	return r.write(func(rec *journal.Record, f *facts) {
		f.ModelChanged, f.Went, f.Undoing = true, f.CustomData, ""
		dropUndo(rec, undoModel)
	})
}

// rounds is how often the extensions are listed again after all were deleted.
const rounds = 5

// extensions deletes what bootstrapped the donor, dependents first, until a
// fresh list has none of them.
func extensions(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	for round := 0; ; round++ {
		p, err := t.quietPool(ctx, f.Pool)
		if err != nil {
			return err
		}
		doomed, kept := o.Extensions.Doomed(p.Model.Extensions)
		if len(doomed) == 0 {
			return nil
		}
		if len(kept) > 0 || round == rounds {
			why := "they are there again"
			if len(kept) > 0 {
				why = strings.Join(kept, "; ")
			}
			return &fleet.Error{Op: "delete extensions", Resource: string(f.Pool), Kind: fleet.KindInvalid, Err: errors.New(why)}
		}
		for _, e := range doomed {
			t.progress(-1, "deleting extension %s", e.Name)
			err := t.change(ctx, prototype.StepExtensions+"/"+e.Name, fleet.DeleteExtension{Pool: f.Pool, Name: e.Name}, func(ctx context.Context) (bool, error) {
				// Others may have changed the set since the last try, and theirs comes first.
				p, err := t.quietPool(ctx, f.Pool)
				return err == nil && !hasExtension(p.Model.Extensions, e.Name), err
			})
			if err != nil {
				return err
			}
		}
	}
}

// deletesExtensions reports whether a deletion of an extension was ever about to be
// begun: one that is under way hides the extension, and may fail.
func (r *run) deletesExtensions() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.record.Intents {
		if strings.HasPrefix(key, prototype.StepExtensions+"/") {
			return true
		}
	}
	return false
}

func hasExtension(extensions []fleet.Extension, name string) bool {
	for _, e := range extensions {
		if strings.EqualFold(e.Name, name) {
			return true
		}
	}
	return false
}

// grow adds new nodes, once: the capacity to reach is written down before it is
// asked for. An autoscaler changes it, too, so it is asked for on the condition
// that the pool is as it was read, and computed anew where it is not.
func grow(ctx context.Context, t *task) error {
	earlier := t.r.intended(prototype.StepGrow) // it may have been asked for by a process that died
	return t.anew(ctx, func() error { return t.growOnce(ctx, earlier) })
}

func (t *task) growOnce(ctx context.Context, earlier bool) error {
	r := t.r
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	f := r.get()
	p, err := t.quietPool(ctx, f.Pool)
	if err != nil {
		return err
	}
	switch {
	case f.GrowTo != 0 && p.Capacity == f.GrowFrom:
	case f.GrowTo != 0 && (earlier || t.asked):
		// It was asked for, and this may be what came of it; or an autoscaler
		// decided since. Nodes are not added twice.
		if p.Capacity < f.GrowTo {
			r.note("the capacity was changed to %d by somebody else meanwhile", p.Capacity)
		}
		return t.watch(ctx, func(ctx context.Context) (bool, error) {
			p, err := t.pool(ctx, f.Pool)
			return err == nil && !busy(p.ProvisioningState), err
		})
	default:
		if err := r.amend(func(_ *journal.Record, f *facts) { f.GrowFrom, f.GrowTo = p.Capacity, p.Capacity+o.NewNodes }); err != nil {
			return err
		}
		f = r.get()
	}
	return t.change(ctx, prototype.StepGrow, fleet.SetCapacity{Pool: f.Pool, Capacity: f.GrowTo, Etag: p.Etag}, func(ctx context.Context) (bool, error) {
		p, err := t.pool(ctx, f.Pool)
		if err == nil && p.Capacity != f.GrowFrom && !earlier && !t.asked {
			return false, &fleet.Error{Op: "set capacity", Resource: string(f.Pool), Kind: fleet.KindStale,
				Err: fmt.Errorf("somebody else changed it from %d to %d", f.GrowFrom, p.Capacity)}
		}
		return err == nil && p.Capacity >= f.GrowTo && !busy(p.ProvisioningState), err
	})
}
