package engine

import (
	"bytes"
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
	"github.com/ortet/ortet/internal/prototype"
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

func (q CaptureRequest) options() prototype.Options {
	return prototype.Options{
		Node: q.Node, Again: q.Again, Deallocate: q.Deallocate, GracePeriod: q.GracePeriod, ForceDrain: q.ForceDrain,
		History: q.History, Replicas: q.Replicas, Shallow: q.Shallow, Bake: q.Bootstrap == BootstrapBaked,
		AcceptPoolCredentials: q.AcceptPoolCredentials, AcceptSecrets: q.AcceptSecrets, RemoveSecrets: q.RemoveSecrets, ScanImages: q.ScanImages,
		Extensions: q.Extensions, NewNodes: q.NewNodes,
		AllowRolling: q.AllowRolling, ExcludeFromLatest: q.ExcludeFromLatest, AllowOwned: q.AllowOwned,
	}
}

// optionsOf gives the options that a record was begun with.
func optionsOf(rec journal.Record) prototype.Options {
	var q CaptureRequest
	if err := json.Unmarshal(rec.Request, &q); err != nil {
		return CaptureRequest{Node: rec.Donor}.withDefaults().options()
	}
	return q.withDefaults().options()
}

// captureActs carries out prototype.CaptureSteps.
func (r *run) captureActs() map[string]act {
	return map[string]act{
		prototype.StepGallery: gallery, prototype.StepDefinition: definition,
		prototype.StepProtect: protect, prototype.StepProtectBench: onBench(prototype.StepProtectBench), prototype.StepCordon: cordon, prototype.StepDrain: drain, prototype.StepStop: stop, prototype.StepSnapshot: snapshot,
		prototype.StepStart: start, prototype.StepReady: ready, prototype.StepUncordon: uncordon, prototype.StepUnprotect: unprotect,
		prototype.StepHoldReboots: holdReboots, prototype.StepWorkDisk: workDisk, prototype.StepAttach: onBench(prototype.StepAttach), prototype.StepGeneralize: onBench(prototype.StepGeneralize),
		prototype.StepSave: onBench(prototype.StepSave), prototype.StepDetach: onBench(prototype.StepDetach), prototype.StepUnprotectBench: unprotectBench, prototype.StepDeletePod: deletePod, prototype.StepReleaseReboots: releaseReboots,
		prototype.StepGeneralizedSnapshot: generalizedSnapshot, prototype.StepDeleteWorkDisk: deleteWorkDisk,
		prototype.StepVersion: version, prototype.StepDeleteSnapshots: deleteSnapshots, prototype.StepPrune: prune,
		prototype.StepModel: model, prototype.StepExclude: exclude, prototype.StepExtensions: extensions, prototype.StepGrow: grow, prototype.StepEnd: end,
	}
}

// Steps whose failure holds nothing up: the end looks at them again.
var tolerated = []string{prototype.StepUnprotectBench, prototype.StepDeletePod, prototype.StepReleaseReboots, prototype.StepDeleteWorkDisk, prototype.StepDeleteSnapshots, prototype.StepPrune, prototype.StepExclude}

// journalKey is the pool's ARM id as journals and Leases are kept by.
func journalKey(pool fleet.ResourceID) string { return strings.ToLower(string(pool)) }

// begin makes a run for a call; done has to be called at its end.
func (e *Engine) begin(caller context.Context) (r *run, done func()) {
	care, giveUp := context.WithCancelCause(context.WithoutCancel(caller))
	work, stop := context.WithCancelCause(care)
	unhook := context.AfterFunc(caller, func() { stop(context.Cause(caller)) })
	r = &run{
		e: e, holder: fmt.Sprintf("%s/%d", e.config.Holder, e.runs.Add(1)),
		caller: caller, care: care, work: work, stop: stop, giveUp: giveUp, writing: make(chan struct{}, 1),
	}
	r.timing.Begin = e.now()
	return r, func() {
		if r.hold != nil {
			r.flush()
			r.hold.release(caller)
		}
		unhook()
		stop(nil)
		giveUp(nil)
	}
}

// openRecord finds the pool's journal record by the donor; open is true where
// it has not ended.
func (r *run) openRecord(ctx context.Context, t *task, node string) (rec journal.Record, open bool, err error) {
	n, ok, err := held(ctx, t, func(ctx context.Context) (fleet.Node, error) { return r.e.cluster.Node(ctx, node) })
	if err != nil {
		return journal.Record{}, false, err
	}
	if !ok {
		return r.openRecordOfGone(ctx, t, node)
	}
	id, err := fleet.ParseProviderID(n.ProviderID)
	if err != nil {
		return journal.Record{}, false, nil //nolint:nilerr // as above
	}
	r.node = n
	return r.load(ctx, t, id.Parent())
}

// Capture implements Doors. Where the cluster cannot be reached for so long that
// the hold on the pool runs out, it ends what it does, and goes on by itself once
// the cluster answers again: a donor must not stay stopped for want of a person.
func (e *Engine) Capture(ctx context.Context, q CaptureRequest) (CaptureResult, error) {
	q = q.withDefaults()
	result, err := e.captureOnce(ctx, q)
	for n := 0; n < maxTries && errors.Is(err, errLost) && !fleet.Is(err, fleet.KindHeld) && e.answers(ctx, q.Node); n++ {
		e.log.Warn("the cluster could not be reached, and answers again: going on", "error", err)
		more, moreErr := e.captureOnce(ctx, q)
		if refused := new(Refused); errors.As(moreErr, &refused) {
			// "Nothing was changed" would not be true of the whole.
			if more.open {
				return result, fmt.Errorf("%w; then: %v", err, moreErr) //nolint:errorlint // it is not the outcome
			}
			problems := make([]string, 0, len(refused.Problems))
			for _, p := range refused.Problems {
				problems = append(problems, p.String())
			}
			return more, &Failed{Step: prototype.StepPreflight, Err: fmt.Errorf("%w, and when the cluster answered again there were reasons not to begin anew: %s", errLost, strings.Join(problems, "; "))}
		}
		if more.NothingToDo && result.Capture != "" {
			// "Nothing to do" would not be true of the whole either.
			more.NothingToDo, more.Resumed, more.Capture = false, true, result.Capture
			more.Notes = append(more.Notes, fmt.Sprintf("this process lost the pool lock; meanwhile another process brought the pool to version %s", more.Version.Name()))
		}
		more.Timing.Begin, more.Timing.Steps = result.Timing.Begin, append(result.Timing.Steps, more.Timing.Steps...)
		result, err = more, moreErr
	}
	return result, err
}

// outageLimit is how long an unreachable cluster is waited for.
const outageLimit = time.Hour

// answers waits until the cluster answers; false where it does not, or where
// the caller gives up.
func (e *Engine) answers(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, outageLimit)
	defer cancel()
	for n := 0; ; n++ {
		_, err := e.cluster.Node(ctx, node)
		if ctx.Err() != nil || err == nil || !passing(err) {
			return ctx.Err() == nil
		}
		if sleep(ctx, max(azure.RetryAfter(err), min(time.Second<<min(n, 5), 30*time.Second))) != nil {
			return false
		}
	}
}

// captureOnce is a capture under one hold.
func (e *Engine) captureOnce(ctx context.Context, q CaptureRequest) (result CaptureResult, err error) {
	r, done := e.begin(ctx)
	defer func() {
		r.endLook()
		done()
		err = r.givenUp(err)
		r.timing.End = e.now()
		result.Timing = r.timing
		r.fill(&result)
		result.open = !r.ended()
	}()
	result.Donor = q.Node
	heads := prototype.CaptureSteps(prototype.CaptureInput{Options: q.options()})
	head := func(id string) prototype.Step {
		return heads[slices.IndexFunc(heads, func(s prototype.Step) bool { return s.ID == id })]
	}

	var prep preparation
	prepare := func() error {
		err := r.carry(r.work, head(prototype.StepPreflight), func(ctx context.Context, t *task) (err error) {
			prep, err = e.prepare(ctx, t, q)
			if err == nil && len(prep.plan.Problems) > 0 {
				return &Refused{Problems: prep.plan.Problems}
			}
			return err
		})
		r.noteAll(prep.plan.Notes)
		return err
	}
	t := r.task(head(prototype.StepPreflight))
	looking, stopLooking := context.WithTimeout(r.work, head(prototype.StepPreflight).Deadline)
	last, open, err := r.openRecord(looking, t, q.Node)
	stopLooking()
	if err != nil {
		// Where the journal cannot be read for want of a permission, all that is
		// wanting is told at once.
		if refused := new(Refused); errors.As(prepare(), &refused) {
			return result, refused
		}
		return result, r.unbegun(prototype.StepPreflight, err)
	}
	if !open {
		err := prepare()
		if ends := err != nil || prep.plan.NothingToDo; ends && last.Capture == "" && prep.plan.Pool != "" {
			// Who ends here says that nothing is open.
			var lookErr error
			if last, open, lookErr = r.loadHeld(r.work, t, prep.plan.Pool); open {
				err, prep = nil, preparation{}
			} else if err == nil {
				err = lookErr
			}
		}
		if err != nil {
			return result, r.unbegun(prototype.StepPreflight, err)
		}
		if prep.plan.NothingToDo {
			r.letGo(last)
			r.sweepLook(prep.plan.Pool, false)
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
	err = r.carry(r.work, e.holdStep(head(prototype.StepHold)), func(ctx context.Context, t *task) (err error) {
		hold, err := e.take(ctx, t, pool, r.holder)
		if err == nil {
			r.hold = hold
			hold.keep(r.care, func(err error) { r.giveUp(err) })
		}
		return err
	})
	if err != nil {
		return result, r.unheld(t, pool, err)
	}
	steps, err := r.openJournal(head(prototype.StepJournal), q, pool, &prep, prepare, &result)
	if err != nil {
		return result, err
	}
	out := r.walk(steps, r.captureActs(), tolerated, r.onFailure)
	return result, r.conclude(out)
}

// openJournal begins a record, or takes up the one that is open.
func (r *run) openJournal(step prototype.Step, q CaptureRequest, pool fleet.ResourceID, prep *preparation, prepare func() error, result *CaptureResult) ([]prototype.Step, error) {
	t := r.task(step)
	r.sweepLook(pool, prep.plan.Pool == "")
	var (
		rec  journal.Record
		open bool
	)
	err := r.carry(r.work, step, func(ctx context.Context, _ *task) (err error) {
		rec, open, err = r.load(ctx, t, pool)
		return err
	})
	if err != nil {
		return nil, r.unbegun(prototype.StepJournal, err)
	}
	if open {
		if err := r.adopt(rec); err != nil {
			return nil, &NeedsPerson{Step: prototype.StepJournal, Err: err, Left: []string{"the journal was written by another version of Ortet: finish with that"}}
		}
		// This process may run on the donor by now, which it would evict itself from.
		own := rec.Donor == r.e.config.SelfNode && !r.facts.SnapshotTaken
		if rec.Kind == prototype.KindCapture && !own && prototype.GoesOn(r.facts.Undoing != "", rec.Donor == q.Node, r.facts.SnapshotTaken || r.donorOut(), r.e.now().Sub(rec.Begun)) {
			result.Resumed = true
			r.note("finished what was begun at %s as %s", rec.Begun.UTC().Format(time.RFC3339), rec.Capture)
			if asked, err := json.Marshal(q); err == nil && !sameJSON(asked, rec.Request) {
				r.note("the options that it was begun with were used; this command's are others, and were not")
			}
			steps, err := r.resumeSteps(t)
			if err != nil {
				return nil, &Interrupted{Step: prototype.StepJournal, Err: err}
			}
			return steps, nil
		}
		if err := r.undoAll(fmt.Sprintf("%s %s of %s was not finished", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool))); err != nil {
			return nil, err
		}
		r.note("%s %s of %s, begun at %s, was undone first", rec.Kind, rec.Capture, first(rec.Donor, rec.Pool), rec.Begun.UTC().Format(time.RFC3339))
		rec = r.record
		prep.steps = nil
	}
	if prep.steps == nil {
		if err := prepare(); err != nil {
			return nil, r.unbegun(prototype.StepPreflight, err)
		}
	}
	if q.Check != nil {
		if err := q.Check(r.work); err != nil {
			return nil, r.unbegun(prototype.StepPreflight, err)
		}
	}
	if err := r.inspectBefore(q, *prep); err != nil {
		return nil, r.unbegun(prototype.StepInspect, err)
	}
	if err := r.open(rec, q, *prep); err != nil {
		return nil, r.unbegun(prototype.StepJournal, err)
	}
	r.event(false, "CaptureBegun", "its OS disk becomes a prototype of its pool ("+r.captureName()+")")
	return prep.steps, nil
}

func sameJSON(a, b []byte) bool {
	var compactA, compactB bytes.Buffer
	return json.Compact(&compactA, a) == nil && json.Compact(&compactB, b) == nil && bytes.Equal(compactA.Bytes(), compactB.Bytes())
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
	name := prototype.CaptureName(now, old.Capture)
	names := prep.input.Names
	names.Job = prototype.JobName(o.Pool.ID, name)
	f := facts{
		Names: names, Pool: o.Pool.ID, Location: o.Pool.Location, Start: prep.input.Course.Start, PrivateKey: key,
		Before: o.Pool.Model.Image,
	}
	if v, ok := prototype.VersionOf(o.Versions, f.Before, o.Pool.Location); ok {
		f.Used = v.ID
	}
	f.remember(old, *o.Pool, o.Instance, now)
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
		f.Definition = prototype.NewDefinition(names.Definition, *o.Pool, *o.Instance, *o.Disk, size, map[string]string{
			fleet.TagCreatedBy: "ortet " + r.e.config.Version, fleet.TagReason: "prototypes of scale set " + o.Pool.Name,
		})
	}
	if w := o.Workbench; w != nil {
		f.Bench = benchFacts{Node: w.Node.Name, Instance: w.Instance.ID, Zone: w.Instance.Zone, LUN: w.LUN}
	}
	if f.Start >= prototype.AtSnapshot {
		f.SnapshotTaken = true
	}
	if f.Start >= prototype.AtGeneralized {
		f.Saved = true
	}
	f.ModelChanged = prep.input.InModel
	if v := prep.input.Course.Version; v != nil {
		f.BuiltFrom = v.Tags[fleet.TagBuiltFrom]
	}
	if g := o.Generalized; g != nil && f.Start == prototype.AtGeneralized {
		f.CustomData = g.Tags[fleet.TagCustomData]
	}
	r.mu.Lock()
	r.record = journal.Record{
		Revision: old.Revision, Schema: schema, Capture: name, Kind: prototype.KindCapture, Pool: journalKey(o.Pool.ID),
		Donor: q.Node, Begun: now, Request: request,
	}
	r.facts = f
	r.mu.Unlock()
	return r.write(func(rec *journal.Record, _ *facts) {
		if f.Start == prototype.AtSnapshot {
			addUndo(rec, undoSnapshot, nil)
		}
		if f.Start == prototype.AtGeneralized {
			addUndo(rec, undoGeneralized, nil)
		}
	})
}

// adopt takes up a record that another process wrote.
func (r *run) adopt(rec journal.Record) error {
	if rec.Schema > schema {
		return fmt.Errorf("the journal has schema %d, this version reads up to %d", rec.Schema, schema)
	}
	f, err := factsOf(rec)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record, r.facts = rec, f
	if r.node.Name != rec.Donor {
		r.node = fleet.Node{Name: rec.Donor}
	}
	return nil
}

// undoAll puts back what a capture that does not go on has left.
func (r *run) undoAll(why string) error {
	if err := r.write(func(_ *journal.Record, f *facts) { f.Undoing = why }); err != nil {
		return r.unbegun(prototype.StepJournal, err)
	}
	r.mu.Lock()
	in := prototype.CaptureInput{Options: optionsOf(r.record), Names: r.facts.Names, DonorOut: true, Course: prototype.Course{Start: prototype.AtVersion}}
	r.mu.Unlock()
	var back []prototype.Step
	for _, s := range prototype.CaptureSteps(in) {
		if s.GivesBack {
			back = append(back, s)
		}
	}
	for i := range back {
		back[i].After = slices.DeleteFunc(slices.Clone(back[i].After), func(id string) bool { return !givesBack(back, id) })
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
		if errors.Is(out.err, errDonorGone) && !r.donorOut() {
			r.note("node %s was deleted meanwhile", r.donorName())
			out.step, out.err = "", nil
		}
		select {
		case <-tidied:
			if len(left) > 0 && !r.donorOut() { // as at a walk's end
				left = r.tidy(r.care)
			}
		default:
		}
	}
	<-tidied
	out.left = append(out.left, left...)
	if out.err != nil || len(out.left) > 0 {
		if out.err == nil {
			out.step, out.err = prototype.StepEnd, errors.New(why)
		}
		return r.conclude(out)
	}
	if err := r.close(ExitFailed, why+", and was undone"); err != nil {
		return r.unbegun(prototype.StepJournal, err)
	}
	return nil
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
	result.Capture, result.Pool = r.record.Capture, f.Pool
	result.PoolCredentials = slices.Compact(slices.Sorted(slices.Values(f.Credentials)))
	result.AcceptedSecrets, result.RemovedSecrets = f.AcceptedSecrets, f.RemovedSecrets
	result.Notes = append(result.Notes, f.ScanNotes...)
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
