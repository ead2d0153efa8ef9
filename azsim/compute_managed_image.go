package azsim

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// managedImageVersions are the API versions of managed images: those of Microsoft.Compute.
func managedImageVersions() []string {
	versions := append([]string{"2017-03-30", "2017-12-01", "2018-04-01", "2018-06-01"}, scaleSetVersions()...)
	slices.Sort(versions)
	return slices.Compact(versions)
}

func managedImageType() *resourceType {
	h := hooks[armcompute.Image]{check: checkManagedImage, work: managedImageWork}
	return &resourceType{
		name: "Microsoft.Compute/images", versions: managedImageVersions(), global: true,
		put: func(c *call) (*reply, error) { return put(c, h) }, preflight: true,
		patch: func(c *call) (*reply, error) { return patch(c, h) },
		remove: func(c *call) (*reply, error) {
			return c.remove(nil, func(e *entry) work {
				return work{span: c.duration("managedImage.delete"), run: c.s.dropVolumes(volumesOf(e)...)}
			})
		},
		drop: dropVolume,
	}
}

func checkManagedImage(c *call, old, next *armcompute.Image) error {
	const at = "image.properties."
	p := next.Properties
	if p == nil || p.SourceVirtualMachine == nil && (p.StorageProfile == nil || p.StorageProfile.OSDisk == nil) {
		return badParameter(at+"storageProfile.osDisk",
			"Required parameter 'image.sourceVirtualMachine' or 'image.storageProfile.osDisk' is missing (null).")
	}
	if !canon(p.HyperVGeneration, armcompute.PossibleHyperVGenerationTypesValues()) {
		return badParameter(at+"hyperVGeneration",
			"The value '%s' of parameter 'hyperVGeneration' is not allowed. Allowed values are: V1,V2.", *p.HyperVGeneration)
	}
	if old != nil {
		was := old.Properties
		if p.SourceVirtualMachine != nil && !strings.EqualFold(val(p.SourceVirtualMachine.ID), val(cmp.Or(was.SourceVirtualMachine,
			&armcompute.SubResource{}).ID)) {
			return notChangeable("image.sourceVirtualMachine")
		}
		if p.HyperVGeneration != nil && *p.HyperVGeneration != *was.HyperVGeneration {
			return notChangeable("image.hyperVGeneration")
		}
		next.Properties = was
		return nil
	}
	if p.SourceVirtualMachine != nil {
		if err := c.imageOfMachine(next, at+"sourceVirtualMachine.id"); err != nil {
			return err
		}
	} else if err := c.imageOfDisks(next, at+"storageProfile."); err != nil {
		return err
	}
	p.HyperVGeneration = cmp.Or(p.HyperVGeneration, ptr(armcompute.HyperVGenerationTypesV1))
	if p.StorageProfile.DataDisks == nil {
		p.StorageProfile.DataDisks = []*armcompute.ImageDataDisk{}
	}
	return nil
}

// imageOfMachine describes the disks of a virtual machine.
func (c *call) imageOfMachine(next *armcompute.Image, at string) error {
	id := val(next.Properties.SourceVirtualMachine.ID)
	parts, err := c.machineParts(id, at)
	if err != nil {
		return err
	}
	if normLocation(parts.location) != normLocation(val(next.Location)) {
		return badParameter(at, "The source '%s' is in location '%s', not in '%s' as the image.", id, parts.location, val(next.Location))
	}
	x, body := instanceOf(parts.source)
	if x.plain == nil {
		return badParameter(at, "'%s' is not the id of a virtual machine.", id)
	}
	if !x.isGeneralized() {
		return conflict("The operation 'CreateImage' requires the Virtual Machine '%s' to be Generalized.", parts.source.id.name())
	}
	disk := x.osDisk.body.(*armcompute.Disk)
	caching := armcompute.CachingTypesReadWrite
	if d := x.profile.StorageProfile.OSDisk; d != nil && d.Caching != nil {
		caching = *d.Caching
	}
	next.Properties.StorageProfile = &armcompute.ImageStorageProfile{OSDisk: &armcompute.ImageOSDisk{
		OSType: disk.Properties.OSType, OSState: ptr(armcompute.OperatingSystemStateTypesGeneralized),
		ManagedDisk: &armcompute.SubResource{ID: disk.ID},
		Caching:     &caching, DiskSizeGB: disk.Properties.DiskSizeGB, StorageAccountType: accountTypeOf(disk),
	}}
	if x.plain.unmanaged() {
		os := next.Properties.StorageProfile.OSDisk
		os.ManagedDisk, os.BlobURI, os.StorageAccountType = nil, x.plain.osDisk().Vhd.URI, ptr(armcompute.StorageAccountTypesStandardLRS)
	}
	for _, d := range dataDisksOf(body) {
		if d.Vhd != nil {
			next.Properties.StorageProfile.DataDisks = append(next.Properties.StorageProfile.DataDisks, &armcompute.ImageDataDisk{
				Lun: d.Lun, BlobURI: d.Vhd.URI, Caching: cmp.Or(d.Caching, ptr(armcompute.CachingTypesNone)), DiskSizeGB: d.DiskSizeGB,
				StorageAccountType: ptr(armcompute.StorageAccountTypesStandardLRS),
			})
			continue
		}
		_, disk := load[armcompute.Disk](c.s, diskIDOf(d))
		next.Properties.StorageProfile.DataDisks = append(next.Properties.StorageProfile.DataDisks, &armcompute.ImageDataDisk{
			Lun: d.Lun, ManagedDisk: &armcompute.SubResource{ID: disk.ID}, Caching: cmp.Or(d.Caching, ptr(armcompute.CachingTypesNone)),
			DiskSizeGB: disk.Properties.DiskSizeGB, StorageAccountType: accountTypeOf(disk),
		})
	}
	return nil
}

// machineParts is what an image of a machine is made of. One with blobs for disks can be the
// source of a managed image alone (vm_custom_image#27).
func (c *call) machineParts(id, at string) (*imageParts, error) {
	if e := c.s.findID(id); e != nil && e.rt.name == machineType {
		if x, body := instanceOf(e); x.plain != nil && x.plain.unmanaged() && x.osDisk != nil {
			return &imageParts{source: e, location: val(body.Location)}, c.authorizeLinked(e.rt.name+"/read", e.id)
		}
	}
	return c.partsOf(id, at)
}

func accountTypeOf(d *armcompute.Disk) *armcompute.StorageAccountTypes {
	return ptr(armcompute.StorageAccountTypes(*d.SKU.Name))
}

// imageOfDisks checks the disks, snapshots and blobs of which an image is made, and fills
// in their defaults.
func (c *call) imageOfDisks(next *armcompute.Image, at string) error {
	sp := next.Properties.StorageProfile
	os := sp.OSDisk
	if os.OSType == nil || os.OSState == nil {
		return badParameter(at+"osDisk", "Required parameter 'osDisk.osType' or 'osDisk.osState' is missing (null).")
	}
	if !canon(os.OSType, armcompute.PossibleOperatingSystemTypesValues()) || !canon(os.OSState,
		armcompute.PossibleOperatingSystemStateTypesValues()) {
		return badParameter(at+"osDisk", "The value of parameter 'osDisk.osType' or 'osDisk.osState' is not allowed.")
	}
	account := armcompute.StorageAccountTypesStandardLRS // whatever the source has (vm_managed_disk#35)
	if next.ExtendedLocation != nil {
		account = armcompute.StorageAccountTypesStandardSSDLRS // other_extended_location#14
	}
	fill := func(at string, from imageSource, size **int32, caching **armcompute.CachingTypes, kind **armcompute.StorageAccountTypes) error {
		gb, err := c.sizeOfSource(at, val(next.Location), from)
		canon(*kind, armcompute.PossibleStorageAccountTypesValues())
		*size, *caching, *kind = cmp.Or(*size, &gb), cmp.Or(*caching, ptr(armcompute.CachingTypesNone)), cmp.Or(*kind, &account)
		return err
	}
	err := fill(at+"osDisk", imageSource{os.ManagedDisk, os.Snapshot, os.BlobURI}, &os.DiskSizeGB, &os.Caching, &os.StorageAccountType)
	for _, d := range sp.DataDisks {
		if d.Lun == nil {
			return badParameter(at+"dataDisks", "Required parameter 'lun' of a data disk is missing (null).")
		}
		err = cmp.Or(err, fill(at+"dataDisks", imageSource{d.ManagedDisk, d.Snapshot, d.BlobURI}, &d.DiskSizeGB, &d.Caching,
			&d.StorageAccountType))
	}
	return err
}

// An imageSource is what one disk of a managed image is made of: one of these.
type imageSource struct {
	disk, snapshot *armcompute.SubResource
	blob           *string
}

func (s imageSource) id() string {
	if ref := cmp.Or(s.disk, s.snapshot); ref != nil {
		return val(ref.ID)
	}
	return ""
}

func (c *call) sizeOfSource(at, location string, from imageSource) (int32, error) {
	switch {
	case val(from.blob) != "" && c.s.Substrate != nil:
		return 0, noBlobs(at + ".blobUri")
	case val(from.blob) != "":
		return c.s.blobGB(*from.blob), nil
	case from.id() == "":
		return 0, badParameter(at, "Required parameter 'managedDisk', 'snapshot' or 'blobUri' of an image's disk is missing (null).")
	}
	o, err := c.originOf(from.id(), at)
	if err != nil {
		return 0, err
	}
	if normLocation(o.location) != normLocation(location) {
		return 0, badParameter(at, "The source '%s' is in location '%s', not in '%s' as the image.", from.id(), o.location, location)
	}
	return o.sizeGB, nil
}

func managedImageWork(c *call, e *entry, old, next *armcompute.Image) work {
	if old != nil && stateOf(old) != stateFailed {
		return work{span: c.duration("managedImage.update")}
	}
	sp := next.Properties.StorageProfile
	var list []copying
	add := func(to Volume, from imageSource) {
		if src := c.s.findID(from.id()); src != nil {
			list = append(list, copying{to, Source{Volume: src.volume()}})
		}
	}
	add(e.volume(), imageSource{disk: sp.OSDisk.ManagedDisk, snapshot: sp.OSDisk.Snapshot})
	for _, d := range sp.DataDisks {
		add(e.dataVolume(*d.Lun), imageSource{disk: d.ManagedDisk, snapshot: d.Snapshot})
	}
	return work{span: c.duration("managedImage.create"), run: c.s.makeVolumes(list...)}
}
