package azsim

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A gallery with a softDeletePolicy keeps deleted versions for a week, below
// softDeletedArtifactTypes/Images/artifacts/DEFINITION: they are listed there, and deleted for
// good; a PUT of the version with its region alone recovers it. A Failed version cannot be
// deleted, nor a definition with such versions. Source: azure-compute-docs, soft-delete-gallery.
// That a PUT of another version of the name is refused is inferred, as are codes and words.

const (
	deletedVersionType = "Microsoft.Compute/galleries/softDeletedArtifactTypes/artifacts/versions"
	deletedVersionKept = 7 * 24 * time.Hour
)

func deletedVersionResourceType() *resourceType {
	return &resourceType{
		name: deletedVersionType, versions: []string{"2024-03-03", "2025-03-03", "2025-12-03"}, operations: galleryOperations,
		list: func(c *call) (*reply, error) {
			return c.page(c.s.deletedVersions(c.id)), nil
		},
		remove: func(c *call) (*reply, error) {
			return c.remove(nil, func(e *entry) work {
				return work{span: c.duration("version.delete"), run: c.s.dropVolumes(volumesOf(e.extra.(*entry))...)}
			})
		},
	}
}

// artifactOf is where soft-deleted versions of a definition are.
func artifactOf(definition resourceID) resourceID {
	return definition.parent().child("softDeletedArtifactTypes", "Images").child("artifacts", definition.name())
}

// deletedVersions are those that can be recovered, below the path of artifactOf. The caller holds
// the lock.
func (s *Server) deletedVersions(artifact resourceID) []*entry {
	return s.children(artifact, "versions")
}

// deletesSoftly reports whether the gallery of a version has the policy.
func (c *call) deletesSoftly() bool {
	_, g := load[armcompute.Gallery](c.s, c.id.parent().parent().String())
	return g != nil && g.Properties.SoftDeletePolicy != nil && val(g.Properties.SoftDeletePolicy.IsSoftDeleteEnabled)
}

// keepDeleted keeps a version that was deleted softly.
func (s *Server) keepDeleted(e *entry) {
	id := artifactOf(e.id.parent()).child("versions", e.id.name())
	kept := s.insert(id, s.types[strings.ToLower(deletedVersionType)], object{
		"id": id.String(), "name": e.id.name(), "type": deletedVersionType, "location": s.locationOf(e),
		"properties": object{"resourceArmId": e.id.String(), "softDeletedArtifactType": "Images", "softDeletedTime": time.Now().UTC().Format(time.RFC3339)},
	}, time.Now())
	kept.extra = e
	s.inBackground(func(ctx context.Context) error {
		over := pause(ctx, deletedVersionKept) == nil // otherwise the server closes
		s.locked(func() {
			if over = over && s.find(id) == kept; over {
				s.delete(kept)
			}
		})
		if drop := s.dropVolumes(volumesOf(e)...); over && drop != nil {
			return drop(ctx)
		}
		return nil
	})
}

// putVersion is the PUT of a version, which recovers a soft-deleted one.
func putVersion(c *call, h hooks[armcompute.GalleryImageVersion]) (*reply, error) {
	for _, kept := range c.s.deletedVersions(artifactOf(c.id.parent())) {
		if !strings.EqualFold(kept.id.name(), c.id.name()) || c.s.find(c.id) != nil {
			continue
		}
		tree, err := c.tree()
		if err != nil {
			return nil, err
		}
		if tree["properties"] != nil {
			return nil, conflict("The gallery image version '%s' is soft-deleted. Recover it, or delete it permanently, before you create a version of this name.", c.id.name())
		}
		was := kept.extra.(*entry)
		e := c.s.insert(was.id, was.rt, was.body, was.since)
		e.extra = was.extra
		setState(e.body, stateSucceeded)
		c.s.delete(kept)
		return &reply{status: http.StatusOK, body: c.render(e)}, nil
	}
	return put(c, h)
}
