package capture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// done is the Wait of an act that is done.
var done = workflow.Wait{}

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
	w, err := c.donor.Protect(ctx, p, c.bench(), string(c.get().Pool))
	return w, c.onBench(ctx, err)
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
	i, err := c.bench().Read(ctx, c.Cloud)
	node, nodeErr := c.Cluster.Node(ctx, b.Node)
	used := c.donor.UsedByOthers(node)
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
	case donor.IsDown(i):
		why = "its instance is " + string(i.Power)
	case node.BootID != b.BootID:
		why = "it booted again"
	case !node.Ready && c.Cluster.Now().Sub(node.ReadySince) >= silent:
		why = "it is not Ready: " + node.NotReadyWhy
	case node.Unschedulable && silent == 0:
		why = "it is cordoned"
	case used != nil:
		why = used.Error()
	case c.bench().Is(node, i) != nil:
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
	return c.donor.EnsureCopy(ctx, p, fleet.CreateDisk{
		ID: s.Names.WorkDisk, Location: s.Location, Zone: s.Bench.Zone, SKU: "StandardSSD_LRS", Source: s.Names.Snapshot, Tags: c.tags(nil),
		Encryption: s.Encryption,
	})
}

func (c *capture) attach(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	w, err := p.Ensure(ctx, fleet.AttachDisk{Instance: s.Bench.Instance, Disk: s.Names.WorkDisk, LUN: s.Bench.LUN},
		func(ctx context.Context) (bool, error) {
			i, err := c.bench().Read(ctx, c.Cloud)
			is := err == nil && attached(i, s.Names.WorkDisk)
			if err == nil && !is && !p.Begun() {
				err = c.bench().Still(ctx, c.Cluster, i)
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
		i, err := c.bench().Read(ctx, c.Cloud)
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
	return c.donor.EnsureCopy(ctx, p, fleet.CreateSnapshot{ID: s.Names.Generalized, Location: s.Location, Source: s.Names.WorkDisk,
		Tags: c.imageTags(), Encryption: s.Encryption})
}

// bench is the workbench, which may be of any pool, or of none.
func (c *capture) bench() donor.Used {
	b := c.get().Bench
	return donor.Used{Mark: fleet.AnnotationWorkbench, Node: b.Node, Instance: b.Instance, VMID: b.VMID, UID: b.UID}
}
