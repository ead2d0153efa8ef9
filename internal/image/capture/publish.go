package capture

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// publishOnly returns why the rows behind the version are skipped. Versions are not pruned,
// since Azure does not show what names them in a template.
func (c *capture) publishOnly() string {
	return workflow.SkipIf(c.req.PublishOnly, "the version is only published")
}

// model points the pool's model at the version. There is no undo: the operation's end is
// awaited, and before and after it the model names an image that exists.
func (c *capture) model(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	data, err := c.customData(ctx)
	if err != nil {
		return done, err
	}
	image := fleet.ImageReference{ID: s.Names.Version}
	change := func(pool fleet.Pool) fleet.Change {
		return fleet.PatchModel{Pool: s.Pool, Image: image, CustomData: data, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool { return pool.Model.Image.Same(image) }
	w, err := c.Change(ctx, p, s.Pool, change, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := c.mayChange(ctx, pool); err != nil || data == nil {
			return err
		}
		sha := plan.SHA256(data.Reveal())
		if sha != c.get().LastCustomData && !c.req.Bakes() {
			p.Note("the model's customData is replaced by what the nodes of %s need", image.ID.Name())
		}
		c.set(func(s *state) { s.LastCustomData = sha })
		return nil
	})
	if err == nil && w.RequeueAfter == 0 {
		c.set(func(s *state) { s.ModelChanged, s.Unfinished = true, nil })
	}
	return w, err
}

// customData returns what the version needs; nil leaves the model's, if Ortet never set it. What
// Ortet set last is set again, since a crash may have lost that write.
func (c *capture) customData(ctx context.Context) (*fleet.Secret, error) {
	s := c.get()
	want, last := s.CustomData, s.LastCustomData
	switch {
	case c.req.Bakes():
		want = plan.NoopSHA256
	case want == "", want != plan.NoopSHA256 && last == "":
		return nil, nil
	}
	data, err := CustomData(ctx, c.Cluster, s.Pool, want)
	if fleet.Is(err, fleet.KindNotFound) && last == want {
		return nil, nil
	} else if fleet.Is(err, fleet.KindNotFound) {
		err = fleet.Invalid("patch model", string(s.Names.Version), "capture with --bootstrap baked",
			"this version's nodes need other customData than the model's, which is not kept (SHA-256 %s)", want)
	}
	return &data, err
}

// mayChange repeats preflight's checks, and refuses to go back: only a rollback does.
func (c *capture) mayChange(ctx context.Context, pool fleet.Pool) error {
	s := c.get()
	if err := plan.ModelProblems(pool, c.req.AllowRolling, c.req.ExcludeFromLatest, c.req.AllowOwned).Err("patch model", string(pool.ID)); err != nil {
		return err
	}
	versions, err := c.versions(ctx)
	used, known := plan.VersionOf(versions, pool.Model.Image, pool.Location)
	if ours, there := plan.FindVersion(versions, s.Names.Version); known && there && plan.Newer(used, ours) {
		return fleet.Invalid("patch model", string(pool.ID), "to use the older one: ortet rollback --to "+ours.Name,
			"the model uses %s by now, which is newer than %s", used.Name, ours.Name)
	}
	return err
}

// extensions deletes what bootstrapped the donor, dependents first, until the scale set
// as it was read last has none of them. Azure shows no settings of a deleted extension:
// they are saved right before.
func (c *capture) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if _, err := c.ScaleSet.Pool(ctx, s.Pool); err != nil {
		return done, err
	}
	toDelete, _ := c.req.Extensions.ToDelete(c.Last.Model.Extensions)
	if len(toDelete) == 0 {
		return done, nil
	}
	e := toDelete[0]
	name, settings := e.Name, e.Settings
	change := func(fleet.Pool) fleet.Change { return fleet.DeleteExtension{Pool: s.Pool, Name: name} }
	is := func(pool fleet.Pool) bool {
		return !slices.ContainsFunc(pool.Model.Extensions, func(e fleet.Extension) bool { return strings.EqualFold(e.Name, name) })
	}
	return workflow.GoOn(c.Change(ctx, p, s.Pool, change, is, func(ctx context.Context, _ fleet.Pool) error {
		c.set(func(s *state) { s.Deletes(e) })
		if err := p.Save(ctx); err != nil || settings.Reveal() == "" {
			return err
		}
		return c.keep(ctx, cluster.ExtensionSettings, name, settings, nil)
	}))
}

func (c *capture) gallery(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	change := fleet.CreateGallery{ID: s.Names.Gallery, Location: s.Location, Tags: map[string]string{
		fleet.TagCreatedBy: "ortet " + c.Version, fleet.TagReason: "prototypes of scale sets in " + s.Pool.Segment("resourceGroups"),
	}}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		_, err := c.Cloud.Gallery(ctx, s.Names.Gallery)
		return err == nil, fleet.IgnoreNotFound(err)
	})
}

func (c *capture) definition(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	w, err := p.Ensure(ctx, fleet.CreateDefinition{Definition: s.Definition}, func(ctx context.Context) (bool, error) {
		d, err := c.Cloud.Definition(ctx, s.Names.Definition)
		if err == nil {
			err = c.elsewhere(d)
		}
		if err == nil && !plan.SameKind(d, s.Definition) {
			err = fleet.Invalid("create image definition", string(d.ID), "repeat the command, which takes another", "it exists by now, and is of another kind")
		}
		return err == nil && !azure.Busy(d.ProvisioningState), fleet.IgnoreNotFound(err)
	})
	if left := claimSettles - p.Since(); err == nil && w.RequeueAfter == 0 && left > 0 {
		w = workflow.In(left, "reading back which namespace has the pool")
	}
	return w, err
}

const (
	maxBuilds    = 3                // how often a version is built that Azure fails to build
	versionEvery = 15 * time.Second // how often another's version is read until it ends
)

// version builds the image version: zone-redundant, or locally redundant if the region
// refuses that. A version that another capture builds is waited for, a Failed one is built again.
func (c *capture) version(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.get().DonorGone {
		return done, errors.New("the donor was deleted during the capture")
	}
	change, err := c.newVersion(ctx)
	if err != nil {
		return done, err
	}
	var there fleet.ImageVersion
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		there, err = c.Cloud.Version(ctx, change.ID)
		if there.ProvisioningState == plan.Failed && c.builds == 0 { // Ensure returns the operation's error
			c.builds++
			return false, nil
		}
		return err == nil, fleet.IgnoreNotFound(err)
	})
	by := there.Tags[fleet.TagCapture]
	switch {
	case fleet.Is(err, fleet.KindConflict):
		return done, c.otherName(ctx, err)
	case err == nil && there.ID != "" && by != c.name && c.get().BuiltFrom == "" && // preflight found none, or a Failed one of Ortet's
		(there.ProvisioningState != plan.Failed || !plan.Ours(there.Tags)):
		return done, fleet.Invalid("create image version", string(change.ID),
			"run the same command again: it uses that version, or reports why not",
			"%s made a version of this name since this capture began", cmp.Or(by, "another tool"))
	case fleet.Is(err, fleet.KindUnsupported) && change.StorageType == fleet.ZRS:
		c.set(func(s *state) { s.StorageType = fleet.LRS })
		return workflow.In(time.Millisecond, "building it locally redundant: %v", err), nil
	case err != nil || w.RequeueAfter > 0 || there.ProvisioningState == plan.Succeeded:
		return w, err
	case there.ProvisioningState != plan.Failed || !plan.Ours(there.Tags): // begun by another process, or being deleted
		return workflow.Wait{RequeueAfter: versionEvery, Percent: there.Progress, Status: "Azure: " + there.ProvisioningState}, nil
	case c.builds >= maxBuilds:
		return done, fleet.Invalid("create image version", string(change.ID), "", "Azure failed to build it: %s",
			cmp.Or(there.FailureMessage, "no reason given"))
	}
	if w, err = p.Ensure(ctx, fleet.DeleteVersion{ID: change.ID}, workflow.Gone(c.Cloud.Version, change.ID, nil)); err == nil && w.RequeueAfter == 0 {
		c.builds++
	} else if fleet.Is(err, fleet.KindConflict) {
		err = c.otherName(ctx, err)
	}
	return workflow.GoOn(w, err)
}

// otherName plans the capture again with another name for its version, where the gallery deletes
// softly: the name of a deleted version is taken there, and a Failed one cannot be deleted
// (azure-compute-docs, soft-delete-gallery). Otherwise it returns the refusal.
func (c *capture) otherName(ctx context.Context, refusal error) error {
	names := c.get().Names
	if g, err := c.Cloud.Gallery(ctx, names.Gallery); err != nil || !g.SoftDelete {
		return refusal
	}
	c.set(func(s *state) {
		s.Names.Version = names.Definition.Child("versions", plan.VersionName(c.Cloud.Now(), true))
	})
	return workflow.Replan("gallery %s deletes softly, and version %s is made under another name: %w", names.Gallery.Name(), names.Version.Name(), refusal)
}

// newVersion makes the version from the generalised snapshot.
func (c *capture) newVersion(ctx context.Context) (change fleet.CreateVersion, err error) {
	s := c.get()
	id := s.Names.Version
	change = fleet.CreateVersion{
		ID: id, Location: s.Location, Source: s.Names.Generalized, Replicas: s.Replicas, ReplicationMode: fleet.ReplicationFull,
		StorageType:       cmp.Or(s.StorageType, fleet.ZRS),
		ExcludeFromLatest: c.req.ExcludeFromLatest || plan.AgainNamed(id.Name()),
		Tags:              c.imageTags(),
		EncryptionSet:     s.Encryption.Set,
	}
	made := c.Cloud.Now().UTC().Format(time.RFC3339)
	if change.Tags[fleet.TagNotLive] = made; c.req.PublishOnly {
		change.Tags[fleet.TagPublished] = made
	}
	if c.req.Shallow {
		change.Replicas, change.ReplicationMode, change.StorageType = 1, fleet.ReplicationShallow, fleet.LRS
	}
	if c.req.Bakes() && !change.ExcludeFromLatest {
		// New nodes of a model that refers to the definition would get the version before
		// the customData that goes with it.
		_, err = c.ScaleSet.Pool(ctx, s.Pool)
		change.ExcludeFromLatest = c.Last.Model.Image.LatestOf().Equal(s.Names.Definition)
	}
	c.set(func(s *state) { s.Excluded = change.ExcludeFromLatest })
	change.ExcludeFromLatest = change.ExcludeFromLatest || change.Tags[fleet.TagCanary] != ""
	return change, err
}

// deleteVersion deletes a version that is not complete.
func (c *capture) deleteVersion(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	id := c.get().Names.Version
	return p.Ensure(ctx, fleet.DeleteVersion{ID: id}, workflow.Gone(c.Cloud.Version, id, func(v fleet.ImageVersion) bool {
		return v.ProvisioningState == plan.Succeeded || v.Tags[fleet.TagCapture] != c.name
	}))
}

// prune deletes what lies beyond the history, one by one, and reads before each which versions
// are in use. One that cannot be deleted is listed, and is no failure.
func (c *capture) prune(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if !p.IsDone(stepLive) { // what was live may not be told from what was not
		return done, nil
	}
	if c.deleting == "" {
		s := c.get()
		versions, versionsErr := c.versions(ctx)
		uses, err := c.Cloud.Uses(ctx, c.definitions...)
		if err = cmp.Or(versionsErr, err); err != nil {
			return done, err
		}
		old, kept := plan.Prune(versions, uses, s.Names.Version, c.req.History, c.Cloud.Now())
		next := slices.IndexFunc(old, func(v fleet.ImageVersion) bool { return !c.tried[v.Name] })
		if next < 0 {
			c.result.Kept = append(c.result.Kept, kept...)
			return done, nil
		}
		c.deleting, c.pruneFails = old[next].ID, old[next].ProvisioningState == plan.Failed
	}
	name, status := c.deleting.Name(), "deleted"
	w, err := p.Ensure(ctx, fleet.DeleteVersion{ID: c.deleting}, workflow.Gone(c.Cloud.Version, c.deleting, nil))
	switch {
	case w.RequeueAfter > 0, ctx.Err() != nil, fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut),
		fleet.Is(err, fleet.KindConflict) && !c.pruneFails: // a soft delete refuses a Failed one for good
		return w, err
	case err != nil:
		status = "cannot delete"
		c.result.Kept = append(c.result.Kept, name+": "+err.Error())
	default:
		c.result.Pruned = append(c.result.Pruned, name)
	}
	c.tried[name], c.deleting = true, ""
	return workflow.In(time.Millisecond, "%s %s", status, name), nil
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

// published reads the version and its definition. Of what cannot be read the result has the
// names alone.
func (s *Service) published(ctx context.Context, st state) (p Published, err error) {
	id := st.Names.Version
	v, versionErr := s.Cloud.Version(ctx, id)
	d, err := s.Cloud.Definition(ctx, st.Names.Definition)
	return Published{
		Subscription: id.Segment("subscriptions"), ResourceGroup: id.Segment("resourceGroups"),
		Gallery: id.Segment("galleries"), Definition: id.Segment("images"), DefinitionID: st.Names.Definition, Version: id.Name(),
		Location: v.Location, Regions: v.Regions, ExcludeFromLatest: v.ExcludeFromLatest,
		OSState: d.OSState, Generation: d.Generation, Architecture: d.Architecture, SecurityType: d.SecurityType, Controllers: d.Controllers,
		PlanPublisher: d.PlanPublisher, PlanProduct: d.PlanProduct, PlanName: d.PlanName,
	}, cmp.Or(versionErr, err)
}

// publish tags the version, and includes it in the definition's latest unless the request
// excludes it.
func (c *capture) publish(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	id, value := s.Names.Version, ""
	if s.Proved {
		value = c.Cloud.Now().UTC().Format(time.RFC3339)
	}
	v, err := c.Cloud.Version(ctx, id)
	if err != nil {
		return done, err
	}
	tags := map[string]string{}
	judged := s.Proved || plan.IsUnjudged(v) // else an earlier capture decided on proof and latest
	if judged {
		tags[fleet.TagCanary] = value
	}
	if !c.req.PublishOnly {
		maps.Copy(tags, plan.WentLive())
	}
	latest := judged && !c.req.ExcludeFromLatest && !plan.AgainNamed(id.Name()) && !s.Excluded
	var change fleet.Change = fleet.TagVersion{ID: id, Tags: tags}
	if latest && v.ExcludeFromLatest {
		change = fleet.PublishVersion{ID: id, Tags: tags}
	}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, id)
		return err == nil && v.ProvisioningState == plan.Succeeded && !plan.IsUnjudged(v) && (c.req.PublishOnly || !plan.IsMarked(v)) &&
			(!judged || (v.Tags[fleet.TagCanary] != "") == s.Proved) && !(latest && v.ExcludeFromLatest), err
	})
}
