package kube

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Heard implements admission.Cluster. It is a list of one, since reaping needs lists and
// nothing needs get.
func (c *Cluster) Heard(ctx context.Context, node string) (time.Time, error) {
	var at time.Time
	err := c.eachLease(ctx, "metadata.name="+node, func(l *coordinationv1.Lease) {
		if l.Spec.RenewTime != nil {
			at = l.Spec.RenewTime.Time
		}
	})
	return at, err
}
