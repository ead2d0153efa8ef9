package rollback

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Plan implements workflow.Workflow. An open record keeps what it decided.
func (r *rollback) Plan(ctx context.Context, rec journal.Record) (workflow.Plan, error) {
	table, problems, err := r.decide(ctx, rec)
	for _, note := range r.notes {
		r.Note("%s", note)
	}
	return workflow.Plan{Name: prototype.CaptureName(r.Now()), Request: r.req, Table: table, Problems: problems, Left: r.result.Lost}, err
}

// decide observes, and sets the state of a run that begins now. It returns the rows, or why
// they cannot be carried out.
func (r *rollback) decide(ctx context.Context, rec journal.Record) (t workflow.Table, d prototype.Problems, err error) {
	if !rec.Open() {
		r.s = state{}
		_ = json.Unmarshal(rec.State, &r.s.Inherited) // a state that cannot be read has none
	}
	s, changes := &r.s, []fleet.Change{fleet.PatchModel{}, fleet.TagVersion{}}
	var o prototype.Observed
	var versions []fleet.ImageVersion
	pool, err := r.Cloud.Pool(ctx, r.pool)
	d.Refuse(fleet.Is(err, fleet.KindNotFound), "PoolNotFound", string(r.pool), "there is no such scale set", "check its name, and the credentials' subscription")
	d.Unreadable(string(r.pool), err)
	if err == nil {
		o.Pool, s.Pool = &pool, pool.ID
		d.Add(prototype.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)...)
		definition := prototype.DefinitionOf(pool.ID)
		versions, err = r.Cloud.Versions(ctx, definition)
		d.Unreadable(string(definition), err)
		if !rec.Open() && fleet.IgnoreNotFound(err) == nil {
			r.choose(&d, pool, versions)
		}
		if r.load(ctx, &d, pool); len(r.writes) > 0 {
			changes = append(changes, r.writes[0])
		}
	}
	o.DeniedCluster, err = r.Denied(ctx, r.pool)
	d.Unreadable("what the cluster allows", err)
	o.DeniedAzure, err = r.Cloud.Denied(ctx, r.pool.Group(), azure.ActionsOf(changes...))
	d.Unreadable("what "+string(r.pool.Group())+" allows", err)
	d.Add(prototype.DeniedProblems(o)...)
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	} else if len(d) > 0 {
		r.notes = nil
		return nil, d, nil
	}
	skip := map[string]string{}
	skips := func(id, why string, applies bool) {
		if applies {
			skip[id] = why
		}
	}
	image, name := s.target()
	from, _ := prototype.FindVersion(versions, s.TagFrom)
	to, _ := prototype.FindVersion(versions, s.To)
	state := rec.Steps["model"].State
	patched := !rec.Open() && s.CustomData == "" || rec.Open() && (state == journal.Done || state == journal.Skipped)
	skips("model", "the model uses "+name, patched && pool.Model.Image.Same(image))
	skips("extensions", "none to restore", len(r.writes) == 0)
	skips("tag", "nothing to tag", s.TagFrom == "" || tagged(from, true))
	skips("untag", "not tagged", !s.Untag || tagged(to, false))
	t = r.table(skip)
	r.result.NothingToDo = !rec.Open() && len(skip) == len(t)
	return t, nil, nil
}

// choose decides what the request comes down to, and which customData goes with it.
func (r *rollback) choose(d *prototype.Problems, pool fleet.Pool, versions []fleet.ImageVersion) {
	s := &r.s
	back, problems := prototype.ReturnTo(versions, pool, s.Original, r.req.To)
	if d.Add(problems...); len(problems) > 0 {
		return
	}
	s.Return = back
	to, _ := prototype.FindVersion(versions, s.To)
	current, _ := prototype.FindVersion(versions, s.From)
	want, has, last := to.Tags[fleet.TagCustomData], current.Tags[fleet.TagCustomData], s.LastCustomData
	if s.ToOriginal {
		want = s.Original.CustomData
	}
	_, name := s.target()
	switch {
	case s.NothingToDo && (want == "" || want == last || last != prototype.NoopSHA256):
	case s.ToOriginal && want == "" && (last != "" || has == prototype.NoopSHA256):
		d.Refuse(true, "CustomDataLost", string(pool.ID), "the model's customData from before the first capture is not known",
			"name a version by --to, or set image and customData by hand")
	case want != "" && (want != has || last != "" && want != last):
		s.CustomData = want
		r.notes = append(r.notes, "the model's customData becomes what goes with "+name)
	case !s.ToOriginal && want == "" && has+last != "":
		r.notes = append(r.notes, "which customData the nodes of "+name+" need is not known: the model keeps what it has")
	}
	if !s.ToOriginal && len(current.Tags) > 0 && s.TagFrom != "" {
		r.notes = append(r.notes, "extensions that were deleted for "+current.Name+" are not added again")
	}
}

// load reads from the Vault what the model is given, and refuses what is lost.
func (r *rollback) load(ctx context.Context, d *prototype.Problems, pool fleet.Pool) {
	s := r.s
	if s.CustomData != "" {
		_, name := s.target()
		data, err := capture.CustomData(ctx, r.Cluster, pool.ID, s.CustomData)
		d.Refuse(fleet.Is(err, fleet.KindNotFound), "CustomDataLost", name, "it needs customData that is not kept (SHA-256 "+s.CustomData+")",
			"name a version that was made with --bootstrap baked, or capture a node again")
		d.Unreadable("the customData of "+name, err)
		r.customData = &data
	}
	if !s.ToOriginal {
		return
	}
	writes, lost, err := restorable(ctx, r.Cluster, *s.Original, pool)
	d.Unreadable("the saved settings of extensions", err)
	r.writes, r.result.Lost = writes, nil
	for _, p := range lost {
		r.result.Lost = append(r.result.Lost, p.On+": "+p.What+"; add it by az vmss extension set")
	}
	if !r.req.AcceptLostExtensions {
		d.Add(lost...)
	}
}

// Plan says what Rollback would do, and changes nothing. Problems are in the plan, not
// in the error.
func (s *Service) Plan(ctx context.Context, q Request) (p prototype.Plan, err error) {
	r := s.rollback(q)
	p.Kind = Kind
	if p.Problems, err = r.findPool(ctx); err != nil || len(p.Problems) > 0 {
		return p, err
	}
	p, _, err = r.Preview(ctx, r.pool, r, func(rec journal.Record) (prototype.Plan, error) {
		table, problems, err := r.decide(ctx, rec)
		p := prototype.Plan{Kind: Kind, Pool: r.s.Pool, Problems: problems}
		if len(problems) == 0 {
			p.Version, p.Notes, p.Steps = r.s.To, slices.Concat(r.notes, r.result.Lost), capture.Steps(table, nil)
			p.NothingToDo = r.result.NothingToDo
		}
		return p, err
	})
	return p, err
}
