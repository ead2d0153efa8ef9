package kube

import (
	"context"

	"github.com/ortet/ortet/internal/cluster/lead"
)

// LeadName is the Lease in Ortet's namespace by which replicas agree who does what
// one is enough for.
const LeadName = "ortet-admission"

// Lead runs run while this replica leads, as lead.Run does. identity is the replica's own, as its
// pod's name.
func (c *Cluster) Lead(ctx context.Context, identity string, run func(context.Context)) error {
	return lead.Run(ctx, lead.Config{Client: c.client, Namespace: c.namespace, Name: LeadName, Identity: identity, Log: c.log}, run)
}
