package azsim

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Galleries as others see them: a community gallery by its public name, and a shared one by
// its unique name, with their images and versions, below a region. Image references name them
// so, too. All is read from the gallery that is stored.

const (
	communityGalleries  = "CommunityGalleries"
	sharedGalleries     = "SharedGalleries"
	communityDisclaimer = "https://aka.ms/community-gallery-disclaimer"
)

func publicGalleryTypes() []*resourceType {
	var out []*resourceType
	for _, kind := range []string{communityGalleries, sharedGalleries} {
		name := "Microsoft.Compute/locations/" + strings.ToLower(kind[:1]) + kind[1:]
		show := func(c *call) (*reply, error) { return c.showPublic(kind) }
		list := func(c *call) (*reply, error) { return c.listPublic(kind) }
		for _, below := range []string{"", "/images", "/images/versions"} {
			out = append(out, &resourceType{name: name + below, versions: galleryVersions(), get: show, list: list})
		}
	}
	return out
}

// publicGallery finds a gallery by a public or unique name, nil if it is not shared so. All
// clients are of the owner's subscription, so that it does not matter with whom.
func (s *Server) publicGallery(kind, name string) *entry {
	for _, e := range s.ofType("Microsoft.Compute/galleries", s.Subscription, "") {
		g := e.body.(*armcompute.Gallery).Properties
		share := g.SharingProfile
		switch {
		case share == nil:
		case kind == communityGalleries:
			info := share.CommunityGalleryInfo
			if info != nil && val(info.CommunityGalleryEnabled) && hasText(info.PublicNames, name) {
				return e
			}
		case strings.EqualFold(val(g.Identifier.UniqueName), name) && len(share.Groups) > 0:
			return e
		}
	}
	return nil
}

// stored is what the path, which names a region, a gallery, an image and a version, stands for.
func (c *call) stored(kind string) *entry {
	e := c.s.publicGallery(kind, c.id.names[1])
	for i, typ := range []string{"images", "versions"} {
		if e == nil || len(c.id.names) < i+3 {
			break
		}
		e = c.s.find(e.id.child(typ, c.id.names[i+2]))
	}
	if e == nil {
		return nil
	}
	if v, isVersion := e.body.(*armcompute.GalleryImageVersion); isVersion && !servesRegion(v, c.id.names[0]) {
		return nil
	}
	return e
}

func (c *call) showPublic(kind string) (*reply, error) {
	e := c.stored(kind)
	if e == nil {
		return nil, notFound(c.id)
	}
	return ok(c.public(kind, c.id, e)), nil
}

func (c *call) listPublic(kind string) (*reply, error) {
	if len(c.id.names) == 1 {
		return nil, badRequest("NotSimulated", "azsim has no list of %s: name one.", kind)
	}
	parent := c.stored(kind)
	if parent == nil {
		return nil, notFound(c.id)
	}
	items := []any{}
	for _, e := range c.s.children(parent.id, c.id.tail) {
		if v, isVersion := e.body.(*armcompute.GalleryImageVersion); !isVersion || servesRegion(v, c.id.names[0]) {
			items = append(items, c.public(kind, c.id.child(c.id.tail, e.id.name()), e))
		}
	}
	return ok(object{"value": items}), nil
}

// public is what others see of a gallery, an image or a version. A community image's
// identifier is empty (create_vm_with_community_gallery_image#50).
func (c *call) public(kind string, id resourceID, e *entry) object {
	props, unique := object{}, ""
	for i, part := range []string{kind, "Images", "Versions"} {
		if i+1 < len(id.names) {
			unique += "/" + part + "/" + id.names[i+1]
		}
	}
	switch b := e.body.(type) {
	case *armcompute.Gallery:
		if kind == communityGalleries {
			info := b.Properties.SharingProfile.CommunityGalleryInfo
			props["communityMetadata"] = armcompute.CommunityGalleryMetadata{PublicNames: info.PublicNames, PublisherURI: info.PublisherURI,
				PublisherContact: info.PublisherContact, Eula: info.Eula}
		}
	case *armcompute.GalleryImage:
		p := b.Properties
		props = object{"osType": p.OSType, "osState": p.OSState, "hyperVGeneration": p.HyperVGeneration, "architecture": p.Architecture,
			"recommended": object{}, "identifier": object{}}
		if p.Recommended != nil {
			props["recommended"] = p.Recommended
		}
		if kind == sharedGalleries {
			props["identifier"] = p.Identifier
		}
		if len(p.Features) > 0 {
			props["features"] = p.Features
		}
		if p.PurchasePlan != nil {
			props["purchasePlan"] = p.PurchasePlan
		}
	case *armcompute.GalleryImageVersion:
		p := b.Properties
		disks := object{}
		if d := p.StorageProfile.OSDiskImage; d != nil {
			disks["osDiskImage"] = object{"diskSizeGB": d.SizeInGB, "hostCaching": d.HostCaching}
		}
		data := []any{}
		for _, d := range p.StorageProfile.DataDiskImages {
			data = append(data, object{"lun": d.Lun, "diskSizeGB": d.SizeInGB, "hostCaching": d.HostCaching})
		}
		if len(data) > 0 {
			disks["dataDiskImages"] = data
		}
		props = object{"publishedDate": p.PublishingProfile.PublishedDate, "storageProfile": disks,
			"excludeFromLatest": val(p.PublishingProfile.ExcludeFromLatest)}
	}
	if kind == communityGalleries {
		props["disclaimer"] = communityDisclaimer
	}
	location := id.names[0]
	if l, known := c.s.location(location); known {
		location = l.Name
	}
	return object{"name": id.name(), "location": location, "identifier": object{"uniqueId": unique}, "properties": props}
}

var publicImageID = regexp.MustCompile(`(?i)^/(CommunityGalleries|SharedGalleries)/([^/]+)/Images/([^/]+)(/Versions/([^/]+))?$`)

// publicImage resolves a reference to an image of a community or shared gallery; version "" is
// what the reference names, or the latest.
func (s *Server) publicImage(ref *armcompute.ImageReference, version, location string) (bootImage, error) {
	asked := val(firstOf(ref.CommunityGalleryImageID, ref.SharedGalleryImageID))
	kind := communityGalleries
	if ref.CommunityGalleryImageID == nil {
		kind = sharedGalleries
	}
	m := publicImageID.FindStringSubmatch(asked)
	if m == nil || !strings.EqualFold(m[1], kind) {
		return bootImage{}, refuse(http.StatusBadRequest, "InvalidParameter", "The value of parameter imageReference is invalid.").
			withTarget("imageReference")
	}
	gallery := s.publicGallery(kind, m[2])
	if gallery == nil {
		return bootImage{}, galleryImageNotFound(asked, location)
	}
	image := gallery.id.child("images", m[3])
	if version == "" && !strings.EqualFold(m[5], "latest") {
		version = m[5]
	}
	if version == "" {
		e := s.latestVersion(image, location)
		if e == nil {
			return bootImage{}, galleryImageNotFound(asked, location)
		}
		version = e.id.name()
	}
	img, err := s.galleryImage(ref, image.child("versions", version), location)
	if err != nil {
		return img, galleryImageNotFound(asked, location)
	}
	return img, nil
}

// isPublic says whether a reference names an image of a community or shared gallery.
func isPublic(ref *armcompute.ImageReference) bool {
	return val(ref.CommunityGalleryImageID) != "" || val(ref.SharedGalleryImageID) != ""
}
