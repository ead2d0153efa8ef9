package capture

import (
	"cmp"
	"context"
	"maps"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// parts makes the parts of a capture. None knows another: what one needs of others is in what its
// Of returns, and what comes of it is a piece of the state.
func (c *capture) parts() {
	customData := func(ctx context.Context, sha string) (fleet.Secret, error) {
		return CustomData(ctx, c.Cluster, c.get().Pool, sha)
	}
	c.canary = canary.Canary{Cloud: c.Cloud, Cluster: c.Cluster, Log: c.Log, Now: c.Now, Note: c.Note, Outcome: workflow.PartOf(&c.mu, &c.s.Outcome),
		Of: c.cloned, CustomData: customData, Sizes: c.lookUp}
}

// cloned is what a canary is made of.
func (c *capture) cloned() canary.Version {
	s := c.get()
	return canary.Version{ID: s.Names.Version, Pool: s.Pool, Request: c.req, Capture: c.name, BuiltFrom: cmp.Or(s.BuiltFrom, c.req.Node),
		Tags: c.tags(nil), CustomData: cmp.Or(workflow.SkipIf(c.req.Bakes(), plan.NoopSHA256), s.CustomData, s.LastCustomData),
		NoCustomData: s.NoCustomData, Original: s.Original, LearnsOriginal: s.LearnsOriginal}
}

// CustomData returns the customData that has this SHA-256: the no-op of a baked model, or
// what was saved in a Secret.
func CustomData(ctx context.Context, c cluster.Cluster, pool fleet.ResourceID, sha string) (fleet.Secret, error) {
	if sha == plan.NoopSHA256 {
		return fleet.NewSecret(plan.NoopCustomData), nil
	}
	kept, err := c.GetSecret(ctx, pool, "customData", sha)
	return kept.Data, err
}

// imageTags are on the snapshot of the generalised copy and on the version made from it.
func (c *capture) imageTags() map[string]string {
	s := c.get()
	tags := c.tags(map[string]string{fleet.TagGeneralized: c.name, fleet.TagCustomData: s.CustomData, fleet.TagSecrets: s.Secrets})
	if c.req.Canary > 0 && s.NoCanary == "" {
		tags[fleet.TagCanary] = plan.Unjudged
	}
	maps.DeleteFunc(tags, func(_, value string) bool { return value == "" })
	return tags
}
