package rollback

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	stepModel      = "model"
	stepExtensions = "extensions"
	stepTag        = "tag"
	stepUntag      = "untag"
)

// table returns a rollback's rows, in the order in which people read them. reached: the model has
// image and customData.
func (r *rollback) table(reached bool) workflow.Table {
	_, name := r.s.target()
	names := fleet.Each(r.writes, func(w fleet.WriteExtension) string { return w.Extension.Name })
	title := cmp.Or(workflow.SkipIf(r.s.Forward, "Record that %s was live"), "Tag %s as rolled back")
	return workflow.Table{
		{
			ID:       stepModel,
			Title:    "Point the model at " + name,
			Usual:    30 * time.Second,
			Deadline: time.Hour,
			Skip:     workflow.SkipIf(reached, "the model uses "+name),
			Commits:  true,
			Do:       r.model,
		},
		{
			ID:       stepExtensions,
			Title:    "Restore extensions of the model: " + cmp.Or(strings.Join(names, ", "), "none"),
			Usual:    time.Duration(len(names)) * 30 * time.Second,
			Deadline: time.Hour,
			After:    []string{stepModel},
			Skip:     workflow.SkipIf(len(names) == 0, "none to restore"),
			Commits:  len(names) > 0, // else the model alone decides whether something was changed
			Do:       r.extensions,
		},
		{
			ID:       stepTag,
			Title:    fmt.Sprintf(title, cmp.Or(r.s.TagFrom.Name(), "the replaced version")),
			Usual:    10 * time.Second,
			Deadline: time.Hour,
			After:    []string{stepModel},
			Skip:     workflow.SkipIf(r.s.TagFrom == "", "nothing to tag"),
			Do:       r.tag(r.s.TagFrom, true),
		},
		{
			ID:       stepUntag,
			Title:    "Record that " + cmp.Or(r.s.To.Name(), "the version") + " is live",
			Usual:    10 * time.Second,
			Deadline: time.Hour,
			After:    []string{stepModel, stepTag},
			Skip:     workflow.SkipIf(!r.s.Untag, "not tagged"),
			Do:       r.tag(r.s.To, false),
		},
	}
}

// model points the model at the image, with the customData that goes with it. There is
// no undo: before and after it the model names an image that exists.
func (r *rollback) model(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	image, name := r.s.target()
	patch := func(pool fleet.Pool) fleet.Change {
		return fleet.PatchModel{Pool: r.s.Pool, Image: image, CustomData: r.customData, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool { // Azure does not show customData
		return pool.Model.Image.Same(image) && (r.customData == nil || p.Accepted())
	}
	return r.Change(ctx, p, r.s.Pool, patch, is, func(ctx context.Context, pool fleet.Pool) error {
		problems := plan.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)
		now, was := pool.Model.Image, r.s.Was // zero in a record of an earlier release
		problems.Refuse(was != fleet.ImageReference{} && !now.Same(was) && !now.Same(image), CodeModelChanged, string(pool.ID),
			"the model names "+now.Text()+" by now, not "+was.Text()+", which this rollback was planned from",
			"see ortet status for what new nodes come from, and run the command again if they shall come from "+name)
		err := problems.Err("patch model", string(pool.ID))
		if err == nil {
			r.s.LastCustomData = cmp.Or(r.s.CustomData, r.s.LastCustomData)
		}
		return err
	})
}

// extensions writes those of the original's extensions that the model lacks and that can
// be restored, one at a time.
func (r *rollback) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if len(r.writes) == 0 {
		return workflow.Wait{}, nil
	}
	name := r.writes[0].Extension.Name
	is := func(pool fleet.Pool) bool { return has(pool.Model.Extensions, name) }
	write := func(fleet.Pool) fleet.Change { return r.writes[0] }
	w, err := r.Change(ctx, p, r.s.Pool, write, is, func(context.Context, fleet.Pool) error { return nil })
	if err != nil || w.RequeueAfter > 0 {
		return w, err
	}
	r.writes, r.result.Restored = r.writes[1:], append(r.result.Restored, name)
	return workflow.Wait{RequeueAfter: time.Millisecond, Percent: -1, Status: "wrote extension " + name}, nil
}

// has reports whether a model has an extension of that name, in any letter case.
func has(extensions []fleet.Extension, name string) bool {
	return slices.ContainsFunc(extensions, func(e fleet.Extension) bool { return strings.EqualFold(e.Name, name) })
}

// restorable returns writes for the original's extensions that the model lacks and that can
// be restored, dependencies first, and a problem for each that is lost. An extension of the
// same name in the model stays as it is.
func restorable(ctx context.Context, store cluster.SecretStore, original plan.Original,
	pool fleet.Pool) (writes []fleet.WriteExtension, lost plan.Problems, err error) {
	there := slices.Clone(pool.Model.Extensions) // or about to be written
	var all []fleet.Extension
	known := map[string]plan.OriginalExtension{}
	for _, e := range original.Extensions {
		all, known[e.Name] = append(all, e.Extension), e
	}
	for _, e := range slices.Backward(plan.DependentsFirst(all)) {
		if has(there, e.Name) {
			continue
		}
		public, noPublic, err1 := settings(ctx, store, pool.ID, "public", cluster.ExtensionSettings, known[e.Name].PublicSHA256)
		protected, noProtected, err2 := settings(ctx, store, pool.ID, "protected", string(wire.ProtectedSettings), known[e.Name].ProtectedSHA256)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, nil, err
		}
		why := cmp.Or(noPublic, noProtected)
		absent := slices.IndexFunc(e.After, func(name string) bool { return !has(there, name) })
		if why == "" && absent >= 0 {
			why = "it runs after extension " + e.After[absent] + ", which the model does not have"
		}
		lost.Refuse(why != "", "ExtensionLost", "extension "+e.Name, why,
			"go back without it (--accept-lost-extensions), then add it by az vmss extension set")
		if e.Settings = public; why == "" {
			there, writes = append(there, e), append(writes, fleet.WriteExtension{Pool: pool.ID, Extension: e, Protected: protected})
		}
	}
	return writes, lost, nil
}

// settings reads settings of an extension from the secret store, or says why they are lost.
func settings(ctx context.Context, store cluster.SecretStore, pool fleet.ResourceID,
	what, kind, sha string) (data fleet.Secret, lost string, err error) {
	switch sha {
	case plan.NoSettings:
		return data, "", nil
	case "":
		return data, "its " + what + " settings were not recorded before it was deleted, and Azure does not show them", nil
	}
	kept, err := store.GetSecret(ctx, pool, kind, sha)
	if fleet.Is(err, fleet.KindNotFound) {
		return data, fmt.Sprintf("its %s settings are not kept (SHA-256 %s)", what, sha), nil
	}
	return kept.Data, "", err
}

// tag sets or removes the tag of a version that was rolled back from: the same day's
// capture must not bring it back. Either version was live, or is. An update that fails may set the
// tag and leave the version Failed: the next update that succeeds repairs it, unless it was Failed
// before.
func (r *rollback) tag(id fleet.ResourceID, from bool) workflow.Act {
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		tags := map[string]string{fleet.TagNotLive: ""} // a tag of an earlier release says how From came to be live
		switch {
		case !from:
			tags = plan.WentLive()
			for _, name := range []string{fleet.TagRolledBack, fleet.TagQuarantine, fleet.TagWatch, fleet.TagCanary} {
				tags[name] = ""
			}
		case r.s.Forward:
			tags = plan.WentLive()
		default:
			tags[fleet.TagRolledBack] = r.Cloud.Now().UTC().Format(time.RFC3339)
		}
		return p.Ensure(ctx, fleet.TagVersion{ID: id, Tags: tags},
			func(ctx context.Context) (bool, error) {
				v, err := r.Cloud.Version(ctx, id)
				if err != nil {
					return true, fleet.IgnoreNotFound(err)
				}
				tagged := !plan.NeverLive(v) && plan.RolledBack(v)
				switch {
				case !from:
					tagged = !plan.RolledBack(v) && !plan.IsUnjudged(v) && !plan.IsMarked(v)
				case r.s.Forward:
					tagged = !plan.IsMarked(v)
				}
				return tagged && (from && r.s.FromFailed || v.ProvisioningState == plan.Succeeded), nil
			})
	}
}
