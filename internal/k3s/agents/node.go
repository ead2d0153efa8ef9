package agents

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// pollInterval is how often the API server is asked whether a Node is Ready.
const pollInterval = time.Second

// AnnotationCordon marks a Node that a command cordoned: start and reimage uncordon
// only what they find marked.
const AnnotationCordon = "ortet.io/cluster-cordon"

// drain cordons a machine's Node and evicts its pods. fit makes the evictions fit into
// the time, for a machine that goes in any case. A machine without a Node has nothing
// to drain.
func (c *Control) drain(ctx context.Context, m Machine, fit bool) (n fleet.Node, err error) {
	if n, err = c.own(ctx, m); err != nil || n.Name == "" {
		return n, err
	}
	if !n.Unschedulable {
		mark := "true"
		if err := c.Nodes.Annotate(ctx, n.Name, map[string]*string{AnnotationCordon: &mark}); err != nil {
			return n, err
		}
		if err := c.Nodes.SetUnschedulable(ctx, n.Name, true); err != nil {
			return n, err
		}
	}
	if !n.Ready {
		// Its kubelet would not confirm that the pods ended.
		c.report(m.Node, "not drained: the Node is not Ready")
		return n, nil
	}
	c.report(m.Node, "draining")
	err = c.Nodes.Drain(ctx, n.Name, cluster.DrainOptions{UID: n.UID, GracePeriod: -1, Deadline: c.DrainTimeout, Force: c.Force || fit, Fit: fit}, func(e cluster.DrainEvent) {
		if e.What == "blocked" {
			c.report(m.Node, "pod %s blocked by %s", e.Pod, e.Because)
		}
	})
	if err != nil && (!fit || !fleet.Is(err, fleet.KindBlocked)) {
		return n, err
	}
	return n, ctx.Err()
}

// release uncordons a Node that a command of ours cordoned.
func (c *Control) release(ctx context.Context, n fleet.Node) error {
	if n.Annotations[AnnotationCordon] == "" {
		return nil
	}
	if err := c.Nodes.SetUnschedulable(ctx, n.Name, false); err != nil {
		return err
	}
	return c.Nodes.Annotate(ctx, n.Name, map[string]*string{AnnotationCordon: nil})
}

// awaitReady waits until the machine's Node is Ready, in another boot than before's.
func (c *Control) awaitReady(ctx context.Context, m Machine, before fleet.Node) (fleet.Node, error) {
	deadline := c.Now().Add(c.ReadyTimeout)
	for {
		n, err := c.node(ctx, m)
		switch {
		case err != nil && !fleet.Is(err, fleet.KindTransient) && !fleet.Is(err, fleet.KindInvalid): // an earlier machine's, until the kubelet reports
			return n, err
		case err == nil && n.Ready && (before.BootID == "" || n.BootID != before.BootID):
			c.report(m.Node, "Ready")
			return n, nil
		case c.Now().After(deadline):
			why := cmp.Or(n.NotReadyWhy, "not Ready")
			if err != nil {
				why = err.Error()
			} else if n.Name == "" {
				why = "machine has no Node"
			}
			return n, &fleet.Error{Op: "wait for Node " + m.Node, Resource: string(m.ID), Kind: fleet.KindTimedOut, Err: errors.New(why),
				Remedy: "ortet nodes " + m.Node + " shows why; the same command goes on"}
		}
		if err := azure.Sleep(ctx, pollInterval); err != nil {
			return n, err
		}
	}
}

// back waits until a machine that was restarted is Ready, and uncordons it.
func (c *Control) back(ctx context.Context, m Machine, before fleet.Node) error {
	n, err := c.awaitReady(ctx, m, before)
	if err != nil {
		return err
	}
	return c.release(ctx, n)
}
