package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

const minute = time.Minute

// table returns a capture's rows. A skipped row counts as succeeded at once, even if the
// rows of its After have not: a row that has to wait for both names both. Usual durations
// are those of kamino's published logs and of the documentation. old are to be pruned.
func (c *capture) table(old []fleet.ImageVersion) workflow.Table {
	s := c.get()
	donor, version, bench := c.req.Node, s.Names.Version.Name(), s.Bench.Node
	stop, build, buildFor, drainFor := "Power off "+donor, 40*minute, 8*time.Hour, 3*c.req.GracePeriod+minute
	if c.req.Deallocate {
		stop = "Deallocate " + donor
	}
	if c.req.Shallow {
		build, buildFor = minute, time.Hour
	}
	if c.req.ForceDrain {
		drainFor = 4*c.req.GracePeriod + 2*minute
	}
	var toPrune []string
	for _, v := range old {
		toPrune = append(toPrune, v.Name)
	}
	return workflow.Table{
		{ID: "inspect", Title: "Inspect " + donor + "'s disk for blockers", Usual: 20 * time.Second, Deadline: 5 * minute, Do: c.inspect, Undo: &workflow.Undo{
			ID: "delete-inspection", Title: "Delete the inspection pod", Deadline: 5 * minute, When: []string{"inspect"}, Do: c.deleteInspection,
		}},
		{ID: "gallery", Title: "Create the gallery " + s.Names.Gallery.Name(), Usual: 10 * time.Second, After: []string{"inspect"}, Do: c.gallery},
		{ID: "definition", Title: "Create the image definition " + s.Names.Definition.Name(), Usual: 10 * time.Second, After: []string{"gallery"}, Do: c.definition},
		{ID: "protect", Title: "Protect " + donor + " from autoscalers and repairs", Usual: 15 * time.Second, After: []string{"inspect", "definition"},
			Do: c.protect, Undo: &workflow.Undo{
				ID: "unprotect", Title: "Restore " + donor + "'s protection", Usual: 15 * time.Second, Deadline: 40 * minute, When: []string{"snapshot"}, After: []string{"start", "uncordon"},
				Do: c.unprotect, Manual: func() string { return manualUnprotect(donor, c.get().Instance) },
			}},
		{ID: "protect-workbench", Title: strings.TrimSpace("Protect the workbench "+bench) + " from scale-in", Usual: 15 * time.Second, After: []string{"inspect", "definition"},
			Do: c.protectWorkbench, Undo: &workflow.Undo{
				ID: "unprotect-workbench", Title: "Restore the workbench's protection", Usual: 15 * time.Second, When: []string{"save"}, Needs: []string{"detach"},
				Do: c.unprotect, Manual: func() string { return manualUnprotect(c.get().Bench.Node, c.get().Bench.Instance) },
			}},
		{ID: "cordon", Title: "Cordon " + donor, After: []string{"protect", "protect-workbench"}, Do: c.cordon, Undo: &workflow.Undo{
			ID: "uncordon", Title: "Uncordon " + donor, When: []string{"snapshot"}, Needs: []string{"start"},
			Do: c.uncordon, Manual: func() string { return "kubectl uncordon " + donor },
		}},
		{ID: "drain", Title: "Drain " + donor, Usual: minute, Deadline: drainFor, After: []string{"cordon"}, Do: c.drain},
		{ID: "stop", Title: stop, Usual: 150 * time.Second, Deadline: 20 * minute, Every: time.Second, After: []string{"drain"}, Do: c.stop, Undo: &workflow.Undo{
			ID: "start", Title: "Start " + donor + ", and wait until it is Ready", Usual: 2 * minute, Deadline: 40 * minute, When: []string{"snapshot"},
			Do: c.start, Manual: c.manualStart,
		}},
		{ID: "snapshot", Title: "Take a snapshot of " + donor + "'s OS disk", Usual: 6 * time.Second, Deadline: 30 * minute, Every: time.Second / 2, After: []string{"stop"},
			Do: c.snapshot, Undo: &workflow.Undo{
				ID: "delete-snapshot", Title: "Delete the snapshot of the donor's disk", Usual: 5 * time.Second, When: []string{"version"}, Keep: journal.Done,
				Do: c.deleteCopy(s.Names.Snapshot), Manual: manualDelete("snapshot", s.Names.Snapshot),
			}},
		{ID: "hold-reboots", Title: "Block kured reboots", Deadline: 120 * minute, After: []string{"snapshot"}, Do: c.holdReboots, Undo: &workflow.Undo{
			ID: "release-reboots", Title: "Unblock kured reboots", When: []string{"save"}, Needs: []string{"detach"},
			Do: c.releaseReboots, Manual: func() string {
				return "kured's lock expires after 3 hours; to remove it now, delete the lock annotation of kured's DaemonSet"
			},
		}},
		{ID: "work-disk", Title: "Create a copy of the disk from the snapshot", Usual: 10 * time.Second, Deadline: 30 * minute, After: []string{"snapshot"},
			Do: c.workDisk, Undo: &workflow.Undo{
				ID: "delete-work-disk", Title: "Delete the copy of the disk", Usual: 5 * time.Second, Deadline: 30 * minute, When: []string{"generalized-snapshot"}, Needs: []string{"detach"},
				Do: c.deleteCopy(s.Names.WorkDisk), Manual: manualDelete("disk", s.Names.WorkDisk),
			}},
		{ID: "attach", Title: strings.TrimSpace("Attach the copy to the workbench " + bench), Usual: 30 * time.Second, Deadline: 20 * minute,
			After: []string{"protect-workbench", "hold-reboots", "work-disk"}, Do: c.attach, Undo: &workflow.Undo{
				ID: "detach", Title: "Detach the copy from the workbench", Usual: 30 * time.Second, Deadline: 20 * minute, When: []string{"save"}, After: []string{"delete-pod"},
				Do: c.detach, Manual: c.manualDetach,
			}},
		{ID: "generalize", Title: "Remove the donor's identity from the copy, and scan it for secrets", Usual: 2 * minute, Deadline: 60 * minute, After: []string{"attach"}, Do: c.generalize, Undo: &workflow.Undo{
			ID: "delete-pod", Title: "Delete the pod on the workbench", Deadline: 5 * minute, When: []string{"save"}, Do: c.deletePod, Manual: c.manualDeletePod,
		}},
		{ID: "save", Title: "Save customData and protected settings in Secrets", Deadline: 30 * minute, After: []string{"generalize"}, Do: c.save},
		{ID: "generalized-snapshot", Title: "Take a snapshot of the generalised copy", Usual: 6 * time.Second, Deadline: 30 * minute, After: []string{"save", "detach"},
			Do: c.generalizedSnapshot, Undo: &workflow.Undo{
				ID: "delete-generalized-snapshot", Title: "Delete the snapshot of the generalised copy", Usual: 5 * time.Second, When: []string{"version"}, Keep: journal.Done,
				Do: c.deleteCopy(s.Names.Generalized), Manual: manualDelete("snapshot", s.Names.Generalized),
			}},
		// The version waits for the donor: if the donor does not boot again, no node may
		// be made from its disk.
		{ID: "version", Title: "Build image version " + version, Usual: build, Deadline: buildFor,
			After: []string{"definition", "generalized-snapshot", "start", "uncordon", "unprotect"}, Do: c.version, Undo: &workflow.Undo{
				ID: "delete-version", Title: "Delete the unfinished image version", Usual: minute, Deadline: 60 * minute, Keep: journal.Running,
				Do: c.deleteVersion, Manual: manualDelete("resource", s.Names.Version),
			}},
		{ID: "prune", Title: "Prune versions to the newest " + fmt.Sprint(c.req.History) + list(toPrune), Usual: time.Duration(len(toPrune)) * minute, Deadline: 60 * minute,
			After: []string{"version"}, Optional: true, Do: c.prune},
		{ID: "model", Title: "Point the model at " + version, Usual: 30 * time.Second, Deadline: 60 * minute, After: []string{"version"}, Commits: true, Do: c.model},
		{ID: "extensions", Title: "Delete extensions from the model" + list(s.ToDelete), Usual: time.Duration(len(s.ToDelete)) * 30 * time.Second, Deadline: 60 * minute, After: []string{"model"}, Do: c.extensions},
		{ID: "grow", Title: "Add " + fleet.Count(int(c.req.NewNodes), "new node"), Usual: 2 * minute, Deadline: 60 * minute, After: []string{"model", "extensions"}, Do: c.grow},
	}
}

func list(names []string) string {
	return strings.TrimSuffix(": "+strings.Join(names, ", "), ": ")
}

// Plan implements workflow.Workflow: it observes the world, and decides which rows run.
// An open record keeps its names and request, and is planned as a new one.
func (c *capture) Plan(ctx context.Context, r journal.Record) (workflow.Plan, error) {
	t, p, err := c.decide(ctx, r)
	begins := err == nil && len(p.Problems) == 0 && !r.Open()
	if begins && c.asked.Check != nil {
		err = c.asked.Check(ctx)
	}
	c.result.NothingToDo = begins && err == nil && p.NothingToDo
	return workflow.Plan{Name: c.name, Subject: c.req.Node, Request: c.req, Table: t, Problems: p.Problems}, err
}

// decide observes, and sets the capture's name and state for a run that begins now. It
// returns the rows, and the plan to show.
func (c *capture) decide(ctx context.Context, r journal.Record) (t workflow.Table, p prototype.Plan, err error) {
	if !r.Open() {
		c.req, c.name, c.begun = c.asked, prototype.CaptureName(c.Now()), c.Now()
		c.set(func(s *state) { *s = state{} })
	}
	if len(c.lost) > 0 {
		c.req.Workbench = ""
	}
	o, names := c.observe(ctx)
	if ctx.Err() != nil {
		return nil, p, context.Cause(ctx)
	}
	own := "" // the capture whose snapshots count on whatever day they were taken
	if r.Open() {
		names.Version, own = names.Definition.Child("versions", c.get().Names.Version.Name()), c.name
	}
	p = prototype.Plan{Kind: Kind, Donor: c.req.Node}
	if o.Pool == nil {
		p.Problems = prototype.CaptureProblems(o, c.req, prototype.Course{})
		return nil, p, nil
	}
	course := prototype.CourseOf(o, names, c.req, c.begun, own)
	o.DeniedAzure, err = c.Cloud.Denied(ctx, o.Pool.ID.Group(), azure.ActionsOf(prototype.CaptureChanges(c.req, course)...))
	course.Problems.Unreadable("what "+string(o.Pool.ID.Group())+" allows", err)
	p.Notes, p.Problems = course.Notes, prototype.CaptureProblems(o, c.req, course)
	c.begin(r, o, course, names)
	old, _ := prototype.Prune(o.Versions, o.Uses, names.Version, c.req.History)
	t = c.table(old)
	c.skip(t, o, course, len(old))
	p.Pool, p.Version = o.Pool.ID, names.Version
	p.NothingToDo = !slices.ContainsFunc(t, func(s workflow.Step) bool { return s.ID != "grow" && s.Skip == "" || s.Taken })
	if grow := &t[len(t)-1]; p.NothingToDo && grow.Skip == "" && !r.Open() { // a repeat must not add them twice
		grow.Skip = "nothing else is to be done"
		p.Notes = append(p.Notes, "no nodes were added, since nothing else was to do")
	}
	if o.Workbench != nil {
		p.Workbench = o.Workbench.Node.Name
	}
	if o.Donor.Unschedulable {
		p.Notes = append(p.Notes, "node "+p.Donor+" is cordoned, and stays so")
	}
	if course.Start == prototype.AtDonor {
		p.Notes = append(p.Notes, "the drain evicts the pods of "+p.Donor+": where they fit on no other node, an autoscaler may add one, and remove it later; the model is changed once that has ended")
	}
	p.Steps = Steps(t, c.irreversible(o.Pool.Model.Extensions))
	return t, p, nil
}

// begin sets the state of a run, from what was observed and from the record before. A
// resumed run keeps what it does not observe.
func (c *capture) begin(r journal.Record, o prototype.Observed, course prototype.Course, names prototype.Names) {
	s := c.get()
	s.Names, s.Pool, s.Location, s.Addresses = names, o.Pool.ID, o.Pool.Location, o.Donor.Addresses
	s.Instance = o.Pool.ID.Child("virtualMachines", o.InstanceID.Name())
	s.ModelChanged = course.Start == prototype.AtVersion && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version})
	s.BuiltAt, s.BuiltFrom, s.Stopped, s.DonorGone, s.Bench, s.ToDelete = "", "", false, false, workbench{}, nil
	toDelete, _ := c.req.Extensions.Doomed(o.Pool.Model.Extensions)
	for _, e := range toDelete {
		s.ToDelete = append(s.ToDelete, e.Name)
	}
	if !r.Open() {
		s.inherit(r, *o.Pool, o.Instance, c.Now())
	}
	if s.Key == nil {
		s.Key = make([]byte, 32) // as any 32 bytes, a private key of X25519
		_, _ = rand.Read(s.Key)  // it never fails
	}
	if o.Disk != nil {
		s.Definition = prototype.NewDefinition(names.Definition, o, map[string]string{
			fleet.TagCreatedBy: "ortet " + c.Version, fleet.TagReason: "prototypes of scale set " + o.Pool.Name,
		})
	}
	if w := o.Workbench; w != nil {
		s.Bench = workbench{Node: w.Node.Name, Instance: w.Instance.ID, Zone: w.Instance.Zone, LUN: w.LUN, BootID: w.Node.BootID}
	}
	if o.Snapshot != nil && course.Start >= prototype.AtSnapshot {
		s.BuiltAt = o.Snapshot.Tags[fleet.TagBuiltAt]
	}
	if g := o.Generalized; g != nil && course.Start >= prototype.AtGeneralized {
		s.BuiltAt, s.CustomData, s.Secrets = g.Tags[fleet.TagBuiltAt], g.Tags[fleet.TagCustomData], g.Tags[fleet.TagSecrets]
	}
	if v := course.Version; v != nil {
		s.BuiltFrom, s.CustomData = v.Tags[fleet.TagBuiltFrom], v.Tags[fleet.TagCustomData]
	}
	c.set(func(old *state) { *old = s })
}

// irreversible says by row what Azure does not give back.
func (c *capture) irreversible(extensions []fleet.Extension) map[string][]string {
	lost := map[string][]string{}
	toDelete, _ := c.req.Extensions.Doomed(extensions)
	for _, e := range toDelete {
		lost["extensions"] = append(lost["extensions"],
			fmt.Sprintf("extension %s (%s): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost", e.Name, e.Type))
	}
	if c.req.Bakes() {
		lost["model"] = []string{"the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost"}
	}
	return lost
}

// skip marks the rows that the plan does not need, and those of which the effect is there.
func (c *capture) skip(t workflow.Table, o prototype.Observed, course prototype.Course, old int) {
	skip := func(applies bool, why string, ids ...string) {
		for i := range t {
			if applies && slices.Contains(ids, t[i].ID) {
				t[i].Skip = why
			}
		}
	}
	atSnapshot, atGeneralized := course.Start >= prototype.AtSnapshot, course.Start >= prototype.AtGeneralized
	taken := map[string]bool{
		"snapshot":             atSnapshot && o.Snapshot != nil && o.Snapshot.Tags[fleet.TagCapture] != "",
		"generalized-snapshot": atGeneralized && o.Generalized != nil && o.Generalized.Tags[fleet.TagCapture] != "",
		"work-disk":            atGeneralized && o.WorkDisk != nil && o.WorkDisk.Tags[fleet.TagCapture] != "" && o.WorkDisk.ManagedBy == "",
	}
	for i := range t {
		t[i].Taken = taken[t[i].ID]
	}
	why := [...]string{"", "a snapshot of the donor's disk exists from today", "the generalised snapshot exists", "today's version exists"}[course.Start]
	made := course.Version != nil && course.Version.ProvisioningState == prototype.Succeeded
	s := c.get()
	skip(o.Gallery != nil, "already exists", "gallery")
	skip(o.Definition != nil, "already exists", "definition")
	skip(atSnapshot, why, "inspect", "protect", "cordon", "drain", "stop", "snapshot")
	skip(atGeneralized, why, "protect-workbench", "hold-reboots", "work-disk", "attach", "generalize", "save", "generalized-snapshot")
	skip(made, why, "version")
	skip(made && old == 0, "no older versions", "prune")
	skip(made && s.ModelChanged, "the model uses "+s.Names.Version.Name(), "model")
	skip(len(s.ToDelete) == 0, "none to delete", "extensions")
	skip(c.req.NewNodes == 0, "not requested", "grow")
}

// Plan says what Capture would do, and changes nothing but for the pod that inspects
// the donor's disk. Problems are in the plan, not in the error.
func (s *Service) Plan(ctx context.Context, q Request) (prototype.Plan, error) {
	c := s.capture(q)
	pool, _ := c.findPool(ctx) // decide reports why none is found
	inspects := false
	p, open, err := c.Preview(ctx, pool, c, func(r journal.Record) (prototype.Plan, error) {
		t, p, err := c.decide(ctx, r)
		inspects = len(t) > 0 && t[0].Skip == ""
		return p, err
	})
	if err == nil && inspects && !open && len(p.Problems) == 0 {
		p.Problems, err = c.inspectNow(ctx)
		notes, _ := c.Booked()
		p.Notes = append(p.Notes, notes...)
	}
	return p, err
}

// Preview plans a workflow that is not run, by decide, and reports whether a record is
// open: if the workflow does not resume it, it is planned as ended.
func (c Config) Preview(ctx context.Context, pool fleet.ResourceID, w workflow.Workflow, decide func(journal.Record) (prototype.Plan, error)) (p prototype.Plan, open bool, err error) {
	rec, recErr := c.Journal.Load(ctx, strings.ToLower(string(pool)))
	recErr = fleet.IgnoreNotFound(recErr)
	resumes, what := false, "ended first"
	open = rec.Open()
	if open && rec.Kind == w.Kind() {
		_, resumes, recErr = w.Restore(rec)
		what = "undone first"
	}
	if resumes {
		what = "resumed"
	} else {
		rec.Ended = &journal.End{}
	}
	p, err = decide(rec)
	if holding, locked, leaseErr := c.Cluster.Holding(ctx, string(pool)); leaseErr == nil && locked && c.Now().Before(holding.Until) {
		p.Problems = workflow.Held(string(pool), holding).Problems
	} else if open {
		p.Resumes, p.NothingToDo = resumes, false
		p.Notes = append(p.Notes, fmt.Sprintf("%s %s of %s, begun %s, was interrupted: it is %s", rec.Kind, rec.Name, cmp.Or(rec.Subject, rec.Pool), rec.Begun.UTC().Format(time.RFC3339), what))
	}
	if err == nil && len(p.Problems) == 0 {
		err = recErr
	}
	return p, open, err
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
