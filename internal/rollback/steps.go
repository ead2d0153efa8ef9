package rollback

import (
	"context"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// table gives a rollback's rows. skip says by id why a row is not needed.
func (r *rollback) table(skip map[string]string) workflow.Table {
	s := r.get()
	_, name := s.target()
	restore, tag, untag := "Restore extensions of the model", "Tag the replaced version as rolled back", "Remove the version's rolled-back tag"
	if len(s.ToRestore) > 0 {
		restore += ": " + strings.Join(s.ToRestore, ", ")
	}
	if s.TagFrom != "" {
		tag = "Tag version " + s.TagFrom.Name() + " as rolled back"
	}
	if s.To != "" {
		untag = "Remove the rolled-back tag of version " + s.To.Name()
	}
	t := workflow.Table{
		{ID: "model", Title: "Point " + s.Pool.Name() + "'s model at " + name, Usual: 30 * time.Second, Deadline: time.Hour, Commits: true, Do: r.model},
		{ID: "extensions", Title: restore, Usual: time.Duration(len(s.ToRestore)) * 30 * time.Second, Deadline: time.Hour, After: []string{"model"}, Commits: true, Do: r.extensions},
		{ID: "tag", Title: tag, Usual: 10 * time.Second, Deadline: time.Hour, After: []string{"model"}, Do: r.tag(s.TagFrom, true)},
		{ID: "untag", Title: untag, Usual: 10 * time.Second, Deadline: time.Hour, After: []string{"model", "tag"}, Do: r.tag(s.To, false)},
	}
	for i := range t {
		t[i].Skip = skip[t[i].ID]
	}
	return t
}

// model points the model at the image, with the customData that goes with it. There is
// no undo: before and after it the model names an image that exists.
func (r *rollback) model(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := r.get()
	if r.patch == nil {
		image, _ := s.target()
		patch := fleet.PatchModel{Pool: s.Pool, Image: image}
		if s.CustomData != "" {
			data, err := capture.CustomData(ctx, r.Cluster, s.Pool, s.CustomData)
			if err != nil {
				return workflow.Wait{}, err
			}
			patch.CustomData = &data
		}
		r.patch = &patch
	}
	is := func(pool fleet.Pool) bool { // Azure does not show customData
		return pool.Model.Image.Same(r.patch.Image) && (!s.SameImage || s.CustomData == "" || r.etag != "" && pool.Etag != r.etag)
	}
	w, err := r.Change(ctx, p, s.Pool, *r.patch, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := capture.MayPatch(pool, r.req.AllowRolling, true, r.req.AllowOwned); err != nil {
			return err
		}
		r.etag = pool.Etag
		if s.CustomData != "" {
			r.set(func(s *state) { s.LastCustomData = s.CustomData })
		}
		return nil
	})
	if fleet.Is(err, fleet.KindStale) { // it had no effect
		r.etag = ""
	}
	if err != nil || w.In > 0 {
		return w, err
	}
	r.set(func(s *state) { s.ModelChanged = true })
	return workflow.Wait{}, p.Save(ctx)
}

// tag sets or removes the tag of a version that was rolled back from: the same day's
// capture must not bring it back.
func (r *rollback) tag(id fleet.ResourceID, rolledBack bool) workflow.Act {
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		v, err := r.Cloud.Version(ctx, id)
		if fleet.Is(err, fleet.KindNotFound) {
			return workflow.Wait{}, nil
		}
		// An update that fails may set the tag, and leaves a version that nothing can be
		// made from: the next update that succeeds repairs it.
		whole := v.ProvisioningState == prototype.Succeeded
		if err == nil {
			err = p.Before(ctx, &whole)
		}
		if err != nil {
			return workflow.Wait{}, err
		}
		value := ""
		if rolledBack {
			value = r.Now().UTC().Format(time.RFC3339)
		}
		return p.Ensure(ctx, fleet.TagVersion{ID: id, Tags: map[string]string{fleet.TagRolledBack: value}}, func(ctx context.Context) (bool, error) {
			v, err := r.Cloud.Version(ctx, id)
			if err != nil {
				return fleet.Is(err, fleet.KindNotFound), ignoreMissing(err)
			}
			return prototype.RolledBack(v) == rolledBack && (v.ProvisioningState == prototype.Succeeded || !whole), nil
		})
	}
}

func ignoreMissing(err error) error {
	if fleet.Is(err, fleet.KindNotFound) {
		return nil
	}
	return err
}
