package arm

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	typeGallery    = "galleries"
	typeDefinition = "galleries/images"
	typeVersion    = "galleries/images/versions"
)

// The features of an image definition that matter here.
const (
	featureSecurity    = "SecurityType"
	featureController  = "DiskControllerTypes"
	featureAccelerated = "IsAcceleratedNetworkSupported"
	featureHibernation = "IsHibernateSupported"
)

// Gallery returns a gallery.
func (c *Cloud) Gallery(ctx context.Context, id fleet.ResourceID) (fleet.Gallery, error) {
	const op = "get gallery"
	p, err := c.at(id, typeGallery)
	if err != nil {
		return fleet.Gallery{}, failed(ctx, op, id, err)
	}
	r, err := p.NewGalleriesClient().Get(ctx, p.group, p.names[0], nil)
	if err != nil {
		return fleet.Gallery{}, failed(ctx, op, id, err)
	}
	g := fleet.Gallery{ID: fleet.ResourceID(text(r.ID)), Location: text(r.Location), Tags: tagsOf(r.Tags)}
	if r.Properties != nil && r.Properties.SoftDeletePolicy != nil {
		g.SoftDelete = value(r.Properties.SoftDeletePolicy.IsSoftDeleteEnabled)
	}
	return g, nil
}

// Definition returns an image definition.
func (c *Cloud) Definition(ctx context.Context, id fleet.ResourceID) (fleet.Definition, error) {
	const op = "get image definition"
	p, err := c.at(id, typeDefinition)
	if err != nil {
		return fleet.Definition{}, failed(ctx, op, id, err)
	}
	r, err := p.NewGalleryImagesClient().Get(ctx, p.group, p.names[0], p.names[1], nil)
	if err != nil {
		return fleet.Definition{}, failed(ctx, op, id, err)
	}
	return definitionOf(&r.GalleryImage), nil
}

// Definitions lists a gallery's image definitions.
func (c *Cloud) Definitions(ctx context.Context, gallery fleet.ResourceID) ([]fleet.Definition, error) {
	const op = "list image definitions"
	p, err := c.at(gallery, typeGallery)
	if err != nil {
		return nil, failed(ctx, op, gallery, err)
	}
	var out []fleet.Definition
	err = failed(ctx, op, gallery, list(ctx, c, c.address(p.id+"/images", galleryVersion), func(r *armcompute.GalleryImage) error {
		out = append(out, definitionOf(r))
		return nil
	}))
	if err != nil {
		return nil, fleet.IgnoreNotFound(err)
	}
	return out, nil
}

func definitionOf(r *armcompute.GalleryImage) fleet.Definition {
	d := fleet.Definition{ID: fleet.ResourceID(text(r.ID)), Location: text(r.Location), Tags: tagsOf(r.Tags)}
	q := r.Properties
	if q == nil {
		return d
	}
	d.OSState = text(q.OSState)
	d.Linux = strings.EqualFold(text(q.OSType), "Linux")
	d.Generation = text(q.HyperVGeneration)
	d.Architecture = text(q.Architecture)
	d.ProvisioningState = text(q.ProvisioningState)
	if i := q.Identifier; i != nil {
		d.Publisher, d.Offer, d.SKU = text(i.Publisher), text(i.Offer), text(i.SKU)
	}
	if l := q.PurchasePlan; l != nil {
		d.PlanName, d.PlanProduct, d.PlanPublisher = text(l.Name), text(l.Product), text(l.Publisher)
	}
	for _, f := range q.Features {
		if f == nil {
			continue
		}
		switch v := text(f.Value); {
		case strings.EqualFold(text(f.Name), featureSecurity):
			d.SecurityType = v
		case strings.EqualFold(text(f.Name), featureController):
			d.Controllers = v
		case strings.EqualFold(text(f.Name), featureAccelerated):
			d.Accelerated, _ = strconv.ParseBool(v) // anything else is no
		case strings.EqualFold(text(f.Name), featureHibernation):
			d.Hibernates, _ = strconv.ParseBool(v)
		}
	}
	return d
}

func (c *Cloud) createGallery(ctx context.Context, ch fleet.CreateGallery) (fleet.Token, error) {
	p, err := c.at(ch.ID, typeGallery)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	_, err = c.Gallery(ctx, ch.ID)
	return creating(ch, stateSucceeded, nil, err, func() (fleet.Token, error) {
		op, err := p.NewGalleriesClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], armcompute.Gallery{
			Location:   ptr(ch.Location),
			Tags:       toTags(ch.Tags),
			Properties: &armcompute.GalleryProperties{},
		}, nil)
		return begun(ctx, ch, op, err)
	})
}

// createDefinition states every immutable fact. What is left out gets defaults
// that changed over time: from API 2025-03-03 on V2 and TrustedLaunchSupported.
func (c *Cloud) createDefinition(ctx context.Context, ch fleet.CreateDefinition) (fleet.Token, error) {
	d := ch.Definition
	p, err := c.at(d.ID, typeDefinition)
	if err != nil {
		return "", failed(ctx, ch.Verb(), d.ID, err)
	}
	os := armcompute.OperatingSystemTypesWindows
	if d.Linux {
		os = armcompute.OperatingSystemTypesLinux
	}
	q := &armcompute.GalleryImageProperties{
		OSType:           ptr(os),
		OSState:          ptr(armcompute.OperatingSystemStateTypes(d.OSState)),
		HyperVGeneration: ptr(armcompute.HyperVGeneration(d.Generation)),
		Architecture:     ptr(armcompute.Architecture(d.Architecture)),
		Identifier: &armcompute.GalleryImageIdentifier{
			Publisher: ptr(d.Publisher), Offer: ptr(d.Offer), SKU: ptr(d.SKU),
		},
		Features: featuresOf(d),
	}
	if d.PlanName != "" || d.PlanProduct != "" || d.PlanPublisher != "" {
		q.PurchasePlan = &armcompute.ImagePurchasePlan{
			Name: orNil(d.PlanName), Product: orNil(d.PlanProduct), Publisher: orNil(d.PlanPublisher),
		}
	}
	have, err := c.Definition(ctx, d.ID)
	return creating(ch, have.ProvisioningState, nil, err, func() (fleet.Token, error) {
		op, err := p.NewGalleryImagesClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], p.names[1], armcompute.GalleryImage{
			Location:   ptr(d.Location),
			Tags:       toTags(d.Tags),
			Properties: q,
		}, nil)
		return begun(ctx, ch, op, err)
	})
}

func featuresOf(d fleet.Definition) []*armcompute.GalleryImageFeature {
	var out []*armcompute.GalleryImageFeature
	add := func(name, v string) {
		if v != "" {
			out = append(out, &armcompute.GalleryImageFeature{Name: ptr(name), Value: ptr(v)})
		}
	}
	security := d.SecurityType
	if security == "" && strings.EqualFold(d.Generation, "V2") {
		security = "Standard" // "" would become TrustedLaunchSupported
	}
	add(featureSecurity, security)
	add(featureController, d.Controllers)
	if d.Accelerated {
		add(featureAccelerated, "True")
	}
	if d.Hibernates {
		add(featureHibernation, "True")
	}
	return out
}

// Versions lists a definition's versions. The list has no replication status,
// so that of a version that is not finished costs a request of its own.
func (c *Cloud) Versions(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageVersion, error) {
	const op = "list image versions"
	p, err := c.at(definition, typeDefinition)
	if err != nil {
		return nil, failed(ctx, op, definition, err)
	}
	var out []fleet.ImageVersion
	err = failed(ctx, op, definition, list(ctx, c, c.address(p.id+"/versions", galleryVersion), func(v *versionAnswer) error {
		x := versionOf(v)
		if !strings.EqualFold(x.ProvisioningState, stateSucceeded) {
			full, err := c.Version(ctx, x.ID)
			if fleet.Is(err, fleet.KindNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			x = full
		}
		out = append(out, x)
		return nil
	}))
	if fleet.Is(err, fleet.KindNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Version returns one version with its replication status.
func (c *Cloud) Version(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, error) {
	const op = "get image version"
	p, err := c.at(id, typeVersion)
	if err != nil {
		return fleet.ImageVersion{}, failed(ctx, op, id, err)
	}
	var v versionAnswer
	if err := c.get(ctx, c.address(p.id, galleryVersion, "$expand", "ReplicationStatus"), &v); err != nil {
		return fleet.ImageVersion{}, failed(ctx, op, id, err)
	}
	return versionOf(&v), nil
}

func versionOf(r *versionAnswer) fleet.ImageVersion {
	q := &r.Properties
	pub := &q.PublishingProfile
	v := fleet.ImageVersion{
		ID:                fleet.ResourceID(r.ID),
		Name:              r.Name,
		Location:          r.Location,
		ProvisioningState: q.ProvisioningState,
		Published:         time.Time(pub.PublishedDate),
		EndOfLife:         time.Time(pub.EndOfLifeDate),
		ExcludeFromLatest: pub.ExcludeFromLatest,
		Replicas:          pub.ReplicaCount,
		StorageType:       pub.StorageAccountType,
		ReplicationMode:   pub.ReplicationMode,
		DeletionBlocked:   q.SafetyProfile.BlockDeletionBeforeEndOfLife,
		Source:            fleet.ResourceID(cmp.Or(q.StorageProfile.OSDiskImage.Source.ID, q.StorageProfile.Source.ID, q.StorageProfile.Source.VirtualMachineID)),
		Progress:          -1,
	}
	if len(r.Tags) > 0 {
		v.Tags = r.Tags
	}
	for _, t := range pub.TargetRegions {
		// What a region says for itself counts, first of all in the version's
		// own region.
		if t == nil {
			continue
		}
		v.Regions = append(v.Regions, t.Name)
		if !fleet.SameRegion(t.Name, v.Location) {
			continue
		}
		if t.RegionalReplicaCount != nil {
			v.Replicas = *t.RegionalReplicaCount
		}
		v.StorageType = cmp.Or(t.StorageAccountType, v.StorageType)
		v.ExcludeFromLatest = v.ExcludeFromLatest || t.ExcludeFromLatest
	}
	for _, r := range q.ReplicationStatus.Summary {
		if r == nil {
			continue
		}
		if r.Progress != nil && (v.Progress < 0 || *r.Progress < v.Progress) {
			v.Progress = *r.Progress
		}
		if strings.EqualFold(r.State, "Failed") && r.Details != "" {
			v.FailureMessage = strings.TrimSpace(v.FailureMessage + " " + r.Region + ": " + r.Details)
		}
	}
	return v
}

// createVersion makes a version in the definition's region alone: a copy in
// another is for the operator to add.
func (c *Cloud) createVersion(ctx context.Context, ch fleet.CreateVersion) (fleet.Token, error) {
	p, err := c.at(ch.ID, typeVersion)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	region := &armcompute.TargetRegion{Name: ptr(ch.Location), RegionalReplicaCount: orNil(ch.Replicas)}
	profile := &armcompute.GalleryImageVersionPublishingProfile{
		TargetRegions:     []*armcompute.TargetRegion{region},
		ExcludeFromLatest: ptr(ch.ExcludeFromLatest),
		ReplicaCount:      orNil(ch.Replicas),
	}
	if ch.EncryptionSet != "" {
		region.Encryption = &armcompute.EncryptionImages{OSDiskImage: &armcompute.OSDiskImageEncryption{DiskEncryptionSetID: ptr(string(ch.EncryptionSet))}}
	}
	if ch.ReplicationMode != "" {
		profile.ReplicationMode = ptr(armcompute.ReplicationMode(ch.ReplicationMode))
	}
	if ch.StorageType != "" {
		region.StorageAccountType = ptr(armcompute.StorageAccountType(ch.StorageType))
		profile.StorageAccountType = ptr(armcompute.StorageAccountType(ch.StorageType))
	}
	have, err := c.Version(ctx, ch.ID)
	return creating(ch, have.ProvisioningState, sameSource(have.Source, ch.Source), err, func() (fleet.Token, error) {
		op, err := p.NewGalleryImageVersionsClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], p.names[1], p.names[2], armcompute.GalleryImageVersion{
			Location: ptr(ch.Location),
			Tags:     toTags(ch.Tags),
			Properties: &armcompute.GalleryImageVersionProperties{
				PublishingProfile: profile,
				StorageProfile: &armcompute.GalleryImageVersionStorageProfile{
					OSDiskImage: &armcompute.GalleryOSDiskImage{
						Source: &armcompute.GalleryDiskImageSource{ID: ptr(string(ch.Source))},
					},
				},
			},
		}, nil)
		return begun(ctx, ch, op, err)
	})
}

// merged returns all tags as they shall be, and nil for those to remove: right both where Azure
// replaces the tags and where it merges them.
func merged(have, change map[string]string) (tags map[string]*string, changed bool) {
	if tags = toTags(have); tags == nil {
		tags = map[string]*string{}
	}
	for k, v := range change {
		old, there := have[k]
		switch {
		case v == "" && there:
			tags[k], changed = nil, true
		case v != "" && (!there || old != v):
			tags[k], changed = ptr(v), true
		}
	}
	return tags, changed
}

func (c *Cloud) tagDefinition(ctx context.Context, ch fleet.TagDefinition) (fleet.Token, error) {
	p, err := c.at(ch.ID, typeDefinition)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	have, err := c.Definition(ctx, ch.ID)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	tags, changed := merged(have.Tags, ch.Tags)
	if !changed {
		return "", nil
	}
	op, err := p.NewGalleryImagesClient().BeginUpdate(ctx, p.group, p.names[0], p.names[1], armcompute.GalleryImageUpdate{Tags: tags}, nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) tagVersion(ctx context.Context, ch fleet.TagVersion) (fleet.Token, error) {
	p, err := c.at(ch.ID, typeVersion)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	have, err := c.Version(ctx, ch.ID)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	tags, changed := merged(have.Tags, ch.Tags)
	// A version whose last update failed may have the tags; another update mends it.
	if !changed && have.ProvisioningState != string(armcompute.GalleryProvisioningStateFailed) {
		return "", nil
	}
	op, err := p.NewGalleryImageVersionsClient().BeginUpdate(ctx, p.group, p.names[0], p.names[1], p.names[2],
		armcompute.GalleryImageVersionUpdate{Tags: tags}, nil)
	return begun(ctx, ch, op, err)
}

// publishVersion replaces the version by itself, as az sig image-version update does: what a
// PATCH of a publishing profile leaves out is not documented.
func (c *Cloud) publishVersion(ctx context.Context, ch fleet.PublishVersion) (fleet.Token, error) {
	fail := func(err error) (fleet.Token, error) { return "", failed(ctx, ch.Verb(), ch.ID, err) }
	p, err := c.at(ch.ID, typeVersion)
	if err != nil {
		return fail(err)
	}
	have, err := p.NewGalleryImageVersionsClient().Get(ctx, p.group, p.names[0], p.names[1], p.names[2], nil)
	if err != nil {
		return fail(err)
	}
	v := have.GalleryImageVersion
	if v.Properties == nil || v.Properties.PublishingProfile == nil {
		return fail(errors.New("it has no publishing profile"))
	}
	q, pub := *v.Properties, *v.Properties.PublishingProfile
	q.ProvisioningState, q.ReplicationStatus, pub.PublishedDate, pub.ExcludeFromLatest = nil, nil, nil, ptr(false)
	for _, region := range pub.TargetRegions {
		if region != nil {
			region.ExcludeFromLatest = nil
		}
	}
	q.PublishingProfile = &pub
	tags := map[string]*string{}
	maps.Copy(tags, v.Tags)
	for k, value := range ch.Tags {
		if tags[k] = ptr(value); value == "" {
			delete(tags, k)
		}
	}
	op, err := p.NewGalleryImageVersionsClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], p.names[1], p.names[2],
		armcompute.GalleryImageVersion{Location: v.Location, Tags: tags, Properties: &q}, nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) deleteVersion(ctx context.Context, ch fleet.DeleteVersion) (fleet.Token, error) {
	p, err := c.at(ch.ID, typeVersion)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	op, err := p.NewGalleryImageVersionsClient().BeginDelete(ctx, p.group, p.names[0], p.names[1], p.names[2], nil)
	return gone(begun(ctx, ch, op, err))
}
