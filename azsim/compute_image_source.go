package azsim

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// What marketplace images, machines, disks, snapshots and images give to what is made of
// them.

var platformID = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/providers/microsoft\.compute/locations/[^/]+` +
	`/publishers/([^/]+)/artifacttypes/vmimage/offers/([^/]+)/skus/([^/]+)/versions/([^/]+)$`)

// platformImageOf resolves the id of a version of a marketplace image.
func (s *Server) platformImageOf(id string) (img bootImage, isPlatform bool, err error) {
	m := platformID.FindStringSubmatch(id)
	if m == nil {
		return bootImage{}, false, nil
	}
	img, err = s.platformImage(&armcompute.ImageReference{Publisher: &m[1], Offer: &m[2], SKU: &m[3], Version: &m[4]})
	return img, true, err
}

// platformImageID is the id of a marketplace image's version in a region.
func platformImageID(img bootImage, subscription, location string) string {
	p := strings.Split(img.source.Platform, ":")
	return "/Subscriptions/" + subscription + "/Providers/Microsoft.Compute/Locations/" + location +
		"/Publishers/" + p[0] + "/ArtifactTypes/VMImage/Offers/" + p[1] + "/Skus/" + p[2] + "/Versions/" + p[3]
}

// imageBytes is the exact size of a marketplace image's disk: those of Canonical and of
// Windows Server have 1 and 2 MiB more than whole GiB (disk_trusted_launch#5,
// create_image_version_with_region_cvm_encryption_pmk#50), others none (specialized_image#27).
func imageBytes(img bootImage) int64 {
	more := int64(0)
	switch publisher := strings.ToLower(img.source.Platform); {
	case strings.HasPrefix(publisher, "canonical:"):
		more = 1 << 20
	case strings.HasPrefix(publisher, "microsoftwindows"):
		more = 2 << 20
	}
	return int64(img.sizeGB)<<30 + more
}

// capabilitiesOf is what a disk of an image supports. Images of generation 1 say their
// architecture alone (specialized_image#27 and disk_trusted_launch#5).
func capabilitiesOf(img bootImage) *armcompute.SupportedCapabilities {
	out := &armcompute.SupportedCapabilities{Architecture: ptr(armcompute.Architecture(img.arch))}
	if img.generation == "V2" {
		out.DiskControllerTypes, out.AcceleratedNetwork = ptr(strings.ReplaceAll(img.controllers, ",", ", ")), ptr(true)
	}
	return out
}

func hibernationOf(img bootImage) *bool {
	if img.generation == "V2" && img.arch == "x64" {
		return ptr(true)
	}
	return nil
}

// definedCapabilities is what a disk of an image definition's version supports.
func definedCapabilities(p *armcompute.GalleryImageProperties) *armcompute.SupportedCapabilities {
	out := &armcompute.SupportedCapabilities{Architecture: p.Architecture}
	if strings.EqualFold(imageFeature(p, "IsAcceleratedNetworkSupported"), "True") {
		out.AcceleratedNetwork = ptr(true)
	}
	if controllers := imageFeature(p, "DiskControllerTypes"); controllers != "" {
		out.DiskControllerTypes = &controllers
	}
	return out
}

// An imagePart is one disk that a managed image or an image version is made of.
type imagePart struct {
	lun     int32
	sizeGB  int32
	caching string
	volume  Volume
}

// imageParts are all of them, with what Azure checks of their source.
type imageParts struct {
	source       *entry
	os           imagePart
	data         []imagePart
	location     string
	osType       *armcompute.OperatingSystemTypes
	generation   *armcompute.HyperVGeneration
	capabilities *armcompute.SupportedCapabilities
}

// partsOf finds what an image version is made of: a disk, a snapshot, a version, a managed
// image or a virtual machine.
func (c *call) partsOf(id, target string) (*imageParts, error) {
	e := c.s.findID(id)
	if e == nil {
		parsed, err := parseID(id)
		if err != nil {
			return nil, badParameter(target, "The value of parameter %s is invalid: %v.", target, err)
		}
		return nil, notFound(parsed)
	}
	read := func() error { return c.authorizeLinked(e.rt.name+"/read", e.id) }
	out := &imageParts{source: e, os: imagePart{volume: e.volume(), caching: "ReadWrite"}}
	switch b := e.body.(type) {
	case *armcompute.GalleryImageVersion:
		sp := b.Properties.StorageProfile
		out.location, out.os.sizeGB = val(b.Location), val(sp.OSDiskImage.SizeInGB)
		for _, d := range sp.DataDiskImages {
			out.data = append(out.data, imagePart{val(d.Lun), val(d.SizeInGB), string(val(d.HostCaching)), e.dataVolume(val(d.Lun))})
		}
		return out, read()
	case *armcompute.Image:
		p := b.Properties
		out.location, out.osType = val(b.Location), p.StorageProfile.OSDisk.OSType
		out.generation = ptr(armcompute.HyperVGeneration(val(p.HyperVGeneration)))
		out.os.sizeGB, out.os.caching = val(p.StorageProfile.OSDisk.DiskSizeGB), string(val(p.StorageProfile.OSDisk.Caching))
		for _, d := range p.StorageProfile.DataDisks {
			out.data = append(out.data, imagePart{val(d.Lun), val(d.DiskSizeGB), string(val(d.Caching)), e.dataVolume(val(d.Lun))})
		}
		return out, read()
	case *armcompute.VirtualMachineScaleSetVM:
		x, _ := instanceOf(e)
		if x.plain == nil || x.osDisk == nil || x.osDisk.extra == ephemeralOSDisk {
			break
		}
		o, err := c.originOf(x.osDisk.id.String(), target)
		if err != nil {
			return nil, err
		}
		out.takeOver(o)
		for _, d := range dataDisksOf(b) {
			if o, err = c.originOf(diskIDOf(d), target); err != nil {
				return nil, err
			}
			out.data = append(out.data, imagePart{val(d.Lun), o.sizeGB, string(val(d.Caching)), o.entry.volume()})
		}
		return out, read()
	case *armcompute.Disk, *armcompute.Snapshot:
		o, err := c.originOf(id, target)
		if err != nil {
			return nil, err
		}
		out.takeOver(o)
		// Of these Azure takes any generation (vm_disk_max_shares_etc#38).
		out.generation = nil
		return out, nil
	}
	return nil, badParameter(target, "An image cannot be made of '%s': use a snapshot, a disk, an image or a virtual machine with managed disks "+
		"that belongs to no Uniform scale set.", id)
}

func (p *imageParts) takeOver(o *origin) {
	p.os.sizeGB, p.os.volume, p.location = o.sizeGB, o.entry.volume(), o.location
	p.osType, p.generation, p.capabilities = o.osType, o.generation, o.capabilities
}

// caching is a part's caching as image versions have it: None where it has none.
func (p imagePart) hostCaching() *armcompute.HostCaching {
	return ptr(armcompute.HostCaching(cmp.Or(p.caching, "None")))
}
