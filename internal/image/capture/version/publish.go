package version

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// prune deletes what lies beyond the history, one by one, and reads before each which versions
// are in use. One that cannot be deleted is listed, and is no failure.
func (x *Version) prune(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if !p.IsDone(StepLive) { // what was live may not be told from what was not
		return done, nil
	}
	if x.deleting == "" {
		i := x.Of()
		versions, versionsErr := azure.VersionsOf(ctx, x.Cloud, i.Definitions...)
		uses, err := x.Cloud.Uses(ctx, i.Definitions...)
		if err = cmp.Or(versionsErr, err); err != nil {
			return done, err
		}
		old, kept := plan.Prune(versions, uses, i.Names.Version, i.Request.History, x.Cloud.Now())
		next := slices.IndexFunc(old, func(v fleet.ImageVersion) bool { return !slices.Contains(x.tried, v.Name) })
		if next < 0 {
			x.Kept = append(x.Kept, kept...)
			return done, nil
		}
		x.deleting, x.pruneFails, x.manifest = old[next].ID, old[next].ProvisioningState == plan.Failed, old[next].Tags[fleet.TagManifest]
		if slices.ContainsFunc(versions, func(v fleet.ImageVersion) bool {
			return v.Tags[fleet.TagManifest] == x.manifest && !v.ID.Equal(x.deleting)
		}) {
			x.manifest = ""
		}
	}
	name, status := x.deleting.Name(), "deleted"
	w, err := p.Ensure(ctx, fleet.DeleteVersion{ID: x.deleting}, workflow.Gone(x.Cloud.Version, x.deleting, nil))
	switch {
	case w.RequeueAfter > 0, ctx.Err() != nil, fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut),
		fleet.Is(err, fleet.KindConflict) && !x.pruneFails: // a soft delete refuses a Failed one for good
		return w, err
	case err != nil:
		status = "cannot delete"
		x.Kept = append(x.Kept, name+": "+err.Error())
	default:
		x.Pruned = append(x.Pruned, name)
		if x.manifest != "" {
			x.Forget(ctx, x.manifest)
		}
	}
	x.tried, x.deleting = append(x.tried, name), ""
	return workflow.In(time.Millisecond, "%s %s", status, name), nil
}

// publish tags the version, and includes it in the definition's latest unless the request
// excludes it.
func (x *Version) publish(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	i := x.Of()
	id, value := i.Names.Version, ""
	if i.Proved {
		value = x.Cloud.Now().UTC().Format(time.RFC3339)
	}
	v, err := x.Cloud.Version(ctx, id)
	if err != nil {
		return done, err
	}
	tags := map[string]string{}
	judged := i.Proved || plan.IsUnjudged(v) // else an earlier capture decided on proof and latest
	if judged {
		tags[fleet.TagCanary] = value
	}
	if !i.Request.PublishOnly {
		maps.Copy(tags, plan.WentLive())
	}
	latest := judged && !i.Request.ExcludeFromLatest && !plan.AgainNamed(id.Name()) && !x.Build.Get().Excluded
	var change fleet.Change = fleet.TagVersion{ID: id, Tags: tags}
	if latest && v.ExcludeFromLatest {
		change = fleet.PublishVersion{ID: id, Tags: tags}
	}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		v, err := x.Cloud.Version(ctx, id)
		return err == nil && v.ProvisioningState == plan.Succeeded && !plan.IsUnjudged(v) && (i.Request.PublishOnly || !plan.IsMarked(v)) &&
			(!judged || (v.Tags[fleet.TagCanary] != "") == i.Proved) && !(latest && v.ExcludeFromLatest), err
	})
}

// A Published image version is what another tool needs to make machines of it.
type Published struct {
	Subscription      string           `json:"subscription"`
	ResourceGroup     string           `json:"resourceGroup"`
	Gallery           string           `json:"gallery"`
	Definition        string           `json:"definition"`
	DefinitionID      fleet.ResourceID `json:"definitionId"`
	Version           string           `json:"version"`
	Location          string           `json:"location"`
	Regions           []string         `json:"regions"`
	ExcludeFromLatest bool             `json:"excludeFromLatest"`
	OSState           string           `json:"osState"`
	Generation        string           `json:"generation"`
	Architecture      string           `json:"architecture"`
	SecurityType      string           `json:"securityType,omitempty"`
	Controllers       string           `json:"controllers,omitempty"`
	PlanPublisher     string           `json:"planPublisher,omitempty"` // the Marketplace plan that machines have to name
	PlanProduct       string           `json:"planProduct,omitempty"`
	PlanName          string           `json:"planName,omitempty"`
}

// Read reads the version and its definition. Of what cannot be read the result has the
// names alone.
func (x *Version) Read(ctx context.Context) (p Published, err error) {
	names := x.Of().Names
	id := names.Version
	v, versionErr := x.Cloud.Version(ctx, id)
	d, err := x.Cloud.Definition(ctx, names.Definition)
	return Published{
		Subscription: id.Segment("subscriptions"), ResourceGroup: id.Segment("resourceGroups"),
		Gallery: id.Segment("galleries"), Definition: id.Segment("images"), DefinitionID: names.Definition, Version: id.Name(),
		Location: v.Location, Regions: v.Regions, ExcludeFromLatest: v.ExcludeFromLatest,
		OSState: d.OSState, Generation: d.Generation, Architecture: d.Architecture, SecurityType: d.SecurityType, Controllers: d.Controllers,
		PlanPublisher: d.PlanPublisher, PlanProduct: d.PlanProduct, PlanName: d.PlanName,
	}, cmp.Or(versionErr, err)
}
