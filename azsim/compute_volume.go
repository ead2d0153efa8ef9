package azsim

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// volume names the bytes of a disk, a snapshot or an image version.
func (e *entry) volume() Volume { return Volume(e.id.key()) }

// dataVolume names the bytes of an image version's data disk.
func (e *entry) dataVolume(lun int32) Volume {
	return Volume(fmt.Sprintf("%s/datadisks/%d", e.id.key(), lun))
}

// A copying is one volume to make.
type copying struct {
	to   Volume
	from Source
}

// makeVolumes is an operation's run that makes volumes, one after the other.
func (s *Server) makeVolumes(list ...copying) func(context.Context) error {
	if s.Substrate == nil {
		return nil
	}
	return func(ctx context.Context) error {
		for _, c := range list {
			if err := s.Substrate.CreateVolume(ctx, c.to, c.from); err != nil {
				return fmt.Errorf("make volume %s: %w", c.to, err)
			}
		}
		return nil
	}
}

// dropVolumes is an operation's run that deletes volumes.
func (s *Server) dropVolumes(list ...Volume) func(context.Context) error {
	if s.Substrate == nil {
		return nil
	}
	return func(ctx context.Context) error {
		for _, v := range list {
			if err := s.Substrate.DeleteVolume(ctx, v); err != nil {
				return fmt.Errorf("delete volume %s: %w", v, err)
			}
		}
		return nil
	}
}

// dropVolume deletes the bytes of a resource that goes with its group. The
// caller holds the lock.
func dropVolume(s *Server, e *entry) {
	run := s.dropVolumes(volumesOf(e)...)
	if run == nil || s.ctx.Err() != nil {
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if err := run(s.ctx); err != nil {
			s.Log.Error("volume left behind", "resource", e.id.String(), "error", err)
		}
	}()
}

// volumesOf lists the volumes that an entry owns.
func volumesOf(e *entry) []Volume {
	out := []Volume{e.volume()}
	if i, isImage := e.body.(*armcompute.Image); isImage && i.Properties.StorageProfile != nil {
		for _, d := range i.Properties.StorageProfile.DataDisks {
			out = append(out, e.dataVolume(val(d.Lun)))
		}
	}
	if v, isVersion := e.body.(*armcompute.GalleryImageVersion); isVersion && v.Properties != nil && v.Properties.StorageProfile != nil {
		for _, d := range v.Properties.StorageProfile.DataDiskImages {
			out = append(out, e.dataVolume(val(d.Lun)))
		}
	}
	return out
}

// An origin is what a disk, snapshot or image version can be made of.
type origin struct {
	entry        *entry
	sizeGB       int32
	osType       *armcompute.OperatingSystemTypes
	generation   *armcompute.HyperVGeneration
	capabilities *armcompute.SupportedCapabilities
	uniqueID     *string
	security     *armcompute.DiskSecurityProfile
	hibernation  *bool
	settings     *armcompute.EncryptionSettingsCollection // of Azure Disk Encryption; that copies have them is inferred
	bytes        *int64
	location     string
}

// bytesFor is the exact size of a copy in that size; nil where it is larger than the source.
func (o *origin) bytesFor(sizeGB int32) *int64 {
	if sizeGB != o.sizeGB {
		return nil
	}
	return o.bytes
}

// originOf finds the disk or snapshot with that id, and checks that it is whole
// and that the caller may read its bytes.
func (c *call) originOf(id, target string) (*origin, error) {
	parsed, err := parseID(id)
	if err != nil {
		return nil, badParameter(target, "The value of parameter %s is invalid: %v.", target, err)
	}
	e := c.s.find(parsed)
	if e == nil {
		// Not ResourceNotFound, which a GET answers (vm_snapshot_copy_start_detection#4 of 2024).
		return nil, refuse(http.StatusNotFound, "NotFound", "Resource %s is not found.", parsed.name())
	}
	o := &origin{entry: e}
	switch b := e.body.(type) {
	case *armcompute.Disk:
		if e.extra == ephemeralOSDisk {
			return nil, refuse(http.StatusConflict, "OperationNotAllowed",
				"The operation '%s' is not allowed on disk '%s': it is the ephemeral OS disk of a VM, which cannot be copied.", c.action, e.id.name())
		}
		p := b.Properties
		o.sizeGB, o.osType, o.generation, o.capabilities, o.uniqueID = val(p.DiskSizeGB), p.OSType, p.HyperVGeneration, p.SupportedCapabilities, p.UniqueID
		o.security, o.hibernation, o.bytes, o.location = p.SecurityProfile, p.SupportsHibernation, p.DiskSizeBytes, val(b.Location)
		o.settings = p.EncryptionSettingsCollection
	case *armcompute.Snapshot:
		p := b.Properties
		o.sizeGB, o.osType, o.generation, o.capabilities, o.uniqueID = val(p.DiskSizeGB), p.OSType, p.HyperVGeneration, p.SupportedCapabilities, p.UniqueID
		o.security, o.hibernation, o.bytes, o.location = p.SecurityProfile, p.SupportsHibernation, p.DiskSizeBytes, val(b.Location)
		o.settings = p.EncryptionSettingsCollection
		if progress, _ := e.extra.(*copyProgress); progress != nil && !progress.usable(c.now) {
			return nil, conflict("The snapshot '%s' cannot be used: its copy is at %v percent.", e.id.name(), progress.percent(c.now))
		}
	default:
		return nil, badParameter(target, "The value of parameter %s is invalid: '%s' is neither a disk nor a snapshot.", target, id)
	}
	if err := c.authorizeLinked(e.rt.name+"/beginGetAccess/action", e.id); err != nil {
		return nil, err
	}
	if st := stateOf(e.body); e.making || st == stateDeleting || st == stateFailed {
		return nil, refuse(http.StatusConflict, "OperationNotAllowed", "The source '%s' cannot be used: its provisioning state is '%s'.", e.id.String(), st)
	}
	return o, nil
}

// latestVersion finds the image version that an image definition stands for in a
// region: the highest that succeeded there and is not excluded from latest. The
// caller holds the lock.
func (s *Server) latestVersion(image resourceID, location string) *entry {
	var best *entry
	for _, e := range s.children(image, "versions") {
		v, isVersion := e.body.(*armcompute.GalleryImageVersion)
		if !isVersion || stateOf(v) != stateSucceeded && stateOf(v) != stateUpdating {
			continue
		}
		pub := v.Properties.PublishingProfile
		there := false
		for _, r := range pub.TargetRegions {
			there = there || normLocation(val(r.Name)) == normLocation(location) && !val(r.ExcludeFromLatest)
		}
		if !there || val(pub.ExcludeFromLatest) {
			continue
		}
		if best == nil || versionLess(best.id.name(), e.id.name()) {
			best = e
		}
	}
	return best
}

// checkZRS refuses zone-redundant storage where the region has no zones.
func (c *call) checkZRS(sku, location string) error {
	l, _ := c.s.location(location)
	if strings.HasSuffix(sku, "_ZRS") && len(l.Zones) == 0 {
		return refuse(http.StatusBadRequest, "SkuNotAvailable",
			"The requested SKU '%s' is not available in location '%s': the region has no availability zones.", sku, location)
	}
	return nil
}
