package capture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// copyAt reads a snapshot or disk that is, or may become, a copy of the donor's.
func (c *capture) copyAt(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	if id.Segment("snapshots") == "" {
		return c.Cloud.Disk(ctx, id)
	}
	s, err := c.Cloud.Snapshot(ctx, id)
	return fleet.Disk{Tags: s.Tags, ProvisioningState: s.ProvisioningState}, err
}

// ensureCopy creates a snapshot or disk. What an earlier capture left under its name, and
// what failed, is deleted first.
func (c *capture) ensureCopy(ctx context.Context, p *workflow.Pass, create fleet.Change) (workflow.Wait, error) {
	stale, id := false, create.Target()
	w, err := p.Ensure(ctx, create, func(ctx context.Context) (bool, error) {
		x, err := c.copyAt(ctx, id)
		if err != nil {
			return false, fleet.IgnoreNotFound(err)
		}
		by := x.Tags[fleet.TagCapture]
		if by == "" || by != c.name && x.ManagedBy != "" {
			return false, fleet.Invalid(create.Verb(), string(id), "detach and delete it if it is not needed", "it exists, and is not this capture's")
		}
		stale = by != c.name || x.ProvisioningState == plan.Failed
		return stale || x.ProvisioningState == plan.Succeeded, nil
	})
	if err != nil || w.RequeueAfter > 0 || !stale {
		return w, err
	}
	return workflow.GoOn(c.deleteCopy(id)(ctx, p))
}

// deleteCopy deletes a snapshot or disk that Ortet made.
func (c *capture) deleteCopy(id fleet.ResourceID) workflow.Act {
	var change fleet.Change = fleet.DeleteDisk{ID: id}
	if id.Segment("snapshots") != "" {
		change = fleet.DeleteSnapshot{ID: id}
	}
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		return p.Ensure(ctx, change, workflow.Gone(c.copyAt, id, func(x fleet.Disk) bool { return x.Tags[fleet.TagCapture] == "" }))
	}
}

// snapshot copies the donor's OS disk. It counts only if the donor is stopped before and
// after it or, with --online, runs all the time.
func (c *capture) snapshot(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	c.set(func(s *state) { s.BuiltAt = cmp.Or(s.BuiltAt, c.Now().UTC().Format(fleet.BuiltAtLayout)) })
	s := c.get()
	if c.req.Online && c.Now().Sub(c.flushed) >= flushFresh {
		if _, err := c.Cloud.Snapshot(ctx, s.Names.Snapshot); fleet.Is(err, fleet.KindNotFound) {
			return workflow.GoOn(c.flush(ctx, p))
		}
	}
	w, err := c.ensureCopy(ctx, p, fleet.CreateSnapshot{ID: s.Names.Snapshot, Location: s.Location, Source: s.Disk, Tags: c.tags(nil),
		Closed: true, Encryption: s.Encryption})
	if err != nil || w.RequeueAfter > 0 {
		return w, err
	}
	if c.req.Online {
		return done, c.stayed(ctx)
	}
	i, err := c.donorInstance(ctx)
	if err == nil && !isDown(i) {
		err = fleet.Invalid("create snapshot", string(s.Instance), "", "the donor is %s: it was started while its disk was copied", i.Power)
	}
	return done, err
}

func (c *capture) deleteSnapshot(undo, title string, id fleet.ResourceID) *workflow.Undo {
	return &workflow.Undo{
		ID:     undo,
		Title:  title,
		Usual:  5 * time.Second,
		When:   []string{version.StepVersion},
		Keep:   journal.Done,
		Do:     c.deleteCopy(id),
		Manual: manualDelete("snapshot", id),
	}
}

func manualDelete(kind string, id fleet.ResourceID) func() string {
	return func() string { return fmt.Sprintf("az %s delete --ids %s", kind, id) }
}

// rebootHolder is distinct for captures of two pools that begin in one second.
func (c *capture) rebootHolder() string { return c.name + "/" + c.get().Pool.Name() }

// holdReboots keeps kured from rebooting a node: one that boots beside a copy of its own
// disk may boot from the copy.
func (c *capture) holdReboots(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := p.Save(ctx); err != nil {
		return done, err
	}
	there, err := c.Cluster.HoldReboots(ctx, c.rebootHolder(), 3*time.Hour) // the deadlines of the rows that need the lock
	c.set(func(s *state) { s.NoKured = err == nil && !there })
	if fleet.Is(err, fleet.KindHeld) {
		return workflow.In(10*time.Second, "waiting for kured's lock: %v", err), nil
	}
	return done, err
}

// protectWorkbench keeps the workbench from scale-in: Azure's autoscaler honours the
// instance's policy, the cluster's the Node's annotation.
func (c *capture) protectWorkbench(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	b := c.get().Bench
	w, err := c.protectNode(ctx, p, b.Node, fleet.AnnotationWorkbench, string(c.get().Pool))
	return w, c.onBench(ctx, err)
}

// usedByOthers returns an error if another capture uses the node, as donor or workbench:
// the first of the two to end would remove its protection.
func (c *capture) usedByOthers(node fleet.Node) error {
	if by := plan.UsedBy(node, c.get().Pool); by != "" {
		return fleet.Invalid("use", "node "+node.Name, "", "a capture of %s uses it as its workbench", by)
	}
	if _, marked := node.Annotations[fleet.AnnotationCapture]; marked && node.Name != c.req.Node {
		return fleet.Invalid("use workbench", "node "+node.Name, "", "it is being captured")
	}
	return nil
}

// onBench is the error of an act on the workbench: if that is lost, the run is planned
// again, with any node that can serve.
func (c *capture) onBench(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return cmp.Or(c.benchLost(ctx, 0), err)
}

// benchLost gives up a workbench that can do no work any more. It returns nil if it can,
// or if that cannot be read. A pod that works there goes on while the node is cordoned, or
// is not Ready for less than silent.
func (c *capture) benchLost(ctx context.Context, silent time.Duration) error {
	b := c.get().Bench
	i, err := c.benchInstance(ctx)
	node, nodeErr := c.Cluster.Node(ctx, b.Node)
	used := c.usedByOthers(node)
	var why string
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		why = "its instance was deleted"
	case fleet.Is(nodeErr, fleet.KindNotFound):
		why = "its Node was deleted"
	case err != nil || nodeErr != nil:
		return nil //nolint:nilerr // not known
	case i.ProvisioningState == plan.Deleting:
		why = "its instance is being deleted"
	case isDown(i):
		why = "its instance is " + string(i.Power)
	case node.BootID != b.BootID:
		why = "it booted again"
	case !node.Ready && c.Cluster.Now().Sub(node.ReadySince) >= silent:
		why = "it is not Ready: " + node.NotReadyWhy
	case node.Unschedulable && silent == 0:
		why = "it is cordoned"
	case used != nil:
		why = used.Error()
	case c.stillIs(fleet.AnnotationWorkbench, node, i) != nil:
		why = "its Node is not it any more"
	default:
		return nil
	}
	c.set(func(s *state) { c.lost = append(c.lost, s.Bench.Node) })
	return workflow.Replan("workbench %s is lost: %s", b.Node, why)
}

// workDisk has an SKU that every VM size can attach.
func (c *capture) workDisk(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	return c.ensureCopy(ctx, p, fleet.CreateDisk{
		ID: s.Names.WorkDisk, Location: s.Location, Zone: s.Bench.Zone, SKU: "StandardSSD_LRS", Source: s.Names.Snapshot, Tags: c.tags(nil),
		Encryption: s.Encryption,
	})
}

func (c *capture) attach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	w, err := p.Ensure(ctx, fleet.AttachDisk{Instance: s.Bench.Instance, Disk: s.Names.WorkDisk, LUN: s.Bench.LUN},
		func(ctx context.Context) (bool, error) {
			i, err := c.benchInstance(ctx)
			is := err == nil && attached(i, s.Names.WorkDisk)
			if err == nil && !is && !p.Begun() {
				err = c.still(ctx, fleet.AnnotationWorkbench, i)
			}
			return is && !azure.Busy(i.ProvisioningState), err
		})
	return w, c.onBench(ctx, err)
}

func attached(i fleet.Instance, disk fleet.ResourceID) bool {
	return slices.ContainsFunc(i.DataDisks, func(d fleet.AttachedDisk) bool { return d.Disk.Equal(disk) })
}

func (c *capture) detach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	return p.Ensure(ctx, fleet.DetachDisk{Instance: s.Bench.Instance, Disk: s.Names.WorkDisk}, func(ctx context.Context) (bool, error) {
		i, err := c.benchInstance(ctx)
		return fleet.Is(err, fleet.KindNotFound) || err == nil && !attached(i, s.Names.WorkDisk), fleet.IgnoreNotFound(err)
	})
}

func (c *capture) manualDetach() string {
	s := c.get()
	detach := cmp.Or(workflow.SkipIf(s.Bench.Instance.UniformPool() == "", "az vm disk detach"), "az vmss disk detach")
	return fmt.Sprintf("disk %s may be attached to instance %s: %s", s.Names.WorkDisk.Name(), s.Bench.Instance, detach)
}

// generalizedSnapshot copies the generalised copy. Its tag says that it may become a
// version.
func (c *capture) generalizedSnapshot(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	return c.ensureCopy(ctx, p, fleet.CreateSnapshot{ID: s.Names.Generalized, Location: s.Location, Source: s.Names.WorkDisk,
		Tags: c.imageTags(), Encryption: s.Encryption})
}
