package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Plan implements workflow.Workflow: it observes the world, and decides which rows run.
// An open record keeps its names and request, and is planned as a new one.
func (c *capture) Plan(ctx context.Context, r journal.Record) (workflow.Plan, error) {
	at, err := c.decide(ctx, r)
	if err == nil && len(at.Problems) == 0 && !r.Open() && c.asked.Check != nil {
		err = c.asked.Check(ctx)
	}
	if err != nil || len(at.Problems) > 0 {
		return workflow.Plan{Problems: at.Problems}, err
	}
	c.result.NothingToDo = at.nothing && !r.Open()
	return workflow.Plan{Name: c.name, Subject: c.req.Node, Request: c.req, Table: c.table(at)}, nil
}

// A start is what the planner found: why rows are skipped, and of which rows the effect
// is there all the same. The zero start skips nothing.
type start struct {
	prototype.Course // its Problems are all
	o                prototype.Observed
	skip             map[string]string // by the row's id
	taken            map[string]bool
	toDelete         []string // extensions
	toPrune          []string // versions
	irreversible     map[string][]string
	nothing          bool // is to be done
}

// decide observes, and sets the capture's name and state for a run that begins now.
func (c *capture) decide(ctx context.Context, r journal.Record) (at start, err error) {
	if !r.Open() {
		c.req, c.name, c.begun = c.asked, prototype.CaptureName(c.Now()), c.Now()
		c.set(func(s *state) { *s = state{} })
	}
	if c.anyBench {
		c.req.Workbench = ""
	}
	o, names := c.observe(ctx)
	if at.o = o; ctx.Err() != nil {
		return at, context.Cause(ctx)
	}
	options := c.req
	if r.Open() {
		names.Version = names.Definition.Child("versions", c.get().Names.Version.Name())
		if s := o.Snapshot; s != nil && s.Tags[fleet.TagCapture] == c.name {
			options.Again = false // it is this run's own
		}
	}
	if o.Pool != nil {
		at.Course = prototype.CourseOf(o, names, options, c.begun)
		o.DeniedAzure, err = c.Cloud.Denied(ctx, o.Pool.ID.Group(), azure.ActionsOf(prototype.CaptureChanges(options, at.Course)...))
		if err != nil {
			at.Problems.Refuse(true, "Unreadable", string(o.Pool.ID.Group()), "what these credentials may do cannot be read: "+err.Error(), "let them read their own permissions")
		}
	}
	at.Problems = prototype.CaptureProblems(o, options, at.Course)
	if o.Pool == nil {
		return at, nil
	}
	c.skips(&at, names)
	c.begin(r, at, names)
	at.nothing = !slices.ContainsFunc(c.table(at), func(s workflow.Step) bool { return s.ID != "grow" && s.Skip == "" || s.Taken })
	if at.nothing && c.req.NewNodes > 0 && !r.Open() { // a repeat must not add them twice
		at.skip["grow"] = "nothing else is to be done"
		at.Notes = append(at.Notes, "no nodes were added, since nothing else was to do")
	}
	return at, nil
}

// begin sets the state of a run, from what was observed and from the record before.
func (c *capture) begin(r journal.Record, at start, names prototype.Names) {
	o := at.o
	s := state{
		carried: c.get().carried, Names: names, Pool: o.Pool.ID, Location: o.Pool.Location, ToDelete: at.toDelete,
		Instance: o.Pool.ID.Child("virtualMachines", o.InstanceID.Name()), Addresses: o.Donor.Addresses,
		ModelChanged: at.Start == prototype.AtVersion && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version}),
	}
	if !r.Open() {
		s.inherit(r, *o.Pool, o.Instance, c.Now())
	}
	if s.Key == nil {
		s.Key = make([]byte, 32) // as any 32 bytes, a private key of X25519
		_, _ = rand.Read(s.Key)  // it never fails
	}
	if o.Snapshot != nil && at.Start >= prototype.AtSnapshot {
		s.BuiltAt, _ = time.Parse(fleet.BuiltAtLayout, o.Snapshot.Tags[fleet.TagBuiltAt])
	}
	if o.Disk != nil {
		s.Definition = prototype.NewDefinition(names.Definition, o, map[string]string{
			fleet.TagCreatedBy: "ortet " + c.Version, fleet.TagReason: "prototypes of scale set " + o.Pool.Name,
		})
	}
	if w := o.Workbench; w != nil {
		s.Bench = workbench{Node: w.Node.Name, Instance: w.Instance.ID, Zone: w.Instance.Zone, LUN: w.LUN, BootID: w.Node.BootID}
	}
	if g := o.Generalized; g != nil && at.Start >= prototype.AtGeneralized {
		s.CustomData, s.Secrets = g.Tags[fleet.TagCustomData], g.Tags[fleet.TagSecrets]
		s.BuiltAt, _ = time.Parse(fleet.BuiltAtLayout, g.Tags[fleet.TagBuiltAt])
	}
	if v := at.Version; v != nil {
		s.BuiltFrom, s.CustomData = v.Tags[fleet.TagBuiltFrom], v.Tags[fleet.TagCustomData]
	}
	c.set(func(old *state) { *old = s })
}

// skips decides which rows the plan does not need, and of which the effect is there.
func (c *capture) skips(at *start, names prototype.Names) {
	o := at.o
	at.skip, at.irreversible = map[string]string{}, map[string][]string{}
	skip := func(applies bool, why string, ids ...string) {
		for _, id := range ids {
			if applies {
				at.skip[id] = why
			}
		}
	}
	ours := func(s *fleet.Snapshot, from prototype.Start) bool {
		return at.Start >= from && s != nil && s.Tags[fleet.TagCapture] != ""
	}
	copied, generalized := ours(o.Snapshot, prototype.AtSnapshot), ours(o.Generalized, prototype.AtGeneralized)
	at.taken = map[string]bool{
		"snapshot": copied, "generalized-snapshot": generalized,
		"work-disk": at.Start >= prototype.AtGeneralized && o.WorkDisk != nil && o.WorkDisk.Tags[fleet.TagCapture] != "" && o.WorkDisk.ManagedBy == "",
	}
	why := [...]string{"", "a snapshot of the donor's disk exists from today", "the generalised snapshot exists", "today's version exists"}[at.Start]
	made := at.Version != nil && at.Version.ProvisioningState == prototype.Succeeded
	old, _ := prototype.Prune(o.Versions, o.Uses, names.Version, c.req.History)
	for _, v := range old {
		at.toPrune = append(at.toPrune, v.Name)
	}
	toDelete, _ := c.req.Extensions.Doomed(o.Pool.Model.Extensions)
	for _, e := range toDelete {
		at.toDelete = append(at.toDelete, e.Name)
		at.irreversible["extensions"] = append(at.irreversible["extensions"],
			fmt.Sprintf("extension %s (%s): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost", e.Name, e.Type))
	}
	if c.req.Bakes() {
		at.irreversible["model"] = []string{"the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost"}
	}
	skip(o.Gallery != nil, "already exists", "gallery")
	skip(o.Definition != nil, "already exists", "definition")
	skip(at.Start >= prototype.AtSnapshot, why, "inspect", "protect", "cordon", "drain", "stop", "snapshot")
	skip(at.Start >= prototype.AtGeneralized, why, "protect-workbench", "hold-reboots", "work-disk", "attach", "generalize", "save", "generalized-snapshot")
	skip(made, why, "version")
	skip(made && len(old) == 0, "no older versions", "prune")
	skip(made && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version}), "the model uses "+names.Version.Name(), "model")
	skip(len(toDelete) == 0, "none to delete", "extensions")
	skip(c.req.NewNodes == 0, "not requested", "grow")
}

// Plan says what Capture would do, and changes nothing but for the pod that inspects
// the donor's disk. Problems are in the plan, not in the error.
func (s *Service) Plan(ctx context.Context, q Request) (prototype.Plan, error) {
	c := s.capture(q)
	pool, _ := c.findPool(ctx) // decide reports why none is found
	rec, recErr := c.Journal.Load(ctx, string(pool))
	recErr = fleet.IgnoreNotFound(recErr)
	ended := rec // it is planned as new
	ended.Ended = &journal.End{}
	at, err := c.decide(ctx, ended)
	if err == nil && len(at.Problems) == 0 {
		err = recErr
	}
	if err != nil {
		return prototype.Plan{}, err
	}
	p := prototype.Plan{Kind: Kind, Donor: q.Node, Notes: at.Notes, Problems: at.Problems}
	if at.o.Pool == nil || recErr != nil {
		return p, nil //nolint:nilerr // the problems say why
	}
	p.Pool, p.Version, p.NothingToDo = at.o.Pool.ID, c.get().Names.Version, at.nothing
	p.Steps = Steps(c.table(at), at.irreversible)
	if at.o.Workbench != nil {
		p.Workbench = at.o.Workbench.Node.Name
	}
	if at.o.Donor.Unschedulable {
		p.Notes = append(p.Notes, "node "+q.Node+" is cordoned, and stays so")
	}
	if at.FromDonor() {
		p.Notes = append(p.Notes, "the drain evicts the pods of "+q.Node+": where they fit on no other node, an autoscaler may add one, and remove it later; the model is changed once that has ended")
	}
	if locked := c.Held(ctx, pool); locked != nil {
		p.Problems = []fleet.Problem{*locked}
	} else if rec.Open() {
		p.Resumes, p.NothingToDo = rec.Kind == Kind && rec.Subject == q.Node && rec.Phase != journal.Undo, false
		p.Notes = append(p.Notes, Unfinished(rec, p.Resumes))
	} else if at.FromDonor() && len(p.Problems) == 0 {
		p.Problems, err = c.inspectNow(ctx)
		notes, _ := c.Booked()
		p.Notes = append(p.Notes, notes...)
	}
	return p, err
}

// Steps gives the rows and the undos of the good case, each after all that it waits for.
func Steps(t workflow.Table, irreversible map[string][]string) (steps []prototype.Step) {
	var all []prototype.Step
	for _, row := range t {
		all = append(all, prototype.Step{ID: row.ID, Title: row.Title, After: row.After, Usual: row.Usual, Deadline: row.Deadline, Skip: row.Skip, Irreversible: irreversible[row.ID]})
		if u := row.Undo; u != nil && len(u.When) > 0 {
			if row.Taken {
				row.Skip = ""
			}
			all = append(all, prototype.Step{ID: u.ID, Title: u.Title, After: slices.Concat(u.When, u.After, u.Needs), Usual: u.Usual, Deadline: u.Deadline, Skip: row.Skip})
		}
	}
	listed := map[string]bool{}
	for len(all) > 0 {
		next := max(0, slices.IndexFunc(all, func(s prototype.Step) bool {
			return !slices.ContainsFunc(s.After, func(id string) bool { return !listed[id] })
		}))
		all[next].Deadline = cmp.Or(all[next].Deadline, workflow.DefaultDeadline)
		steps, listed[all[next].ID] = append(steps, all[next]), true
		all = slices.Delete(all, next, next+1)
	}
	return steps
}

// Held gives the problem that another process has a pool's lock, nil if none has.
func (c Config) Held(ctx context.Context, pool fleet.ResourceID) *fleet.Problem {
	holding, locked, err := c.Cluster.Holding(ctx, string(pool))
	if err != nil || !locked || c.Now().Sub(holding.Renewed) >= c.LockFor {
		return nil
	}
	return &fleet.Problem{
		Code: "Held", On: string(pool), What: holding.Holder + " has the pool lock since " + holding.Since.UTC().Format(time.RFC3339),
		WayOut: "wait until it has ended, or if it died, until its Lease expires; ortet status shows its progress",
	}
}

// Unfinished says of an open record what becomes of it.
func Unfinished(rec journal.Record, resumes bool) string {
	what := "undone first"
	if resumes {
		what = "resumed"
	} else if rec.Kind != Kind {
		what = "ended first"
	}
	return fmt.Sprintf("%s %s of %s, begun %s, was interrupted: it is %s", rec.Kind, rec.Name, cmp.Or(rec.Subject, rec.Pool), rec.Begun.UTC().Format(time.RFC3339), what)
}
