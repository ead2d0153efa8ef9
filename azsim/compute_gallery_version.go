package azsim

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A replication is what an image version keeps beside its model: when each
// region begins and ends to have it.
type replication struct {
	regions []regionCopy
}

type regionCopy struct {
	name       string
	begin, end time.Time
	failure    string
}

func versionType() *resourceType {
	h := hooks[armcompute.GalleryImageVersion]{check: checkVersion, work: versionWork}
	return &resourceType{
		name: "Microsoft.Compute/galleries/images/versions", versions: galleryVersions(), operations: galleryOperations,
		put: func(c *call) (*reply, error) { return putVersion(c, h) }, preflight: true,
		patch:  func(c *call) (*reply, error) { return patch(c, h) },
		remove: removeVersion,
		render: renderVersion,
		drop:   dropVolume,
	}
}

// versionNumbers reads the name of a version: three 32-bit integers.
func versionNumbers(name string) ([3]uint32, bool) {
	var out [3]uint32
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return out, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil || p[0] == '+' {
			return out, false
		}
		out[i] = uint32(n)
	}
	return out, true
}

// versionLess orders versions by their numbers.
func versionLess(a, b string) bool {
	x, _ := versionNumbers(a)
	y, _ := versionNumbers(b)
	return slices.Compare(x[:], y[:]) < 0
}

const versionAt = "galleryImageVersion.properties."

// safetySince is the first API version with a safetyProfile: before it regions were removed
// from a version without it (CanCreateUpdateGetDeleteGalleryImageVersion#42).
const safetySince = "2022-03-03"

func checkVersion(c *call, old, next *armcompute.GalleryImageVersion) error {
	if _, fine := versionNumbers(c.id.name()); !fine {
		return badParameter("galleryImageVersionName", "The gallery image version name '%s' is invalid: it must be three 32-bit integers, MajorVersion.MinorVersion.Patch.", c.id.name())
	}
	p := next.Properties
	if p == nil || p.StorageProfile == nil {
		return badParameter(versionAt+"storageProfile", "Required parameter 'storageProfile' is missing (null).")
	}
	p.ReplicationStatus = nil
	p.PublishingProfile = cmp.Or(p.PublishingProfile, &armcompute.GalleryImageVersionPublishingProfile{})
	if err := c.checkPublishing(next, p.PublishingProfile); err != nil {
		return err
	}
	if err := c.checkRegionKeys(old, next); err != nil {
		return err
	}
	p.SafetyProfile = cmp.Or(p.SafetyProfile, &armcompute.GalleryImageVersionSafetyProfile{})
	p.SafetyProfile.AllowDeletionOfReplicatedLocations = cmp.Or(p.SafetyProfile.AllowDeletionOfReplicatedLocations, ptr(false))
	p.SafetyProfile.ReportedForPolicyViolation = ptr(false)
	if old != nil {
		return c.changeVersion(old, next)
	}
	p.PublishingProfile.PublishedDate = ptr(c.now)
	return c.checkSource(next)
}

// checkPublishing checks where and how often the version is stored, and fills in
// defaults: one replica, Standard_LRS, in the version's own region.
func (c *call) checkPublishing(v *armcompute.GalleryImageVersion, pub *armcompute.GalleryImageVersionPublishingProfile) error {
	const at = versionAt + "publishingProfile."
	home := val(v.Location)
	pub.ReplicationMode = cmp.Or(pub.ReplicationMode, ptr(armcompute.ReplicationModeFull))
	if !canon(pub.ReplicationMode, armcompute.PossibleReplicationModeValues()) {
		return badParameter(at+"replicationMode", "The value '%s' of parameter 'replicationMode' is not allowed. Allowed values are: Full,Shallow.", *pub.ReplicationMode)
	}
	pub.ReplicaCount = cmp.Or(pub.ReplicaCount, ptr(int32(1)))
	pub.StorageAccountType = cmp.Or(pub.StorageAccountType, ptr(armcompute.StorageAccountTypeStandardLRS))
	pub.ExcludeFromLatest = cmp.Or(pub.ExcludeFromLatest, ptr(false))
	canon(pub.StorageAccountType, armcompute.PossibleStorageAccountTypeValues()) // checked with the regions'
	if len(pub.TargetRegions) == 0 {
		pub.TargetRegions = []*armcompute.TargetRegion{{Name: ptr(home)}}
	}
	atHome := false
	for _, r := range pub.TargetRegions {
		l, known := c.s.location(val(r.Name))
		if !known {
			return badParameter(at+"targetRegions", "The target region '%s' is not a region.", val(r.Name))
		}
		r.Name = ptr(cmp.Or(l.DisplayName, l.Name)) // as Azure gives it back
		r.RegionalReplicaCount = cmp.Or(r.RegionalReplicaCount, pub.ReplicaCount)
		r.StorageAccountType = ptr(*cmp.Or(r.StorageAccountType, pub.StorageAccountType))
		if n := *r.RegionalReplicaCount; n < 1 || n > 100 {
			return badParameter(at+"targetRegions", "The replica count %d of region '%s' is not allowed: it must be between 1 and 100.", n, *r.Name)
		}
		if !canon(r.StorageAccountType, armcompute.PossibleStorageAccountTypeValues()) {
			return badParameter(at+"storageAccountType", "The value '%s' of parameter 'storageAccountType' is not allowed. Allowed values are: Premium_LRS,Standard_LRS,Standard_ZRS.", *r.StorageAccountType)
		}
		if enc := r.Encryption; enc != nil && enc.OSDiskImage != nil && enc.OSDiskImage.SecurityProfile == nil {
			enc.OSDiskImage.SecurityProfile = &armcompute.OSDiskImageSecurityProfile{} // gallery_e2e#78
		}
		atHome = atHome || normLocation(l.Name) == normLocation(home)
	}
	if !atHome {
		return badParameter(at+"targetRegions", "The target regions must include the region of the gallery image version, '%s'.", home)
	}
	if *pub.ReplicationMode == armcompute.ReplicationModeShallow && (len(pub.TargetRegions) != 1 || *pub.TargetRegions[0].RegionalReplicaCount != 1) {
		return badParameter(at+"replicationMode", "Replication mode 'Shallow' allows one replica, in the source region, only.")
	}
	return nil
}

// sourceID is the id of what a version's OS disk is made of, and the parameter that names
// it; "" for a blob.
func sourceID(sp *armcompute.GalleryImageVersionStorageProfile) (id, target string) {
	const at = versionAt + "storageProfile."
	switch {
	case sp.Source != nil && val(sp.Source.VirtualMachineID) != "":
		return *sp.Source.VirtualMachineID, at + "source.virtualMachineId"
	case sp.Source != nil && val(sp.Source.ID) != "":
		return *sp.Source.ID, at + "source.id"
	case sp.OSDiskImage != nil && sp.OSDiskImage.Source != nil && val(sp.OSDiskImage.Source.URI) == "":
		return val(sp.OSDiskImage.Source.ID), at + "osDiskImage.source.id"
	}
	return "", at + "osDiskImage.source.id"
}

// checkSource checks what a new version is made of, and describes its disks.
func (c *call) checkSource(v *armcompute.GalleryImageVersion) error {
	const at = versionAt + "storageProfile."
	sp := v.Properties.StorageProfile
	_, image := load[armcompute.GalleryImage](c.s, c.id.parent().String())
	if image == nil {
		return parentNotFound(c.id)
	}
	id, target := sourceID(sp)
	switch {
	case id != "":
		parts, err := c.partsOf(id, target)
		if err != nil {
			return err
		}
		if err := fitsDefinition(v, image, parts, target); err != nil {
			return err
		}
		describeParts(sp, parts)
	case sp.OSDiskImage != nil && sp.OSDiskImage.Source != nil && val(sp.OSDiskImage.Source.URI) != "":
		if c.s.Substrate != nil {
			return noBlobs(at + "osDiskImage.source.uri")
		}
		sp.OSDiskImage.SizeInGB = ptr(c.s.blobGB(*sp.OSDiskImage.Source.URI))
	default:
		return badParameter(target, "Required parameter 'source' is missing (null).")
	}
	sp.OSDiskImage.HostCaching = cmp.Or(sp.OSDiskImage.HostCaching, ptr(armcompute.HostCachingReadWrite))
	if sp.Source != nil {
		return nil
	}
	for _, d := range sp.DataDiskImages {
		if d.Source == nil || d.Lun == nil {
			return badParameter(at+"dataDiskImages", "Required parameter 'source' or 'lun' of a data disk image is missing (null).")
		}
		data, err := c.originOf(val(d.Source.ID), at+"dataDiskImages.source.id")
		if err != nil {
			return err
		}
		d.SizeInGB, d.HostCaching = ptr(data.sizeGB), cmp.Or(d.HostCaching, ptr(armcompute.HostCachingNone))
	}
	return nil
}

// fitsDefinition refuses a source that is elsewhere, or of another kind than the image
// definition says.
func fitsDefinition(v *armcompute.GalleryImageVersion, image *armcompute.GalleryImage, from *imageParts, target string) error {
	id, p := from.source.id.String(), image.Properties
	if _, isVersion := from.source.body.(*armcompute.GalleryImageVersion); isVersion {
		return nil
	}
	if normLocation(from.location) != normLocation(val(v.Location)) {
		return badParameter(target, "The source '%s' is in location '%s'; it must be in that of the gallery image version, '%s'.",
			id, from.location, val(v.Location))
	}
	if g := p.HyperVGeneration; from.generation != nil && *from.generation != *g {
		return badParameter(target, "The resource with id '%s' has a different Hypervisor generation ['%s'] than the parent gallery image Hypervisor generation ['%s'].",
			id, *from.generation, *g)
	}
	if t := p.OSType; from.osType != nil && *from.osType != *t {
		return badParameter(target, "The resource with id '%s' has a different OS type ['%s'] than the parent gallery image OS type ['%s'].",
			id, *from.osType, *t)
	}
	if a := p.Architecture; from.capabilities != nil && from.capabilities.Architecture != nil && *from.capabilities.Architecture != *a {
		return badParameter(target, "The resource with id '%s' has a different architecture ['%s'] than the parent gallery image architecture ['%s'].",
			id, *from.capabilities.Architecture, *a)
	}
	return nil
}

// describeParts fills in the disks of a version. What names a whole source has no source of
// each disk ("source": {} and none).
func describeParts(sp *armcompute.GalleryImageVersionStorageProfile, from *imageParts) {
	sp.OSDiskImage = cmp.Or(sp.OSDiskImage, &armcompute.GalleryOSDiskImage{})
	sp.OSDiskImage.SizeInGB = ptr(from.os.sizeGB)
	if sp.Source == nil {
		return
	}
	sp.OSDiskImage.HostCaching = cmp.Or(sp.OSDiskImage.HostCaching, from.os.hostCaching())
	sp.OSDiskImage.Source = &armcompute.GalleryDiskImageSource{}
	sp.DataDiskImages = nil
	for _, d := range from.data {
		sp.DataDiskImages = append(sp.DataDiskImages, &armcompute.GalleryDataDiskImage{
			Lun: ptr(d.lun), SizeInGB: ptr(d.sizeGB), HostCaching: d.hostCaching(),
		})
	}
}

// changeVersion refuses changes of what is fixed in a version: its source, how
// and in which storage it is kept.
func (c *call) changeVersion(old, next *armcompute.GalleryImageVersion) error {
	was, p := old.Properties, next.Properties
	// Clients leave the source out when they update (gallery_e2e#57).
	before, _ := sourceID(was.StorageProfile)
	if src, _ := sourceID(p.StorageProfile); src != "" && !strings.EqualFold(src, before) {
		return notChangeable(versionAt + "storageProfile")
	}
	p.StorageProfile = was.StorageProfile
	a, b := was.PublishingProfile, p.PublishingProfile
	b.PublishedDate = a.PublishedDate
	if *a.ReplicationMode != *b.ReplicationMode {
		return notChangeable(versionAt + "publishingProfile.replicationMode")
	}
	if *a.StorageAccountType != *b.StorageAccountType {
		return notChangeable(versionAt + "publishingProfile.storageAccountType")
	}
	for _, x := range a.TargetRegions {
		kept := false
		for _, y := range b.TargetRegions {
			if *x.Name == *y.Name {
				kept = true
				if *x.StorageAccountType != *y.StorageAccountType {
					return notChangeable(versionAt + "publishingProfile.targetRegions.storageAccountType")
				}
			}
		}
		if !kept && c.version >= safetySince && !val(p.SafetyProfile.AllowDeletionOfReplicatedLocations) {
			return refuse(http.StatusConflict, "OperationNotAllowed", "The region '%s' cannot be removed from gallery image version '%s': safetyProfile.allowDeletionOfReplicatedLocations is false.", *x.Name, c.id.name())
		}
	}
	return nil
}

func removeVersion(c *call) (*reply, error) {
	soft := c.deletesSoftly()
	return c.remove(func(e *entry) error {
		if soft && stateOf(e.body) == stateFailed {
			return conflict("The gallery image version '%s' has provisioning state 'Failed' and cannot be soft-deleted. Disable soft delete on the gallery to delete it.", e.id.name())
		}
		p := e.body.(*armcompute.GalleryImageVersion).Properties
		if val(p.SafetyProfile.BlockDeletionBeforeEndOfLife) && p.PublishingProfile.EndOfLifeDate != nil && c.now.Before(*p.PublishingProfile.EndOfLifeDate) {
			return refuse(http.StatusConflict, "OperationNotAllowed",
				"The gallery image version '%s' cannot be deleted before its end of life, %s: safetyProfile.blockDeletionBeforeEndOfLife is true.",
				e.id.name(), p.PublishingProfile.EndOfLifeDate.UTC().Format(time.RFC3339))
		}
		return nil
	}, func(e *entry) work {
		if soft {
			return work{span: c.duration("version.delete"), done: func(failure *armError) {
				if failure == nil {
					c.s.keepDeleted(e)
				}
			}}
		}
		return work{span: c.duration("version.delete"), run: c.s.dropVolumes(volumesOf(e)...)}
	})
}

// versionWork copies the source at once and lets the regions get it one after
// the other; an update takes as long as a new version where it adds regions.
func versionWork(c *call, e *entry, old, next *armcompute.GalleryImageVersion) work {
	s := c.s
	pub := next.Properties.PublishingProfile
	rep, _ := e.extra.(*replication)
	isNew := rep == nil || stateOf(old) == stateFailed
	span := "version.update"
	if isNew {
		rep, span = &replication{}, "version.create"
		if *pub.ReplicationMode == armcompute.ReplicationModeShallow {
			span = "version.shallow"
		}
	}
	var fresh []*armcompute.TargetRegion
	kept := &replication{}
	for _, r := range pub.TargetRegions {
		if i := slices.IndexFunc(rep.regions, func(x regionCopy) bool { return x.name == *r.Name }); i >= 0 {
			kept.regions = append(kept.regions, rep.regions[i])
		} else {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) > 0 && !isNew {
		span = "version.create"
	}
	w := work{span: c.duration(span)}
	failure := ""
	for i, r := range fresh {
		part := regionCopy{name: *r.Name, begin: c.now, end: c.now.Add(w.span * time.Duration(i+1) / time.Duration(len(fresh)))}
		if l, _ := s.location(*r.Name); *r.StorageAccountType == armcompute.StorageAccountTypeStandardZRS && len(l.Zones) == 0 {
			part.failure = "ZRS is not supported in region '" + *r.Name + "'."
			failure = part.failure
		}
		kept.regions = append(kept.regions, part)
	}
	e.extra = kept
	if failure != "" {
		// Azure takes the request, and says it later.
		w.span = min(w.span, s.scaled(30*time.Second))
		w.verify = func() *armError {
			return refuse(http.StatusBadRequest, "InvalidParameter", "The storage account type 'Standard_ZRS' cannot be used: %s", failure).withTarget(versionAt + "publishingProfile.storageAccountType")
		}
		w.done = func(*armError) {
			for i := range kept.regions {
				kept.regions[i].end = time.Now()
				kept.regions[i].failure = cmp.Or(kept.regions[i].failure, "The replication was not completed.")
			}
		}
		return w
	}
	if !isNew {
		return w
	}
	sp := next.Properties.StorageProfile
	list, sources := []copying{}, []*entry{}
	if id, target := sourceID(sp); id != "" {
		if from, err := c.partsOf(id, target); err == nil { // checked above
			list, sources = append(list, copying{e.volume(), Source{Volume: from.os.volume}}), append(sources, from.source)
			for _, d := range from.data {
				list = append(list, copying{e.dataVolume(d.lun), Source{Volume: d.volume}})
			}
		}
	}
	for _, d := range sp.DataDiskImages {
		if d.Source == nil {
			continue
		}
		if src := s.findID(val(d.Source.ID)); src != nil {
			list, sources = append(list, copying{e.dataVolume(*d.Lun), Source{Volume: src.volume()}}), append(sources, src)
		}
	}
	w.run = s.makeVolumes(list...)
	w.verify = func() *armError {
		for _, src := range sources {
			if s.find(src.id) != src {
				return refuse(http.StatusNotFound, "ResourceNotFound", "The source '%s' was deleted before the gallery image version was complete.", src.id.String())
			}
		}
		return nil
	}
	w.done = func(failure *armError) {
		for i := range kept.regions {
			if failure != nil {
				kept.regions[i].failure = failure.message
			}
			kept.regions[i].end = time.Now()
		}
	}
	return w
}

// renderVersion shows ReplicationStatus where $expand asks for it, and the sizes of disks
// once they are there; what a whole source brings is not shown at all before.
func renderVersion(c *call, e *entry) any {
	v := e.body.(*armcompute.GalleryImageVersion)
	shown, p := *v, *v.Properties
	shown.Properties = &p
	if e.making {
		sp := *p.StorageProfile
		if p.StorageProfile = &sp; sp.Source != nil {
			sp.OSDiskImage, sp.DataDiskImages = nil, nil
		} else {
			os := *sp.OSDiskImage
			os.SizeInGB, sp.OSDiskImage = nil, &os
		}
	}
	rep, _ := e.extra.(*replication)
	if !c.expands("ReplicationStatus") || rep == nil {
		return &shown
	}
	status := &armcompute.ReplicationStatus{AggregatedState: ptr(armcompute.AggregatedReplicationStateCompleted)}
	for _, r := range rep.regions {
		row := &armcompute.RegionalReplicationStatus{Region: ptr(normLocation(r.name)), State: ptr(armcompute.ReplicationStateCompleted), Progress: ptr(int32(100)), Details: ptr("")}
		switch {
		case r.failure != "" && !c.now.Before(r.end):
			row.State, row.Progress, row.Details = ptr(armcompute.ReplicationStateFailed), ptr(int32(0)), ptr(r.failure)
			status.AggregatedState = ptr(armcompute.AggregatedReplicationStateFailed)
		case c.now.Before(r.end) || e.making && e.op != nil:
			done := int32(99)
			if whole := r.end.Sub(r.begin); whole > 0 {
				done = min(99, int32(100*c.now.Sub(r.begin)/whole))
			}
			row.State, row.Progress = ptr(armcompute.ReplicationStateReplicating), &done
			if *status.AggregatedState != armcompute.AggregatedReplicationStateFailed {
				status.AggregatedState = ptr(armcompute.AggregatedReplicationStateInProgress)
			}
		}
		status.Summary = append(status.Summary, row)
	}
	p.ReplicationStatus = status
	return &shown
}
