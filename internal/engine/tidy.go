package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// A putter puts one entry of the undo list back.
type putter struct {
	undo     string
	step     string
	title    string
	deadline time.Duration
	act      act
	// byHand says what a person can do where it fails; pods are in the namespace.
	byHand func(f facts, namespace string) string
}

// putters, in the order in which they are carried out. The pod goes before its
// disk, so that nothing writes to a disk that is torn away, but the disk goes
// even where the pod does not: a workbench must not reboot beside it.
func putters() []putter {
	az := func(what string, id func(f facts) fleet.ResourceID) func(facts, string) string {
		return func(f facts, _ string) string { return "az " + what + " delete --ids " + string(id(f)) }
	}
	return []putter{
		{undoJob, prototype.StepGeneralize, "Delete the pod on the workbench", 90 * time.Second, deletePodAndForget,
			func(f facts, namespace string) string {
				return fmt.Sprintf("see kubectl describe pod -n %s %s; once node %s is known to be off: kubectl delete pod -n %s %s --force --grace-period=0", namespace, f.Names.Job, f.Bench.Node, namespace, f.Names.Job)
			}},
		{undoAttach, prototype.StepAttach, "Detach the copy from the workbench", 20 * time.Minute, detach,
			func(f facts, _ string) string {
				return fmt.Sprintf("detach %s from %s before it reboots: az vmss disk detach", f.Names.WorkDisk, f.Bench.Instance)
			}},
		{undoBench, prototype.StepProtectBench, "Restore the workbench's protection", 15 * time.Minute, unprotectBench,
			func(f facts, _ string) string {
				return fmt.Sprintf("kubectl annotate node %s %s- %s-; az vmss update -g %s -n %s --instance-id %s --protect-from-scale-in false", f.Bench.Node, fleet.AnnotationScaleDownDisabled, fleet.AnnotationWorkbench,
					f.Bench.Instance.Group().Name(), f.Bench.Instance.Parent().Name(), f.Bench.Instance.Name())
			}},
		{undoReboots, prototype.StepHoldReboots, "Unblock kured reboots", 5 * time.Minute, releaseReboots,
			func(facts, string) string { return "kured's lock is held until it runs out" }},
		{undoWorkDisk, prototype.StepWorkDisk, "Delete the copy of the disk", 15 * time.Minute, deleteWorkDisk,
			az("disk", func(f facts) fleet.ResourceID { return f.Names.WorkDisk })},
		{undoVersion, prototype.StepVersion, "Delete the incomplete version", 30 * time.Minute, deleteHalfMade,
			az("sig image-version", func(f facts) fleet.ResourceID { return f.Names.Version })},
		{undoGeneralized, prototype.StepGeneralizedSnapshot, "Delete the snapshot of the generalised copy", 15 * time.Minute, deleteGeneralizedSnapshot,
			az("snapshot", func(f facts) fleet.ResourceID { return f.Names.Generalized })},
		{undoSnapshot, prototype.StepSnapshot, "Delete the snapshot of the donor's disk", 15 * time.Minute, deleteDonorSnapshot,
			az("snapshot", func(f facts) fleet.ResourceID { return f.Names.Snapshot })},
		{undoModel, prototype.StepModel, "Restore the model", 60 * time.Minute, unpoint,
			func(f facts, _ string) string {
				return "set the image of " + string(f.Pool) + " to " + f.Before.Text()
			}},
	}
}

// whileAttached is what keeps a workbench from being deleted or rebooted: it stays
// where the copy could not be detached.
var whileAttached = []string{undoBench, undoReboots}

// tidy puts back what is named, or all where nothing is, and says what a person
// has to put back where that fails.
func (r *run) tidy(ctx context.Context, names ...string) (left []string) {
	stuck := false
	for _, p := range putters() {
		if _, there := r.undo(p.undo); !there || len(names) > 0 && !contains(names, p.undo) {
			continue
		}
		if stuck && contains(whileAttached, p.undo) {
			left = append(left, fmt.Sprintf("%s: not before the copy is detached: %s", p.title, p.byHand(r.get(), r.e.config.Namespace)))
			continue
		}
		if err := r.putBack(ctx, p); err != nil {
			stuck = stuck || p.undo == undoAttach
			left = append(left, fmt.Sprintf("%s failed (%v): %s", p.title, err, p.byHand(r.get(), r.e.config.Namespace)))
		}
	}
	return left
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func (r *run) putBack(ctx context.Context, p putter) error {
	// Patient as with a donor: what is left behind needs a person.
	t := r.task(prototype.Step{ID: p.step, Title: p.title, Deadline: p.deadline, GivesBack: true})
	ctx, cancel := context.WithTimeout(ctx, p.deadline)
	defer cancel()
	err := r.fence(ctx)
	if err == nil {
		err = p.act(ctx, t)
	}
	var not needless
	if errors.As(err, &not) {
		r.drop(p.undo)
		return nil
	}
	if err != nil {
		err = t.late(ctx, err)
		t.report(StepFailed, -1, err.Error())
		return err
	}
	t.report(StepUndone, 100, p.title)
	return nil
}

// remains names what is still on the undo list, for a person who is told that
// not all is well: the same command takes it away, or goes on with it.
func (r *run) remains() []string {
	f := r.get()
	var names []string
	for _, p := range putters() {
		if _, there := r.undo(p.undo); !there {
			continue
		}
		switch p.undo {
		case undoJob:
			names = append(names, "pod "+f.Names.Job)
		case undoAttach:
			names = append(names, fmt.Sprintf("%s at instance %s (node %s)", f.Names.WorkDisk.Name(), f.Bench.Instance.Name(), f.Bench.Node))
		case undoBench:
			names = append(names, "the protection of workbench "+f.Bench.Node)
		case undoReboots:
			names = append(names, "kured's lock")
		case undoWorkDisk:
			names = append(names, "disk "+f.Names.WorkDisk.Name())
		case undoVersion:
			names = append(names, "image version "+f.Names.Version.Name())
		case undoGeneralized:
			names = append(names, "snapshot "+f.Names.Generalized.Name())
		case undoSnapshot:
			names = append(names, "snapshot "+f.Names.Snapshot.Name())
		}
	}
	if r.donorOut() {
		names = append(names, "what keeps node "+r.donorName()+" from being as it was found")
	}
	return names
}

// unfinished is what an interruption puts back: what must not be left alone, and
// what a resume cannot go on from. The rest is kept for it.
func (r *run) unfinished() []string {
	f := r.get()
	names := []string{undoJob, undoAttach, undoBench, undoReboots}
	if !f.Saved {
		names = append(names, undoWorkDisk)
	}
	if !f.SnapshotTaken {
		names = append(names, undoSnapshot)
	}
	return names
}

// spent is what is of no more use once the model is changed.
var spent = []string{undoJob, undoAttach, undoBench, undoReboots, undoWorkDisk, undoGeneralized, undoSnapshot}

func deletePodAndForget(ctx context.Context, t *task) error {
	if err := t.letPodGo(ctx); err != nil {
		return err
	}
	// The intent stays: where the copy cannot be deleted, it says that a pod has
	// worked on it, and the next run makes another.
	return t.r.amend(func(rec *journal.Record, _ *facts) { dropUndo(rec, undoJob) })
}

func deleteDonorSnapshot(ctx context.Context, t *task) error {
	return t.deleteOurSnapshot(ctx, undoSnapshot, prototype.StepSnapshot, t.r.get().Names.Snapshot)
}

func deleteGeneralizedSnapshot(ctx context.Context, t *task) error {
	return t.deleteOurSnapshot(ctx, undoGeneralized, prototype.StepGeneralizedSnapshot, t.r.get().Names.Generalized)
}

func (t *task) deleteOurSnapshot(ctx context.Context, undo, step string, id fleet.ResourceID) error {
	s, ok, err := t.heldSnapshot(ctx, id)
	if err == nil && ok && s.Tags[fleet.TagCapture] != "" {
		err = t.deleteSnapshot(ctx, id)
	}
	if err != nil {
		return err
	}
	return t.r.amend(func(rec *journal.Record, f *facts) {
		dropUndo(rec, undo)
		delete(rec.Intents, step)
		if undo == undoSnapshot {
			f.SnapshotTaken, f.BuiltAt = false, time.Time{}
			if !hasUndo(rec, undoStop) { // else the donor's return needs to know that it was stopped
				stopAgain(rec, f)
			}
		}
	})
}

// deleteHalfMade deletes the version that we began where it did not succeed;
// one that did is a good image, and stays.
func deleteHalfMade(ctx context.Context, t *task) error {
	id := t.r.get().Names.Version
	v, ok, err := t.heldVersion(ctx, id)
	if err == nil && ok && v.ProvisioningState != prototype.Succeeded && v.Tags[fleet.TagCapture] == t.r.captureName() {
		err = t.change(ctx, "delete/"+string(id), fleet.DeleteVersion{ID: id}, func(ctx context.Context) (bool, error) {
			// Azure refuses while it is made: it may have succeeded meanwhile.
			v, ok, err := t.heldVersion(ctx, id)
			return !ok || v.ProvisioningState == prototype.Succeeded, err
		})
	}
	if err != nil {
		return err
	}
	return t.r.amend(func(rec *journal.Record, _ *facts) {
		dropUndo(rec, undoVersion)
		delete(rec.Intents, prototype.StepVersion)
	})
}
