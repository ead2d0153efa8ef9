package azsim

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// diskVersions are the API versions of disks and snapshots: from those that the
// CLI's older profiles ask for, over 2022-07-02 and 2022-03-02 of azure-cli 2.45,
// to that of armcompute v8.3.
func diskVersions() []string {
	return []string{"2017-03-30", "2018-04-01", "2018-06-01", "2018-09-30", "2019-03-01", "2019-07-01", "2019-11-01", "2020-05-01",
		"2020-06-30", "2020-09-30", "2020-12-01", "2021-04-01", "2021-08-01",
		"2021-12-01", "2022-03-02", "2022-07-02", "2023-01-02", "2023-04-02", "2023-10-02", "2024-03-02", "2025-01-02", "2026-03-02"}
}

// ephemeralOSDisk is the extra of a disk entry that is an ephemeral OS disk. The
// API answers 404 for it (azure-docs pull request 71310), and it cannot be copied.
const ephemeralOSDisk = "ephemeral"

var diskName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,78}[A-Za-z0-9_]$|^[A-Za-z0-9_]$`)

// diskOperations is where operations on disks and snapshots are asked about; their
// changes are answered with 202.
const diskOperations = "DiskOperations"

func diskType() *resourceType {
	h := hooks[armcompute.Disk]{accepted: true, check: checkDisk, work: diskWork}
	seen := func(e *entry) bool { return e.extra != ephemeralOSDisk }
	return &resourceType{
		name: "Microsoft.Compute/disks", versions: diskVersions(), global: true, operations: diskOperations,
		put: func(c *call) (*reply, error) { return put(c, h) }, preflight: true,
		patch:  func(c *call) (*reply, error) { return patch(c, h) },
		remove: removeDisk,
		get: func(c *call) (*reply, error) {
			if e := c.s.find(c.id); e != nil && seen(e) {
				return ok(c.render(e)), nil
			}
			return nil, notFound(c.id)
		},
		list: func(c *call) (*reply, error) {
			list := c.s.ofType("Microsoft.Compute/disks", c.id.subscription, c.id.group)
			return c.page(slices.DeleteFunc(list, func(e *entry) bool { return !seen(e) })), nil
		},
		actions: map[string]handler{"begingetaccess": beginAccess, "endgetaccess": endAccess},
		drop:    dropVolume,
		render:  renderDisk,
	}
}

func checkDisk(c *call, old, next *armcompute.Disk) error {
	if !diskName.MatchString(c.id.name()) {
		return badParameter("disk.name", "The entity name 'disk.name' is invalid according to its validation rule: ^[^_\\W][\\w-._]{0,79}(?<![-.])$.")
	}
	p := next.Properties
	if p == nil || p.CreationData == nil || p.CreationData.CreateOption == nil {
		return badParameter("disk.creationData", "Required parameter 'disk.creationData' is missing (null).")
	}
	canon(p.CreationData.CreateOption, armcompute.PossibleDiskCreateOptionValues()) // an unknown one is refused below
	canon(p.OSType, armcompute.PossibleOperatingSystemTypesValues())
	if !canon(p.HyperVGeneration, armcompute.PossibleHyperVGenerationValues()) {
		return badParameter("disk.hyperVGeneration", "The value '%s' of parameter 'disk.hyperVGeneration' is not allowed. Allowed values are: V1,V2.", *p.HyperVGeneration)
	}
	if next.SKU == nil || next.SKU.Name == nil {
		next.SKU = &armcompute.DiskSKU{Name: ptr(armcompute.DiskStorageAccountTypesStandardLRS)}
		if old != nil {
			next.SKU = old.SKU
		}
	}
	if !canon(next.SKU.Name, armcompute.PossibleDiskStorageAccountTypesValues()) {
		return badParameter("disk.sku", "The value '%s' of parameter 'disk.sku' is not allowed. Allowed values are: %v.", *next.SKU.Name, armcompute.PossibleDiskStorageAccountTypesValues())
	}
	next.SKU.Tier = ptr(skuTier(string(*next.SKU.Name)))
	if err := c.checkZRS(string(*next.SKU.Name), val(next.Location)); err != nil {
		return err
	}
	l, _ := c.s.location(val(next.Location))
	for _, z := range next.Zones {
		if !slices.Contains(l.Zones, val(z)) {
			return badRequest("InvalidAvailabilityZone", "The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '%v'.", val(z), c.id.short(), l.Name, l.Zones)
		}
	}
	var was *armcompute.Encryption
	if old != nil {
		was = old.Properties.Encryption
	}
	if err := c.checkEncryption(was, p.Encryption, val(next.Location), "disk"); err != nil {
		return err
	}
	if old != nil {
		if err := cmp.Or(c.checkGrowth(old, next), changeDisk(old, next)); err != nil {
			return err
		}
		settleDisk(next)
		return nil
	}
	p.DiskState = ptr(armcompute.DiskStateUnattached)
	p.UniqueID = ptr(c.s.newUUID("disk", c.id.key()))
	p.DiskSizeBytes = nil
	next.ManagedBy, next.ManagedByExtended = nil, nil
	if err := c.originateDisk(next); err != nil {
		return err
	}
	settleDisk(next)
	return nil
}

// originateDisk fills in what a new disk has of what it is made of.
func (c *call) originateDisk(next *armcompute.Disk) error {
	p := next.Properties
	cd := p.CreationData
	switch *cd.CreateOption {
	case armcompute.DiskCreateOptionEmpty:
		if val(p.DiskSizeGB) <= 0 {
			return badParameter("disk.diskSizeGB", "Required parameter 'disk.diskSizeGB' is missing (null).")
		}
	case armcompute.DiskCreateOptionCopy:
		o, err := c.originOf(val(cd.SourceResourceID), "disk.creationData.sourceResourceId")
		if err != nil {
			return err
		}
		if normLocation(o.location) != normLocation(val(next.Location)) {
			return badParameter("disk.creationData.sourceResourceId", "The source '%s' is in location '%s', not in '%s' as the disk to be made.",
				o.entry.id.String(), o.location, val(next.Location))
		}
		cd.SourceUniqueID = o.uniqueID
		p.OSType, p.HyperVGeneration, p.SupportedCapabilities = cmp.Or(p.OSType, o.osType), cmp.Or(p.HyperVGeneration, o.generation), cmp.Or(p.SupportedCapabilities, o.capabilities)
		p.SecurityProfile, p.SupportsHibernation = cmp.Or(p.SecurityProfile, o.security), cmp.Or(p.SupportsHibernation, o.hibernation)
		p.EncryptionSettingsCollection = cmp.Or(p.EncryptionSettingsCollection, o.settings)
		if p.DiskSizeGB == nil {
			p.DiskSizeGB = ptr(o.sizeGB)
		} else if *p.DiskSizeGB < o.sizeGB {
			return badParameter("disk.diskSizeGB", "The disk size %d GB is smaller than that of the source, %d GB.", *p.DiskSizeGB, o.sizeGB)
		}
		p.DiskSizeBytes = o.bytesFor(*p.DiskSizeGB)
	case armcompute.DiskCreateOptionFromImage:
		return c.fromImage(next)
	case armcompute.DiskCreateOptionImport, armcompute.DiskCreateOptionImportSecure:
		size, err := c.importBlob("disk.creationData", cd)
		if err != nil {
			return err
		}
		p.DiskSizeGB = cmp.Or(p.DiskSizeGB, &size)
	case armcompute.DiskCreateOptionUpload, armcompute.DiskCreateOptionUploadPreparedSecure:
		if val(cd.UploadSizeBytes) <= 0 {
			return badParameter("disk.creationData.uploadSizeBytes", "Required parameter 'disk.creationData.uploadSizeBytes' is missing (null).")
		}
		if c.s.Substrate != nil {
			return noBlobs("disk.creationData.createOption")
		}
		p.DiskState = ptr(armcompute.DiskStateReadyToUpload)
	default:
		return badParameter("disk.creationData.createOption",
			"The creation option '%s' is not simulated: use Empty, Copy, FromImage, Import or Upload.", *cd.CreateOption)
	}
	return nil
}

// fromImage fills in a disk made of a gallery's image version or of a marketplace image.
func (c *call) fromImage(next *armcompute.Disk) error {
	p := next.Properties
	cd := p.CreationData
	ref := cmp.Or(cd.GalleryImageReference, cd.ImageReference)
	if ref == nil || ref.ID == nil {
		return badParameter("disk.creationData.imageReference", "Required parameter 'disk.creationData.imageReference' is missing (null).")
	}
	if img, isPlatform, err := c.s.platformImageOf(*ref.ID); isPlatform {
		if err != nil {
			return err
		}
		// The image's generation stands, whatever was requested.
		p.OSType, p.HyperVGeneration = ptr(img.os()), ptr(armcompute.HyperVGeneration(img.generation))
		p.SupportedCapabilities, p.SupportsHibernation = capabilitiesOf(img), hibernationOf(img)
		if p.DiskSizeGB = cmp.Or(p.DiskSizeGB, ptr(img.sizeGB)); *p.DiskSizeGB == img.sizeGB {
			p.DiskSizeBytes = ptr(imageBytes(img))
		}
		return nil
	}
	e, v := load[armcompute.GalleryImageVersion](c.s, *ref.ID)
	if e == nil {
		return refuse(http.StatusNotFound, "GalleryImageNotFound",
			"The gallery image %s is not available in %s region. Please contact image owner to replicate to this region, or change your requested region.",
			*ref.ID, val(next.Location))
	}
	if err := c.authorizeLinked("Microsoft.Compute/galleries/images/versions/read", e.id); err != nil {
		return err
	}
	cd.ImageReference = cmp.Or(cd.ImageReference, &armcompute.ImageDiskReference{ID: ref.ID})
	if _, img := load[armcompute.GalleryImage](c.s, e.id.parent().String()); img != nil {
		p.OSType, p.HyperVGeneration = img.Properties.OSType, cmp.Or(p.HyperVGeneration, img.Properties.HyperVGeneration)
		p.SupportedCapabilities = cmp.Or(p.SupportedCapabilities, definedCapabilities(img.Properties))
		if strings.EqualFold(imageFeature(img.Properties, "IsHibernateSupported"), "True") {
			p.SupportsHibernation = cmp.Or(p.SupportsHibernation, ptr(true))
		}
	}
	p.DiskSizeGB = cmp.Or(p.DiskSizeGB, v.Properties.StorageProfile.OSDiskImage.SizeInGB, ptr(int32(30)))
	return nil
}

// checkGrowth refuses to make a disk larger while the machine that holds it has a host
// (kubernetes issue 96706). That newer data disks grow without that is not simulated.
func (c *call) checkGrowth(old, next *armcompute.Disk) error {
	holder := c.s.findID(val(old.ManagedBy))
	if holder == nil || val(next.Properties.DiskSizeGB) <= val(old.Properties.DiskSizeGB) {
		return nil
	}
	if x, _ := instanceOf(holder); x.power == powerDeallocated {
		return nil
	}
	return conflict("Cannot resize disk %s while it is attached to running VM %s: that has to be deallocated.", c.id.name(), val(old.ManagedBy))
}

// changeDisk refuses changes that a disk does not allow.
func changeDisk(old, next *armcompute.Disk) error {
	was, p := old.Properties, next.Properties
	if val(was.CreationData.CreateOption) != val(p.CreationData.CreateOption) ||
		val(was.CreationData.SourceResourceID) != val(p.CreationData.SourceResourceID) {
		return notChangeable("disk.creationData")
	}
	if p.HyperVGeneration != nil && was.HyperVGeneration != nil && *p.HyperVGeneration != *was.HyperVGeneration {
		return notChangeable("disk.hyperVGeneration")
	}
	p.DiskSizeGB = cmp.Or(p.DiskSizeGB, was.DiskSizeGB)
	if val(p.DiskSizeGB) < val(was.DiskSizeGB) {
		return badRequest("BadRequest", "Disk size cannot be reduced: it has %d GB, and %d GB are asked for.", *was.DiskSizeGB, *p.DiskSizeGB)
	}
	p.CreationData = was.CreationData
	if p.DiskSizeBytes = nil; val(p.DiskSizeGB) == val(was.DiskSizeGB) {
		p.DiskSizeBytes = was.DiskSizeBytes
	}
	p.UniqueID, p.DiskState = was.UniqueID, was.DiskState
	p.Encryption, p.SecurityProfile = cmp.Or(p.Encryption, was.Encryption), cmp.Or(p.SecurityProfile, was.SecurityProfile)
	p.NetworkAccessPolicy, p.PublicNetworkAccess = cmp.Or(p.NetworkAccessPolicy, was.NetworkAccessPolicy),
		cmp.Or(p.PublicNetworkAccess, was.PublicNetworkAccess)
	p.SupportsHibernation, p.MaxShares = cmp.Or(p.SupportsHibernation, was.SupportsHibernation), cmp.Or(p.MaxShares, was.MaxShares)
	p.EncryptionSettingsCollection = cmp.Or(p.EncryptionSettingsCollection, was.EncryptionSettingsCollection) // as the SDK's model says
	if provisioned(next) {
		p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = cmp.Or(p.DiskIOPSReadWrite, was.DiskIOPSReadWrite),
			cmp.Or(p.DiskMBpsReadWrite, was.DiskMBpsReadWrite)
		p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = cmp.Or(p.DiskIOPSReadOnly, was.DiskIOPSReadOnly),
			cmp.Or(p.DiskMBpsReadOnly, was.DiskMBpsReadOnly)
	}
	p.OSType, p.HyperVGeneration, p.SupportedCapabilities = cmp.Or(p.OSType, was.OSType), cmp.Or(p.HyperVGeneration, was.HyperVGeneration), cmp.Or(p.SupportedCapabilities, was.SupportedCapabilities)
	next.ManagedBy, next.ManagedByExtended, next.Zones = old.ManagedBy, old.ManagedByExtended, old.Zones
	return nil
}

// notChangeable is the refusal to change a member that is fixed at creation.
func notChangeable(target string) *armError {
	return refuse(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property '%s' is not allowed.", target).withTarget(target)
}

func diskWork(c *call, e *entry, old, next *armcompute.Disk) work {
	if old != nil && stateOf(old) != stateFailed {
		w := work{span: c.duration("disk.update")}
		size := val(next.Properties.DiskSizeGB)
		if g, ok := c.s.Substrate.(Grower); ok && size > val(old.Properties.DiskSizeGB) {
			w.run = func(ctx context.Context) error { return g.GrowVolume(ctx, e.volume(), size) }
		}
		if _, vm := load[armcompute.VirtualMachineScaleSetVM](c.s, val(next.ManagedBy)); vm != nil {
			for _, d := range dataDisksOf(vm) {
				if c.s.findID(diskIDOf(d)) == e {
					d.DiskSizeGB = &size
				}
			}
		}
		return w
	}
	from := Source{SizeGB: val(next.Properties.DiskSizeGB)}
	cd := next.Properties.CreationData
	if src := c.s.findID(val(cd.SourceResourceID)); src != nil {
		from.Volume = src.volume()
	} else if ref := cmp.Or(cd.GalleryImageReference, cd.ImageReference); ref != nil {
		if img, isPlatform, _ := c.s.platformImageOf(val(ref.ID)); isPlatform {
			from.Platform = img.source.Platform
		} else if v := c.s.findID(val(ref.ID)); v != nil {
			from.Volume = v.volume()
		}
	}
	return work{span: c.duration("disk.create"), run: c.s.makeVolumes(copying{e.volume(), from})}
}

// diskAttached is the refusal to delete a disk that a machine holds.
func diskAttached(e *entry) *armError {
	return conflict("Disk %s is attached to VM %s.", e.id.name(), val(e.body.(*armcompute.Disk).ManagedBy))
}

func removeDisk(c *call) (*reply, error) {
	return c.remove(func(e *entry) error {
		if val(e.body.(*armcompute.Disk).ManagedBy) != "" {
			return diskAttached(e)
		}
		if e.extra == ephemeralOSDisk {
			return notFound(e.id)
		}
		return nil
	}, func(e *entry) work {
		return work{span: c.duration("disk.delete"), run: c.s.dropVolumes(volumesOf(e)...)}
	})
}
