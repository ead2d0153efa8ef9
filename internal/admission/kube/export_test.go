package kube

import "context"

// EndIfDone is what Run does for a token that may have ended.
func (c *Cluster) EndIfDone(ctx context.Context, node string) error { return c.endIfDone(ctx, node) }
