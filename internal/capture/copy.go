package capture

import (
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// gone gives whether a resource is.
func gone[T any](get func(context.Context, fleet.ResourceID) (T, error), id fleet.ResourceID) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, err := get(ctx, id)
		return fleet.Is(err, fleet.KindNotFound), missing(err)
	}
}

// snapshot copies the stopped donor's OS disk. It counts only if the donor is stopped
// before and after it.
func (c *capture) snapshot(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if s.BuiltAt.IsZero() {
		c.set(func(s *state) { s.BuiltAt = c.Now() })
	}
	change := fleet.CreateSnapshot{ID: s.Names.Snapshot, Location: s.Location, Source: s.Disk, Tags: c.tags(nil), Closed: true}
	if w, err := c.ensureSnapshot(ctx, p, change); err != nil || w.In > 0 {
		return w, err
	}
	return done, c.stillDown(ctx)
}

func (c *capture) stillDown(ctx context.Context) error {
	s := c.get()
	i, err := c.Cloud.Instance(ctx, s.Instance)
	if err == nil && !isDown(i) {
		err = invalid("create snapshot", string(s.Instance), "", "the donor is %s: it was started while its disk was copied", i.Power)
	}
	return err
}

// ensureSnapshot replaces what an earlier capture left under the name, and what failed.
func (c *capture) ensureSnapshot(ctx context.Context, p *workflow.Pass, change fleet.CreateSnapshot) (workflow.Wait, error) {
	ours := func(x fleet.Snapshot) bool {
		return x.Tags[fleet.TagCapture] == c.name && x.ProvisioningState != prototype.Failed
	}
	stale := false
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		x, err := c.Cloud.Snapshot(ctx, change.ID)
		if err != nil {
			return false, missing(err)
		}
		if x.Tags[fleet.TagCapture] == "" {
			return false, invalid("create snapshot", string(change.ID), "delete it if it is not needed", "a snapshot of this name exists that Ortet did not make")
		}
		stale = !ours(x)
		return stale || x.ProvisioningState == prototype.Succeeded, nil
	})
	if err != nil || w.In > 0 || !stale {
		return w, err
	}
	return c.then(p.Ensure(ctx, fleet.DeleteSnapshot{ID: change.ID}, gone(c.Cloud.Snapshot, change.ID)))
}

// then makes another pass soon after a change that is not the last one.
func (c *capture) then(w workflow.Wait, err error) (workflow.Wait, error) {
	if err == nil && w.In == 0 {
		w = in(time.Millisecond, "going on")
	}
	return w, err
}

// deleteSnapshot leaves alone what Ortet did not make.
func (c *capture) deleteSnapshot(id fleet.ResourceID) workflow.Act {
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		return p.Ensure(ctx, fleet.DeleteSnapshot{ID: id}, func(ctx context.Context) (bool, error) {
			x, err := c.Cloud.Snapshot(ctx, id)
			return fleet.Is(err, fleet.KindNotFound) || err == nil && x.Tags[fleet.TagCapture] == "", missing(err)
		})
	}
}

func manualDelete(kind string, id fleet.ResourceID) func() string {
	return func() string { return fmt.Sprintf("az %s delete --ids %s", kind, id) }
}

// rebootsFor is the time to live of kured's lock: the deadlines of the rows that need it.
const rebootsFor = 3 * time.Hour

// rebootHolder is distinct for captures of two pools that begin in one second.
func (c *capture) rebootHolder() string { return c.name + "/" + c.get().Pool.Name() }

// holdReboots keeps kured from rebooting a node: one that boots beside a copy of its own
// disk may boot from the copy.
func (c *capture) holdReboots(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := p.Save(ctx); err != nil {
		return done, err
	}
	_, err := c.Cluster.HoldReboots(ctx, c.rebootHolder(), rebootsFor)
	if fleet.Is(err, fleet.KindHeld) {
		return in(10*time.Second, "waiting for kured's lock: %v", err), nil
	}
	return done, err
}

func (c *capture) releaseReboots(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
	return done, c.Cluster.ReleaseReboots(ctx, c.rebootHolder())
}

// workDiskSKU is a disk that every VM size can attach.
const workDiskSKU = "StandardSSD_LRS"

func (c *capture) workDisk(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	change := fleet.CreateDisk{ID: s.Names.WorkDisk, Location: s.Location, Zone: s.Bench.Zone, SKU: workDiskSKU, Source: s.Names.Snapshot, Tags: c.tags(nil)}
	stale := false
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		d, err := c.Cloud.Disk(ctx, change.ID)
		if err != nil {
			return false, missing(err)
		}
		ours := d.Tags[fleet.TagCapture] == c.name
		if d.Tags[fleet.TagCapture] == "" || !ours && d.ManagedBy != "" {
			return false, invalid("create disk", string(d.ID), "detach and delete it if it is not needed", "a disk of this name exists that is not this capture's")
		}
		stale = !ours || d.ProvisioningState == prototype.Failed
		return stale || d.ProvisioningState == prototype.Succeeded, nil
	})
	if err != nil || w.In > 0 || !stale {
		return w, err
	}
	return c.then(p.Ensure(ctx, fleet.DeleteDisk{ID: change.ID}, gone(c.Cloud.Disk, change.ID)))
}

func (c *capture) deleteWorkDisk(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	id := c.get().Names.WorkDisk
	return p.Ensure(ctx, fleet.DeleteDisk{ID: id}, gone(c.Cloud.Disk, id))
}

// attachBefore is where the copy is attached.
type attachBefore struct {
	Instance fleet.ResourceID `json:"instance"`
	BootID   string           `json:"bootId"`
}

func (c *capture) attach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	var was attachBefore
	if there, err := p.Saved(&was); err != nil {
		return done, err
	} else if !there {
		if err := c.readBench(ctx, s.Bench); err != nil {
			return done, c.onBench(ctx, err)
		}
		was = attachBefore{s.Bench.Instance, c.get().Bench.BootID}
		if err := p.Before(ctx, &was); err != nil {
			return done, err
		}
	}
	s = c.get()
	w, err := p.Ensure(ctx, fleet.AttachDisk{Instance: was.Instance, Disk: s.Names.WorkDisk, LUN: s.Bench.LUN}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, was.Instance)
		return err == nil && attached(i, s.Names.WorkDisk) && !busy(i.ProvisioningState), err
	})
	return w, c.onBench(ctx, err)
}

// readBench takes the workbench's boot and a LUN that is free now.
func (c *capture) readBench(ctx context.Context, b workbench) error {
	node, err := c.Cluster.Node(ctx, b.Node)
	if err == nil {
		err = usedByOthers(node, c.get().Pool)
	}
	if err != nil {
		return err
	}
	i, err := c.Cloud.Instance(ctx, b.Instance)
	if err != nil {
		return err
	}
	taken := map[int32]bool{}
	for _, d := range i.DataDisks {
		taken[d.LUN] = true
	}
	for taken[b.LUN] && b.LUN > 0 {
		b.LUN--
	}
	c.set(func(s *state) { s.Bench.LUN, s.Bench.BootID = b.LUN, node.BootID })
	return nil
}

// busy reports whether a change of a resource is under way.
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

func (c *capture) detach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was attachBefore
	if there, err := p.Saved(&was); !there || err != nil {
		return done, err
	}
	disk := c.get().Names.WorkDisk
	return p.Ensure(ctx, fleet.DetachDisk{Instance: was.Instance, Disk: disk}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, was.Instance)
		return fleet.Is(err, fleet.KindNotFound) || err == nil && !attached(i, disk), missing(err)
	})
}

func (c *capture) manualDetach() string {
	s := c.get()
	return fmt.Sprintf("disk %s may be attached to instance %s: az vmss disk detach", s.Names.WorkDisk.Name(), s.Bench.Instance)
}

// generalizedSnapshot copies the generalised copy. Its tag says that it may become a
// version.
func (c *capture) generalizedSnapshot(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if !s.Saved {
		return done, invalid("create snapshot", string(s.Names.Generalized), "", "the copy of the disk is not generalised")
	}
	more := map[string]string{fleet.TagGeneralized: c.name}
	for tag, value := range map[string]string{fleet.TagCustomData: s.CustomData, fleet.TagSecrets: s.Secrets} {
		if value != "" {
			more[tag] = value
		}
	}
	w, err := c.ensureSnapshot(ctx, p, fleet.CreateSnapshot{ID: s.Names.Generalized, Location: s.Location, Source: s.Names.WorkDisk, Tags: c.tags(more)})
	if err != nil {
		if _, diskErr := c.Cloud.Disk(ctx, s.Names.WorkDisk); fleet.Is(diskErr, fleet.KindNotFound) {
			return done, c.redo(fmt.Errorf("the copy of the disk was deleted: %w", err)) // with its workbench
		}
	}
	return w, err
}
