package azsim

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// galleryVersions are the API versions of galleries and what is in them: from
// that of the CLI's 2020 profile, over 2021-10-01 and 2022-03-03 of azure-cli
// 2.45, to that of armcompute v8.3.
func galleryVersions() []string {
	return []string{"2018-06-01", "2019-03-01", "2019-07-01", "2019-12-01", "2020-09-30", "2021-07-01", "2021-10-01", "2022-01-03",
		"2022-03-03", "2022-08-03", "2023-07-03", "2024-03-03", "2025-03-03", "2025-12-03"}
}

// galleryOperations is where operations on galleries and what is in them are asked about.
const galleryOperations = "capsOperations"

// trustedByDefault is the API version from which an image definition is V2 and
// TrustedLaunchSupported by default.
const trustedByDefault = "2025-03-03"

var (
	galleryName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._]{0,78}[A-Za-z0-9])?$`)
	imageName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9])?$`)
)

func galleryType() *resourceType {
	h := hooks[armcompute.Gallery]{settled: true, check: checkGallery, work: func(c *call, _ *entry, old, _ *armcompute.Gallery) work {
		if old != nil {
			return work{span: c.duration("gallery.update")}
		}
		return work{span: c.duration("gallery.create")}
	}}
	return &resourceType{
		name: "Microsoft.Compute/galleries", versions: galleryVersions(), global: true, operations: galleryOperations,
		put: func(c *call) (*reply, error) { return put(c, h) }, preflight: true,
		patch: func(c *call) (*reply, error) { return patch(c, h) },
		remove: func(c *call) (*reply, error) {
			return c.remove(c.childless("images"), func(*entry) work { return work{span: c.duration("gallery.delete")} })
		},
		render:  renderGallery,
		actions: map[string]handler{"share": shareGallery},
	}
}

func checkGallery(c *call, old, next *armcompute.Gallery) error {
	if !galleryName.MatchString(c.id.name()) {
		return badParameter("galleryName", "The entity name 'galleryName' is invalid according to its validation rule: ^[^_\\W][\\w._]{0,79}(?<![-.])$.")
	}
	for _, e := range c.s.ofType("Microsoft.Compute/galleries", c.id.subscription, "") {
		if strings.EqualFold(e.id.name(), c.id.name()) && e.id.key() != c.id.key() {
			return refuse(http.StatusConflict, "Conflict", "The gallery name '%s' is taken in this subscription, by '%s'.", c.id.name(), e.id.String())
		}
	}
	next.Properties = cmp.Or(next.Properties, &armcompute.GalleryProperties{})
	next.Properties.Identifier = &armcompute.GalleryIdentifier{UniqueName: ptr(c.s.Subscription + "-" + strings.ToUpper(c.id.name()))}
	return c.settleSharing(old, next.Properties)
}

// childless refuses the deletion of a resource that others lie in.
func (c *call) childless(typ string) func(e *entry) error {
	return func(e *entry) error {
		kids := c.s.children(e.id, typ)
		if len(kids) == 0 {
			return nil
		}
		var names []string
		for _, k := range kids[:min(len(kids), 5)] {
			names = append(names, k.id.short())
		}
		return refuse(http.StatusConflict, "CannotDeleteResource",
			"Cannot delete resource while nested resources exist. Some existing nested resource IDs include: '%s'. Please delete all nested resources before deleting this resource.", strings.Join(names, ", "))
	}
}

func imageType() *resourceType {
	h := hooks[armcompute.GalleryImage]{check: checkDefinition, work: func(c *call, _ *entry, old, _ *armcompute.GalleryImage) work {
		if old != nil {
			return work{span: c.duration("image.update")}
		}
		return work{span: c.duration("image.create")}
	}}
	return &resourceType{
		name: "Microsoft.Compute/galleries/images", versions: galleryVersions(), operations: galleryOperations,
		put: func(c *call) (*reply, error) { return put(c, h) }, preflight: true,
		patch: func(c *call) (*reply, error) { return patch(c, h) },
		remove: func(c *call) (*reply, error) {
			if len(c.s.deletedVersions(artifactOf(c.id))) > 0 {
				return nil, conflict("The gallery image '%s' has soft-deleted versions. Delete them permanently first.", c.id.name())
			}
			return c.remove(c.childless("versions"), func(*entry) work { return work{span: c.duration("image.delete")} })
		},
	}
}

// imageFeatures returns the features that an image definition may have, with their
// values. Source: the REST reference of Gallery Images and the documentation of
// image definitions.
func imageFeatures() map[string][]string {
	return map[string][]string{
		"securitytype":                  {"TrustedLaunch", "TrustedLaunchSupported", "ConfidentialVM", "ConfidentialVMSupported", "TrustedLaunchAndConfidentialVmSupported", "Standard"},
		"diskcontrollertypes":           {"SCSI", "NVMe", "SCSI,NVMe", "SCSI, NVMe", "NVMe,SCSI", "NVMe, SCSI"},
		"isacceleratednetworksupported": {"True", "False"},
		"ishibernatesupported":          {"True", "False"},
	}
}

func checkDefinition(c *call, old, next *armcompute.GalleryImage) error {
	const at = "galleryImage.properties."
	if !imageName.MatchString(c.id.name()) {
		return badParameter("galleryImageName", "The entity name 'galleryImageName' is invalid according to its validation rule: ^[^_\\W][\\w-._]{0,79}(?<![-.])$.")
	}
	p := next.Properties
	switch {
	case p == nil:
		return badParameter("galleryImage.properties", "Required parameter 'galleryImage.properties' is missing (null).")
	case p.OSType == nil:
		return badParameter(at+"osType", "Required parameter 'osType' is missing (null).")
	case p.OSState == nil:
		return badParameter(at+"osState", "Required parameter 'osState' is missing (null).")
	case p.Identifier == nil || val(p.Identifier.Publisher) == "" || val(p.Identifier.Offer) == "" || val(p.Identifier.SKU) == "":
		return badParameter(at+"identifier", "Required parameter 'identifier' is missing: publisher, offer and sku are needed.")
	case !canon(p.OSType, armcompute.PossibleOperatingSystemTypesValues()):
		return badParameter(at+"osType", "The value '%s' of parameter 'osType' is not allowed. Allowed values are: Windows,Linux.", *p.OSType)
	case !canon(p.OSState, armcompute.PossibleOperatingSystemStateTypesValues()):
		return badParameter(at+"osState", "The value '%s' of parameter 'osState' is not allowed. Allowed values are: Generalized,Specialized.", *p.OSState)
	}
	if !canon(p.HyperVGeneration, armcompute.PossibleHyperVGenerationValues()) {
		return badParameter(at+"hyperVGeneration", "The value '%s' of parameter 'hyperVGeneration' is not allowed. Allowed values are: V1,V2.", *p.HyperVGeneration)
	}
	if !canon(p.Architecture, armcompute.PossibleArchitectureValues()) {
		return badParameter(at+"architecture", "The value '%s' of parameter 'architecture' is not allowed. Allowed values are: Arm64,x64.", *p.Architecture)
	}
	if old != nil {
		if err := changeImage(old, next); err != nil {
			return err
		}
	} else {
		defaultImage(c.version, p)
	}
	for _, f := range p.Features {
		allowed, known := imageFeatures()[strings.ToLower(val(f.Name))]
		if !known {
			return badParameter(at+"features", "The feature '%s' is not supported.", val(f.Name))
		}
		if !canon(f.Value, allowed) {
			return badParameter(at+"features", "The value '%s' of the feature '%s' is not supported. Allowed values are: %s.", val(f.Value), val(f.Name), strings.Join(allowed, "; "))
		}
		needsV2 := strings.EqualFold(val(f.Name), "SecurityType") && !strings.EqualFold(val(f.Value), "Standard") ||
			strings.EqualFold(val(f.Name), "DiskControllerTypes") && strings.Contains(strings.ToLower(val(f.Value)), "nvme")
		if needsV2 && *p.HyperVGeneration != armcompute.HyperVGenerationV2 {
			return badParameter(at+"features", "The feature '%s' with value '%s' is only supported for Hyper-V generation V2.", val(f.Name), val(f.Value))
		}
	}
	for _, e := range c.s.children(c.id.parent(), "images") {
		id := e.body.(*armcompute.GalleryImage).Properties.Identifier
		if e.id.key() != c.id.key() && strings.EqualFold(val(id.Publisher), val(p.Identifier.Publisher)) &&
			strings.EqualFold(val(id.Offer), val(p.Identifier.Offer)) && strings.EqualFold(val(id.SKU), val(p.Identifier.SKU)) {
			return refuse(http.StatusConflict, "Conflict", "The gallery image '%s' has the same identifier (publisher '%s', offer '%s', sku '%s'); it must be unique in the gallery.",
				e.id.name(), val(id.Publisher), val(id.Offer), val(id.SKU))
		}
	}
	return nil
}

// defaultImage fills in a new image definition, as the API version has it.
func defaultImage(version string, p *armcompute.GalleryImageProperties) {
	if p.HyperVGeneration == nil {
		p.HyperVGeneration = ptr(armcompute.HyperVGenerationV1)
		if version >= trustedByDefault {
			p.HyperVGeneration = ptr(armcompute.HyperVGenerationV2)
		}
	}
	if version >= trustedByDefault && *p.HyperVGeneration == armcompute.HyperVGenerationV2 && imageFeature(p, "SecurityType") == "" {
		p.Features = append(p.Features, &armcompute.GalleryImageFeature{Name: ptr("SecurityType"), Value: ptr("TrustedLaunchSupported")})
	}
	p.Architecture = cmp.Or(p.Architecture, ptr(armcompute.ArchitectureX64))
}

// imageFeature reads a feature of an image definition, "" where it is not set.
func imageFeature(p *armcompute.GalleryImageProperties, name string) string {
	for _, f := range p.Features {
		if strings.EqualFold(val(f.Name), name) {
			return val(f.Value)
		}
	}
	return ""
}

// changeImage refuses changes of what is fixed in an image definition, and keeps
// what the request leaves out.
func changeImage(old, next *armcompute.GalleryImage) error {
	const at = "galleryImage.properties."
	was, p := old.Properties, next.Properties
	p.HyperVGeneration, p.Architecture = cmp.Or(p.HyperVGeneration, was.HyperVGeneration), cmp.Or(p.Architecture, was.Architecture)
	p.PurchasePlan = cmp.Or(p.PurchasePlan, was.PurchasePlan)
	if p.Features == nil {
		p.Features = was.Features
	}
	same := func(a, b *string) bool { return strings.EqualFold(val(a), val(b)) }
	switch {
	case !same(was.Identifier.Publisher, p.Identifier.Publisher) || !same(was.Identifier.Offer, p.Identifier.Offer) || !same(was.Identifier.SKU, p.Identifier.SKU):
		return notChangeable(at + "identifier")
	case *was.OSType != *p.OSType:
		return notChangeable(at + "osType")
	case *was.OSState != *p.OSState:
		return notChangeable(at + "osState")
	case *was.HyperVGeneration != *p.HyperVGeneration:
		return notChangeable(at + "hyperVGeneration")
	case *was.Architecture != *p.Architecture:
		return notChangeable(at + "architecture")
	}
	if a, b := was.PurchasePlan, p.PurchasePlan; a != b && (a == nil || b == nil || !same(a.Name, b.Name) || !same(a.Product, b.Product) || !same(a.Publisher, b.Publisher)) {
		return notChangeable(at + "purchasePlan")
	}
	return nil
}
