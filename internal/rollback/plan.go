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
	skip     map[string]string // by the row's id
	problems []fleet.Problem
	notes    []string
}

func (d *decision) problem(code, on, what, wayOut string) {
	d.problems = append(d.problems, fleet.Problem{Code: code, On: on, What: what, WayOut: wayOut})
}

// Plan implements workflow.Workflow. An open record keeps what it decided.
func (r *rollback) Plan(ctx context.Context, rec journal.Record) (workflow.Plan, error) {
	d, err := r.decide(ctx, rec)
	if err != nil || len(d.problems) > 0 {
		return workflow.Plan{Problems: d.problems}, err
	}
	table := r.table(d.skip)
	r.nothing = nothing(table) && !rec.Open()
	for _, note := range d.notes {
		r.Note("%s", note)
	}
	return workflow.Plan{Name: r.name, Request: r.req, Table: table, Left: r.lost}, nil
}

func nothing(t workflow.Table) bool {
	return !slices.ContainsFunc(t, func(s workflow.Step) bool { return s.Skip == "" })
}

// decide observes, and sets the state of a run that begins now.
func (r *rollback) decide(ctx context.Context, rec journal.Record) (d decision, err error) {
	s := state{Inherited: capture.InheritedFrom(rec)}
	if rec.Open() {
		s = r.get()
	} else {
		r.req, r.name = r.asked, prototype.CaptureName(r.Now(), rec.Name)
	}
	pool, versions := r.observe(ctx, &d)
	if ctx.Err() != nil {
		return d, context.Cause(ctx)
	}
	if pool.ID == "" {
		return d, nil
	}
	r.set(func(old *state) { old.Pool = pool.ID })
	current, _ := prototype.VersionOf(versions, pool.Model.Image, pool.Location)
	if !rec.Open() || !stands(s, pool, versions) {
		s = r.choose(ctx, &d, s.Inherited, pool, versions, current)
	}
	if len(d.problems) > 0 {
		return d, nil
	}
	r.set(func(old *state) { *old = s })
	image, name := s.target()
	d.skip = map[string]string{}
	if err := r.planExtensions(ctx, &d, pool); err != nil || len(d.problems) > 0 {
		return d, err
	}
	ended := !rec.Open() || pool.ProvisioningState == prototype.Succeeded // what an earlier process asked for
	if pool.Model.Image.Same(image) && (s.CustomData == "" || s.ModelChanged) && ended {
		d.skip["model"] = "the model uses " + name
	}
	from, _ := prototype.FindVersion(versions, s.TagFrom)
	if s.TagFrom == "" || prototype.RolledBack(from) && from.ProvisioningState == prototype.Succeeded {
		d.skip["tag"] = "nothing to tag"
	}
	to, _ := prototype.FindVersion(versions, s.To)
	if !s.Untag || !prototype.RolledBack(to) && to.ProvisioningState == prototype.Succeeded {
		d.skip["untag"] = "not tagged"
	}
	return d, nil
}

// observe reads the pool and its versions, and what the credentials may not do. A pool
// without an ID could not be read.
func (r *rollback) observe(ctx context.Context, d *decision) (fleet.Pool, []fleet.ImageVersion) {
	o := prototype.Observed{}
	pool, err := r.Cloud.Pool(ctx, r.pool)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		d.problem("PoolNotFound", string(r.pool), "there is no such scale set", "check its name, and the credentials' subscription")
	case err != nil:
		d.problem("Unreadable", string(r.pool), "it cannot be read: "+err.Error(), "check the credentials")
	default:
		o.Pool = &pool
		d.problems = append(d.problems, prototype.ModelProblems(pool, r.req.AllowRolling, true, r.req.AllowOwned)...)
	}
	if o.DeniedCluster, err = r.Denied(ctx, r.pool); err != nil {
		d.problem("Unreadable", "what the cluster allows", "it cannot be read: "+err.Error(), "let the credentials ask what they may do")
	}
	o.DeniedAzure, err = r.Cloud.Denied(ctx, r.pool.Group(), azure.ActionsOf(prototype.RollbackChanges()...))
	if err != nil {
		d.problem("Unreadable", string(r.pool.Group()), "what these credentials may do cannot be read: "+err.Error(), "let them read their own permissions")
	}
	d.problems = append(d.problems, prototype.DeniedProblems(o)...)
	if o.Pool == nil {
		return fleet.Pool{}, nil
	}
	definition := prototype.DefinitionOf(pool.ID)
	versions, err := r.Cloud.Versions(ctx, definition)
	if ignoreMissing(err) != nil {
		d.problem("Unreadable", string(definition), "its versions cannot be read: "+err.Error(), "check the credentials")
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
func (r *rollback) choose(ctx context.Context, d *decision, inherited capture.Inherited, pool fleet.Pool, versions []fleet.ImageVersion, current fleet.ImageVersion) state {
	back, refusal := prototype.ReturnTo(versions, pool, inherited.Original, r.req.To)
	if refusal != nil {
		d.problems = append(d.problems, *refusal)
		return state{}
	}
	s := state{
		Inherited: inherited, Pool: pool.ID, From: current.ID, To: back.To.ID, ToOriginal: back.Original != nil,
		TagFrom: back.TagFrom, Untag: back.Untag, SameImage: pool.Model.Image.Same(back.Image()),
	}
	want, on := back.To.Tags[fleet.TagCustomData], string(back.To.ID)
	if s.ToOriginal {
		want, on = back.Original.CustomData, string(pool.ID)
	}
	has, last := current.Tags[fleet.TagCustomData], inherited.LastCustomData
	switch {
	case back.NothingToDo && (want == "" || want == last || !capture.IsNoop(last)):
		return s
	case s.ToOriginal && want == "" && (last != "" || capture.IsNoop(has)):
		d.problem("CustomDataLost", on, "the model's customData from before the first capture is not known",
			"name a version by --to, or set image and customData by hand")
	case want != "" && (want != has || last != "" && want != last):
		s.CustomData = want
		if _, err := capture.CustomData(ctx, r.Cluster, pool.ID, want); fleet.Is(err, fleet.KindNotFound) {
			d.problem("CustomDataLost", on, "it needs customData that is not kept (SHA-256 "+want+")",
				"name a version that was made with --bootstrap baked, or capture a node again")
		} else if err != nil {
			d.problem("Unreadable", on, "the customData that it needs cannot be read: "+err.Error(), "let the Role name that Secret")
		}
		d.notes = append(d.notes, "the model's customData becomes what goes with "+back.Name())
	case !s.ToOriginal && want == "" && has+last != "":
		d.notes = append(d.notes, "which customData the nodes of "+back.Name()+" need is not known: the model keeps what it has")
	}
	if !s.ToOriginal && len(current.Tags) > 0 && back.TagFrom != "" {
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
	p.Problems, p.Pool = d.problems, r.get().Pool
	if held := r.Held(ctx, pool); held != nil {
		p.Problems, p.Notes = []fleet.Problem{*held}, nil
	}
	if err == nil && len(p.Problems) == 0 {
		err = recErr
	}
	if err != nil || len(p.Problems) > 0 {
		return p, err
	}
	p.Version, p.Notes = r.get().To, slices.Concat(d.notes, r.lost, p.Notes)
	table := r.table(d.skip)
	for _, row := range table {
		p.Steps = append(p.Steps, prototype.Step{ID: row.ID, Title: row.Title, After: row.After, Usual: row.Usual, Deadline: row.Deadline, Skip: row.Skip})
	}
	p.NothingToDo = nothing(table) && !rec.Open()
	return p, nil
}
