package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/plan"
)

// withDefaults fills in what was left out.
func (q CaptureRequest) withDefaults() CaptureRequest {
	if q.GracePeriod <= 0 {
		q.GracePeriod = 300 * time.Second
	}
	if q.History == 0 {
		q.History = 3
	}
	if q.Replicas == 0 {
		q.Replicas = 3
	}
	if q.Bootstrap == "" {
		q.Bootstrap = BootstrapKeep
	}
	return q
}

func (q CaptureRequest) options() plan.Options {
	return plan.Options{
		Node: q.Node, Again: q.Again, Deallocate: q.Deallocate, GracePeriod: q.GracePeriod, ForceDrain: q.ForceDrain,
		History: q.History, Replicas: q.Replicas, Shallow: q.Shallow, Bake: q.Bootstrap == BootstrapBaked,
		AcceptPoolCredentials: q.AcceptPoolCredentials, Extensions: q.Extensions, NewNodes: q.NewNodes,
		AllowRolling: q.AllowRolling, ExcludeFromLatest: q.ExcludeFromLatest, AllowOwned: q.AllowOwned,
	}
}

// optionsOf gives the options that a record was begun with.
func optionsOf(rec journal.Record) plan.Options {
	var q CaptureRequest
	if err := json.Unmarshal(rec.Request, &q); err != nil {
		return CaptureRequest{Node: rec.Donor}.withDefaults().options()
	}
	return q.withDefaults().options()
}

// captureActs carries out plan.CaptureSteps.
func (r *run) captureActs() map[string]act {
	return map[string]act{
		plan.StepGallery: gallery, plan.StepDefinition: definition,
		plan.StepProtect: protect, plan.StepCordon: cordon, plan.StepDrain: drain, plan.StepStop: stop, plan.StepSnapshot: snapshot,
		plan.StepStart: start, plan.StepReady: ready, plan.StepUncordon: uncordon, plan.StepUnprotect: unprotect,
		plan.StepHoldReboots: holdReboots, plan.StepWorkDisk: workDisk, plan.StepAttach: attach, plan.StepGeneralize: generalize,
		plan.StepSave: save, plan.StepDetach: detach, plan.StepDeletePod: deletePod, plan.StepReleaseReboots: releaseReboots,
		plan.StepGeneralizedSnapshot: generalizedSnapshot, plan.StepDeleteWorkDisk: deleteWorkDisk,
		plan.StepVersion: version, plan.StepDeleteSnapshots: deleteSnapshots, plan.StepPrune: prune,
		plan.StepModel: model, plan.StepExtensions: extensions, plan.StepGrow: grow, plan.StepEnd: end,
	}
}

// Steps whose failure holds nothing up: the end looks at them again.
var tolerated = []string{plan.StepDeletePod, plan.StepReleaseReboots, plan.StepDeleteWorkDisk, plan.StepDeleteSnapshots, plan.StepPrune}

// A leftover is what the end could not put away.
type leftover struct{ left []string }

func (e *leftover) Error() string { return "not all that was temporary could be taken away" }

// end takes away what is still there and closes the journal.
func end(ctx context.Context, t *task) error {
	if left := t.r.tidy(ctx, spent...); len(left) > 0 {
		return &leftover{left}
	}
	return t.r.close(0, "done")
}

// close ends the journal's record.
func (r *run) close(exit int, message string) error {
	return r.write(func(rec *journal.Record, f *facts) {
		rec.Ended = &journal.End{At: r.e.now(), Exit: exit, Message: message}
		f.PrivateKey = nil
	})
}

// journalKey is the pool's ARM id as journals and Leases are kept by.
func journalKey(pool fleet.ResourceID) string { return strings.ToLower(string(pool)) }

// begin makes a run for a call; done has to be called at its end.
func (e *Engine) begin(caller context.Context) (r *run, done func()) {
	care, giveUp := context.WithCancelCause(context.WithoutCancel(caller))
	work, stop := context.WithCancelCause(care)
	unhook := context.AfterFunc(caller, func() { stop(context.Cause(caller)) })
	r = &run{
		e: e, holder: fmt.Sprintf("%s/%d", e.config.Holder, e.runs.Add(1)),
		caller: caller, care: care, work: work, stop: stop, giveUp: giveUp,
	}
	r.timing.Begin = e.now()
	return r, func() {
		if r.hold != nil {
			r.hold.release(caller)
		}
		unhook()
		stop(nil)
		giveUp(nil)
	}
}

// preparation is what was found before a capture.
type preparation struct {
	observed plan.Observed
	input    plan.CaptureInput
	steps    []plan.Step
	plan     plan.Plan
}

// prepare observes and decides, and changes nothing.
func (e *Engine) prepare(ctx context.Context, t *task, q CaptureRequest) (preparation, error) {
	o, names := e.observe(ctx, t, q)
	if ctx.Err() != nil {
		return preparation{}, context.Cause(ctx)
	}
	options := q.options()
	course := plan.Course{}
	if o.Pool != nil {
		course = plan.CourseOf(o, names, options, e.now())
		denied, err := ask(ctx, t, func(ctx context.Context) ([]string, error) {
			return e.cloud.Denied(ctx, o.Pool.ID.Group(), azure.ActionsOf(plan.CaptureChanges(options, course)...))
		})
		o.DeniedAzure = denied
		if err != nil {
			o.Unreadable = append(o.Unreadable, plan.Problem{
				Code: "Unreadable", On: string(o.Pool.ID.Group()), What: "what these credentials may do cannot be read: " + err.Error(),
				WayOut: "let them read their own permissions",
			})
		}
	}
	p := preparation{observed: o, plan: plan.Plan{Kind: plan.KindCapture, Donor: q.Node, Notes: course.Notes}}
	p.plan.Problems = plan.CaptureProblems(o, options, course)
	p.plan.Problems = append(p.plan.Problems, e.requestProblems(q, course)...)
	if o.Pool == nil {
		return p, nil
	}
	p.plan.Pool, p.plan.Version = o.Pool.ID, names.Version
	p.input = plan.CaptureInput{
		Names: names, Options: options, Pool: *o.Pool, Course: course,
		HasGallery: o.Gallery != nil, HasDefinition: o.Definition != nil,
		InModel: pinned(o.Pool.Model.Image, names.Version),
	}
	if o.Workbench != nil {
		p.input.Workbench = o.Workbench.Node.Name
		p.plan.Workbench = o.Workbench.Node.Name
	}
	p.input.Doomed, _ = options.Extensions.Doomed(o.Pool.Model.Extensions)
	p.input.Prunable = prunable(o.Versions, o.Uses, names.Version, options.History)
	p.steps = plan.CaptureSteps(p.input)
	p.plan.Steps = p.steps
	p.plan.NothingToDo = plan.NothingToDo(p.input)
	if p.plan.NothingToDo && q.NewNodes > 0 {
		p.plan.Notes = append(p.plan.Notes, "no nodes were added, since nothing else was to do")
	}
	if o.Donor != nil && o.Donor.Unschedulable {
		p.plan.Notes = append(p.plan.Notes, "node "+q.Node+" is cordoned, and stays so")
	}
	return p, nil
}

// prunable names what will be pruned once the version is there.
func prunable(versions []fleet.ImageVersion, uses []fleet.ImageUse, id fleet.ResourceID, history int) []string {
	if _, there := plan.FindVersion(versions, id); !there {
		history--
	}
	doomed, _ := plan.Prune(versions, uses, id, history)
	var names []string
	for _, v := range doomed {
		if !v.ID.Equal(id) {
			names = append(names, v.Name)
		}
	}
	return names
}

// requestProblems are those that only the engine's own request has.
func (e *Engine) requestProblems(q CaptureRequest, course plan.Course) []plan.Problem {
	var problems []plan.Problem
	if q.Bootstrap != BootstrapKeep && q.Bootstrap != BootstrapBaked {
		problems = append(problems, plan.Problem{Code: "BadBootstrap", On: "--bootstrap", What: fmt.Sprintf("%q is neither keep nor baked", q.Bootstrap), WayOut: "say one of them"})
	}
	if e.config.Image == "" && course.NeedsWorkbench() {
		problems = append(problems, plan.Problem{Code: "NoContainerImage", On: "--image", What: "the container image with ortet-node is not known", WayOut: "name it"})
	}
	return problems
}

// Plan implements Doors.
func (e *Engine) Plan(ctx context.Context, q CaptureRequest) (plan.Plan, error) {
	q = q.withDefaults()
	r, done := e.begin(ctx)
	defer done()
	t := r.task(plan.Step{ID: plan.StepPreflight, Title: "Look for all reasons not to"})
	rec, open, err := r.openRecord(ctx, t, q.Node)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := e.prepare(ctx, t, q)
	if err != nil {
		return plan.Plan{}, err
	}
	if open {
		p.plan.Resumes = true
		p.plan.NothingToDo = false
		p.plan.Notes = append(p.plan.Notes, resumption(rec, q.Node))
	}
	return p.plan, nil
}

func resumption(rec journal.Record, node string) string {
	var f facts
	_ = json.Unmarshal(rec.Facts, &f) // what cannot be read is left out of the sentence
	what := "is finished first"
	if rec.Kind != plan.KindCapture || rec.Donor != node || f.Undoing != "" {
		what = "is put back first"
	}
	return fmt.Sprintf("%s %s of %s, begun %s, has not ended and %s", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool), rec.Begun.UTC().Format(time.RFC3339), what)
}

// openRecord finds the pool's journal record by the donor; open is true where
// it has not ended.
func (r *run) openRecord(ctx context.Context, t *task, node string) (rec journal.Record, open bool, err error) {
	n, ok, err := found(ctx, t, func(ctx context.Context) (fleet.Node, error) { return r.e.cluster.Node(ctx, node) })
	if err != nil || !ok {
		return journal.Record{}, false, nil //nolint:nilerr // preflight says what is wrong with the node
	}
	id, err := fleet.ParseProviderID(n.ProviderID)
	if err != nil {
		return journal.Record{}, false, nil //nolint:nilerr // as above
	}
	r.node = n
	return r.load(ctx, t, id.Parent())
}

func (r *run) load(ctx context.Context, t *task, pool fleet.ResourceID) (rec journal.Record, open bool, err error) {
	rec, ok, err := found(ctx, t, func(ctx context.Context) (journal.Record, error) {
		return r.e.cluster.Journals().Load(ctx, journalKey(pool))
	})
	return rec, ok && rec.Ended == nil, err
}

// Capture implements Doors.
func (e *Engine) Capture(ctx context.Context, q CaptureRequest) (result CaptureResult, err error) {
	q = q.withDefaults()
	r, done := e.begin(ctx)
	defer func() {
		done()
		r.timing.End = e.now()
		result.Timing = r.timing
		r.fill(&result)
	}()
	result.Donor = q.Node
	heads := plan.CaptureSteps(plan.CaptureInput{Options: q.options()})
	head := func(id string) plan.Step {
		return heads[slices.IndexFunc(heads, func(s plan.Step) bool { return s.ID == id })]
	}

	var prep preparation
	prepare := func() error {
		err := r.carry(r.work, head(plan.StepPreflight), func(ctx context.Context, t *task) (err error) {
			prep, err = e.prepare(ctx, t, q)
			if err == nil && len(prep.plan.Problems) > 0 {
				return &Refused{Problems: prep.plan.Problems}
			}
			return err
		})
		for _, n := range prep.plan.Notes {
			r.note("%s", n)
		}
		return err
	}
	t := r.task(head(plan.StepPreflight))
	looking, stopLooking := context.WithTimeout(r.work, head(plan.StepPreflight).Deadline)
	last, open, err := r.openRecord(looking, t, q.Node)
	stopLooking()
	if err != nil {
		return result, r.unbegun(plan.StepPreflight, err)
	}
	if !open {
		if err := prepare(); err != nil {
			return result, r.unbegun(plan.StepPreflight, err)
		}
		if prep.plan.NothingToDo {
			r.letGo(last)
			result.NothingToDo, result.Pool, result.Version = true, prep.plan.Pool, prep.plan.Version
			if v := prep.input.Course.Version; v != nil {
				result.BuiltFrom = v.Tags[fleet.TagBuiltFrom]
			}
			return result, nil
		}
	}
	pool := fleet.ResourceID("")
	if prep.plan.Pool != "" {
		pool = prep.plan.Pool
	} else if id, err := fleet.ParseProviderID(r.node.ProviderID); err == nil {
		pool = id.Parent()
	}
	err = r.carry(r.work, head(plan.StepHold), func(ctx context.Context, t *task) (err error) {
		hold, err := e.take(ctx, t, pool, r.holder)
		if err == nil {
			r.hold = hold
			hold.keep(r.care, func(err error) { r.giveUp(err) })
		}
		return err
	})
	if err != nil {
		return result, r.unbegun(plan.StepHold, err)
	}
	steps, err := r.openJournal(head(plan.StepJournal), q, pool, &prep, prepare, &result)
	if err != nil {
		return result, err
	}
	out := r.walk(steps, r.captureActs(), tolerated, r.onFailure)
	return result, r.conclude(out)
}

// openJournal begins a record, or takes up the one that is open.
func (r *run) openJournal(step plan.Step, q CaptureRequest, pool fleet.ResourceID, prep *preparation, prepare func() error, result *CaptureResult) ([]plan.Step, error) {
	t := r.task(step)
	var (
		rec  journal.Record
		open bool
	)
	err := r.carry(r.work, step, func(ctx context.Context, _ *task) (err error) {
		rec, open, err = r.load(ctx, t, pool)
		return err
	})
	if err != nil {
		return nil, r.unbegun(plan.StepJournal, err)
	}
	if open {
		if err := r.adopt(rec); err != nil {
			return nil, &NeedsPerson{Step: plan.StepJournal, Err: err, Left: []string{"the journal was written by another version of Ortet: finish with that"}}
		}
		if rec.Kind == plan.KindCapture && plan.GoesOn(r.facts.Undoing != "", rec.Donor == q.Node, r.facts.SnapshotTaken || r.donorOut(), r.e.now().Sub(rec.Begun)) {
			result.Resumed = true
			r.note("finished what was begun at %s as %s", rec.Begun.UTC().Format(time.RFC3339), rec.Capture)
			steps, err := r.resumeSteps(t)
			if err != nil {
				return nil, &Interrupted{Step: plan.StepJournal, Err: err}
			}
			return steps, nil
		}
		if err := r.undoAll(fmt.Sprintf("%s %s of %s was not finished", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool))); err != nil {
			return nil, err
		}
		r.note("%s %s of %s, begun at %s, was put back first", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool), rec.Begun.UTC().Format(time.RFC3339))
		rec = r.record
		prep.steps = nil
	}
	if prep.steps == nil {
		if err := prepare(); err != nil {
			return nil, r.unbegun(plan.StepPreflight, err)
		}
	}
	if err := r.open(rec, q, *prep); err != nil {
		return nil, r.unbegun(plan.StepJournal, err)
	}
	r.e.cluster.Event(r.care, r.node, false, "CaptureBegun", "its OS disk becomes a prototype of its pool ("+r.captureName()+")")
	return prep.steps, nil
}

// open writes a new record over the one that ended.
func (r *run) open(old journal.Record, q CaptureRequest, prep preparation) error {
	request, err := json.Marshal(q)
	if err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	o, now := prep.observed, r.e.now()
	name := plan.CaptureName(now, old.Capture)
	names := prep.input.Names
	names.Job = plan.JobName(o.Pool.ID, name)
	f := facts{
		Names: names, Pool: o.Pool.ID, Location: o.Pool.Location, Start: prep.input.Course.Start, PrivateKey: key,
		Before: o.Pool.Model.Image,
	}
	for _, e := range prep.input.Doomed {
		f.Doomed = append(f.Doomed, e.Name)
	}
	if o.Instance != nil {
		f.Instance, f.Zone, f.Disk = o.Instance.ID, o.Instance.Zone, o.Instance.OSDisk
	}
	if o.Donor != nil {
		r.node = *o.Donor
		f.BootID, f.Addresses = o.Donor.BootID, ipsOf(o.Donor.Addresses)
	}
	if o.Instance != nil && o.Disk != nil {
		size := fleet.SizeInfo{}
		if o.Size != nil {
			size = *o.Size
		}
		f.Definition = plan.NewDefinition(names.Definition, *o.Pool, *o.Instance, *o.Disk, size, map[string]string{
			fleet.TagCreatedBy: "ortet " + r.e.config.Version, fleet.TagReason: "prototypes of scale set " + o.Pool.Name,
		})
	}
	if w := o.Workbench; w != nil {
		f.Bench = benchFacts{Node: w.Node.Name, Instance: w.Instance.ID, Zone: w.Instance.Zone, LUN: w.LUN}
	}
	if f.Start >= plan.AtSnapshot {
		f.SnapshotTaken = true
	}
	if f.Start >= plan.AtGeneralized {
		f.Saved = true
	}
	f.ModelChanged = prep.input.InModel
	if v := prep.input.Course.Version; v != nil {
		f.BuiltFrom = v.Tags[fleet.TagBuiltFrom]
	}
	if g := o.Generalized; g != nil && f.Start == plan.AtGeneralized {
		f.CustomData = g.Tags[fleet.TagCustomData]
	}
	r.mu.Lock()
	r.record = journal.Record{
		Revision: old.Revision, Schema: schema, Capture: name, Kind: plan.KindCapture, Pool: journalKey(o.Pool.ID),
		Donor: q.Node, Begun: now, Request: request,
	}
	r.facts = f
	r.mu.Unlock()
	return r.write(func(rec *journal.Record, _ *facts) {
		if f.Start == plan.AtSnapshot {
			addUndo(rec, undoSnapshot, nil)
		}
		if f.Start == plan.AtGeneralized {
			addUndo(rec, undoGeneralized, nil)
		}
	})
}

// adopt takes up a record that another process wrote.
func (r *run) adopt(rec journal.Record) error {
	var f facts
	if rec.Schema > schema {
		return fmt.Errorf("the journal has schema %d, this version reads up to %d", rec.Schema, schema)
	}
	if err := json.Unmarshal(rec.Facts, &f); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record, r.facts = rec, f
	if r.node.Name != rec.Donor {
		r.node = fleet.Node{Name: rec.Donor}
	}
	return nil
}

// onFailure puts back what a failure or an interruption leaves behind.
func (r *run) onFailure(ctx context.Context) []string {
	f := r.get()
	switch {
	case f.ModelChanged:
		return r.tidy(ctx, spent...)
	case r.caller.Err() != nil:
		return r.tidy(ctx, r.unfinished()...)
	}
	err := r.write(func(_ *journal.Record, f *facts) { f.Undoing = "a step failed" })
	if err != nil {
		r.e.log.Warn("cannot write down that all is put back", "error", err)
	}
	return r.tidy(ctx)
}

// undoAll puts back what a capture that does not go on has left.
func (r *run) undoAll(why string) error {
	if err := r.write(func(_ *journal.Record, f *facts) { f.Undoing = why }); err != nil {
		return r.unbegun(plan.StepJournal, err)
	}
	r.mu.Lock()
	in := plan.CaptureInput{Options: optionsOf(r.record), Names: r.facts.Names, DonorOut: true, Course: plan.Course{Start: plan.AtVersion}}
	r.mu.Unlock()
	var back []plan.Step
	for _, s := range plan.CaptureSteps(in) {
		if s.GivesBack {
			if s.ID == plan.StepStart {
				s.After = nil
			}
			back = append(back, s)
		}
	}
	var left []string
	tidied := make(chan struct{})
	go func() {
		defer close(tidied)
		left = r.tidy(r.care)
	}()
	var out outcome
	if r.donorOut() {
		out = r.walk(back, r.captureActs(), nil, nil)
	}
	<-tidied
	out.left = append(out.left, left...)
	if out.err != nil || len(out.left) > 0 {
		if out.err == nil {
			out.step, out.err = plan.StepEnd, errors.New(why)
		}
		return r.conclude(out)
	}
	return r.close(ExitFailed, why+", and was put back")
}

// unbegun is the error of what failed before anything was changed.
func (r *run) unbegun(step string, err error) error {
	var (
		refused     *Refused
		needsPerson *NeedsPerson
	)
	switch {
	case errors.As(err, &refused), errors.As(err, &needsPerson):
		return err
	case r.caller.Err() != nil, errors.Is(err, errLost), fleet.Is(err, fleet.KindHeld):
		return &Interrupted{Step: step, Err: err}
	}
	return &Failed{Step: step, Err: err}
}

// conclude says how a walk ended, and ends the record where it has ended.
func (r *run) conclude(out outcome) error {
	f := r.get()
	donor := r.donorName()
	var (
		rest    *leftover
		refused *Refused
	)
	if errors.As(out.err, &rest) {
		out.left = append(out.left, rest.left...)
	}
	switch {
	case out.err == nil:
		return nil
	case context.Cause(r.care) != nil:
		return &Interrupted{Step: out.step, Err: context.Cause(r.care)}
	case errors.As(out.err, &refused):
		return refused
	case out.lost != nil:
		out.left = append([]string{fmt.Sprintf(
			"node %s did not come back (%v): it is left cordoned, and is not protected any more; look at the instance %s in Azure (az vmss get-instance-view), and start or replace it; then run the same command again, or kubectl uncordon %s",
			donor, out.lost, f.Instance, donor)}, out.left...)
		r.e.cluster.Event(r.care, r.node, true, "CaptureDonorLost", "did not come back after its disk was captured: "+out.lost.Error())
		return &NeedsPerson{Step: out.step, Left: out.left, Err: out.err}
	case r.caller.Err() != nil && (errors.Is(out.err, context.Canceled) || errors.Is(out.err, context.Cause(r.caller)) || errors.Is(out.err, r.caller.Err())):
		state := "node " + donor + " is in service as it was found"
		if r.donorOut() {
			state = "node " + donor + " is not yet as it was found: " + strings.Join(out.left, "; ")
		}
		return &Interrupted{Step: out.step, Donor: state, Err: out.err}
	case f.ModelChanged:
		left := append(out.left, fmt.Sprintf("the model uses %s, but step %s is not done: see why, and run the same command again", f.Names.Version.Name(), out.step))
		return &NeedsPerson{Step: out.step, Left: left, Err: out.err}
	case len(out.left) > 0 || r.donorOut():
		if len(out.left) == 0 {
			out.left = []string{"node " + donor + " is not as it was found: see kubectl describe node " + donor}
		}
		return &NeedsPerson{Step: out.step, Left: out.left, Err: out.err}
	}
	if err := r.close(ExitFailed, out.err.Error()); err != nil {
		return &NeedsPerson{Step: out.step, Err: out.err, Left: []string{fmt.Sprintf("all is put back, but the journal cannot be closed (%v): run the same command again", err)}}
	}
	r.e.cluster.Event(r.care, r.node, true, "CaptureFailed", "its disk was not captured; step "+out.step+": "+out.err.Error())
	return &Failed{Step: out.step, Err: out.err}
}

// fill tells in the result what the run found out.
func (r *run) fill(result *CaptureResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.facts
	result.Notes = append(result.Notes, r.notes...)
	result.Pruned, result.Kept = r.pruned, r.kept
	if r.record.Capture == "" {
		return
	}
	result.Capture, result.Pool, result.PoolCredentials = r.record.Capture, f.Pool, f.Credentials
	if f.ModelChanged {
		result.Version, result.Irreversible = f.Names.Version, f.Unsaved
		if result.BuiltFrom == "" {
			result.BuiltFrom = first(f.BuiltFrom, r.record.Donor)
		}
	}
}

// ipsOf keeps what is an IP address.
func ipsOf(addresses []string) []string {
	var ips []string
	for _, a := range addresses {
		if isIP(a) && !slices.Contains(ips, a) {
			ips = append(ips, a)
		}
	}
	return ips
}
