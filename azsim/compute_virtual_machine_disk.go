package azsim

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// An imageDisk is a data disk of an image.
type imageDisk struct {
	lun     int32
	sizeGB  int32
	caching *armcompute.CachingTypes
	sku     *armcompute.StorageAccountTypes
	source  Source
}

// checkOSDisk checks a new machine's OS disk, and finds what it boots from.
func (c *call) checkOSDisk(m *plainMachine) (bootImage, error) {
	p := m.model.Properties
	p.StorageProfile = cmp.Or(p.StorageProfile, &armcompute.StorageProfile{})
	sp := p.StorageProfile
	sp.OSDisk = cmp.Or(sp.OSDisk, &armcompute.OSDisk{})
	d := sp.OSDisk
	d.CreateOption = orDefault(d.CreateOption, armcompute.DiskCreateOptionTypesFromImage)
	if !canon(d.CreateOption, armcompute.PossibleDiskCreateOptionTypesValues()) {
		return bootImage{}, badParameter("osDisk.createOption", "The value '%s' of parameter 'osDisk.createOption' is not allowed.", *d.CreateOption)
	}
	if d.Vhd != nil {
		if err := c.checkBlob("osDisk.vhd.uri", val(d.Vhd.URI)); err != nil {
			return bootImage{}, err
		}
	}
	if m.attaches() {
		return c.attachedOSDisk(d)
	}
	if d.Vhd == nil && val(d.Name) != "" {
		id := resourceID{subscription: c.id.subscription, group: c.id.group, namespace: "Microsoft.Compute", types: []string{"disks"}, names: []string{*d.Name}}
		if c.s.find(id) != nil {
			return bootImage{}, refuse(http.StatusConflict, "ConflictingUserInput",
				"Disk %s already exists in resource group %s. Only CreateOption.Attach is supported.", *d.Name, strings.ToUpper(c.id.group))
		}
	}
	if d.Image != nil { // a generalized blob, as images were before managed ones
		if d.OSType == nil {
			return bootImage{}, badParameter("osDisk.osType", "Required parameter 'osDisk.osType' is missing (null).")
		}
		return blobImage(d), c.checkBlob("osDisk.image.uri", val(d.Image.URI))
	}
	return c.s.resolveImage(sp.ImageReference, val(m.model.Location))
}

// checkBlob refuses what is no page blob's address. A blob has no bytes here, so that
// there is nothing for a Substrate to boot.
func (c *call) checkBlob(target, uri string) error {
	if u, err := url.Parse(uri); err != nil || u.Host == "" || strings.Count(u.Path, "/") < 2 {
		return badParameter(target, "The value of parameter %s is invalid.", target)
	}
	if c.s.Substrate != nil {
		return refuse(http.StatusNotImplemented, "NotImplemented", "azsim has no blobs: a machine of its Substrate has managed disks.")
	}
	return nil
}

func blobImage(d *armcompute.OSDisk) bootImage {
	return bootImage{generation: "V1", arch: "x64", controllers: "SCSI", osType: val(d.OSType), sizeGB: max(val(d.DiskSizeGB), platformDiskGB)}
}

// attachedOSDisk is the disk that there is already and a machine is to boot from, as an
// image.
func (c *call) attachedOSDisk(d *armcompute.OSDisk) (bootImage, error) {
	if d.Vhd != nil {
		if d.OSType == nil {
			return bootImage{}, badParameter("osDisk.osType", "Required parameter 'osDisk.osType' is missing (null).")
		}
		img := blobImage(d)
		img.specialized = true
		if size := c.s.blobs[strings.ToLower(val(d.Vhd.URI))]; size > 0 {
			img.sizeGB = size
		}
		return img, nil
	}
	e, disk, err := c.freeOSDisk(d)
	if err != nil {
		return bootImage{}, err
	}
	p := disk.Properties
	d.OSType = orDefault(d.OSType, val(p.OSType))
	img := bootImage{source: Source{Volume: e.volume()}, generation: "V1", arch: "x64", controllers: "SCSI", osType: val(d.OSType), specialized: true, sizeGB: val(p.DiskSizeGB)}
	if p.HyperVGeneration != nil {
		img.generation = string(*p.HyperVGeneration)
	}
	if caps := p.SupportedCapabilities; caps != nil {
		img.arch = string(*orDefault(caps.Architecture, armcompute.Architecture(img.arch)))
		img.controllers = strings.ReplaceAll(*orDefault(caps.DiskControllerTypes, img.controllers), " ", "")
	}
	return img, nil
}

// freeOSDisk finds the managed disk that is to be the OS disk of the path's machine.
func (c *call) freeOSDisk(d *armcompute.OSDisk) (*entry, *armcompute.Disk, error) {
	asked := ""
	if d.ManagedDisk != nil {
		asked = val(d.ManagedDisk.ID)
	}
	id, err := parseID(asked)
	if err != nil {
		return nil, nil, badParameter("osDisk.managedDisk.id", "Required parameter 'osDisk.managedDisk.id' is missing (null).")
	}
	e, disk := load[armcompute.Disk](c.s, id.String())
	if disk == nil || e.extra == ephemeralOSDisk {
		return nil, nil, notFound(id)
	}
	for _, action := range []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"} {
		if err := c.authorizeLinked(action, e.id); err != nil {
			return nil, nil, err
		}
	}
	if by := val(disk.ManagedBy); by != "" && !strings.EqualFold(by, c.id.String()) {
		return nil, nil, attachedElsewhere(e, c.id, by)
	}
	return e, disk, nil
}

func attachedElsewhere(disk *entry, vm resourceID, by string) *armError {
	r := conflict("Cannot attach the disk %s to VM %s because it is already attached to VM %s. A disk can be attached to only one VM at a time.", disk.id.name(), vm.String(), by)
	r.code, r.target = "ConflictingUserInput", disk.id.String()
	return r
}

// firstDisks gives a new machine its data disks: those of its image too, which a body need
// not name (recorded). Those that there are already are attached at once, so that they are
// there when it boots. The caller holds the lock.
func (c *call) firstDisks(e *entry, img bootImage) error {
	x, _ := instanceOf(e)
	want := x.plain.model.Properties.StorageProfile.DataDisks
	for _, d := range img.data {
		at := findLun(want, d.lun)
		if at == nil {
			at = &armcompute.DataDisk{Lun: ptr(d.lun)}
			want = append(want, at)
		}
		at.CreateOption = orDefault(at.CreateOption, armcompute.DiskCreateOptionTypesFromImage)
		at.Caching, at.DiskSizeGB = firstOf(at.Caching, d.caching), firstOf(at.DiskSizeGB, ptr(d.sizeGB))
		if at.Vhd == nil {
			at.ManagedDisk = cmp.Or(at.ManagedDisk, &armcompute.ManagedDiskParameters{})
			at.ManagedDisk.StorageAccountType = firstOf(at.ManagedDisk.StorageAccountType, d.sku)
		}
	}
	x.image = img
	plan, err := c.planDisks(e, want)
	if err != nil {
		return err
	}
	if d := x.plain.osDisk(); x.plain.attaches() && d.Vhd == nil {
		de, disk, err := c.freeOSDisk(d)
		if err != nil {
			return err
		}
		hold(disk, e.id, true)
		x.osDisk = de
	}
	x.plain.model.Properties.StorageProfile.DataDisks = nil
	c.s.showPlan(e, plan)
	return nil
}

// firstOf is p, or q if p is nil.
func firstOf[T any](p, q *T) *T {
	if p != nil {
		return p
	}
	return q
}

func findLun(list []*armcompute.DataDisk, lun int32) *armcompute.DataDisk {
	for _, d := range list {
		if d.Lun != nil && *d.Lun == lun {
			return d
		}
	}
	return nil
}

// showPlan brings a change of a machine's data disks into its model at once, as Azure's
// first answer does: what is detached goes on to stand there until then. The caller holds
// the lock.
func (s *Server) showPlan(e *entry, plan *diskPlan) {
	x, body := instanceOf(e)
	for _, d := range plan.attach {
		if _, disk := load[armcompute.Disk](s, diskIDOf(d)); disk != nil {
			hold(disk, e.id, x.power != powerDeallocated)
			if t := d.ManagedDisk.StorageAccountType; t != nil {
				disk.SKU = &armcompute.DiskSKU{Name: ptr(armcompute.DiskStorageAccountTypes(*t)), Tier: ptr(strings.SplitN(string(*t), "_", 2)[0])}
			}
		}
	}
	list := append([]*armcompute.DataDisk{}, plan.after...)
	for _, d := range plan.detach {
		d.ToBeDetached = ptr(true)
		list = append(list, d)
	}
	body.Properties.StorageProfile = cmp.Or(body.Properties.StorageProfile, &armcompute.StorageProfile{})
	body.Properties.StorageProfile.DataDisks = list
}

// newDataDisk checks one disk that is to be made, for a machine that was made by hand.
func (c *call) newDataDisk(e *entry, d *armcompute.DataDisk) (*armcompute.DataDisk, error) {
	x, _ := instanceOf(e)
	out := *d
	out.Caching = orDefault(d.Caching, armcompute.CachingTypesNone)
	out.DeleteOption = orDefault(d.DeleteOption, armcompute.DiskDeleteOptionTypesDetach)
	out.ToBeDetached = ptr(false)
	if d.Vhd != nil {
		if val(d.Name) == "" {
			return nil, badParameter("dataDisk.name", "Required parameter 'dataDisk.name' is missing (null).")
		}
		out.ManagedDisk = nil
		if known := c.s.blobs[strings.ToLower(val(d.Vhd.URI))]; d.DiskSizeGB == nil && known > 0 {
			out.DiskSizeGB = ptr(known)
		}
		return &out, c.checkBlob("dataDisk.vhd.uri", val(d.Vhd.URI))
	}
	switch val(d.CreateOption) {
	case armcompute.DiskCreateOptionTypesEmpty:
		if val(d.DiskSizeGB) <= 0 {
			return nil, badParameter("dataDisk.diskSizeGB", "Required parameter 'dataDisk.diskSizeGB' is missing (null).")
		}
	case armcompute.DiskCreateOptionTypesFromImage:
		if x.osDisk != nil || !hasImageDisk(x.image, val(d.Lun)) {
			return nil, badParameter("dataDisk.createOption", "Data disk with LUN %d does not exist in the image of VM '%s'.", val(d.Lun), c.id.name())
		}
	default:
		return nil, badParameter("dataDisk.createOption", "azsim makes data disks with createOption Empty, FromImage and Attach, not '%s'.", val(d.CreateOption))
	}
	managed := armcompute.ManagedDiskParameters{}
	if d.ManagedDisk != nil {
		managed = *d.ManagedDisk
	}
	size, _ := findSize(x.size)
	managed.StorageAccountType = orDefault(managed.StorageAccountType, defaultAccountType(size))
	out.ManagedDisk = &managed
	return &out, nil
}

func hasImageDisk(img bootImage, lun int32) bool {
	for _, d := range img.data {
		if d.lun == lun {
			return true
		}
	}
	return false
}

// defaultAccountType is what a disk is made of where the model does not say: the fastest
// that the size takes.
func defaultAccountType(size vmSize) armcompute.StorageAccountTypes {
	if size.premium() {
		return armcompute.StorageAccountTypesPremiumLRS
	}
	return armcompute.StorageAccountTypesStandardLRS
}

// makeDataDisk makes the disk behind a data disk of a machine that was made by hand.
func (s *Server) makeDataDisk(ctx context.Context, e *entry, d *armcompute.DataDisk) error {
	x, body := instanceOf(e)
	var fresh *entry
	lun, source := val(d.Lun), Source{SizeGB: val(d.DiskSizeGB)}
	s.locked(func() {
		origin := &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)}
		for _, one := range x.image.data {
			if one.lun == lun && val(d.CreateOption) == armcompute.DiskCreateOptionTypesFromImage {
				source, origin = one.source, originData(x.image, s.Subscription, val(body.Location))
				source.SizeGB = val(d.DiskSizeGB)
				for _, ref := range []*armcompute.ImageDiskReference{origin.ImageReference, origin.GalleryImageReference} {
					if ref != nil {
						ref.Lun = ptr(lun)
					}
				}
			}
		}
		name := val(d.Name)
		if name == "" {
			name = s.diskNameFor(e, fmt.Sprintf("disk%d", lun+2))
		}
		fresh = s.insertDisk(e, name, string(*d.ManagedDisk.StorageAccountType), &armcompute.DiskProperties{DiskSizeGB: d.DiskSizeGB, CreationData: origin})
	})
	if err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.CreateVolume(ctx, fresh.volume(), source) }); err != nil {
		s.locked(func() { s.delete(fresh) })
		return fmt.Errorf("make data disk %d of %s: %w", lun, val(body.Name), err)
	}
	s.locked(func() { d.Name, d.ManagedDisk.ID = ptr(fresh.id.name()), ptr(fresh.id.String()) })
	return nil
}

// resize takes over another size of a data disk. A blob may grow while the machine runs
// (recorded).
func (x *instance) resize(s *Server, old, asked *armcompute.DataDisk) error {
	if val(asked.DiskSizeGB) <= val(old.DiskSizeGB) {
		return nil
	}
	if old.Vhd == nil && x.power != powerDeallocated {
		return resizeRefused()
	}
	if _, disk := load[armcompute.Disk](s, diskIDOf(old)); disk != nil {
		grow(disk, *asked.DiskSizeGB)
	}
	old.DiskSizeGB = asked.DiskSizeGB
	return nil
}

func resizeRefused() *armError {
	return refuse(http.StatusConflict, "ResizeDiskError", "Disk resizing is allowed only when creating a VM or when the VM is deallocated.")
}

func grow(disk *armcompute.Disk, sizeGB int32) {
	disk.Properties.DiskSizeGB, disk.Properties.DiskSizeBytes = ptr(sizeGB), ptr(int64(sizeGB)<<30)
	settleDisk(disk)
}

// makeMissing makes the disk behind a data disk that has none yet. Of a blob, only its size
// is kept, for machines that attach it later.
func (s *Server) makeMissing(ctx context.Context, e *entry, d *armcompute.DataDisk) error {
	switch {
	case d.Vhd != nil:
		s.locked(func() { s.keepBlob(d.Vhd, val(d.DiskSizeGB)) })
		return nil
	case diskIDOf(d) != "":
		return nil
	}
	return s.makeDataDisk(ctx, e, d)
}

// keepBlob notes the size of a page blob that a machine has as a disk. The caller holds the
// lock.
func (s *Server) keepBlob(vhd *armcompute.VirtualHardDisk, sizeGB int32) {
	if s.blobs == nil {
		s.blobs = map[string]int32{}
	}
	if vhd != nil && sizeGB > 0 {
		s.blobs[strings.ToLower(val(vhd.URI))] = sizeGB
	}
}
