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
	at, o, err := c.decide(ctx, r)
	if err != nil {
		return workflow.Plan{}, err
	}
	found := workflow.Plan{Name: c.name, Subject: c.req.Node, Request: c.req, Problems: at.problems}
	if len(found.Problems) > 0 || o.Pool == nil {
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

// decide observes, and sets the capture's name and state for a run that begins now.
func (c *capture) decide(ctx context.Context, r journal.Record) (at start, o prototype.Observed, err error) {
	now := c.Now()
	before := state{}
	if r.Open() {
		before = c.get()
	} else {
		c.req, c.name, c.begun = c.asked, prototype.CaptureName(now, r.Name), now
	}
	o, names := c.observe(ctx)
	if ctx.Err() != nil {
		return at, o, context.Cause(ctx)
	}
	options, day := c.req, now
	if r.Open() {
		names.Version, day = before.Names.Version, r.Begun
		if s := o.Snapshot; c.req.Again && s != nil && s.Tags[fleet.TagCapture] == c.name {
			options.Again = false // it is this run's own
		}
	}
	names.Job = ""
	course := prototype.Course{}
	if o.Pool != nil {
		course = prototype.CourseOf(o, names, options, day)
		o.DeniedAzure, err = c.Cloud.Denied(ctx, o.Pool.ID.Group(), azure.ActionsOf(prototype.CaptureChanges(options, course)...))
		if err != nil {
			o.Unreadable = append(o.Unreadable, fleet.Problem{
				Code: "Unreadable", On: string(o.Pool.ID.Group()), What: "what these credentials may do cannot be read: " + err.Error(),
				WayOut: "let them read their own permissions",
			})
		}
	}
	at.problems = append(prototype.CaptureProblems(o, options, course), c.requestProblems(course)...)
	at.notes = course.Notes
	if o.Pool == nil {
		return at, o, nil
	}
	if len(at.problems) == 0 {
		if err := c.begin(r, before, o, names, course, now); err != nil {
			return at, o, err
		}
	} else {
		c.set(func(s *state) { s.Pool = o.Pool.ID })
		if !r.Open() {
			c.set(func(s *state) { s.Names = names })
		}
	}
	c.skips(&at, o, names, course, r.Open())
	return at, o, nil
}

// begin sets the state of a run, from what was observed and from the record before.
func (c *capture) begin(r journal.Record, before state, o prototype.Observed, names prototype.Names, course prototype.Course, now time.Time) error {
	s := state{Names: names, Pool: o.Pool.ID, Location: o.Pool.Location, Key: before.Key, Pods: before.Pods, Builds: before.Builds, StorageType: before.StorageType}
	if r.Open() {
		s.Inherited, s.LearnsOriginal, s.ImageBefore = before.Inherited, before.LearnsOriginal, before.ImageBefore
		c.grew = before.GrowTo != 0
		s.GrowFrom, s.GrowTo, s.Unsaved, s.CustomData = before.GrowFrom, before.GrowTo, before.Unsaved, before.CustomData
		s.Credentials, s.AcceptedSecrets, s.RemovedSecrets, s.Secrets, s.ScanNotes = before.Credentials, before.AcceptedSecrets, before.RemovedSecrets, before.Secrets, before.ScanNotes
	} else {
		s.inherit(r, *o.Pool, o.Instance, now)
	}
	if s.Key == nil {
		key, err := newKey()
		if err != nil {
			return err
		}
		s.Key = key
	}
	if x := o.Snapshot; x != nil && course.Start >= prototype.AtSnapshot {
		s.BuiltAt, _ = time.Parse(fleet.BuiltAtLayout, x.Tags[fleet.TagBuiltAt])
	}
	toDelete, _ := c.req.Extensions.Doomed(o.Pool.Model.Extensions)
	s.ToDelete = extensionNames(toDelete)
	if o.Instance != nil {
		s.Instance = o.Instance.ID
	}
	if o.Donor != nil {
		s.Addresses = ipsOf(o.Donor.Addresses)
	}
	if o.Instance != nil && o.Disk != nil {
		size := fleet.SizeInfo{}
		if o.Size != nil {
			size = *o.Size
		}
		s.Definition = prototype.NewDefinition(names.Definition, *o.Pool, *o.Instance, *o.Disk, size, map[string]string{
			fleet.TagCreatedBy: "ortet " + c.Version, fleet.TagReason: "prototypes of scale set " + o.Pool.Name,
		})
	}
	if w := o.Workbench; w != nil {
		s.Bench = workbench{Node: w.Node.Name, Instance: w.Instance.ID, Zone: w.Instance.Zone, LUN: w.LUN}
	}
	s.Saved = course.Start >= prototype.AtGeneralized
	if course.Start == prototype.AtGeneralized && s.CustomData == "" && o.Generalized != nil {
		s.CustomData = o.Generalized.Tags[fleet.TagCustomData]
	}
	if v := course.Version; v != nil {
		s.BuiltFrom = v.Tags[fleet.TagBuiltFrom]
	}
	s.ModelChanged = course.Start == prototype.AtVersion && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version})
	c.set(func(old *state) { *old = s })
	return nil
}

// skips decides which rows the plan does not need, and of which the effect is there.
func (c *capture) skips(at *start, o prototype.Observed, names prototype.Names, course prototype.Course, open bool) {
	at.skip, at.taken, at.irreversible, at.fromDonor = map[string]string{}, map[string]bool{}, map[string][]string{}, course.FromDonor()
	skip := func(why string, ids ...string) {
		for _, id := range ids {
			at.skip[id] = why
		}
	}
	ours := func(tags map[string]string) bool { return tags[fleet.TagCapture] != "" }
	if o.Workbench != nil {
		at.workbench = o.Workbench.Node.Name
	}
	if o.Gallery != nil {
		skip("already exists", "gallery")
	}
	if o.Definition != nil {
		skip("already exists", "definition")
	}
	donor := []string{"inspect", "protect", "cordon", "drain", "stop", "snapshot"}
	if course.Start >= prototype.AtSnapshot {
		skip("a snapshot of the donor's disk exists from today", donor...)
		at.taken["snapshot"] = o.Snapshot != nil && ours(o.Snapshot.Tags)
	}
	if course.Start >= prototype.AtGeneralized {
		skip("the generalised snapshot exists", onWorkbench...)
		skip("the generalised snapshot exists", "generalized-snapshot")
		at.taken["generalized-snapshot"] = o.Generalized != nil && ours(o.Generalized.Tags)
		at.taken["work-disk"] = o.WorkDisk != nil && ours(o.WorkDisk.Tags) && o.WorkDisk.ManagedBy == ""
	}
	made := course.Start == prototype.AtVersion && course.Version != nil && course.Version.ProvisioningState == prototype.Succeeded
	if course.Start == prototype.AtVersion {
		reason := "today's version exists"
		skip(reason, donor...)
		skip(reason, onWorkbench...)
		skip(reason, "generalized-snapshot")
		if made {
			skip(reason, "gallery", "definition", "version")
		}
	}
	history := c.req.History
	if _, there := prototype.FindVersion(o.Versions, names.Version); !there {
		history--
	}
	old, _ := prototype.Prune(o.Versions, o.Uses, names.Version, history)
	for _, v := range old {
		if !v.ID.Equal(names.Version) {
			at.toPrune = append(at.toPrune, v.Name)
		}
	}
	if made && len(at.toPrune) == 0 {
		skip("no older versions", "prune")
	}
	if made && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version}) {
		skip("the model uses "+names.Version.Name(), "model")
	}
	toDelete, _ := c.req.Extensions.Doomed(o.Pool.Model.Extensions)
	at.toDelete = extensionNames(toDelete)
	if len(at.toDelete) == 0 {
		skip("none to delete", "extensions")
	}
	for _, e := range toDelete {
		at.irreversible["extensions"] = append(at.irreversible["extensions"],
			fmt.Sprintf("extension %s (%s): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost", e.Name, e.Type))
	}
	if c.req.Bakes() {
		at.irreversible["model"] = []string{"the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost"}
	}
	if c.req.NewNodes == 0 {
		skip("not requested", "grow")
	}
	at.nothing = !slices.ContainsFunc(c.table(*at), func(s workflow.Step) bool {
		return s.ID != "grow" && s.Skip == "" || s.Taken
	})
	if at.nothing && c.req.NewNodes > 0 && !open { // a repeat must not add them twice
		skip("nothing else is to be done", "grow")
		at.notes = append(at.notes, "no nodes were added, since nothing else was to do")
	}
}

// requestProblems are those of the request by itself.
func (c *capture) requestProblems(course prototype.Course) (problems []fleet.Problem) {
	q := c.req
	add := func(code, on, what, wayOut string) {
		problems = append(problems, fleet.Problem{Code: code, On: on, What: what, WayOut: wayOut})
	}
	if q.Bootstrap != BootstrapKeep && q.Bootstrap != BootstrapBaked {
		add("BadBootstrap", "--bootstrap", fmt.Sprintf("%q is neither keep nor baked", q.Bootstrap), "say one of them")
	}
	for _, at := range q.AcceptSecrets {
		if err := wire.CheckAcceptedSecret(at); err != nil {
			add("BadPath", "--accept-secret", err.Error(), "give the path as the scan reports it")
		}
	}
	if n := len(q.AcceptSecrets); n > wire.MaxAcceptedSecrets {
		add("BadNumber", "--accept-secret", fmt.Sprintf("%d paths", n), fmt.Sprintf("give at most %d; a folder that ends in / stands for all below it", wire.MaxAcceptedSecrets))
	}
	if c.Image == "" && course.NeedsWorkbench() {
		add("NoContainerImage", "--image", "the container image with ortet-node is not known", "name it")
	}
	return problems
}

func extensionNames(extensions []fleet.Extension) (names []string) {
	for _, e := range extensions {
		names = append(names, e.Name)
	}
	return names
}

// Plan says what Capture would do, and changes nothing but for the pod that inspects
// the donor's disk. Problems are in the plan, not in the error.
func (s *Service) Plan(ctx context.Context, q Request) (prototype.Plan, error) {
	c := s.capture(q)
	p := prototype.Plan{Kind: Kind, Donor: q.Node}
	pool, err := c.findPool(ctx)
	var rec journal.Record
	var recErr error
	if err == nil && pool != "" {
		rec, recErr = c.Journal.Load(ctx, string(pool))
		if fleet.Is(recErr, fleet.KindNotFound) {
			recErr = nil
		}
	}
	at, o, startErr := c.decide(ctx, journal.Record{Name: rec.Name, State: rec.State, Pool: rec.Pool, Ended: &journal.End{}})
	if startErr != nil {
		return prototype.Plan{}, startErr
	}
	p.Notes = at.notes
	p.Problems = at.problems
	if o.Pool == nil || recErr != nil && len(p.Problems) > 0 {
		return p, nil
	}
	if recErr != nil {
		return prototype.Plan{}, recErr
	}
	p.Pool, p.Version, p.Workbench, p.NothingToDo = o.Pool.ID, c.get().Names.Version, at.workbench, at.nothing
	p.Steps = planned(c.table(at), at.irreversible)
	if o.Donor != nil && o.Donor.Unschedulable {
		p.Notes = append(p.Notes, "node "+q.Node+" is cordoned, and stays so")
	}
	if at.fromDonor {
		p.Notes = append(p.Notes, "the drain evicts the pods of "+q.Node+": where they fit on no other node, an autoscaler may add one, and remove it later; the model is changed once that has ended")
	}
	switch holding, locked, err := c.Cluster.Holding(ctx, string(pool)); {
	case err == nil && locked && c.Now().Sub(holding.Renewed) < c.LockFor:
		p.Problems = []fleet.Problem{{Code: "Held", On: string(pool), What: holding.Holder + " has the pool lock since " + holding.Since.UTC().Format(time.RFC3339), WayOut: "wait until it has ended"}}
	case rec.Open():
		p.Resumes, p.NothingToDo = true, false
		p.Notes = append(p.Notes, resumption(rec, q.Node))
	case at.fromDonor && !slices.ContainsFunc(p.Problems, func(x fleet.Problem) bool {
		return x.Code != "PodNotEvictable" && x.Code != "BudgetAllowsNoEviction"
	}):
		found, err := c.inspectNow(ctx)
		if err != nil {
			return prototype.Plan{}, err
		}
		p.Problems = append(p.Problems, found...)
		notes, _ := c.Booked()
		p.Notes = append(p.Notes, notes...)
	}
	return p, nil
}

// planned gives the rows, and each undo of the good case once all is listed that it
// waits for.
func planned(t workflow.Table, irreversible map[string][]string) (steps []prototype.Step) {
	listed := map[string]bool{}
	add := func(s prototype.Step) {
		s.Deadline = cmp.Or(s.Deadline, workflow.DefaultDeadline)
		steps, listed[s.ID] = append(steps, s), true
	}
	for _, row := range t {
		add(prototype.Step{ID: row.ID, Title: row.Title, After: row.After, Usual: row.Usual, Deadline: row.Deadline, Skip: row.Skip, Irreversible: irreversible[row.ID]})
		for again := true; again; {
			again = false
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
				again = true
			}
		}
	}
	return steps
}

func resumption(rec journal.Record, node string) string {
	return Unfinished(rec, rec.Kind == Kind && rec.Subject == node && rec.Phase != journal.Undo)
}

// Unfinished says of an open record what becomes of it.
func Unfinished(rec journal.Record, resumes bool) string {
	what := "is undone first"
	if resumes {
		what = "is finished first"
	}
	return fmt.Sprintf("%s %s of %s, begun %s, has not ended and %s", rec.Kind, rec.Name, first(rec.Subject, rec.Pool), rec.Begun.UTC().Format(time.RFC3339), what)
}
