package rollback

import (
	"context"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Plan implements workflow.Workflow: it observes, and sets the state of a run that begins
// now. An open record keeps what it decided.
func (r *rollback) Plan(ctx context.Context, rec journal.Record) (workflow.Plan, error) {
	if !rec.Open() {
		r.s = state{Inherited: capture.InheritedFrom(rec)}
	}
	s, changes := &r.s, []fleet.Change{fleet.PatchModel{}, fleet.TagVersion{}}
	var d prototype.Problems
	var versions []fleet.ImageVersion
	var notes []string
	pool, err := r.Cloud.Pool(ctx, r.pool)
	d.Refuse(fleet.Is(err, fleet.KindNotFound), "PoolNotFound", string(r.pool), "there is no such scale set", "check its name, and the credentials' subscription")
	d.Unreadable(string(r.pool), err)
	if err == nil {
		s.Pool = pool.ID
		d = append(d, prototype.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)...)
		definition := prototype.DefinitionOf(pool.ID)
		versions, err = r.Cloud.Versions(ctx, definition)
		d.Unreadable(string(definition), err)
		if !rec.Open() && fleet.IgnoreNotFound(err) == nil {
			notes = r.choose(&d, pool, versions)
		}
		if r.load(ctx, &d, pool); len(r.writes) > 0 {
			changes = append(changes, r.writes[0])
		}
	}
	inCluster, err := r.Denied(ctx, r.pool)
	d.Unreadable("what the cluster allows", err)
	inAzure, err := r.Cloud.Denied(ctx, r.pool.Group(), azure.ActionsOf(changes...))
	d.Unreadable("what "+string(r.pool.Group())+" allows", err)
	d.Denied(r.pool.Group(), inAzure, inCluster)
	if ctx.Err() != nil || len(d) > 0 {
		return workflow.Plan{Problems: d}, context.Cause(ctx)
	}
	for _, note := range notes {
		r.Note("%s", note)
	}
	image, _ := s.target()
	from, _ := prototype.FindVersion(versions, s.TagFrom)
	to, _ := prototype.FindVersion(versions, s.To)
	state := rec.Steps["model"].State
	patched := !rec.Open() && s.CustomData == "" || rec.Open() && (state == journal.Done || state == journal.Skipped)
	t := r.table(map[string]bool{
		"model": patched && pool.Model.Image.Same(image), "extensions": len(r.writes) == 0,
		"tag": s.TagFrom == "" || tagged(from, true), "untag": !s.Untag || tagged(to, false),
	})
	r.result.NothingToDo = !rec.Open() && !slices.ContainsFunc(t, func(row workflow.Step) bool { return row.Skip == "" })
	return workflow.Plan{Name: prototype.CaptureName(r.Now()), Request: r.req, Table: t, Left: r.result.Lost}, nil
}

// choose decides what the request comes down to, and which customData goes with it.
func (r *rollback) choose(d *prototype.Problems, pool fleet.Pool, versions []fleet.ImageVersion) (notes []string) {
	s := &r.s
	back, problems := prototype.ReturnTo(versions, pool, s.Original, r.req.To)
	if len(problems) > 0 {
		*d = append(*d, problems...)
		return nil
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
		notes = append(notes, "the model's customData becomes what goes with "+name)
	case !s.ToOriginal && want == "" && has+last != "":
		notes = append(notes, "which customData the nodes of "+name+" need is not known: the model keeps what it has")
	}
	if !s.ToOriginal && len(current.Tags) > 0 && s.TagFrom != "" {
		notes = append(notes, "extensions that were deleted for "+current.Name+" are not added again")
	}
	return notes
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
		*d = append(*d, lost...)
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
	rec, recErr := r.Journal.Load(ctx, strings.ToLower(string(r.pool)))
	if rec.Open() {
		if rec.Kind == Kind {
			_, p.Resumes, recErr = r.Restore(rec)
			r.Summary = workflow.Summary{} // Unfinished says the same
		}
		p.Notes = append(p.Notes, capture.Unfinished(rec, p.Resumes))
	}
	planned := rec
	if !p.Resumes {
		planned.Ended = &journal.End{}
	}
	plan, err := r.Plan(ctx, planned)
	p.Problems, p.Pool = plan.Problems, r.s.Pool
	if locked := r.Held(ctx, r.pool); locked != nil {
		p.Problems, p.Notes = []fleet.Problem{*locked}, nil
	}
	if err == nil && len(p.Problems) == 0 {
		err = fleet.IgnoreNotFound(recErr)
	}
	if err != nil || len(p.Problems) > 0 {
		return p, err
	}
	notes, _ := r.Booked()
	p.Version, p.Notes, p.NothingToDo = r.s.To, slices.Concat(notes, plan.Left, p.Notes), r.result.NothingToDo && !rec.Open()
	p.Steps = capture.Steps(plan.Table, nil)
	return p, nil
}
