package kube

import (
	"context"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// HeldUntil implements admission.Cluster.
func (c *Cluster) HeldUntil(ctx context.Context, pool fleet.ResourceID) (time.Time, error) {
	holding, held, err := c.leases.Holding(ctx, string(pool))
	if err != nil || !held {
		return time.Time{}, err
	}
	return holding.Until, nil
}
