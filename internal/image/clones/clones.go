// Package clones reads a scale set's instances with their Nodes, pods and boots, for internal/image/prove,
// and keeps workloads off a clone's Node.
package clones

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
)

// Nodes returns all of the cluster.
func Nodes(ctx context.Context, c interface {
	Nodes(ctx context.Context) iter.Seq2[fleet.Node, error]
}) (all []fleet.Node, err error) {
	for n, err := range c.Nodes(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// MaxSiblings bounds the pool's other nodes whose pods are read.
const MaxSiblings = 3

// Pods reads the pods of at most limit of those clones whose Node is Ready and that are wanted;
// nil wants all.
func Pods(ctx context.Context, c cluster.Cluster, clones []prove.Clone, limit int, wanted func(prove.Clone) bool) (err error) {
	for i := range clones {
		if x := &clones[i]; limit > 0 && x.Node != nil && x.Node.Ready && (wanted == nil || wanted(*x)) {
			limit--
			if x.Pods, err = c.Pods(ctx, x.Node.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Pair reads a scale set's instances and their Nodes.
func Pair(ctx context.Context, cloud azure.Reader, c cluster.Cluster, set fleet.ResourceID) ([]prove.Clone, error) {
	instances, err := cloud.Instances(ctx, set)
	if err != nil {
		return nil, err
	}
	nodes, err := Nodes(ctx, c)
	if err != nil {
		return nil, err
	}
	return prove.Pair(instances, nodes), nil
}

// SetAside isolates a clone's Node, and evicts what was scheduled there before. That pods do not
// leave in time is no error.
func SetAside(ctx context.Context, c cluster.Cluster, log *slog.Logger, n fleet.Node, within time.Duration) error {
	if err := c.Isolate(ctx, n.Name); err != nil {
		return err
	}
	drain := cluster.DrainOptions{UID: n.UID, GracePeriod: -1, Deadline: within, Fit: true}
	if err := c.Drain(ctx, n.Name, drain, nil); err != nil {
		log.Debug("cannot empty a clone", "node", n.Name, "error", err)
	}
	return nil
}
