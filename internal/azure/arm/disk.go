package arm

import (
	"context"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
)

// Disk returns a managed disk.
func (c *Cloud) Disk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	const op = "get disk"
	p, err := c.at(id, "disks")
	if err != nil {
		return fleet.Disk{}, failed(ctx, op, id, err)
	}
	var r storedAnswer
	if err := c.get(ctx, c.address(p.id, diskVersion), &r); err != nil {
		return fleet.Disk{}, failed(ctx, op, id, err)
	}
	q := &r.Properties
	d := fleet.Disk{
		ID:                fleet.ResourceID(r.ID),
		Location:          r.Location,
		ManagedBy:         fleet.ResourceID(r.ManagedBy),
		Tags:              tagged(r.Tags),
		SKU:               r.SKU.Name,
		SizeGB:            q.DiskSizeGB,
		Generation:        q.HyperVGeneration,
		ProvisioningState: q.ProvisioningState,
		Created:           time.Time(q.TimeCreated),
		Source:            sourceOf(&r),
		Architecture:      q.SupportedCapabilities.Architecture,
		Controllers:       q.SupportedCapabilities.DiskControllerTypes,
		SecurityType:      q.SecurityProfile.SecurityType,
		Encryption:        fleet.ResourceID(q.Encryption.DiskEncryptionSetID),
		Hibernates:        q.SupportsHibernation,
		Encrypted:         q.EncryptionSettingsCollection.Enabled,
	}
	if len(r.Zones) > 0 {
		d.Zone = r.Zones[0]
	}
	return d, nil
}

func sourceOf(r *storedAnswer) fleet.ResourceID {
	switch d := &r.Properties.CreationData; {
	case d.SourceResourceID != nil:
		return fleet.ResourceID(*d.SourceResourceID)
	case d.GalleryImageReference != nil:
		return fleet.ResourceID(d.GalleryImageReference.ID)
	case d.ImageReference != nil:
		return fleet.ResourceID(d.ImageReference.ID)
	}
	return ""
}

// Snapshot returns a snapshot.
func (c *Cloud) Snapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, error) {
	const op = "get snapshot"
	p, err := c.at(id, "snapshots")
	if err != nil {
		return fleet.Snapshot{}, failed(ctx, op, id, err)
	}
	var r storedAnswer
	if err := c.get(ctx, c.address(p.id, diskVersion), &r); err != nil {
		return fleet.Snapshot{}, failed(ctx, op, id, err)
	}
	q := &r.Properties
	return fleet.Snapshot{
		ID:                fleet.ResourceID(r.ID),
		Tags:              tagged(r.Tags),
		SizeGB:            q.DiskSizeGB,
		Generation:        q.HyperVGeneration,
		ProvisioningState: q.ProvisioningState,
		Created:           time.Time(q.TimeCreated),
		Source:            sourceOf(&r),
		Architecture:      q.SupportedCapabilities.Architecture,
	}, nil
}

// createSnapshot makes a full snapshot: an incremental one saves money only in
// a series, is limited to 7 in 5 minutes and 500 of a disk, and shares its
// storage with the rest of its series.
func (c *Cloud) createSnapshot(ctx context.Context, ch fleet.CreateSnapshot) (fleet.Token, error) {
	p, err := c.at(ch.ID, "snapshots")
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	snapshot := armcompute.Snapshot{
		Location: ptr(ch.Location),
		Tags:     toTags(ch.Tags),
		Properties: &armcompute.SnapshotProperties{
			Incremental: ptr(false),
			CreationData: &armcompute.CreationData{
				CreateOption:     ptr(armcompute.DiskCreateOptionCopy),
				SourceResourceID: ptr(string(ch.Source)),
			},
		},
	}
	snapshot.Properties.Encryption = encryptionOf(ch.Encryption)
	if ch.Closed {
		// Source: "Restrict managed disks from being imported or exported". Copying to
		// other disks still works.
		snapshot.Properties.NetworkAccessPolicy, snapshot.Properties.PublicNetworkAccess = ptr(armcompute.NetworkAccessPolicyDenyAll), ptr(armcompute.PublicNetworkAccessDisabled)
	}
	have, err := c.Snapshot(ctx, ch.ID)
	return creating(ch, have.ProvisioningState, sameSource(have.Source, ch.Source), err, func() (fleet.Token, error) {
		op, err := p.NewSnapshotsClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], snapshot, nil)
		return begun(ctx, ch, op, err)
	})
}

// encryptionOf is nil for the platform's key.
func encryptionOf(e fleet.Encryption) *armcompute.Encryption {
	if e.Set == "" {
		return nil
	}
	return &armcompute.Encryption{DiskEncryptionSetID: ptr(string(e.Set)), Type: ptr(armcompute.EncryptionType(e.Type))}
}

// EncryptionSet returns a disk encryption set. Azure shows that it cannot use the key by the set's
// state and, where the set follows the key's newest version, by autoKeyRotationError.
func (c *Cloud) EncryptionSet(ctx context.Context, id fleet.ResourceID) (fleet.EncryptionSet, error) {
	const op = "get disk encryption set"
	p, err := c.at(id, "diskEncryptionSets")
	if err != nil {
		return fleet.EncryptionSet{}, failed(ctx, op, id, err)
	}
	var r encryptionSetAnswer
	if err := c.get(ctx, c.address(p.id, diskVersion), &r); err != nil {
		return fleet.EncryptionSet{}, failed(ctx, op, id, err)
	}
	q := &r.Properties
	s := fleet.EncryptionSet{ID: fleet.ResourceID(r.ID), Location: r.Location, Type: q.EncryptionType}
	if e := q.AutoKeyRotationError; e != nil {
		s.Problem = strings.TrimPrefix(e.Code+": "+shortened(e.Message), ": ")
	} else if strings.EqualFold(q.ProvisioningState, "Failed") {
		s.Problem = "its provisioning state is Failed"
	}
	return s, nil
}

func (c *Cloud) deleteSnapshot(ctx context.Context, ch fleet.DeleteSnapshot) (fleet.Token, error) {
	p, err := c.at(ch.ID, "snapshots")
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	op, err := p.NewSnapshotsClient().BeginDelete(ctx, p.group, p.names[0], nil)
	return gone(begun(ctx, ch, op, err))
}

func (c *Cloud) createDisk(ctx context.Context, ch fleet.CreateDisk) (fleet.Token, error) {
	p, err := c.at(ch.ID, "disks")
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	disk := armcompute.Disk{
		Location: ptr(ch.Location),
		Tags:     toTags(ch.Tags),
		SKU:      &armcompute.DiskSKU{Name: ptr(armcompute.DiskStorageAccountTypes(ch.SKU))},
		Properties: &armcompute.DiskProperties{
			NetworkAccessPolicy: ptr(armcompute.NetworkAccessPolicyDenyAll), PublicNetworkAccess: ptr(armcompute.PublicNetworkAccessDisabled),
			CreationData: &armcompute.CreationData{
				CreateOption:     ptr(armcompute.DiskCreateOptionCopy),
				SourceResourceID: ptr(string(ch.Source)),
			},
		},
	}
	disk.Properties.Encryption = encryptionOf(ch.Encryption)
	if ch.SKU == "" {
		disk.SKU = nil
	}
	if ch.Zone != "" {
		disk.Zones = []*string{ptr(ch.Zone)}
	}
	have, err := c.Disk(ctx, ch.ID)
	return creating(ch, have.ProvisioningState, sameSource(have.Source, ch.Source), err, func() (fleet.Token, error) {
		op, err := p.NewDisksClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], disk, nil)
		return begun(ctx, ch, op, err)
	})
}

func (c *Cloud) deleteDisk(ctx context.Context, ch fleet.DeleteDisk) (fleet.Token, error) {
	p, err := c.at(ch.ID, "disks")
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.ID, err)
	}
	op, err := p.NewDisksClient().BeginDelete(ctx, p.group, p.names[0], nil)
	return gone(begun(ctx, ch, op, err))
}
