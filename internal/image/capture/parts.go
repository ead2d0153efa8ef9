package capture

import (
	"cmp"
	"context"
	"maps"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/fresh"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// parts makes the parts of a capture. None knows another: what one needs of others is in what its
// Of returns, and what comes of it is a piece of the state.
func (c *capture) parts() {
	set := workflow.NewScaleSet(c.Cloud, c.Now)
	customData := func(ctx context.Context, sha string) (fleet.Secret, error) {
		return CustomData(ctx, c.Cluster, c.get().Pool, sha)
	}
	c.donor = donor.Donor{Cloud: c.Cloud, Cluster: c.Cluster, Now: c.Now, Note: c.Note, Machine: workflow.PartOf(&c.mu, &c.s.Machine),
		Taken: workflow.PartOf(&c.mu, &c.s.Taken), BuiltAt: workflow.PartOf(&c.mu, &c.s.BuiltAt), Of: c.source, Job: c.job, Recorded: c.Recorded}
	c.fresh = fresh.Raising{Cloud: c.Cloud, Cluster: c.Cluster, Log: c.Log, Now: c.Now, Set: set, Donor: workflow.PartOf(&c.mu, &c.s.Fresh),
		Job: func(component string) cluster.Job {
			name := plan.JobName(c.req.Fresh, c.name+"-"+component)
			return cluster.Job{Name: name, Image: c.Image, PullSecret: c.PullSecret, Labels: jobLabels(component)}
		},
		Of: func() fresh.Pool {
			return fresh.Pool{ID: c.req.Fresh, Capture: c.name, Soak: c.req.CanarySoak, Prepare: c.req.Prepare}
		}}
	c.version = version.Version{Cloud: c.Cloud, Set: set, Build: workflow.PartOf(&c.mu, &c.s.Build), Of: c.image, Elsewhere: c.elsewhere,
		Rename: func(id fleet.ResourceID) { c.set(func(s *state) { s.Names.Version = id }) }, Forget: c.dropManifest}
	c.canary = canary.Canary{Cloud: c.Cloud, Cluster: c.Cluster, Log: c.Log, Now: c.Now, Note: c.Note, Outcome: workflow.PartOf(&c.mu, &c.s.Outcome),
		Of: c.cloned, CustomData: customData, Sizes: c.lookUp, Boot: c.Boot}
	c.model = model.Model{Cloud: c.Cloud, Cluster: c.Cluster, Now: c.Now, Set: set, Changed: workflow.PartOf(&c.mu, &c.s.Changed),
		Inherited: workflow.PartOf(&c.mu, &c.s.Inherited), Of: c.target, CustomData: customData,
		KeepSettings: func(ctx context.Context, extension string, settings fleet.Secret) error {
			return c.keep(ctx, cluster.ExtensionSettings, extension, settings, nil)
		}}
}

// source is what the donor's disk is copied for.
func (c *capture) source() donor.Source {
	s := c.get()
	return donor.Source{Request: c.req, Capture: c.name, Names: s.Names, Pool: s.Pool, Location: s.Location, Encryption: s.Encryption,
		Tags: c.tags(nil), Namespace: c.Namespace, Leave: []string{inspectionPod(s.Pool)}, Disk: c.disk()}
}

// image is what a version is made of.
func (c *capture) image() version.Image {
	s := c.get()
	return version.Image{Request: c.req, Ortet: c.Version, Capture: c.name, Names: s.Names, Pool: s.Pool, Location: s.Location,
		Definition: s.Definition, Encryption: s.Encryption, Replicas: s.Replicas, Tags: c.imageTags(), Definitions: c.definitions,
		Found: s.BuiltFrom != "", DonorGone: s.DonorGone, Proved: s.Proved}
}

// target is what the model is changed to.
func (c *capture) target() model.Target {
	s := c.get()
	return model.Target{Request: c.req, Pool: s.Pool, Version: s.Names.Version, CustomData: s.CustomData, Definitions: c.definitions,
		Watched: len(c.Next) > 0}
}

// cloned is what a canary is made of.
func (c *capture) cloned() canary.Version {
	s := c.get()
	return canary.Version{ID: s.Names.Version, Pool: s.Pool, Request: c.req, Capture: c.name,
		Tags: c.tags(nil), Tuned: wire.SplitTunings(s.Tuned),
		CustomData:   cmp.Or(workflow.SkipIf(c.req.Bakes(), plan.NoopSHA256), s.CustomData, s.LastCustomData),
		NoCustomData: s.NoCustomData, Original: s.Original, LearnsOriginal: s.LearnsOriginal}
}

// disk is what is known of the donor's disk, or of its copy.
func (c *capture) disk() report.Disk {
	s := c.get()
	return report.Disk{Request: c.req, LastCustomData: s.LastCustomData, ToDelete: s.ToDelete, LearnsOriginal: s.LearnsOriginal}
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
	tags := c.tags(map[string]string{fleet.TagGeneralized: c.name, fleet.TagManifest: s.Manifest,
		fleet.TagCustomData: s.CustomData, fleet.TagSecrets: s.Secrets, fleet.TagTuned: s.Tuned})
	if c.req.Canary > 0 && s.NoCanary == "" {
		tags[fleet.TagCanary] = plan.Unjudged
	}
	maps.DeleteFunc(tags, func(_, value string) bool { return value == "" })
	return tags
}
