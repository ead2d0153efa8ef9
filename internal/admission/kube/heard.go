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
	err := c.eachLease(ctx, "metadata.name="+node, func(l *coordinationv1.Lease) { at = renewedAt(l) })
	return at, err
}

// renewedAt returns when a Lease was renewed, by the kubelet's clock or by the API
// server's, whichever is later; zero if never. A kubelet whose clock is behind would
// otherwise count as silent. The API server sets the times of managed fields.
func renewedAt(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	at := l.Spec.RenewTime.Time
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}
