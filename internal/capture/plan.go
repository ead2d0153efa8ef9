package capture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// Plan implements workflow.Workflow: it observes the world, and decides which rows run.
// An open record keeps its names and request, and is planned as a new one.
func (c *capture) Plan(ctx context.Context, r journal.Record) (workflow.Plan, error) {
	at, err := c.decide(ctx, r)
	if err != nil {
		return workflow.Plan{}, err
	}
	found := workflow.Plan{Name: c.name, Subject: c.req.Node, Request: c.req, Problems: at.Problems}
	if len(found.Problems) > 0 {
		return found, nil
	}
	if !r.Open() && c.asked.Check != nil {
		if err := c.asked.Check(ctx); err != nil {
			return workflow.Plan{}, err
		}
	}
	found.Table = c.table(at)
	c.nothing = at.nothing && !r.Open()
	return found, nil
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
	day, before := c.Now(), c.get()
	if r.Open() {
		day = r.Begun
	} else {
		c.req, c.name, c.begun, before = c.asked, prototype.CaptureName(day), day, state{}
	}
	o, names := c.observe(ctx)
	if at.o = o; ctx.Err() != nil {
		return at, context.Cause(ctx)
	}
	options := c.req
	if r.Open() {
		names.Version = names.Definition.Child("versions", before.Names.Version.Name())
		if s := o.Snapshot; options.Again && s != nil && s.Tags[fleet.TagCapture] == c.name {
			options.Again = false // it is this run's own
		}
	}
	if o.Pool != nil {
		at.Course = prototype.CourseOf(o, names, options, day)
		o.DeniedAzure, err = c.Cloud.Denied(ctx, o.Pool.ID.Group(), azure.ActionsOf(prototype.CaptureChanges(options, at.Course)...))
		if err != nil {
			at.Problems.Refuse(true, "Unreadable", string(o.Pool.ID.Group()), "what these credentials may do cannot be read: "+err.Error(), "let them read their own permissions")
		}
	}
	at.Problems = prototype.CaptureProblems(o, options, at.Course)
	c.requestProblems(&at)
	if o.Pool == nil {
		return at, nil
	}
	c.skips(&at, names)
	if len(at.Problems) == 0 {
		err = c.begin(r, before, at, names)
	} else {
		c.set(func(s *state) {
			if s.Pool = o.Pool.ID; !r.Open() {
				s.Names = names
			}
		})
		err = nil
	}
	at.nothing = !slices.ContainsFunc(c.table(at), func(s workflow.Step) bool { return s.ID != "grow" && s.Skip == "" || s.Taken })
	if at.nothing && c.req.NewNodes > 0 && !r.Open() { // a repeat must not add them twice
		at.skip["grow"] = "nothing else is to be done"
		at.Notes = append(at.Notes, "no nodes were added, since nothing else was to do")
	}
	return at, err
}

// begin sets the state of a run, from what was observed and from the record before. That
// nothing speaks against the run says that its pool, donor and instance were observed.
func (c *capture) begin(r journal.Record, before state, at start, names prototype.Names) (err error) {
	o := at.o
	s := state{
		carried: before.carried, Names: names, Pool: o.Pool.ID, Location: o.Pool.Location, Instance: o.Instance.ID,
		Addresses: ipsOf(o.Donor.Addresses), ToDelete: at.toDelete,
		ModelChanged: at.Start == prototype.AtVersion && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version}),
	}
	c.grew = s.GrowTo != 0
	if !r.Open() {
		s.inherit(r, *o.Pool, o.Instance, c.Now())
	}
	if s.Key == nil {
		if s.Key, err = newKey(); err != nil {
			return err
		}
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
		s.Bench = workbench{Node: w.Node.Name, Instance: w.Instance.ID, Zone: w.Instance.Zone, LUN: w.LUN}
	}
	if at.Start == prototype.AtGeneralized && s.CustomData == "" {
		s.CustomData = o.Generalized.Tags[fleet.TagCustomData]
	}
	if at.Version != nil {
		s.BuiltFrom = at.Version.Tags[fleet.TagBuiltFrom]
	}
	c.set(func(old *state) { *old = s })
	return nil
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
	ours := func(s *fleet.Snapshot) bool { return s != nil && s.Tags[fleet.TagCapture] != "" }
	at.taken = map[string]bool{
		"snapshot":             at.Start >= prototype.AtSnapshot && ours(o.Snapshot),
		"generalized-snapshot": at.Start >= prototype.AtGeneralized && ours(o.Generalized),
		"work-disk":            at.Start >= prototype.AtGeneralized && o.WorkDisk != nil && o.WorkDisk.Tags[fleet.TagCapture] != "" && o.WorkDisk.ManagedBy == "",
	}
	why := map[prototype.Start]string{
		prototype.AtSnapshot: "a snapshot of the donor's disk exists from today", prototype.AtGeneralized: "the generalised snapshot exists", prototype.AtVersion: "today's version exists",
	}[at.Start]
	skip(o.Gallery != nil, "already exists", "gallery")
	skip(o.Definition != nil, "already exists", "definition")
	skip(at.Start >= prototype.AtSnapshot, why, "inspect", "protect", "cordon", "drain", "stop", "snapshot")
	skip(at.Start >= prototype.AtGeneralized, why, append(slices.Clone(onWorkbench), "generalized-snapshot")...)
	made := at.Version != nil && at.Version.ProvisioningState == prototype.Succeeded
	skip(made, why, "version")
	old, _ := prototype.Prune(o.Versions, o.Uses, names.Version, c.req.History)
	for _, v := range old {
		at.toPrune = append(at.toPrune, v.Name)
	}
	skip(made && len(old) == 0, "no older versions", "prune")
	skip(made && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version}), "the model uses "+names.Version.Name(), "model")
	toDelete, _ := c.req.Extensions.Doomed(o.Pool.Model.Extensions)
	for _, e := range toDelete {
		at.toDelete = append(at.toDelete, e.Name)
		at.irreversible["extensions"] = append(at.irreversible["extensions"],
			fmt.Sprintf("extension %s (%s): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost", e.Name, e.Type))
	}
	skip(len(toDelete) == 0, "none to delete", "extensions")
	if c.req.Bakes() {
		at.irreversible["model"] = []string{"the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost"}
	}
	skip(c.req.NewNodes == 0, "not requested", "grow")
}

// requestProblems are those of the request by itself.
func (c *capture) requestProblems(at *start) {
	refuse, q := at.Problems.Refuse, c.req
	refuse(q.Bootstrap != BootstrapKeep && q.Bootstrap != BootstrapBaked, "BadBootstrap", "--bootstrap", fmt.Sprintf("%q is neither keep nor baked", q.Bootstrap), "say one of them")
	for _, path := range q.AcceptSecrets {
		if err := wire.CheckAcceptedSecret(path); err != nil {
			refuse(true, "BadPath", "--accept-secret", err.Error(), "give the path as the scan reports it")
		}
	}
	n := len(q.AcceptSecrets)
	refuse(n > wire.MaxAcceptedSecrets, "BadNumber", "--accept-secret", fmt.Sprintf("%d paths", n),
		fmt.Sprintf("give at most %d; a folder that ends in / stands for all below it", wire.MaxAcceptedSecrets))
	refuse(c.Image == "" && at.NeedsWorkbench(), "NoContainerImage", "--image", "the container image with ortet-node is not known", "name it")
}

// Plan says what Capture would do, and changes nothing but for the pod that inspects
// the donor's disk. Problems are in the plan, not in the error.
func (s *Service) Plan(ctx context.Context, q Request) (prototype.Plan, error) {
	c := s.capture(q)
	var rec journal.Record
	var recErr error
	pool, err := c.findPool(ctx)
	if err == nil && pool != "" {
		rec, recErr = c.Journal.Load(ctx, string(pool))
	}
	ended := rec // it is planned as new
	ended.Ended = &journal.End{}
	at, err := c.decide(ctx, ended)
	if err == nil && len(at.Problems) == 0 {
		err = missing(recErr)
	}
	if err != nil {
		return prototype.Plan{}, err
	}
	p := prototype.Plan{Kind: Kind, Donor: q.Node, Notes: at.Notes, Problems: at.Problems}
	if at.o.Pool == nil || missing(recErr) != nil {
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
	switch locked := c.Held(ctx, pool); {
	case locked != nil:
		p.Problems = []fleet.Problem{*locked}
	case rec.Open():
		p.Resumes, p.NothingToDo = rec.Kind == Kind && rec.Subject == q.Node && rec.Phase != journal.Undo, false
		p.Notes = append(p.Notes, Unfinished(rec, p.Resumes))
	case at.FromDonor() && !slices.ContainsFunc(p.Problems, func(x fleet.Problem) bool {
		return x.Code != "PodNotEvictable" && x.Code != "BudgetAllowsNoEviction"
	}):
		found, err := c.inspectNow(ctx)
		if err != nil {
			return prototype.Plan{}, err
		}
		notes, _ := c.Booked()
		p.Problems, p.Notes = append(p.Problems, found...), append(p.Notes, notes...)
	}
	return p, nil
}

// Steps gives the rows, and each undo of the good case once all is listed that it
// waits for.
func Steps(t workflow.Table, irreversible map[string][]string) (steps []prototype.Step) {
	listed := map[string]bool{}
	var add func(s prototype.Step)
	add = func(s prototype.Step) {
		s.Deadline = cmp.Or(s.Deadline, workflow.DefaultDeadline)
		steps, listed[s.ID] = append(steps, s), true
		for _, row := range t {
			u, skip := row.Undo, row.Skip
			if u == nil || len(u.When) == 0 || listed[u.ID] {
				continue
			}
			after := slices.Concat(u.When, u.After, u.Needs)
			if slices.ContainsFunc(after, func(id string) bool { return !listed[id] }) {
				continue
			}
			if row.Taken {
				skip = ""
			}
			add(prototype.Step{ID: u.ID, Title: u.Title, After: after, Usual: u.Usual, Deadline: u.Deadline, Skip: skip})
		}
	}
	for _, row := range t {
		add(prototype.Step{ID: row.ID, Title: row.Title, After: row.After, Usual: row.Usual, Deadline: row.Deadline, Skip: row.Skip, Irreversible: irreversible[row.ID]})
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
	on, what := "", "undone first"
	if rec.Subject != "" {
		on = " of " + rec.Subject
	}
	if resumes {
		what = "resumed"
	} else if rec.Kind != Kind {
		what = "ended first"
	}
	return fmt.Sprintf("%s %s%s, begun %s, was interrupted: it is %s", rec.Kind, rec.Name, on, rec.Begun.UTC().Format(time.RFC3339), what)
}
