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
func (c *Control) drain(ctx context.Context, m Machine, fit bool) (fleet.Node, error) {
	n, err := c.own(ctx, m)
	if err != nil || n.Name == "" {
		return n, err
	}
	if !n.Unschedulable {
		if err = c.Nodes.Annotate(ctx, n.Name, map[string]*string{AnnotationCordon: new("true")}); err == nil {
			err = c.Nodes.SetUnschedulable(ctx, n.Name, true)
		}
	}
	if err == nil {
		options := cluster.DrainOptions{GracePeriod: -1, Deadline: c.DrainTimeout, Force: c.Force || fit, Fit: fit}
		err = cluster.DrainReady(ctx, c.Nodes, n, options, func(text string) { c.report(m.Node, "%s", text) })
	}
	if fit && fleet.Is(err, fleet.KindBlocked) {
		err = nil
	}
	return n, cmp.Or(err, ctx.Err())
}

// release uncordons a Node that a command of ours cordoned.
func (c *Control) release(ctx context.Context, n fleet.Node) error {
	if n.Annotations[AnnotationCordon] == "" {
		return nil
	}
	return cluster.Uncordon(ctx, c.Nodes, n.Name, AnnotationCordon)
}

// back waits until the machine's Node is Ready, in another boot than that one, and releases it.
func (c *Control) back(ctx context.Context, m Machine, boot string) error {
	for deadline := c.Now().Add(c.ReadyTimeout); ; {
		n, err := c.node(ctx, m)
		why := n.NotBack(boot)
		switch {
		case err != nil && !fleet.Is(err, fleet.KindTransient, fleet.KindInvalid): // an earlier machine's, until the kubelet reports
			return err
		case err == nil && why == "":
			c.report(m.Node, "Ready")
			return c.release(ctx, n)
		case c.Now().After(deadline):
			return &fleet.Error{Op: "wait for Node " + m.Node, Resource: string(m.ID), Kind: fleet.KindTimedOut, Err: cmp.Or(err, errors.New(why)),
				Remedy: "ortet nodes " + m.Node + " shows why; the same command goes on"}
		}
		if err := azure.Sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}
