package capture

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// A made is a snapshot or disk under one of the capture's names.
type made struct {
	tags     map[string]string
	state    string
	attached bool
}

func (c *capture) readSnapshot(ctx context.Context, id fleet.ResourceID) (made, error) {
	x, err := c.Cloud.Snapshot(ctx, id)
	return made{x.Tags, x.ProvisioningState, false}, err
}

func (c *capture) readDisk(ctx context.Context, id fleet.ResourceID) (made, error) {
	x, err := c.Cloud.Disk(ctx, id)
	return made{x.Tags, x.ProvisioningState, x.ManagedBy != ""}, err
}

// ensureMade creates a snapshot or disk. What an earlier capture left under its name, and
// what failed, is deleted first.
func (c *capture) ensureMade(ctx context.Context, p *workflow.Pass, create, remove fleet.Change, read func(context.Context, fleet.ResourceID) (made, error)) (workflow.Wait, error) {
	stale := false
	w, err := p.Ensure(ctx, create, func(ctx context.Context) (bool, error) {
		x, err := read(ctx, create.Target())
		if err != nil {
			return false, fleet.IgnoreNotFound(err)
		}
		ours := x.tags[fleet.TagCapture] == c.name
		if x.tags[fleet.TagCapture] == "" || !ours && x.attached {
			return false, invalid(create.Verb(), string(create.Target()), "detach and delete it if it is not needed", "it exists, and is not this capture's")
		}
		stale = !ours || x.state == prototype.Failed
		return stale || x.state == prototype.Succeeded, nil
	})
	if err != nil || w.In > 0 || !stale {
		return w, err
	}
	return goOn(p.Ensure(ctx, remove, gone(read, remove.Target())))
}

// gone gives whether a resource is.
func gone[T any](get func(context.Context, fleet.ResourceID) (T, error), id fleet.ResourceID) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, err := get(ctx, id)
		return fleet.Is(err, fleet.KindNotFound), fleet.IgnoreNotFound(err)
	}
}

// goOn makes another pass after a change that is not the last one.
func goOn(w workflow.Wait, err error) (workflow.Wait, error) {
	if err == nil && w.In == 0 {
		w = in(time.Millisecond, "going on")
	}
	return w, err
}

// remove deletes a snapshot or disk that Ortet made.
func remove(change fleet.Change, read func(context.Context, fleet.ResourceID) (made, error)) workflow.Act {
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
			x, err := read(ctx, change.Target())
			return fleet.Is(err, fleet.KindNotFound) || err == nil && x.tags[fleet.TagCapture] == "", fleet.IgnoreNotFound(err)
		})
	}
}

// snapshot copies the stopped donor's OS disk. It counts only if the donor is stopped
// before and after it.
func (c *capture) snapshot(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.get().BuiltAt == "" {
		c.set(func(s *state) { s.BuiltAt = c.Now().UTC().Format(fleet.BuiltAtLayout) })
	}
	s := c.get()
	id := s.Names.Snapshot
	w, err := c.ensureMade(ctx, p, fleet.CreateSnapshot{ID: id, Location: s.Location, Source: s.Disk, Tags: c.tags(nil), Closed: true}, fleet.DeleteSnapshot{ID: id}, c.readSnapshot)
	if err != nil || w.In > 0 {
		return w, err
	}
	i, err := c.Cloud.Instance(ctx, s.Instance)
	if err == nil && !isDown(i) {
		err = invalid("create snapshot", string(s.Instance), "", "the donor is %s: it was started while its disk was copied", i.Power)
	}
	return done, err
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
	id := s.Names.WorkDisk
	change := fleet.CreateDisk{ID: id, Location: s.Location, Zone: s.Bench.Zone, SKU: workDiskSKU, Source: s.Names.Snapshot, Tags: c.tags(nil)}
	return c.ensureMade(ctx, p, change, fleet.DeleteDisk{ID: id}, c.readDisk)
}

// attach remembers the workbench's boot: another one is of a node that came up beside the
// copy, and may have booted from it.
func (c *capture) attach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if s.Bench.BootID == "" {
		node, err := c.Cluster.Node(ctx, s.Bench.Node)
		if err != nil {
			return done, c.onBench(ctx, err)
		}
		c.set(func(s *state) { s.Bench.BootID = node.BootID })
	}
	w, err := p.Ensure(ctx, fleet.AttachDisk{Instance: s.Bench.Instance, Disk: s.Names.WorkDisk, LUN: s.Bench.LUN}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, s.Bench.Instance)
		return err == nil && attached(i, s.Names.WorkDisk) && !busy(i.ProvisioningState), err
	})
	return w, c.onBench(ctx, err)
}

// busy reports whether a change of a resource is under way.
func busy(state string) bool {
	return state != "" && state != prototype.Succeeded && state != prototype.Failed
}

func attached(i fleet.Instance, disk fleet.ResourceID) bool {
	return slices.ContainsFunc(i.DataDisks, func(d fleet.AttachedDisk) bool { return d.Disk.Equal(disk) })
}

func (c *capture) detach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	return p.Ensure(ctx, fleet.DetachDisk{Instance: s.Bench.Instance, Disk: s.Names.WorkDisk}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, s.Bench.Instance)
		return fleet.Is(err, fleet.KindNotFound) || err == nil && !attached(i, s.Names.WorkDisk), fleet.IgnoreNotFound(err)
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
	id := s.Names.Generalized
	return c.ensureMade(ctx, p, fleet.CreateSnapshot{ID: id, Location: s.Location, Source: s.Names.WorkDisk, Tags: c.imageTags()}, fleet.DeleteSnapshot{ID: id}, c.readSnapshot)
}
