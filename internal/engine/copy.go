package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// tags say of everything that is made who made it, from what, and why.
func (r *run) tags(more map[string]string) map[string]string {
	f := r.get()
	tags := map[string]string{
		fleet.TagCapture:   r.captureName(),
		fleet.TagCreatedBy: "ortet " + r.e.config.Version,
		fleet.TagReason:    "prototype of " + f.Names.Definition.Name() + " from node " + r.donorName(),
		fleet.TagBuiltFrom: r.donorName(),
	}
	if !f.BuiltAt.IsZero() {
		tags[fleet.TagBuiltAt] = f.BuiltAt.UTC().Format(fleet.BuiltAtLayout)
	}
	maps.Copy(tags, more)
	return tags
}

func (r *run) captureName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Capture
}

// rebootHolder is who holds kured's lock: captures of two pools that begin in one second
// have the same name.
func (r *run) rebootHolder() string { return r.captureName() + "/" + r.get().Pool.Name() }

// snapshot copies the stopped donor's OS disk. One that was begun while the
// donor was stopped counts; one of which that is not known is made anew.
func snapshot(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	if f.SnapshotTaken {
		return needless("it is taken")
	}
	if there, ok, err := t.snapshotAt(ctx, f.Names.Snapshot); err != nil {
		return err
	} else if ok && there.Tags[fleet.TagCapture] != r.captureName() {
		if err := t.deleteStaleSnapshot(ctx, f.Names.Snapshot, there); err != nil {
			return err
		}
	}
	err := r.amend(func(rec *journal.Record, f *facts) {
		addUndo(rec, undoSnapshot, nil)
		if f.BuiltAt.IsZero() {
			f.BuiltAt = r.e.now()
		}
	})
	if err != nil {
		return err
	}
	change := fleet.CreateSnapshot{ID: f.Names.Snapshot, Location: f.Location, Source: f.Disk, Tags: r.tags(nil), Closed: true}
	err = t.change(ctx, prototype.StepSnapshot, change, func(ctx context.Context) (bool, error) { return t.snapshotDone(ctx, f.Names.Snapshot) })
	if err != nil {
		return err
	}
	i, err := t.instance(ctx, f.Instance)
	if err != nil {
		return err
	}
	if !down(i) {
		return fmt.Errorf("the donor is %s: somebody started it while its disk was copied", i.Power)
	}
	return r.amend(func(_ *journal.Record, f *facts) { f.SnapshotTaken = true })
}

func (t *task) snapshotAt(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, bool, error) {
	return found(ctx, t, func(ctx context.Context) (fleet.Snapshot, error) { return t.r.e.cloud.Snapshot(ctx, id) })
}

// heldSnapshot is snapshotAt for one that we made.
func (t *task) heldSnapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, bool, error) {
	return held(ctx, t, func(ctx context.Context) (fleet.Snapshot, error) { return t.r.e.cloud.Snapshot(ctx, id) })
}

// snapshotDone reports whether our snapshot is complete. One that failed is
// taken away, so that it is made anew.
func (t *task) snapshotDone(ctx context.Context, id fleet.ResourceID) (bool, error) {
	s, ok, err := t.snapshotAt(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	if s.Tags[fleet.TagCapture] != t.r.captureName() {
		return false, &fleet.Error{Op: "create snapshot", Resource: string(id), Kind: fleet.KindInvalid, Err: errors.New("a snapshot of this name is there that this capture did not make")}
	}
	if s.ProvisioningState == prototype.Failed {
		return false, t.deleteSnapshot(ctx, id)
	}
	return s.ProvisioningState == prototype.Succeeded, nil
}

func (t *task) deleteStaleSnapshot(ctx context.Context, id fleet.ResourceID, s fleet.Snapshot) error {
	if s.Tags[fleet.TagCapture] == "" {
		return &fleet.Error{Op: "create snapshot", Resource: string(id), Kind: fleet.KindInvalid,
			Err: errors.New("a snapshot of this name is there that Ortet did not make"), Remedy: "delete it if nobody needs it"}
	}
	return t.deleteSnapshot(ctx, id)
}

func (t *task) deleteSnapshot(ctx context.Context, id fleet.ResourceID) error {
	return t.change(ctx, "delete/"+string(id), fleet.DeleteSnapshot{ID: id}, deleted(t, func(ctx context.Context) (fleet.Snapshot, error) {
		return t.r.e.cloud.Snapshot(ctx, id)
	}))
}

// holdReboots keeps kured from rebooting a node: one that boots beside a copy
// of its own disk may boot from the copy.
func holdReboots(ctx context.Context, t *task) error {
	r := t.r
	if err := r.write(func(rec *journal.Record, _ *facts) { addUndo(rec, undoReboots, nil) }); err != nil {
		return err
	}
	const ttl = 3 * time.Hour // the deadlines of the steps from here to its release
	for n := 0; ; n++ {
		known, err := r.e.cluster.HoldReboots(ctx, r.rebootHolder(), ttl)
		switch {
		case err == nil && !known:
			r.drop(undoReboots)
			return needless("there is no kured")
		case err == nil:
			return nil
		case fleet.Is(err, fleet.KindHeld):
			t.progress(-1, "waiting for kured's lock, which a reboot or another capture has: %v", err)
			if t.wait(ctx, 10*time.Second, forWorld) != nil {
				return t.timedOut(ctx, "hold reboots", "", err)
			}
		case !passing(err) || t.backoff(ctx, n, err) != nil:
			return err
		}
	}
}

func releaseReboots(ctx context.Context, t *task) error {
	if _, ours := t.r.undo(undoReboots); !ours {
		return needless("they were not held")
	}
	if err := do(ctx, t, func(ctx context.Context) error { return t.r.e.cluster.ReleaseReboots(ctx, t.r.rebootHolder()) }); err != nil {
		return err
	}
	t.r.drop(undoReboots)
	return nil
}

// workDiskSKU is a disk that every VM size can attach.
const workDiskSKU = "StandardSSD_LRS"

func workDisk(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	d, ours, err := t.disk(ctx, f.Names.WorkDisk)
	if err != nil {
		return err
	}
	if ours && d.Tags[fleet.TagCapture] != r.captureName() {
		if d.Tags[fleet.TagCapture] == "" || d.ManagedBy != "" {
			return &fleet.Error{Op: "create disk", Resource: string(d.ID), Kind: fleet.KindInvalid, Err: errors.New("a disk of this name is there that is not this capture's"), Remedy: "detach and delete it if nobody needs it"}
		}
		if err := t.deleteDisk(ctx, f.Names.WorkDisk); err != nil {
			return err
		}
		ours = false
	}
	if err := r.amend(func(rec *journal.Record, _ *facts) {
		addUndo(rec, undoWorkDisk, nil)
		if !ours { // no pod has worked on the copy that is made now
			delete(rec.Intents, prototype.StepGeneralize)
		}
	}); err != nil {
		return err
	}
	change := fleet.CreateDisk{
		ID: f.Names.WorkDisk, Location: f.Location, Zone: f.Bench.Zone, SKU: workDiskSKU, Source: f.Names.Snapshot, Tags: r.tags(nil),
	}
	return t.change(ctx, prototype.StepWorkDisk, change, func(ctx context.Context) (bool, error) {
		d, ok, err := t.disk(ctx, f.Names.WorkDisk)
		if err == nil && ok && d.ProvisioningState == prototype.Failed {
			return false, t.deleteDisk(ctx, f.Names.WorkDisk)
		}
		return ok && d.ProvisioningState == prototype.Succeeded, err
	})
}

func (t *task) disk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, bool, error) {
	return found(ctx, t, func(ctx context.Context) (fleet.Disk, error) { return t.r.e.cloud.Disk(ctx, id) })
}

// heldDisk is disk for one that we made.
func (t *task) heldDisk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, bool, error) {
	return held(ctx, t, func(ctx context.Context) (fleet.Disk, error) { return t.r.e.cloud.Disk(ctx, id) })
}

func (t *task) deleteDisk(ctx context.Context, id fleet.ResourceID) error {
	return t.change(ctx, "delete/"+string(id), fleet.DeleteDisk{ID: id}, deleted(t, func(ctx context.Context) (fleet.Disk, error) {
		return t.r.e.cloud.Disk(ctx, id)
	}))
}

func attach(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	instance := func(ctx context.Context) (fleet.Instance, error) {
		return surely(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return r.e.cloud.Instance(ctx, f.Bench.Instance) })
	}
	i, err := instance(ctx)
	if err != nil {
		return err
	}
	node, err := t.benchNode(ctx)
	if err == nil {
		err = taken(node, f.Pool)
	}
	if err != nil {
		return err
	}
	lun, there := f.Bench.LUN, false
	taken := map[int32]bool{}
	for _, d := range i.DataDisks {
		taken[d.LUN] = true
		if d.Disk.Equal(f.Names.WorkDisk) {
			lun, there = d.LUN, true
		}
	}
	for !there && taken[lun] && lun > 0 { // somebody took it since
		lun--
	}
	if err := r.amend(func(rec *journal.Record, f *facts) {
		if !hasUndo(rec, undoAttach) {
			f.Bench.BootID = node.BootID
		}
		addUndo(rec, undoAttach, nil)
		f.Bench.LUN = lun
	}); err != nil {
		return err
	}
	return t.change(ctx, prototype.StepAttach, fleet.AttachDisk{Instance: f.Bench.Instance, Disk: f.Names.WorkDisk, LUN: lun}, func(ctx context.Context) (bool, error) {
		i, err := instance(ctx)
		return err == nil && attached(i, f.Names.WorkDisk) && !busy(i.ProvisioningState), err
	})
}

// busy reports whether a change is still under way.
func busy(state string) bool {
	return state != "" && state != prototype.Succeeded && state != prototype.Failed
}

func attached(i fleet.Instance, disk fleet.ResourceID) bool {
	for _, d := range i.DataDisks {
		if d.Disk.Equal(disk) {
			return true
		}
	}
	return false
}

func detach(ctx context.Context, t *task) error {
	f := t.r.get()
	if _, ours := t.r.undo(undoAttach); !ours {
		return needless("it is attached to nothing")
	}
	err := t.change(ctx, prototype.StepDetach, fleet.DetachDisk{Instance: f.Bench.Instance, Disk: f.Names.WorkDisk}, func(ctx context.Context) (bool, error) {
		i, err := t.instance(ctx, f.Bench.Instance)
		if ignoreMissing(err) != nil || attached(i, f.Names.WorkDisk) {
			return false, err
		}
		gone := err != nil
		// Where the workbench is gone, the disk is gone with it, or free. Where the
		// disk is neither, the workbench is there, whatever was said of it.
		d, ok, err := t.heldDisk(ctx, f.Names.WorkDisk)
		free := err == nil && (!ok || d.ManagedBy == "")
		if err == nil && !free && gone {
			t.progress(-1, "waiting until disk %s is free: Azure still has it attached to instance %s, which was deleted", d.ID.Name(), f.Bench.Instance.Name())
		}
		return free, err
	})
	if err != nil {
		return err
	}
	// Forgotten, so that a copy that is made anew is attached anew.
	return t.r.amend(func(rec *journal.Record, _ *facts) {
		dropUndo(rec, undoAttach)
		delete(rec.Intents, prototype.StepAttach)
		delete(rec.Intents, prototype.StepDetach)
	})
}

func deletePod(ctx context.Context, t *task) error {
	if _, ours := t.r.undo(undoJob); !ours {
		return needless("there is none")
	}
	if err := t.letPodGo(ctx); err != nil {
		return err
	}
	t.r.drop(undoJob)
	return nil
}

// letPodGo deletes the pod. One that is deleted, and whose node does not answer, is
// left to that: its kubelet ends it when it is back, and Kubernetes when the node
// is deleted. Nobody can do more, and the disk is detached all the same.
func (t *task) letPodGo(ctx context.Context) error {
	r := t.r
	err := deletePodNow(ctx, t)
	if !fleet.Is(err, fleet.KindTimedOut) {
		return err
	}
	f := r.get()
	look, cancel := context.WithTimeout(r.care, lookFor)
	defer cancel()
	node, readErr := r.e.cluster.Node(look, f.Bench.Node)
	if readErr == nil && node.Ready || ignoreMissing(readErr) != nil {
		return err
	}
	left := fmt.Sprintf("pod %s is deleted, and ends when node %s, which does not answer, is back or deleted", f.Names.Job, f.Bench.Node)
	t.progress(-1, "%s", left)
	r.note("%s", left)
	return nil
}

func deleteWorkDisk(ctx context.Context, t *task) error {
	if _, ours := t.r.undo(undoWorkDisk); !ours {
		return needless("there is none")
	}
	if err := t.deleteDisk(ctx, t.r.get().Names.WorkDisk); err != nil {
		return err
	}
	return t.r.amend(func(rec *journal.Record, _ *facts) {
		dropUndo(rec, undoWorkDisk)
		delete(rec.Intents, prototype.StepWorkDisk)
	})
}

// generalizedSnapshot copies the generalised copy. Its tag says that it may
// become a version.
func generalizedSnapshot(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	if !f.Saved {
		return errors.New("the copy of the disk was not generalised")
	}
	if there, ok, err := t.snapshotAt(ctx, f.Names.Generalized); err != nil {
		return err
	} else if ok && there.Tags[fleet.TagCapture] != r.captureName() {
		if err := t.deleteStaleSnapshot(ctx, f.Names.Generalized, there); err != nil {
			return err
		}
	}
	if err := r.amend(func(rec *journal.Record, _ *facts) { addUndo(rec, undoGeneralized, nil) }); err != nil {
		return err
	}
	change := fleet.CreateSnapshot{ID: f.Names.Generalized, Location: f.Location, Source: f.Names.WorkDisk, Tags: r.imageTags()}
	return t.change(ctx, prototype.StepGeneralizedSnapshot, change, func(ctx context.Context) (bool, error) {
		return t.snapshotDone(ctx, f.Names.Generalized)
	})
}

// imageTags are those of the generalised snapshot and the version.
func (r *run) imageTags() map[string]string {
	f := r.get()
	more := map[string]string{fleet.TagGeneralized: r.captureName()}
	if f.CustomData != "" {
		more[fleet.TagCustomData] = f.CustomData
	}
	if f.Secrets != "" {
		more[fleet.TagSecrets] = f.Secrets
	}
	return r.tags(more)
}
