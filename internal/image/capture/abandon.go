package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// abandoned is why the open capture is not resumed.
const abandoned = "this command abandons it"

// Abandon ends the open capture of a pool, given by its id or by a node of it: it undoes what the
// capture did, donor first, and closes its record. Without one it does nothing. Result.Left names
// what stays; if the model is changed the error is an Outcome with ExitNeedsPerson. Errors are those
// of Capture.
func (s *Service) Abandon(ctx context.Context, pool fleet.ResourceID, node string) (Result, error) {
	a, rec, err := s.abandonment(ctx, pool, node)
	r := &a.result
	if err != nil || r.NothingToDo {
		return *r, err
	}
	begin := s.Now()
	err = a.Runner(fmt.Sprint(a.runs.Add(1)), &a.Summary).Run(ctx, r.Pool, a)
	if err == nil {
		r.Capture, r.Donor, r.Abandoned = rec.Name, cmp.Or(rec.Subject, freshDonor), true
		err = a.remains(ctx, rec.Steps[model.StepModel].Change != "")
	}
	notes, steps := a.Recorded()
	// What becomes of the open capture was reported before it was done: the result says it.
	r.Notes, r.Timing = slices.DeleteFunc(notes, func(n string) bool { return strings.HasSuffix(n, abandoned) }), Timing{begin, s.Now(), steps}
	return *r, err
}

// abandonment finds the pool and its record. A rollback is not abandoned: half of it would stay.
func (s *Service) abandonment(ctx context.Context, pool fleet.ResourceID, node string) (a *capture, rec journal.Record, err error) {
	a = s.capture(Request{Node: node})
	a.abandons = true
	r, d := &a.result, plan.Problems{}
	if pool == "" {
		pool, err = a.findPool(ctx)
		a.asked = Request{} // none of its captures is resumed
		d.Refuse(err == nil && pool == "", "NoPool", "node "+node, "neither a node of this name nor an open capture of one was found",
			"name a node of the pool, or the scale set by its ARM id (az vmss list)")
	}
	if r.Pool = pool; err == nil && pool != "" {
		rec, err = s.Journal.Load(ctx, string(pool))
		err = fleet.IgnoreNotFound(err)
	}
	d.Refuse(err == nil && rec.Open() && rec.Kind != Kind, "OpenRollback", string(pool), "what is open is no capture but the "+rec.Kind+" "+rec.Name,
		"finish it: ortet "+rec.Kind+" "+pool.Name())
	if r.NothingToDo = !rec.Open(); r.NothingToDo && err == nil && pool != "" {
		definitions, _ := s.Cloud.Definitions(ctx, plan.DefinitionOf(pool).Parent()) // one that cannot be read names no other
		err = s.elsewhere(plan.DefinitionsOf(pool, definitions)...)
	}
	return a, rec, cmp.Or(err, workflow.NewRefused(d))
}

// remains says what an abandoned capture leaves: a version of its own that is complete, and the
// model if that names it, also as the latest, or if the capture had it name another's.
func (c *capture) remains(ctx context.Context, changes bool) error {
	s := c.get()
	if s.Names.Version == "" { // another process ended it meanwhile
		return nil
	}
	pool, poolErr := c.Cloud.Pool(ctx, s.Pool)
	v, err := c.Cloud.Version(ctx, s.Names.Version)
	again := cmp.Or(workflow.SkipIf(c.req.Fresh != "", "NODE, with any node of the pool,"), c.req.Node) // its donor is deleted
	switch {
	case fleet.IgnoreNotFound(err) != nil || fleet.IgnoreNotFound(poolErr) != nil:
		c.Note("what it leaves in Azure could not be read: %v", errors.Join(err, poolErr))
	case err != nil || v.Tags[fleet.TagCapture] != c.name && !changes: // there is none of its own
	case poolErr == nil && (pool.Model.Image.Exact().Equal(v.ID) || pool.Model.Image.LatestOf().Equal(v.ID.Parent()) && !v.ExcludeFromLatest):
		return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: model.StepModel, Err: errors.New("new nodes come from its version already"),
			Ended: "what came before was undone, and the capture is closed; nodes that it added and extensions that it deleted stay so",
			Left:  []string{"the model names " + workflow.SkipIf(pool.Model.Image.Exact() == "", "the latest version, ") + v.Name + ", from which new nodes come: ortet rollback " + s.Pool.Name() + " goes back; ortet capture " + again + " does the rest instead"}}
	case v.Tags[fleet.TagCapture] == c.name:
		c.result.Left = append(c.result.Left, "version "+v.Name+", which is complete: a capture of today uses it unless --again is given; to delete it: az resource delete --ids "+string(v.ID))
	}
	return nil //nolint:nilerr // it is noted
}

// PlanAbandon says what Abandon would do, and changes nothing.
func (s *Service) PlanAbandon(ctx context.Context, pool fleet.ResourceID, node string) (p plan.Plan, err error) {
	a, _, err := s.abandonment(ctx, pool, node)
	p = plan.Plan{Kind: "abandonment", Pool: a.result.Pool, NothingToDo: err == nil && a.result.NothingToDo}
	if refused := new(workflow.Refused); errors.As(err, &refused) {
		p.Problems = refused.Problems
		return p, nil
	}
	if err != nil || p.NothingToDo {
		return p, err
	}
	p, _, err = s.Preview(ctx, p.Pool, a, func(r journal.Record) (plan.Plan, error) {
		r.Phase, p.Donor = journal.Undo, cmp.Or(r.Subject, freshDonor)
		p.Steps = fleet.Each(workflow.Remaining(a.table(view{}), r), func(row workflow.Step) plan.Step {
			u := row.Undo
			return plan.Step{ID: u.ID, Title: u.Title, Usual: fleet.Duration(u.Usual), Deadline: fleet.Duration(u.Deadline)}
		})
		return p, nil
	})
	p.Problems = slices.DeleteFunc(p.Problems, func(x fleet.Problem) bool { return x.Code == CodeOtherNamespace }) // what is open here is ended
	return p, err
}

func abandonCommand(pool fleet.ResourceID) string { return "ortet capture --abandon " + string(pool) }
