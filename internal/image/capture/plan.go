package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// A view is what a plan observed, for the rows to decide whether they are needed. It is zero for
// a record that is undone, of which no row begins.
type view struct {
	plan.Observed
	resume plan.ResumePlan
	old    []fleet.ImageVersion // to be pruned
}

// copied returns why the rows up to the donor's snapshot are skipped.
func (v view) copied() string {
	return cmp.Or(workflow.SkipIf(v.resume.From == plan.AtSnapshot, "a snapshot of the donor's disk exists from today"), v.generalized())
}

// generalized returns why the rows up to the generalised snapshot are skipped.
func (v view) generalized() string {
	return cmp.Or(
		workflow.SkipIf(v.resume.From == plan.AtGeneralized, "the generalised snapshot exists"),
		workflow.SkipIf(v.resume.From == plan.AtVersion, "today's version exists"))
}

// published reports whether today's version is complete.
func (v view) published() bool {
	return v.resume.Version != nil && v.resume.Version.ProvisioningState == plan.Succeeded
}

// judged returns why the version needs no canary.
func (c *capture) judged(v view) string {
	s := c.get()
	return s.Outcome.Skip(c.req, v.resume.Version, s.ModelChanged)
}

// made reports whether a capture that reached a resume point made the resource with these tags.
func (v view) made(start plan.ResumePoint, tags map[string]string) bool {
	return v.resume.From >= start && tags[fleet.TagCapture] != ""
}

// Plan implements workflow.Workflow: it observes the world, and decides which rows run.
// An open record keeps its names and request, and is planned as a new one.
func (c *capture) Plan(ctx context.Context, r journal.Record) (workflow.Plan, error) {
	if c.abandons {
		return workflow.Plan{}, nil
	}
	t, p, err := c.decideFresh(ctx, r)
	c.Note("%s", c.get().NoCanary)
	c.Note("%s", c.ClockNote())
	begins := err == nil && len(p.Problems) == 0 && !r.Open()
	for _, check := range c.checks {
		if begins && err == nil {
			err = check(ctx)
		}
	}
	c.result.NothingToDo = begins && err == nil && p.NothingToDo
	return workflow.Plan{Name: c.name, Subject: c.req.Node, Request: c.req, Table: t, Problems: p.Problems, Undoes: c.req.Fresh != ""}, err
}

// decide observes, and sets the capture's name and state for a run that begins now. It
// returns the rows, and the plan to show.
func (c *capture) decide(ctx context.Context, r journal.Record) (t workflow.Table, p plan.Plan, err error) {
	if !r.Open() {
		c.req, c.name, c.begun = c.asked, plan.CaptureName(c.Now()), c.Now()
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
	p = plan.Plan{Kind: Kind, Donor: c.req.Node}
	if o.Pool == nil {
		p.Problems = plan.CaptureProblems(o, c.req, plan.ResumePlan{})
		return nil, p, nil
	}
	resume := plan.Resume(o, names, c.req, c.begun, own)
	if u := Inherit(r).Unfinished; u != nil && !r.Open() && resume.Version != nil && !o.Pool.Model.Image.Exact().Equal(u.TagFrom) {
		resume.Problems.Refuse(resume.Version.ID.Equal(u.TagFrom), plan.CodeRolledBack, string(u.TagFrom), "today's version was rolled back by "+u.Name+", which did not finish",
			"give --again to make another today, or finish that: ortet rollback "+o.Pool.Name)
	}
	o.DeniedAzure, err = c.Cloud.Denied(ctx, o.Pool.ID.Group(), actions(o, append(plan.CaptureChanges(c.req, resume), c.Next...)))
	resume.Problems.Unreadable("what "+string(o.Pool.ID.Group())+" allows", err)
	if r.Open() && c.get().Quarantine != "" { // judge ends the run
		resume.Problems = slices.DeleteFunc(resume.Problems, func(p fleet.Problem) bool { return p.Code == plan.CodeRolledBack })
	}
	p.Notes, p.Problems = resume.Notes, plan.CaptureProblems(o, c.req, resume)
	c.begin(r, o, resume, names)
	if c.judged(view{o, resume, nil}) == "" && c.get().Quarantine == "" {
		note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
		p.Problems = append(p.Problems, c.canary.Problems(ctx, *o.Pool, resume, note)...)
	}
	old, _ := plan.Prune(o.Versions, o.Uses, names.Version, c.req.History, c.Cloud.Now())
	p.Notes = append(append(p.Notes, plan.PoolNotes(o, c.req, old)...), c.Standby(ctx, *o.Pool))
	t = c.table(view{o, resume, old})
	p.Pool, p.Version = o.Pool.ID, names.Version
	if o.Donor == nil && resume.From < plan.AtVersion {
		return c.planRaise(ctx, view{o, resume, old}, p)
	}
	p.NothingToDo = !slices.ContainsFunc(t, func(s workflow.Step) bool { return s.Skip == "" || s.EffectMayExist })
	if g := c.get().Growth; c.req.NewNodes > 0 && g.Done && !r.Open() {
		names := fleet.Each(g.Nodes, func(n plan.NewNode) string { return n.Instance })
		c.Note("no nodes are added: an earlier capture added %s of %s; to add others, raise the scale set's capacity, or give --again to make another version",
			plan.UpTo(plan.MaxNamed, names, len(names)), g.Version.Name())
	}
	if o.Workbench != nil {
		p.Workbench = o.Workbench.Node.Name
	}
	cordoned := o.Donor != nil && o.Donor.Unschedulable && c.req.Fresh == "" &&
		o.Donor.Annotations[fleet.AnnotationCapture] == "" // else an open capture cordoned it
	unrestored := c.model.Unrestored(o)
	p.Notes = append(p.Notes, workflow.SkipIf(cordoned, "node "+p.Donor+" is cordoned, and stays so"),
		workflow.SkipIf(c.req.Online && c.req.NewNodes == 0 && c.req.Canary == 0, "with --online "+p.Donor+
			" does not boot from the disk that is copied, so nothing shows that nodes made from it do: --grow 1 adds a node, --canary 1 makes one and deletes it again"),
		workflow.SkipIf(len(c.Next) > 0 && len(unrestored) > 0 && !p.NothingToDo, "if the watched nodes fail, the watch does not restore "+
			strings.Join(unrestored, ", ")+", which a donor's disk shows: it goes back to an older version without it, or ends with exit code 4 and the command to type; --restore-learned NAME allows it"),
		workflow.SkipIf(resume.From == plan.AtDonor && !c.req.Online && c.req.Fresh == "", "draining "+p.Donor+
			" evicts its pods: if they fit on no other node, an autoscaler may add a node and remove it later"+
			workflow.SkipIf(!c.req.PublishOnly, "; the model is changed after that")))
	p.Steps = Steps(t, c.target().Irreversible(o.Pool.Model.Extensions))
	return t, p, nil
}

// actions returns the Azure actions that a capture's changes need, of the donor's pool and of the workbench,
// which may be of the other kind.
func actions(o plan.Observed, changes []fleet.Change) []string {
	other := fleet.Pool{Orchestration: fleet.Uniform}
	if !o.Pool.Flexible() {
		other.Orchestration = fleet.Flexible
	}
	if o.Workbench == nil || o.Workbench.Instance.ID.UniformPool() == "" == o.Pool.Flexible() {
		return azure.ActionsIn(*o.Pool, changes)
	}
	var bench []fleet.Change
	changes = slices.DeleteFunc(changes, func(c fleet.Change) bool {
		is := c.Verb() == fleet.AttachDisk{}.Verb() || c.Verb() == fleet.DetachDisk{}.Verb()
		if is || c.Verb() == (fleet.ProtectInstance{}).Verb() {
			bench = append(bench, c)
		}
		return is
	})
	all := azure.ActionsIn(*o.Pool, changes)
	if len(bench) > 0 {
		all = append(all, azure.ActionsIn(other, bench)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// begin sets the state of a run, from what was observed and from the record before. A
// resumed run keeps what it does not observe.
func (c *capture) begin(r journal.Record, o plan.Observed, resume plan.ResumePlan, names plan.Names) {
	s := c.get()
	raised := c.req.Fresh != "" && o.Donor != nil && s.Instance == "" // since the record was begun
	s.Names, s.Pool, s.Location = names, o.Pool.ID, o.Pool.Location
	if o.Donor != nil {
		s.Addresses, s.UID = o.Donor.Addresses, o.Donor.UID
	}
	if s.Instance = o.InstanceID; o.InstanceID.UniformPool() != "" {
		s.Instance = o.Pool.ID.Child("virtualMachines", o.InstanceID.Name()) // as Azure spells it
	}
	s.Replicas = plan.ReplicasFor(c.req, o.Pool.Capacity)
	if o.Instance != nil {
		s.VMID = o.Instance.VMID
	}
	if o.Instance != nil && o.Donor != nil && s.Devices == "" { // a resumed run's donor was drained, and may have booted since
		s.Devices = fleet.DevicesOf(cmp.Or(o.Instance.Size, o.Pool.Size), o.Donor.Devices)
	}
	s.ModelChanged = resume.From == plan.AtVersion && o.Pool.Model.Image.Same(fleet.ImageReference{ID: names.Version})
	s.Encryption = fleet.Encryption{Set: plan.EncryptionSet(o), Type: o.Keys.Type}
	s.BuiltAt, s.BuiltFrom, s.Stopped, s.DonorGone, s.Bench = "", "", false, false, workbench{}
	toDelete, _ := c.req.Extensions.ToDelete(o.Pool.Model.Extensions)
	s.ToDelete = fleet.Each(toDelete, func(e fleet.Extension) string { return e.Name })
	if !r.Open() {
		s.Inherited = Inherit(r)
	}
	if !r.Open() || raised {
		s.LearnsOriginal = s.Begin(*o.Pool, o.Instance, c.Cloud.Now())
	}
	if resume.Version == nil && !r.Open() { // those of a deleted version of its name are not its nodes
		s.Growth = plan.Growth{}
	}
	if c.req.NewNodes > 0 && (!r.Open() || s.Growth.Version == "") {
		if s.Growth = model.Wishes(s.Growth, names.Version, c.req.NewNodes); s.GrowTo > 0 {
			s.Growth.Adds, s.Growth.Raises, s.Growth.Capacity, s.GrowTo = c.req.NewNodes, c.req.NewNodes, s.GrowTo, 0
		}
	}
	if s.Key == nil {
		s.Key = make([]byte, 32) // as any 32 bytes, a private key of X25519
		_, _ = rand.Read(s.Key)  // it never fails
	}
	if o.Disk != nil {
		s.Definition = plan.NewDefinition(names.Definition, o, map[string]string{
			fleet.TagCreatedBy: "ortet " + c.Version, fleet.TagReason: "prototypes of scale set " + o.Pool.Name, fleet.TagNamespace: c.Namespace,
		})
	}
	if w := o.Workbench; w != nil {
		s.Bench = workbench{Node: w.Node.Name, Pool: w.Instance.Pool, Instance: w.Instance.ID, VMID: w.Instance.VMID, UID: w.Node.UID,
			Zone: w.Instance.Zone, LUN: w.LUN, BootID: w.Node.BootID}
	}
	devices := func(tags map[string]string) fleet.Devices { return fleet.Devices(tags[fleet.TagDevices]) }
	if o.Snapshot != nil && resume.From >= plan.AtSnapshot {
		s.BuiltAt, s.Online, s.Devices = o.Snapshot.Tags[fleet.TagBuiltAt], o.Snapshot.Tags[fleet.TagOnline], devices(o.Snapshot.Tags)
	}
	// What was made for a canary lacks this tag only if new nodes get no customData.
	none := func(tags map[string]string) bool {
		return tags[fleet.TagCanary] == plan.Unjudged && tags[fleet.TagCustomData] == ""
	}
	if g := o.Generalized; g != nil && resume.From >= plan.AtGeneralized {
		s.BuiltAt, s.CustomData, s.Secrets = g.Tags[fleet.TagBuiltAt], g.Tags[fleet.TagCustomData], g.Tags[fleet.TagSecrets]
		s.NoCustomData, s.Online, s.Manifest = none(g.Tags), g.Tags[fleet.TagOnline], g.Tags[fleet.TagManifest]
		s.Tuned = g.Tags[fleet.TagTuned]
		s.Devices = devices(g.Tags)
	}
	if v := resume.Version; v != nil {
		s.BuiltFrom, s.CustomData, s.NoCustomData = v.Tags[fleet.TagBuiltFrom], v.Tags[fleet.TagCustomData], none(v.Tags)
		s.Tuned = v.Tags[fleet.TagTuned]
		s.Devices = devices(v.Tags)
	}
	c.set(func(old *state) { *old = s })
}

// Plan says what Capture would do, and changes nothing but for the pod that inspects
// the donor's disk. Problems are in the plan, not in the error.
func (s *Service) Plan(ctx context.Context, q Request) (plan.Plan, error) {
	c := s.capture(q)
	pool, _ := c.findPool(ctx) // decide reports why none is found
	c.found = pool
	inspects, stops := false, false
	p, open, err := c.Preview(ctx, pool, c, func(r journal.Record) (plan.Plan, error) {
		t, p, err := c.decideFresh(ctx, r)
		inspects = slices.ContainsFunc(t, func(s workflow.Step) bool { return s.ID == stepInspect && s.Skip == "" })
		stop := r.Steps[donor.StepStop].State
		stops = r.Subject == q.Node && q.Fresh == "" && stop != journal.Pending && stop != journal.Skipped
		return p, err
	})
	if open && stops { // the run starts what its open capture stopped before it looks
		p.Problems = slices.DeleteFunc(p.Problems, func(p fleet.Problem) bool {
			return p.Code == plan.CodeNodeNotReady || p.Code == plan.CodeInstanceNotRunning
		})
	}
	if err == nil && inspects && !open && len(p.Problems) == 0 {
		p.Problems, err = c.inspectNow(ctx)
	}
	notes, _ := c.Recorded()
	p.Notes = append(p.Notes, notes...)
	if err == nil && len(p.Problems) == 0 && !p.NothingToDo && !c.req.Bakes() && !c.noUserData {
		p.Notes = append(p.Notes, c.userData(ctx)...)
	}
	return p, err
}

// userData says that clones run user data again, and how long it took on the donor by that Node's own word.
func (c *capture) userData(ctx context.Context) []string {
	node, long := c.req.Node, ", how long is not known before the donor is there"
	var took time.Duration
	if c.req.Fresh == "" {
		long = ", how long is not known: no readable boot report of " + node + " shows it (ortet-node report --annotate)"
		if n, err := c.Cluster.Node(ctx, node); err == nil && c.UserData != nil {
			took = c.UserData(ctx, n)
		}
	}
	if took > 0 {
		long = ": it took " + took.Round(100*time.Millisecond).String() + " on " + node + ", as that Node reports"
	} else if c.get().LastCustomData == plan.NoopSHA256 { // what the donor came with may be that, too
		return nil
	}
	wayOut := workflow.SkipIf(!c.req.PublishOnly, "; with --bootstrap baked it does not")
	return []string{"user data runs again on each clone" + long + wayOut}
}

// Preview plans a workflow that is not run, by decide, and reports whether a record is
// open: if the workflow does not resume it, it is planned as ended.
func (c Config) Preview(ctx context.Context, pool fleet.ResourceID, w workflow.Workflow,
	decide func(journal.Record) (plan.Plan, error)) (p plan.Plan, open bool, err error) {
	rec, recErr := c.Journal.Load(ctx, string(pool))
	recErr = fleet.IgnoreNotFound(recErr)
	note, resumes := "", false
	if open = rec.Open(); open {
		note, resumes, recErr = workflow.PreviewOpen(rec, w, c.Others)
	}
	if open && !resumes {
		rec.Ended = &journal.End{}
	}
	holding, locked, leaseErr := c.Cluster.Holding(ctx, string(pool))
	rec.Unreleased = leaseErr == nil && locked && holding.Holder == rec.Writer
	p, err = decide(rec)
	definitions, _ := c.Cloud.Definitions(ctx, plan.DefinitionOf(pool).Parent()) // Runner.Claim notes what cannot be read
	if leaseErr == nil && locked && c.Now().Before(holding.Until) {
		p.Problems = workflow.Held(string(pool), holding).Problems
	} else if refused := new(workflow.Refused); pool != "" && errors.As(c.elsewhere(plan.DefinitionsOf(pool, definitions)...), &refused) {
		p.Problems = append(p.Problems, refused.Problems...)
	} else if open {
		p.Resumes, p.NothingToDo = resumes, false
		p.Notes = slices.Insert(p.Notes, 0, note)
	}
	if err == nil && (open || len(p.Problems) == 0) {
		err = recErr
	}
	return p, open, err
}

// Documented returns the steps of a capture of the Node "donor" where nothing was made before,
// for docs/img/capture-timeline.svg.
func Documented(online bool) []plan.Step {
	return Steps((&Service{}).capture(Request{Node: "donor", Online: online}).table(view{}), nil)
}

// Steps returns the rows and the undos of the good case, each after all that it waits for.
func Steps(t workflow.Table, irreversible map[string][]string) (steps []plan.Step) {
	var all []plan.Step
	for _, row := range t {
		all = append(all, plan.Step{ID: row.ID, Title: row.Title, After: row.After, Usual: fleet.Duration(row.Usual), Skip: row.Skip,
			Deadline: fleet.Duration(row.Deadline), Irreversible: irreversible[row.ID]})
		if u := row.Undo; u != nil && len(u.When) > 0 {
			if row.EffectMayExist {
				row.Skip = ""
			}
			all = append(all, plan.Step{ID: u.ID, Title: u.Title, After: slices.Concat(u.When, u.After, u.Needs), Skip: row.Skip,
				Usual: fleet.Duration(u.Usual), Deadline: fleet.Duration(u.Deadline)})
		}
	}
	listed := map[string]bool{}
	for len(all) > 0 {
		next := max(0, slices.IndexFunc(all, func(s plan.Step) bool {
			return !slices.ContainsFunc(s.After, func(id string) bool { return !listed[id] })
		}))
		all[next].Deadline = cmp.Or(all[next].Deadline, fleet.Duration(workflow.DefaultDeadline))
		steps, listed[all[next].ID] = append(steps, all[next]), true
		all = slices.Delete(all, next, next+1)
	}
	return steps
}
