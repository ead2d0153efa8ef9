package rollback

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// A decision is what a rollback comes down to, or why it cannot be done.
type decision struct {
	prototype.Problems
	notes   []string
	table   workflow.Table
	nothing bool // is to be done
}

// Plan implements workflow.Workflow. An open record keeps what it decided.
func (r *rollback) Plan(ctx context.Context, rec journal.Record) (workflow.Plan, error) {
	d, err := r.decide(ctx, rec)
	if err != nil || len(d.Problems) > 0 {
		return workflow.Plan{Problems: d.Problems}, err
	}
	r.nothing = d.nothing && !rec.Open()
	for _, note := range d.notes {
		r.Note("%s", note)
	}
	return workflow.Plan{Name: r.name, Request: r.req, Table: d.table, Left: r.lost}, nil
}

// decide observes, and sets the state of a run that begins now.
func (r *rollback) decide(ctx context.Context, rec journal.Record) (d decision, err error) {
	s := r.get()
	if !rec.Open() {
		s = state{Inherited: capture.InheritedFrom(rec)}
		r.req, r.name = r.asked, prototype.CaptureName(r.Now())
	}
	pool, versions := r.observe(ctx, &d)
	if ctx.Err() != nil {
		return d, context.Cause(ctx)
	}
	if pool.ID == "" {
		return d, nil
	}
	r.set(func(old *state) { old.Pool = pool.ID })
	if !rec.Open() || !stands(s, pool, versions) {
		s = r.choose(ctx, &d, s.Inherited, pool, versions)
	}
	if len(d.Problems) > 0 {
		return d, nil
	}
	r.set(func(old *state) { *old = s })
	skip := map[string]string{}
	if skip["extensions"], err = r.planExtensions(ctx, &d, pool); err != nil || len(d.Problems) > 0 {
		return d, err
	}
	image, name := s.target()
	ended := !rec.Open() || pool.ProvisioningState == prototype.Succeeded // what an earlier process asked for
	if pool.Model.Image.Same(image) && (s.CustomData == "" || s.ModelChanged) && ended {
		skip["model"] = "the model uses " + name
	}
	from, _ := prototype.FindVersion(versions, s.TagFrom)
	if s.TagFrom == "" || prototype.RolledBack(from) && from.ProvisioningState == prototype.Succeeded {
		skip["tag"] = "nothing to tag"
	}
	to, _ := prototype.FindVersion(versions, s.To)
	if !s.Untag || !prototype.RolledBack(to) && to.ProvisioningState == prototype.Succeeded {
		skip["untag"] = "not tagged"
	}
	d.table = r.table(skip)
	d.nothing = !slices.ContainsFunc(d.table, func(s workflow.Step) bool { return s.Skip == "" })
	return d, nil
}

// observe reads the pool and its versions, and what the credentials may not do. A pool
// without an ID could not be read.
func (r *rollback) observe(ctx context.Context, d *decision) (pool fleet.Pool, versions []fleet.ImageVersion) {
	unreadable := func(err error, on, what, wayOut string) {
		if err != nil {
			d.Refuse(true, "Unreadable", on, what+" cannot be read: "+err.Error(), wayOut)
		}
	}
	o := prototype.Observed{}
	pool, err := r.Cloud.Pool(ctx, r.pool)
	if err == nil {
		o.Pool = &pool
		d.Add(prototype.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)...)
	}
	d.Refuse(fleet.Is(err, fleet.KindNotFound), "PoolNotFound", string(r.pool), "there is no such scale set", "check its name, and the credentials' subscription")
	unreadable(ignoreMissing(err), string(r.pool), "it", "check the credentials")
	o.DeniedCluster, err = r.Denied(ctx, r.pool)
	unreadable(err, "what the cluster allows", "it", "let the credentials ask what they may do")
	o.DeniedAzure, err = r.Cloud.Denied(ctx, r.pool.Group(), azure.ActionsOf(fleet.PatchModel{}, fleet.TagVersion{}))
	unreadable(err, string(r.pool.Group()), "what these credentials may do", "let them read their own permissions")
	d.Add(prototype.DeniedProblems(o)...)
	if o.Pool == nil {
		return fleet.Pool{}, nil
	}
	definition := prototype.DefinitionOf(pool.ID)
	if versions, err = r.Cloud.Versions(ctx, definition); ignoreMissing(err) != nil {
		unreadable(err, string(definition), "its versions", "check the credentials")
		return fleet.Pool{}, nil
	}
	return pool, versions
}

// stands reports whether the model can still be pointed at what an open record decided.
func stands(s state, pool fleet.Pool, versions []fleet.ImageVersion) bool {
	to, there := prototype.FindVersion(versions, s.To)
	return s.ToOriginal || there && (to.ProvisioningState == prototype.Succeeded || pool.Model.Image.Exact().Equal(s.To))
}

// choose decides what the request comes down to, and which customData goes with it.
func (r *rollback) choose(ctx context.Context, d *decision, inherited capture.Inherited, pool fleet.Pool, versions []fleet.ImageVersion) state {
	back, problems := prototype.ReturnTo(versions, pool, inherited.Original, r.req.To)
	s := state{Inherited: inherited, Return: back, Pool: pool.ID}
	if d.Add(problems...); len(problems) > 0 {
		return s
	}
	image, name := s.target()
	s.SameImage = pool.Model.Image.Same(image)
	to, _ := prototype.FindVersion(versions, s.To)
	current, _ := prototype.FindVersion(versions, s.From)
	want, on := to.Tags[fleet.TagCustomData], string(s.To)
	if s.ToOriginal {
		want, on = s.Original.CustomData, string(pool.ID)
	}
	has, last := current.Tags[fleet.TagCustomData], inherited.LastCustomData
	switch {
	case s.NothingToDo && (want == "" || want == last || last != prototype.NoopSHA256):
		return s
	case s.ToOriginal && want == "" && (last != "" || has == prototype.NoopSHA256):
		d.Refuse(true, "CustomDataLost", on, "the model's customData from before the first capture is not known",
			"name a version by --to, or set image and customData by hand")
	case want != "" && (want != has || last != "" && want != last):
		s.CustomData = want
		if _, err := capture.CustomData(ctx, r.Cluster, pool.ID, want); fleet.Is(err, fleet.KindNotFound) {
			d.Refuse(true, "CustomDataLost", on, "it needs customData that is not kept (SHA-256 "+want+")",
				"name a version that was made with --bootstrap baked, or capture a node again")
		} else if err != nil {
			d.Refuse(true, "Unreadable", on, "the customData that it needs cannot be read: "+err.Error(), "let the Role name that Secret")
		}
		d.notes = append(d.notes, "the model's customData becomes what goes with "+name)
	case !s.ToOriginal && want == "" && has+last != "":
		d.notes = append(d.notes, "which customData the nodes of "+name+" need is not known: the model keeps what it has")
	}
	if !s.ToOriginal && len(current.Tags) > 0 && s.TagFrom != "" {
		d.notes = append(d.notes, "extensions that were deleted for "+current.Name+" are not added again")
	}
	return s
}

// Plan says what Rollback would do, and changes nothing. Problems are in the plan, not
// in the error.
func (s *Service) Plan(ctx context.Context, q Request) (prototype.Plan, error) {
	r := s.rollback(q)
	p := prototype.Plan{Kind: Kind}
	pool, err := r.findPool(ctx)
	if refused := new(workflow.Refused); errors.As(err, &refused) {
		p.Problems = refused.Problems
		return p, nil
	} else if err != nil {
		return p, err
	}
	rec, recErr := r.Journal.Load(ctx, strings.ToLower(string(pool)))
	recErr = ignoreMissing(recErr)
	decided := rec // what a run would plan from
	if rec.Open() {
		if rec.Kind == Kind {
			_, p.Resumes, recErr = r.Restore(rec)
		}
		if !p.Resumes {
			decided.Ended = &journal.End{}
		}
		p.Notes = append(p.Notes, capture.Unfinished(rec, p.Resumes))
	}
	d, err := r.decide(ctx, decided)
	p.Problems, p.Pool = d.Problems, r.get().Pool
	if locked := r.Held(ctx, pool); locked != nil {
		p.Problems, p.Notes = []fleet.Problem{*locked}, nil
	}
	if err == nil && len(p.Problems) == 0 {
		err = recErr
	}
	if err != nil || len(p.Problems) > 0 {
		return p, err
	}
	p.Version, p.Notes, p.NothingToDo = r.get().To, slices.Concat(d.notes, r.lost, p.Notes), d.nothing && !rec.Open()
	p.Steps = capture.Steps(d.table, nil)
	return p, nil
}
