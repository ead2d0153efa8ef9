package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// maxWorkbenches limits how many a capture uses: what takes three takes a fourth.
const maxWorkbenches = 3

// protectWorkbench keeps the workbench from scale-in: Azure's autoscaler honours the
// instance's policy, the cluster's the Node's annotation.
func (c *capture) protectWorkbench(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := c.chooseWorkbench(ctx, p); err != nil {
		return done, err
	}
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

// chooseWorkbench takes another one if the last was lost.
func (c *capture) chooseWorkbench(ctx context.Context, p *workflow.Pass) error {
	s := c.get()
	if !slices.Contains(s.Lost, s.Bench.Node) {
		return nil
	}
	donor, err := c.Cluster.Node(ctx, c.req.Node)
	if err != nil {
		return err
	}
	w := &observer{Service: c.Service, lost: s.Lost, o: prototype.Observed{Donor: &donor, InstanceID: s.Instance}}
	w.scaleSet(ctx)
	if len(w.o.Unreadable) == 0 && w.o.Pool != nil {
		w.workbench(ctx)
	}
	if len(w.o.Unreadable) > 0 {
		return &fleet.Error{Op: "choose workbench", Resource: w.o.Unreadable[0].On, Kind: fleet.KindTransient, Err: errors.New(w.o.Unreadable[0].What)}
	}
	next := w.o.Workbench
	if next == nil {
		return &fleet.Error{Op: "choose workbench", Resource: string(s.Pool), Kind: fleet.KindBlocked, Err: errors.New("no other node can serve: " + first(w.o.NoWorkbench, "all were lost"))}
	}
	p.Note("workbench %s was lost: went on with %s, from the snapshot", s.Bench.Node, next.Node.Name)
	c.set(func(s *state) {
		s.Bench = workbench{Node: next.Node.Name, Instance: next.Instance.ID, Zone: next.Instance.Zone, LUN: next.LUN}
	})
	return nil
}

// onBench is the error of an act on the workbench: if that is lost, the rows on it are
// done again on another one.
func (c *capture) onBench(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if why := c.benchLost(ctx, 0); why != "" {
		return c.lose(why + ": " + err.Error())
	}
	return err
}

// lose gives up the workbench.
func (c *capture) lose(why string) error {
	s := c.get()
	lost := append(slices.Clone(s.Lost), s.Bench.Node)
	err := fmt.Errorf("workbench %s is lost (%s)", s.Bench.Node, why)
	if len(lost) >= maxWorkbenches {
		return &fleet.Error{Op: "use workbench", Resource: strings.Join(lost, ", "), Kind: fleet.KindBlocked, Err: fmt.Errorf("%d workbenches were lost: %w", len(lost), err)}
	}
	c.set(func(s *state) { s.Lost = lost })
	return redo(err)
}

// redo has the rows from the snapshot on done again.
func redo(err error) error { return &workflow.Redo{Steps: onWorkbench, Err: err} }

// benchLost says why the workbench can do no work any more; "" if it can, or if that
// cannot be read. A pod that works there goes on while the node is cordoned, or is not
// Ready for less than silent.
func (c *capture) benchLost(ctx context.Context, silent time.Duration) string {
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
