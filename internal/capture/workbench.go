package capture

import (
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// protectWorkbench keeps the workbench from scale-in: Azure's autoscaler honours the
// instance's policy, the cluster's the Node's annotation.
func (c *capture) protectWorkbench(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	b := c.get().Bench
	w, err := c.protectNode(ctx, p, b.Node, b.Instance, fleet.AnnotationWorkbench, string(c.get().Pool))
	return w, c.onBench(ctx, err)
}

// usedByOthers returns an error if another capture uses the node, as donor or workbench:
// the first of the two to end would remove its protection.
func (c *capture) usedByOthers(node fleet.Node) error {
	if by := prototype.UsedBy(node, c.get().Pool); by != "" {
		return invalid("use", "node "+node.Name, "", "a capture of %s uses it as its workbench", by)
	}
	if _, marked := node.Annotations[fleet.AnnotationCapture]; marked && node.Name != c.req.Node {
		return invalid("use workbench", "node "+node.Name, "", "it is being captured")
	}
	return nil
}

// onBench is the error of an act on the workbench: if that is lost, the run is planned
// again, with any node that can serve.
func (c *capture) onBench(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if lost := c.benchLost(ctx, 0); lost != nil {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

func again(format string, args ...any) error {
	return &workflow.Again{Err: fmt.Errorf(format, args...)}
}

// benchLost gives up a workbench that can do no work any more. It returns nil if it can,
// or if that cannot be read. A pod that works there goes on while the node is cordoned, or
// is not Ready for less than silent.
func (c *capture) benchLost(ctx context.Context, silent time.Duration) error {
	why := c.whyBenchLost(ctx, silent)
	if why == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anyBench = true
	return again("workbench %s is lost: %s", c.s.Bench.Node, why)
}

func (c *capture) whyBenchLost(ctx context.Context, silent time.Duration) string {
	s := c.get()
	i, err := c.Cloud.Instance(ctx, s.Bench.Instance)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return "its instance was deleted"
	case err != nil:
		return ""
	case i.ProvisioningState == prototype.Deleting:
		return "its instance is being deleted"
	case isDown(i):
		return "its instance is " + string(i.Power)
	}
	node, err := c.Cluster.Node(ctx, s.Bench.Node)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return "its Node was deleted"
	case err != nil:
		return ""
	case s.Bench.BootID != "" && node.BootID != s.Bench.BootID:
		return "it booted again"
	case !node.Ready && c.Now().Sub(node.ReadySince) >= silent:
		return "it is not Ready: " + node.NotReadyWhy
	case node.Unschedulable && silent == 0:
		return "it is cordoned"
	}
	if err := c.usedByOthers(node); err != nil {
		return err.Error()
	}
	return ""
}
