package donor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// copyAt reads a snapshot or disk that is, or may become, a copy of the donor's.
func (d *Donor) copyAt(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	if id.Segment("snapshots") == "" {
		return d.Cloud.Disk(ctx, id)
	}
	x, err := d.Cloud.Snapshot(ctx, id)
	return fleet.Disk{Tags: x.Tags, ProvisioningState: x.ProvisioningState}, err
}

// EnsureCopy creates a snapshot or disk. What an earlier capture left under its name, and
// what failed, is deleted first.
func (d *Donor) EnsureCopy(ctx context.Context, p *workflow.Pass, create fleet.Change) (workflow.Wait, error) {
	s := d.Of()
	stale, id := false, create.Target()
	w, err := p.Ensure(ctx, create, func(ctx context.Context) (bool, error) {
		x, err := d.copyAt(ctx, id)
		if err != nil {
			return false, fleet.IgnoreNotFound(err)
		}
		by := x.Tags[fleet.TagCapture]
		if by == "" || by != s.Capture && x.ManagedBy != "" {
			return false, fleet.Invalid(create.Verb(), string(id), "detach and delete it if it is not needed", "it exists, and is not this capture's")
		}
		stale = by != s.Capture || x.ProvisioningState == plan.Failed
		return stale || x.ProvisioningState == plan.Succeeded, nil
	})
	if err != nil || w.RequeueAfter > 0 || !stale {
		return w, err
	}
	return workflow.GoOn(d.DeleteCopy(id)(ctx, p))
}

// DeleteCopy deletes a snapshot or disk that Ortet made.
func (d *Donor) DeleteCopy(id fleet.ResourceID) workflow.Act {
	var change fleet.Change = fleet.DeleteDisk{ID: id}
	if id.Segment("snapshots") != "" {
		change = fleet.DeleteSnapshot{ID: id}
	}
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		return p.Ensure(ctx, change, workflow.Gone(d.copyAt, id, func(x fleet.Disk) bool { return x.Tags[fleet.TagCapture] == "" }))
	}
}

// snapshot copies the donor's OS disk. It counts only if the donor is stopped before and
// after it or, with --online, runs all the time.
func (d *Donor) snapshot(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	d.BuiltAt.Set(func(at *string) { *at = cmp.Or(*at, d.Now().UTC().Format(fleet.BuiltAtLayout)) })
	s, u := d.Of(), d.used()
	if s.Request.Online && d.Now().Sub(d.flushed) >= flushFresh {
		if _, err := d.Cloud.Snapshot(ctx, s.Names.Snapshot); fleet.Is(err, fleet.KindNotFound) {
			return workflow.GoOn(d.flush(ctx, p))
		}
	}
	w, err := d.EnsureCopy(ctx, p, fleet.CreateSnapshot{ID: s.Names.Snapshot, Location: s.Location, Source: d.Machine.Get().Disk, Tags: s.Tags,
		Closed: true, Encryption: s.Encryption})
	if err != nil || w.RequeueAfter > 0 {
		return w, err
	}
	if s.Request.Online {
		return done, d.stayed(ctx)
	}
	i, err := u.Read(ctx, d.Cloud)
	if err == nil && !IsDown(i) {
		err = fleet.Invalid("create snapshot", string(u.Instance), "", "the donor is %s: it was started while its disk was copied", i.Power)
	}
	return done, err
}

// UndoSnapshot returns the undo of a snapshot, which stays until the step until is done.
func (d *Donor) UndoSnapshot(undo, title, until string, id fleet.ResourceID) *workflow.Undo {
	return &workflow.Undo{
		ID:     undo,
		Title:  title,
		Usual:  5 * time.Second,
		When:   []string{until},
		Keep:   journal.Done,
		Do:     d.DeleteCopy(id),
		Manual: ManualDelete("snapshot", id),
	}
}

// ManualDelete returns the command that deletes a resource.
func ManualDelete(kind string, id fleet.ResourceID) func() string {
	return func() string { return fmt.Sprintf("az %s delete --ids %s", kind, id) }
}
