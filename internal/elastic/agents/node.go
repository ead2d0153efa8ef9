package agents

import (
	"context"
	"errors"
	"time"

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
// to drain; gone is true for it.
func (c *Control) drain(ctx context.Context, m Machine, fit bool) (n fleet.Node, gone bool, err error) {
	n, err = c.Nodes.Node(ctx, m.Node)
	if fleet.Is(err, fleet.KindNotFound) {
		return n, true, nil
	}
	if err != nil {
		return n, false, err
	}
	if !n.Unschedulable {
		mark := "true"
		if err := c.Nodes.Annotate(ctx, n.Name, map[string]*string{AnnotationCordon: &mark}); err != nil {
			return n, false, err
		}
		if err := c.Nodes.SetUnschedulable(ctx, n.Name, true); err != nil {
			return n, false, err
		}
	}
	if !n.Ready {
		// Its kubelet would not confirm that the pods ended.
		c.report(m.Node, "not drained: the Node is not Ready")
		return n, false, nil
	}
	c.report(m.Node, "draining")
	err = c.Nodes.Drain(ctx, n.Name, cluster.DrainOptions{UID: n.UID, GracePeriod: -1, Deadline: c.DrainTimeout, Force: c.Force || fit, Fit: fit}, func(e cluster.DrainEvent) {
		if e.What == "blocked" {
			c.report(m.Node, "pod %s blocked by %s", e.Pod, e.Because)
		}
	})
	if err != nil && !fit {
		return n, false, err
	}
	return n, false, ctx.Err()
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

// awaitReady waits until the machine's Node is Ready and accepted; nil accepts all.
func (c *Control) awaitReady(ctx context.Context, m Machine, accept func(fleet.Node) bool) (fleet.Node, error) {
	deadline := c.Now().Add(c.ReadyTimeout)
	var why string
	for {
		n, err := c.Nodes.Node(ctx, m.Node)
		switch {
		case err == nil && n.Ready && (accept == nil || accept(n)):
			return n, nil
		case err == nil:
			why = n.NotReadyWhy
		case fleet.Is(err, fleet.KindNotFound):
			why = "it has no Node"
		case !fleet.Is(err, fleet.KindTransient):
			return n, err
		}
		if c.Now().After(deadline) {
			if why == "" {
				why = "not Ready"
			}
			return n, &fleet.Error{Op: "wait for Node " + m.Node, Resource: string(m.ID), Kind: fleet.KindTimedOut, Err: errors.New(why),
				Remedy: "ortet nodes " + m.Node + " shows why; the same command goes on"}
		}
		if err := pause(ctx, pollInterval); err != nil {
			return n, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
