package azsim

import (
	"cmp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// settleSharing fills in how a gallery is shared. A community gallery gets its public name
// with its profile, and is public once "share" enables it.
func (c *call) settleSharing(old *armcompute.Gallery, p *armcompute.GalleryProperties) error {
	if p.SharingProfile == nil {
		if old != nil {
			p.SharingProfile = old.Properties.SharingProfile
		}
		return nil
	}
	share := p.SharingProfile
	if !canon(share.Permissions, armcompute.PossibleGallerySharingPermissionTypesValues()) {
		return badParameter("gallery.properties.sharingProfile.permissions",
			"The value '%s' of parameter 'permissions' is not allowed. Allowed values are: %v.",
			*share.Permissions, armcompute.PossibleGallerySharingPermissionTypesValues())
	}
	share.Groups = nil
	if old != nil && old.Properties.SharingProfile != nil && val(old.Properties.SharingProfile.Permissions) == val(share.Permissions) {
		share.Groups = old.Properties.SharingProfile.Groups
		share.CommunityGalleryInfo = cmp.Or(old.Properties.SharingProfile.CommunityGalleryInfo, share.CommunityGalleryInfo)
	}
	if info := share.CommunityGalleryInfo; info != nil && len(info.PublicNames) == 0 {
		info.CommunityGalleryEnabled = ptr(false)
		info.PublicNames = []*string{ptr(val(info.PublicNamePrefix) + "-" + c.s.newUUID("public gallery", c.id.key()))}
	}
	return nil
}

// renderGallery shows with whom a gallery is shared where $select asks for it.
func renderGallery(c *call, e *entry) any {
	g := e.body.(*armcompute.Gallery)
	if g.Properties.SharingProfile == nil || strings.EqualFold(c.query("$select"), "Permissions") {
		return g
	}
	shown, p, share := *g, *g.Properties, *g.Properties.SharingProfile
	shown.Properties, p.SharingProfile, share.Groups = &p, &share, nil
	return &shown
}

// shareGallery answers POST galleries/G/share.
func shareGallery(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	in, err := decode[armcompute.SharingUpdate](c)
	if err != nil {
		return nil, err
	}
	if in.OperationType == nil || !canon(in.OperationType, armcompute.PossibleSharingUpdateOperationTypesValues()) {
		return nil, badParameter("sharingUpdate.operationType",
			"The value of parameter 'operationType' is not allowed. Allowed values are: %v.",
			armcompute.PossibleSharingUpdateOperationTypesValues())
	}
	p := e.body.(*armcompute.Gallery).Properties
	share := cmp.Or(p.SharingProfile, &armcompute.SharingProfile{Permissions: ptr(armcompute.GallerySharingPermissionTypesPrivate)})
	operation := *in.OperationType
	switch needs := val(share.Permissions); {
	case operation == armcompute.SharingUpdateOperationTypesReset:
	case operation == armcompute.SharingUpdateOperationTypesEnableCommunity && needs != armcompute.GallerySharingPermissionTypesCommunity,
		operation != armcompute.SharingUpdateOperationTypesEnableCommunity && needs != armcompute.GallerySharingPermissionTypesGroups:
		return nil, conflict("The operation '%s' is not allowed on gallery '%s', whose permissions are '%s'.", operation, e.id.name(), needs)
	}
	return accepted(c.begin(e, work{span: c.duration("gallery.update"), done: func(failure *armError) {
		if failure == nil {
			p.SharingProfile = shared(share, operation, in.Groups)
		}
	}})), nil
}

// shared is a sharing profile after an operation on it.
func shared(was *armcompute.SharingProfile, operation armcompute.SharingUpdateOperationTypes,
	groups []*armcompute.SharingProfileGroup) *armcompute.SharingProfile {
	next := clone(was)
	switch operation {
	case armcompute.SharingUpdateOperationTypesReset:
		return &armcompute.SharingProfile{Permissions: ptr(armcompute.GallerySharingPermissionTypesPrivate)}
	case armcompute.SharingUpdateOperationTypesEnableCommunity:
		if next.CommunityGalleryInfo != nil {
			next.CommunityGalleryInfo.CommunityGalleryEnabled = ptr(true)
		}
		return next
	}
	for _, g := range groups {
		at := -1
		for i, have := range next.Groups {
			if val(have.Type) == val(g.Type) {
				at = i
			}
		}
		if at < 0 {
			next.Groups = append(next.Groups, &armcompute.SharingProfileGroup{Type: g.Type})
			at = len(next.Groups) - 1
		}
		var ids []*string
		for _, id := range next.Groups[at].IDs {
			if !hasText(g.IDs, *id) {
				ids = append(ids, id)
			}
		}
		if operation == armcompute.SharingUpdateOperationTypesAdd {
			ids = append(ids, g.IDs...)
		}
		next.Groups[at].IDs = ids
	}
	return next
}

func hasText(list []*string, text string) bool {
	for _, one := range list {
		if strings.EqualFold(val(one), text) {
			return true
		}
	}
	return false
}
