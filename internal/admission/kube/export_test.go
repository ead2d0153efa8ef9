package kube

import "context"

// RequestsSeen names the certificate requests for a node that are watched.
func (c *Cluster) RequestsSeen(node string) []string { return c.watched.Load().requestsFor(node) }

// EndIfDone is what Run does for a token that may have ended.
func (c *Cluster) EndIfDone(ctx context.Context, node string) error {
	s, err := c.sealer(ctx)
	if err != nil {
		return err
	}
	return c.endIfDone(ctx, s.tokenID(node))
}
