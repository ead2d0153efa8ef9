package azsim

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A bootImage is an image reference resolved to what an instance boots from.
type bootImage struct {
	ref         armcompute.ImageReference // with ExactVersion
	source      Source
	generation  string // "V1" or "V2"
	arch        string // "x64" or "Arm64"
	security    string // feature SecurityType: "", "TrustedLaunch", "TrustedLaunchSupported", …
	controllers string // "SCSI" or "SCSI,NVMe"
	hibernates  bool   // feature IsHibernateSupported
	specialized bool
	sizeGB      int32
	osType      armcompute.OperatingSystemTypes // "" is Linux
	sku         *armcompute.StorageAccountTypes // of the OS disk, which a managed image says
	data        []imageDisk
}

// os is the kind of system on the image.
func (b bootImage) os() armcompute.OperatingSystemTypes {
	return cmp.Or(b.osType, armcompute.OperatingSystemTypesLinux)
}

// resolveImage finds what an image reference stands for in a region now. The
// caller holds the lock. The refusals are Azure's: a platform image that is not
// there is 400 PlatformImageNotFound's text under InvalidParameter, a gallery
// image is 404 GalleryImageNotFound.
func (s *Server) resolveImage(ref *armcompute.ImageReference, location string) (bootImage, error) {
	if ref == nil {
		return bootImage{}, badParameter("imageReference", "Required parameter 'imageReference' is missing (null).")
	}
	if isPublic(ref) {
		return s.publicImage(ref, "", location)
	}
	if val(ref.ID) == "" {
		return s.platformImage(ref)
	}
	id, err := parseID(val(ref.ID))
	if err != nil || !strings.EqualFold(id.namespace, "Microsoft.Compute") {
		return bootImage{}, badParameter("imageReference.id", "The value of parameter imageReference.id is invalid.")
	}
	switch strings.ToLower(strings.Join(id.types, "/")) {
	case "images":
		return s.managedImage(ref, id)
	case "galleries/images":
		version := s.latestVersion(id, location)
		if version == nil {
			return bootImage{}, galleryImageNotFound(val(ref.ID), location)
		}
		return s.galleryImage(ref, version.id, location)
	case "galleries/images/versions":
		if strings.EqualFold(id.name(), "latest") {
			version := s.latestVersion(id.parent(), location)
			if version == nil {
				return bootImage{}, galleryImageNotFound(val(ref.ID), location)
			}
			return s.galleryImage(ref, version.id, location)
		}
		return s.galleryImage(ref, id, location)
	}
	return bootImage{}, badParameter("imageReference.id", "The value of parameter imageReference.id is invalid.")
}

// resolveVersion resolves an image reference to another version of its image; "" is what
// it stands for. A managed image has one version. The caller holds the lock.
func (s *Server) resolveVersion(ref *armcompute.ImageReference, version, location string) (bootImage, error) {
	if ref == nil || version == "" {
		return s.resolveImage(ref, location)
	}
	if isPublic(ref) {
		return s.publicImage(ref, version, location)
	}
	pinned, latest := *ref, false
	switch id, err := parseID(val(ref.ID)); {
	case val(ref.ID) == "":
		pinned.Version, latest = &version, strings.EqualFold(val(ref.Version), "latest")
	case err == nil && len(id.types) > 1:
		if latest = len(id.types) == 2 || strings.EqualFold(id.name(), "latest"); len(id.types) > 2 {
			id = id.parent()
		}
		pinned.ID = ptr(id.child("versions", version).String())
	}
	img, err := s.resolveImage(&pinned, location)
	if latest && err == nil { // the reference goes on to stand for the latest
		img.ref = *ref
		img.ref.ExactVersion = &version
	}
	return img, err
}

func galleryImageNotFound(id, location string) *armError {
	e := refuse(http.StatusNotFound, "GalleryImageNotFound",
		"\"The gallery image %s is not available in %s region. Please contact image owner to replicate to this region, or change your requested region.\"", id, location)
	e.target = "imageReference"
	return e
}

// galleryImage resolves one version of a gallery's image definition.
func (s *Server) galleryImage(ref *armcompute.ImageReference, id resourceID, location string) (bootImage, error) {
	ve, version := load[armcompute.GalleryImageVersion](s, id.String())
	_, def := load[armcompute.GalleryImage](s, id.parent().String())
	if version == nil || def == nil || def.Properties == nil || !servesRegion(version, location) {
		return bootImage{}, galleryImageNotFound(val(ref.ID), location)
	}
	p := def.Properties
	img := bootImage{
		ref: *ref, source: Source{Volume: ve.volume()}, generation: "V1", arch: "x64", controllers: "SCSI",
		specialized: val(p.OSState) == armcompute.OperatingSystemStateTypesSpecialized,
	}
	img.ref.ExactVersion = ptr(id.name())
	img.osType = val(p.OSType)
	if p.HyperVGeneration != nil {
		img.generation = string(*p.HyperVGeneration)
	}
	if p.Architecture != nil {
		img.arch = string(*p.Architecture)
	}
	for _, f := range p.Features {
		switch strings.ToLower(val(f.Name)) {
		case "securitytype":
			img.security = val(f.Value)
		case "diskcontrollertypes":
			img.controllers = strings.ReplaceAll(val(f.Value), " ", "")
		case "ishibernatesupported":
			img.hibernates = strings.EqualFold(val(f.Value), "True")
		}
	}
	if sp := version.Properties.StorageProfile; sp != nil && sp.OSDiskImage != nil {
		img.sizeGB = val(sp.OSDiskImage.SizeInGB)
	}
	if sp := version.Properties.StorageProfile; sp != nil {
		for _, d := range sp.DataDiskImages {
			lun := val(d.Lun)
			img.data = append(img.data, imageDisk{lun: lun, sizeGB: val(d.SizeInGB), caching: cachingOf(d.HostCaching), source: Source{Volume: ve.dataVolume(lun)}})
		}
	}
	return img, nil
}

// servesRegion says whether a version is whole and replicated to the region.
func servesRegion(v *armcompute.GalleryImageVersion, location string) bool {
	if v.Properties == nil {
		return false
	}
	state := val(v.Properties.ProvisioningState)
	if state != armcompute.GalleryProvisioningStateSucceeded && state != armcompute.GalleryProvisioningStateUpdating {
		return false
	}
	if normLocation(val(v.Location)) == normLocation(location) {
		return true
	}
	if pub := v.Properties.PublishingProfile; pub != nil {
		for _, r := range pub.TargetRegions {
			if normLocation(val(r.Name)) == normLocation(location) {
				return true
			}
		}
	}
	return false
}

// managedImage resolves a Microsoft.Compute/images resource.
func (s *Server) managedImage(ref *armcompute.ImageReference, id resourceID) (bootImage, error) {
	e, image := load[armcompute.Image](s, id.String())
	if image == nil {
		err := notFound(id)
		err.target = "imageReference"
		return bootImage{}, err
	}
	img := bootImage{ref: *ref, source: Source{Volume: e.volume()}, generation: "V1", arch: "x64", controllers: "SCSI"}
	if p := image.Properties; p != nil {
		if p.HyperVGeneration != nil {
			img.generation = string(*p.HyperVGeneration)
		}
		if p.StorageProfile != nil && p.StorageProfile.OSDisk != nil {
			img.sizeGB, img.osType = val(p.StorageProfile.OSDisk.DiskSizeGB), val(p.StorageProfile.OSDisk.OSType)
			img.specialized = val(p.StorageProfile.OSDisk.OSState) == armcompute.OperatingSystemStateTypesSpecialized
			img.sku = p.StorageProfile.OSDisk.StorageAccountType
			for _, d := range p.StorageProfile.DataDisks {
				lun := val(d.Lun)
				img.data = append(img.data, imageDisk{lun: lun, sizeGB: val(d.DiskSizeGB), caching: d.Caching, sku: d.StorageAccountType, source: Source{Volume: e.dataVolume(lun)}})
			}
		}
	}
	return img, nil
}

var platformVersion = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// platformLatest is the version that "latest" of a marketplace image stands for that
// Server.ImageVersions does not have.
const platformLatest = "24.04.202601150"

// platformImage resolves a marketplace image. Every publisher, offer and SKU
// exists; what the SKU's name says of generation and architecture holds.
func (s *Server) platformImage(ref *armcompute.ImageReference) (bootImage, error) {
	publisher, offer, sku, version := val(ref.Publisher), val(ref.Offer), val(ref.SKU), val(ref.Version)
	for _, m := range [][2]string{{"publisher", publisher}, {"offer", offer}, {"sku", sku}, {"version", version}} {
		if m[1] == "" {
			return bootImage{}, badParameter("imageReference."+m[0], "Required parameter 'imageReference.%s' is missing (null).", m[0])
		}
	}
	if strings.EqualFold(version, "latest") {
		version = cmp.Or(s.ImageVersions[strings.ToLower(publisher+":"+offer+":"+sku)], platformLatest)
	} else if !platformVersion.MatchString(version) {
		return bootImage{}, badParameter("imageReference",
			"The platform image '%s:%s:%s:%s' is not available. Verify that all fields in the storage profile are correct. For more details about storage profile information, please refer to https://aka.ms/storageprofile",
			publisher, offer, sku, version)
	}
	img := bootImage{
		ref: *ref, source: Source{Platform: publisher + ":" + offer + ":" + sku + ":" + version},
		generation: "V1", arch: "x64", controllers: "SCSI", sizeGB: platformDiskGB,
	}
	img.osType, img.sizeGB = platformSystem(publisher, offer, sku)
	img.ref.ExactVersion = ptr(version)
	lower := strings.ToLower(sku)
	newOffer := strings.HasPrefix(strings.ToLower(offer), "ubuntu-2")
	switch {
	case strings.Contains(lower, "arm64"):
		img.generation, img.arch, img.controllers = "V2", "Arm64", "SCSI,NVMe"
	case strings.Contains(lower, "gen1"):
	case strings.Contains(lower, "gen2"), strings.Contains(lower, "gensecond"), strings.HasSuffix(lower, "-g2"), newOffer:
		img.generation, img.controllers, img.security = "V2", "SCSI,NVMe", "TrustedLaunchSupported"
	}
	return img, nil
}

// platformDiskGB is the OS disk's size of most Linux images of the marketplace (recorded).
const platformDiskGB = 30

// platformSystem is what a marketplace image's name says of its system, and the size of its
// OS disk (recorded: Ubuntu, Debian and CentOS 30 GB, Red Hat 64, Windows 127, and 30 as
// smalldisk).
func platformSystem(publisher, offer, sku string) (armcompute.OperatingSystemTypes, int32) {
	name := strings.ToLower(publisher + ":" + offer + ":" + sku)
	switch {
	case !windowsImage.MatchString(name):
		if strings.HasPrefix(name, "redhat:") {
			return armcompute.OperatingSystemTypesLinux, 64
		}
		return armcompute.OperatingSystemTypesLinux, platformDiskGB
	case strings.Contains(name, "smalldisk"):
		return armcompute.OperatingSystemTypesWindows, platformDiskGB
	}
	return armcompute.OperatingSystemTypesWindows, 127
}

// windowsImage matches names of images with Windows: its publishers, and products on a
// Windows Server ("sql2019-ws2019").
var windowsImage = regexp.MustCompile(`^microsoftwindows|windows|^microsoftvisualstudio:|-ws20\d\d|^microsoftsharepoint:`)

// linuxNames are distributions by what their offers begin with or contain, as their agents
// name them.
var linuxNames = [][2]string{{"debian", "debian"}, {"centos", "centos"}, {"rhel", "redhat"}, {"sles", "suse"}}

var releaseNumber = regexp.MustCompile(`\d+([._]\d+)?`)

// system is what an agent says of the operating system of a marketplace image, as far as the
// image's names tell it (recorded: Ubuntu, Debian, CentOS and Windows Server). Others are
// taken for Ubuntu.
func (b bootImage) system() (name, version string) {
	offer, sku := strings.ToLower(val(b.ref.Offer)), val(b.ref.SKU)
	if b.os() == armcompute.OperatingSystemTypesWindows {
		name, version = "Windows Server 2022 Datacenter", "Microsoft Windows NT 10.0.20348.0"
		if offer == "windowsserver" {
			name = "Windows Server " + strings.ReplaceAll(strings.TrimSuffix(sku, "-gensecond"), "-", " ")
		}
		return name, version
	}
	name, version = "ubuntu", "24.04"
	for _, n := range linuxNames {
		if strings.Contains(offer, n[0]) {
			name, version = n[1], releaseNumber.FindString(offer)
		}
	}
	if n := releaseNumber.FindString(sku); n != "" {
		version = n
	} else if n := releaseNumber.FindString(offer); name == "ubuntu" && len(n) > 4 && offer[0] != '0' {
		version = n
	}
	return name, strings.ReplaceAll(version, "_", ".")
}

func cachingOf(h *armcompute.HostCaching) *armcompute.CachingTypes {
	if h == nil {
		return nil
	}
	return ptr(armcompute.CachingTypes(*h))
}

// checkRecipe refuses a model from which no instance could be made: Azure looks
// at size, image and disk settings when it takes the model.
func (c *call) checkRecipe(old, next *armcompute.VirtualMachineScaleSet) error {
	p := profileOf(next)
	var sizes []vmSize
	for _, name := range sizesOf(next) {
		size, ok := findSize(name)
		if !ok {
			return unknownSize(name)
		}
		if isSpot(p) && !size.spot {
			return badRequest("BadRequest", "Azure Spot Virtual Machine is not supported for this VM size %s.", size.name)
		}
		sizes = append(sizes, size)
	}
	ref := imageOf(p)
	if ref != nil && val(ref.ID) != "" && (val(ref.Publisher) != "" || val(ref.Offer) != "" || val(ref.SKU) != "" || val(ref.Version) != "") && !c.ignoreNull {
		return badParameter("imageReference", "Parameter 'imageReference.id' is not allowed together with 'publisher', 'offer', 'sku' and 'version'.")
	}
	// The image is looked at where it matters: a new reference, a new size, or
	// more instances. A policy can be changed while the image is gone.
	if old != nil && modelKey(old) == modelKey(next) && capacityOf(next) <= capacityOf(old) {
		return nil
	}
	img, imgErr := c.s.resolveImage(ref, val(next.Location))
	for _, size := range sizes {
		if err := cmp.Or(c.s.checkRestricted(size, val(next.Location)), imgErr); err != nil {
			return err
		}
		if err := checkBootImage(img, size, p); err != nil {
			return err
		}
	}
	// "Hibernation overview": the image has to support it. That one of a gallery is refused here, and
	// the text, are inferred.
	if more := next.Properties.AdditionalCapabilities; more != nil && val(more.HibernationEnabled) && img.source.Volume != "" && !img.hibernates {
		return badRequest("BadRequest", "The image '%s' does not support hibernation, which additionalCapabilities.hibernationEnabled needs.", val(ref.ID))
	}
	return nil
}

func unknownSize(name string) *armError {
	return badParameter("vmSize", "The value %s provided for the VM size is not valid. The valid sizes in the current region are: %s. Find out more on the valid VM sizes in each region at https://aka.ms/azure-regions.",
		name, sizeNames())
}

// checkBootImage refuses an image that cannot boot on the size with the profile's
// settings. The texts are Azure's.
func checkBootImage(img bootImage, size vmSize, p *armcompute.VirtualMachineScaleSetVMProfile) error {
	if !size.boots(img.generation) {
		g := strings.TrimPrefix(img.generation, "V")
		return badRequest("BadRequest",
			"The selected VM size '%s' cannot boot Hypervisor Generation '%s'. If this was a Create operation please check that the Hypervisor Generation of the Image matches the Hypervisor Generation of the selected VM Size. If this was an Update operation please select a Hypervisor Generation '%s' VM Size. For more information, see https://aka.ms/azuregen2vm",
			size.name, g, g)
	}
	if !strings.EqualFold(img.arch, size.arch) {
		return badRequest("BadRequest",
			"Cannot create a VM of size '%s' because this VM size only supports a CPU Architecture of '%s', but an image or disk with CPU Architecture '%s' was given. Please check that the CPU Architecture of the image or disk is compatible with that of the VM size.",
			size.name, size.arch, img.arch)
	}
	if err := checkController(img, size, p); err != nil {
		return err
	}
	if err := checkSecurity(img, size, p); err != nil {
		return err
	}
	if img.specialized && p.OSProfile != nil {
		return badParameter("osProfile", "Parameter 'osProfile' is not allowed.")
	}
	if !img.specialized && p.OSProfile == nil {
		return badParameter("osProfile", "Required parameter 'osProfile' is missing (null).")
	}
	return checkEphemeral(img, size, p)
}

// wantsNVMe tells on which controller the OS disk is.
func wantsNVMe(size vmSize, p *armcompute.VirtualMachineScaleSetVMProfile) bool {
	if p.StorageProfile != nil && val(p.StorageProfile.DiskControllerType) != "" {
		return strings.EqualFold(*p.StorageProfile.DiskControllerType, "NVMe")
	}
	return size.onlyNVMe()
}

func checkController(img bootImage, size vmSize, p *armcompute.VirtualMachineScaleSetVMProfile) error {
	want := "SCSI"
	if wantsNVMe(size, p) {
		want = "NVMe"
	}
	if !size.hasController(want) {
		return badParameter("diskControllerType", "The VM size '%s' does not support the disk controller type '%s'. Supported disk controller types: '%s'.", size.name, want, size.controllers)
	}
	if !slices.ContainsFunc(strings.Split(img.controllers, ","), func(have string) bool { return strings.EqualFold(have, want) }) {
		return badParameter("diskControllerType",
			"The VM size '%s' cannot boot with OS image or disk. Please check that disk controller types supported by the OS image or disk is one of the supported disk controller types for the VM size '%s'. Please query sku api at https://aka.ms/azure-compute-skus to determine supported disk controller types for the VM size.",
			size.name, size.name)
	}
	return nil
}

func checkSecurity(img bootImage, size vmSize, p *armcompute.VirtualMachineScaleSetVMProfile) error {
	want := ""
	if p.SecurityProfile != nil && p.SecurityProfile.SecurityType != nil {
		want = string(*p.SecurityProfile.SecurityType)
	}
	switch want {
	case "", "Standard":
		if img.security == "TrustedLaunch" || img.security == "ConfidentialVM" {
			return badRequest("BadRequest", "The provided gallery image only supports creation of VMs and VM Scale Sets with '%s' security type.", img.security)
		}
	case "TrustedLaunch":
		if !size.trusted {
			return badRequest("BadRequest", "The VM size '%s' is not supported for creation of VMs and Virtual Machine Scale Set with 'TrustedLaunch' security type.", size.name)
		}
		if img.generation != "V2" || !strings.HasPrefix(img.security, "TrustedLaunch") {
			return badRequest("BadRequest", "Use of TrustedLaunch setting is not supported for the provided image. Please select Trusted Launch Supported Gen2 OS Image. For more information, see https://aka.ms/TrustedLaunch-FAQ.")
		}
	case "ConfidentialVM":
		if !size.conf {
			return badRequest("BadRequest", "The VM size '%s' is not supported for creation of VMs and Virtual Machine Scale Set with 'ConfidentialVM' security type.", size.name)
		}
		if !strings.Contains(img.security, "Confidential") {
			return badRequest("BadRequest", "Use of ConfidentialVM setting is not supported for the provided image.")
		}
	}
	return nil
}

// checkEphemeral refuses an OS disk on the host where there is no room for it.
func checkEphemeral(img bootImage, size vmSize, p *armcompute.VirtualMachineScaleSetVMProfile) error {
	if !isEphemeral(p) {
		return nil
	}
	d := p.StorageProfile.OSDisk
	where := val(d.DiffDiskSettings.Placement)
	room := size.cacheGB
	if where == armcompute.DiffDiskPlacementResourceDisk || where == "" && size.cacheGB == 0 {
		where, room = armcompute.DiffDiskPlacementResourceDisk, size.tempMB/1024
	} else if where == "" {
		where = armcompute.DiffDiskPlacementCacheDisk
	}
	need := max(val(d.DiskSizeGB), img.sizeGB)
	if room == 0 || need > room {
		return badRequest("NotSupported", "OS disk of Ephemeral VM with size greater than %d GB is not allowed for VM size %s when the DiffDiskPlacement is %s.", room, size.name, where)
	}
	return nil
}
