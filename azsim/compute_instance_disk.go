package azsim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// dataDisksOf lists the data disks that an instance has now.
func dataDisksOf(body *armcompute.VirtualMachineScaleSetVM) []*armcompute.DataDisk {
	if body.Properties.StorageProfile == nil {
		return nil
	}
	return body.Properties.StorageProfile.DataDisks
}

// diskIDOf is the id of the disk behind a data disk; "" before it is made.
func diskIDOf(d *armcompute.DataDisk) string {
	if d.ManagedDisk == nil {
		return ""
	}
	return val(d.ManagedDisk.ID)
}

// release notes that a disk is attached to nothing.
func release(d *armcompute.Disk) {
	d.ManagedBy = nil
	d.Properties.DiskState = ptr(armcompute.DiskStateUnattached)
	d.Properties.LastOwnershipUpdateTime = ptr(time.Now())
}

// hold notes that a disk is attached to an instance.
func hold(d *armcompute.Disk, by resourceID, running bool) {
	d.ManagedBy = ptr(by.String())
	d.Properties.DiskState = ptr(armcompute.DiskStateAttached)
	if !running {
		d.Properties.DiskState = ptr(armcompute.DiskStateReserved)
	}
	d.Properties.LastOwnershipUpdateTime = ptr(time.Now())
}

// maxDiskName is the longest name of a disk; Azure cuts the name of the scale
// set so that the rest fits.
const maxDiskName = 80

func (s *Server) diskNameFor(e *entry, part string) string {
	x, body := instanceOf(e)
	set := x.set.id.name()
	head, tail := set+"_"+set, fmt.Sprintf("_%d_%s_%s", x.id, part, strings.ReplaceAll(s.newUUID("disk name", e.key), "-", ""))
	if x.plain != nil && !x.plain.unmanaged() && val(x.plain.osDisk().Name) != "" && strings.HasPrefix(part, "OsDisk") && x.osDisk == nil {
		return *x.plain.osDisk().Name
	}
	if x.flex {
		head, tail = val(body.Name), tail[strings.Index(tail[1:], "_")+1:]
	}
	return head[:min(len(head), maxDiskName-len(tail))] + tail
}

// insertDisk stores a disk that the platform makes for an instance. The caller
// holds the lock.
func (s *Server) insertDisk(e *entry, name, sku string, p *armcompute.DiskProperties) *entry {
	x, body := instanceOf(e)
	id := resourceID{subscription: e.id.subscription, group: e.id.group, namespace: "Microsoft.Compute", types: []string{"disks"}, names: []string{name}}
	rt := s.types["microsoft.compute/disks"]
	now := time.Now()
	p.ProvisioningState, p.TimeCreated, p.UniqueID = ptr(stateSucceeded), ptr(now), ptr(s.newUUID("disk", id.key()))
	d := &armcompute.Disk{Location: body.Location, Zones: body.Zones, Properties: p, SKU: &armcompute.DiskSKU{
		Name: ptr(armcompute.DiskStorageAccountTypes(sku)), Tier: ptr(skuTier(sku)),
	}}
	// A disk that comes with a machine has the machine's tags; none are {} (specialized_image#27).
	if d.Tags = maps.Clone(body.Tags); d.Tags == nil {
		d.Tags = map[string]*string{}
	}
	settleDisk(d)
	stamp(d, id, "Microsoft.Compute/disks")
	hold(d, e.id, x.power != powerDeallocated)
	return s.insert(id, rt, d, now)
}

// makeOSDisk makes the instance's OS disk of the recipe's image in that version; ""
// is what the recipe stands for now. A disk that the instance had before is deleted.
func (s *Server) makeOSDisk(ctx context.Context, e *entry, version string) error {
	x, body := instanceOf(e)
	var img bootImage
	var fresh, before *entry
	var failed error
	if x.plain != nil && x.plain.attaches() && x.osDisk != nil { // it is there
		s.locked(func() { x.provisioned = true })
		return nil
	}
	s.locked(func() {
		img = x.image
		if x.plain == nil || x.osDisk != nil || imageOf(x.profile) != nil {
			img, failed = s.resolveVersion(imageOf(x.profile), version, val(body.Location))
		}
		if failed != nil {
			return
		}
		size, _ := findSize(x.size)
		if failed = checkBootImage(img, size, x.profile); failed != nil {
			return
		}
		o := x.profile.StorageProfile.OSDisk
		img.source.SizeGB = max(val(o.DiskSizeGB), img.sizeGB)
		before = x.osDisk
		sku := string(armcompute.StorageAccountTypesStandardLRS) // of a blob
		if o.ManagedDisk != nil {
			sku = string(val(o.ManagedDisk.StorageAccountType))
		}
		props := &armcompute.DiskProperties{
			OSType: o.OSType, HyperVGeneration: ptr(armcompute.HyperVGeneration(img.generation)), DiskSizeGB: ptr(img.source.SizeGB),
			CreationData: originData(img, s.Subscription, val(body.Location)), SupportedCapabilities: capabilitiesOf(img),
		}
		if o.ManagedDisk != nil && o.ManagedDisk.DiskEncryptionSet != nil {
			props.Encryption = &armcompute.Encryption{DiskEncryptionSetID: o.ManagedDisk.DiskEncryptionSet.ID}
		}
		if img.source.Platform != "" {
			props.SupportsHibernation = hibernationOf(img)
			if img.source.SizeGB == img.sizeGB {
				props.DiskSizeBytes = ptr(imageBytes(img))
			}
		} else if img.hibernates {
			props.SupportsHibernation = ptr(true)
		}
		fresh = s.insertDisk(e, s.diskNameFor(e, "OsDisk_1"), sku, props)
		if isEphemeral(x.profile) || o.ManagedDisk == nil || x.plain != nil && x.plain.unmanaged() {
			fresh.extra = ephemeralOSDisk
		}
	})
	if failed != nil {
		return failed
	}
	drop := func(d *entry) error {
		if d == nil {
			return nil
		}
		if run := s.dropVolumes(d.volume()); run != nil {
			if err := run(ctx); err != nil {
				return err
			}
		}
		s.locked(func() { s.delete(d) })
		return nil
	}
	err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.CreateVolume(ctx, fresh.volume(), img.source) })
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Error("OS disk not made", "instance", val(body.Name), "source", img.source, "error", err)
		}
		s.locked(func() { s.delete(fresh) })
		return fmt.Errorf("make OS disk of %s: %w", val(body.Name), err)
	}
	s.locked(func() {
		x.osDisk, x.image, x.provisioned = fresh, img, x.plain != nil && x.plain.attaches()
		if x.plain != nil {
			s.keepBlob(x.plain.osDisk().Vhd, img.source.SizeGB)
		}
		x.agent, x.reports = nil, nil // they were of the disk before
	})
	return drop(before)
}

// originData is a disk's creationData for an image.
func originData(img bootImage, subscription, location string) *armcompute.CreationData {
	c := &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionFromImage)}
	ref := &armcompute.ImageDiskReference{ID: img.ref.ID, CommunityGalleryImageID: img.ref.CommunityGalleryImageID,
		SharedGalleryImageID: img.ref.SharedGalleryImageID}
	switch {
	case img.source.Platform != "":
		ref.ID = ptr(platformImageID(img, subscription, location))
		c.ImageReference = ref
	case strings.Contains(string(img.source.Volume), "/galleries/"):
		c.GalleryImageReference = ref
	default:
		c.ImageReference = ref
	}
	return c
}

// makeDataDisks makes the data disks of the recipe: empty ones, and copies of its image's.
func (s *Server) makeDataDisks(ctx context.Context, e *entry) error {
	x, body := instanceOf(e)
	if x.plain != nil {
		for _, d := range dataDisksOf(body) {
			if err := s.makeMissing(ctx, e, d); err != nil {
				return err
			}
		}
		return nil
	}
	if x.profile.StorageProfile == nil {
		return nil
	}
	for _, want := range x.profile.StorageProfile.DataDisks {
		var fresh *entry
		lun, sku := val(want.Lun), string(armcompute.StorageAccountTypesPremiumLRS)
		source, option := Source{SizeGB: val(want.DiskSizeGB)}, armcompute.DiskCreateOptionTypesEmpty
		s.locked(func() {
			for _, d := range x.image.data {
				if d.lun == lun && val(want.CreateOption) == armcompute.DiskCreateOptionTypesFromImage {
					source.Volume, option = d.source.Volume, armcompute.DiskCreateOptionTypesFromImage
				}
			}
			if want.ManagedDisk != nil && want.ManagedDisk.StorageAccountType != nil {
				sku = string(*want.ManagedDisk.StorageAccountType)
			}
			fresh = s.insertDisk(e, s.diskNameFor(e, fmt.Sprintf("disk%d", lun+2)), sku, &armcompute.DiskProperties{
				DiskSizeGB: want.DiskSizeGB, CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)},
			})
		})
		err := s.onSubstrate(ctx, x, func(sub Substrate) error {
			return sub.CreateVolume(ctx, fresh.volume(), source)
		})
		if err != nil {
			s.locked(func() { s.delete(fresh) })
			return fmt.Errorf("make data disk %d of %s: %w", lun, val(body.Name), err)
		}
		s.locked(func() {
			body.Properties.StorageProfile = cmp.Or(body.Properties.StorageProfile, &armcompute.StorageProfile{})
			sp := body.Properties.StorageProfile
			sp.DataDisks = append(sp.DataDisks, &armcompute.DataDisk{
				Lun: ptr(lun), Name: ptr(fresh.id.name()), CreateOption: &option, Caching: want.Caching,
				DiskSizeGB: want.DiskSizeGB, DeleteOption: ptr(armcompute.DiskDeleteOptionTypesDelete), ToBeDetached: ptr(false),
				ManagedDisk: &armcompute.ManagedDiskParameters{
					ID: ptr(fresh.id.String()), StorageAccountType: ptr(armcompute.StorageAccountTypes(sku)),
				},
			})
		})
	}
	return nil
}

// A reimage is what a request to reimage says.
type reimage struct {
	version    string // "" is the one that the instance has
	customData *string
}

// decodeReimage reads the body of a reimage, of an instance or of a scale set. What only
// an ephemeral OS disk knows (tempDisk, forceUpdateOSDiskForEphemeral) has no effect, and
// nothing knows passwords.
func decodeReimage(c *call) (*reimage, error) {
	in, err := decode[armcompute.VirtualMachineScaleSetReimageParameters](c)
	if err != nil {
		return nil, err
	}
	r := &reimage{version: val(in.ExactVersion)}
	if in.OSProfile != nil {
		r.customData = in.OSProfile.CustomData
	}
	return r, checkCustomData(r.customData)
}

// prepare takes over what a reimage changes of the recipe, and returns the version of its
// new OS disk. Azure documents that the image's version stays ("if exactVersion is not
// provided, the OS disk is reimaged to the existing version"), and that a changed OS
// profile of the scale set comes with a reimage. The caller holds the lock.
func (r *reimage) prepare(x *instance, set *armcompute.VirtualMachineScaleSet) string {
	if os := clone(profileOf(set).OSProfile); os != nil {
		if x.keyWith(set) == x.key {
			of, _ := setOf(x.set)
			x.key, x.changed = modelKey(set), of.changed // nothing but the OS profile was behind
		}
		if r.customData != nil {
			os.CustomData = r.customData
		}
		p := *x.profile
		p.OSProfile, x.profile = os, &p
	}
	return cmp.Or(r.version, val(x.image.ref.ExactVersion))
}

// keyWith is the key of the scale set's model with the instance's OS profile.
func (x *instance) keyWith(set *armcompute.VirtualMachineScaleSet) string {
	model, props, p := *set, *set.Properties, *profileOf(set)
	p.OSProfile, props.VirtualMachineProfile, model.Properties = x.profile.OSProfile, &p, &props
	return modelKey(&model)
}

// renew gives an instance a new OS disk where that is a reimage, and starts it. Without
// a reimage it brings it to the scale set's model as it is now: the OS disk is made
// again only if the model's image is another than the instance's, and an instance that
// does not run is not started.
func (s *Server) renew(ctx context.Context, e *entry, o actionOptions) error {
	begun := time.Now()
	x, body := instanceOf(e)
	newDisk, newSize, run, version := o.reimage != nil, false, o.reimage != nil, ""
	var failed error
	var before *armcompute.VirtualMachineScaleSetVMProfile
	s.locked(func() {
		_, set := setOf(x.set)
		before = x.profile
		if o.reimage != nil {
			version = o.reimage.prepare(x, set)
			return
		}
		img, err := s.resolveImage(imageOf(profileOf(set)), val(body.Location))
		if err == nil {
			size, _ := findSize(x.sizeIn(set))
			err = checkBootImage(img, size, profileOf(set))
		}
		if failed = err; failed != nil {
			return
		}
		newDisk = !sameImage(x.image, img)
		newSize = x.size != x.sizeIn(set)
		run = x.power == powerRunning || x.power == powerStarting
		x.adopt()
		body.SKU = nil
		switch {
		case !x.flex:
			body.Tags = copyTags(set.Tags) // assumed
		case x.plain == nil:
			tagModel(body, set)
		}
	})
	if failed != nil {
		return failed
	}
	if newDisk || newSize {
		err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Shutdown(ctx, e.id.key(), true) })
		if err != nil {
			return err
		}
		if newDisk {
			if err := s.makeOSDisk(ctx, e, version); err != nil {
				return err
			}
		}
		if run {
			if err := s.boot(ctx, e); err != nil {
				return err
			}
		}
	}
	if err := pause(ctx, time.Until(begun.Add(o.span))); err != nil {
		return err
	}
	if run {
		s.locked(func() { x.setPower(powerRunning) })
	}
	if newDisk {
		s.locked(func() { x.extensions = nil })
		before = &armcompute.VirtualMachineScaleSetVMProfile{}
	}
	return s.syncExtensions(ctx, e, before)
}

// sameImage tells whether two resolved images are the same bytes.
func sameImage(a, b bootImage) bool {
	return a.source.Volume == b.source.Volume && a.source.Platform == b.source.Platform
}
