package arm_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// makeKeys makes a disk encryption set in a region.
func (f fixture) makeKeys(name, where string) fleet.ResourceID {
	f.t.Helper()
	p, err := sdk(f.t, f.s).NewDiskEncryptionSetsClient().BeginCreateOrUpdate(f.t.Context(), azsim.DefaultResourceGroup, name, armcompute.DiskEncryptionSet{
		Location: ptr(where), Identity: &armcompute.EncryptionSetIdentity{Type: ptr(armcompute.DiskEncryptionSetIdentityTypeSystemAssigned)},
		Properties: &armcompute.EncryptionSetProperties{EncryptionType: ptr(armcompute.DiskEncryptionSetTypeEncryptionAtRestWithPlatformAndCustomerKeys),
			ActiveKey: &armcompute.KeyForDiskEncryptionSet{KeyURL: ptr("https://keys.vault.azure.net/keys/disks/1")}},
	}, nil)
	done(f.t, p, err)
	return simPool.In("diskEncryptionSets", name)
}

// testOwnKeys: copies and versions have the set that they were given, also in a region that
// somebody added before the version is published.
func testOwnKeys(t *testing.T, f fixture) {
	def, _ := azuretest.Definition(f.Fixture)
	f.s.RequireOwnKeys(true)
	keys, there := f.makeKeys("keys", region), f.makeKeys("there", "northeurope")
	set := azuretest.Get(t, f.Cloud.EncryptionSet, keys)
	if !set.ID.Equal(keys) || set.Location != region || set.Type != "EncryptionAtRestWithPlatformAndCustomerKeys" || set.Problem != "" {
		t.Errorf("the set is %+v", set)
	}
	encryption := fleet.Encryption{Set: keys, Type: set.Type}
	snapshot, disk := simPool.In("snapshots", "encrypted"), simPool.In("disks", "encrypted")
	f.Finish(fleet.CreateSnapshot{ID: snapshot, Location: region, Source: f.Instances(2)[0].OSDisk, Encryption: encryption})
	f.Finish(fleet.CreateDisk{ID: disk, Location: region, SKU: "StandardSSD_LRS", Source: snapshot, Encryption: encryption})
	if d := azuretest.Get(t, f.Cloud.Disk, disk); !d.Encryption.Equal(keys) {
		t.Errorf("the disk is %+v", d)
	}
	version := fleet.CreateVersion{ID: def.Child("versions", "2026.11.21"), Location: region, Source: snapshot, Replicas: 1, StorageType: fleet.LRS,
		ReplicationMode: fleet.ReplicationFull, ExcludeFromLatest: true, EncryptionSet: keys}
	f.Finish(version)

	client := sdk(t, f.s).NewGalleryImageVersionsClient()
	gallery := version.ID.Segment("galleries")
	v, err := client.Get(t.Context(), azsim.DefaultResourceGroup, gallery, def.Name(), "2026.11.21", nil)
	if err != nil {
		t.Fatal(err)
	}
	profile := v.Properties.PublishingProfile
	profile.TargetRegions = append(profile.TargetRegions, &armcompute.TargetRegion{Name: ptr("northeurope"),
		RegionalReplicaCount: ptr(int32(2)), StorageAccountType: ptr(armcompute.StorageAccountTypeStandardZRS),
		Encryption: &armcompute.EncryptionImages{OSDiskImage: &armcompute.OSDiskImageEncryption{DiskEncryptionSetID: ptr(string(there))}}})
	p, err := client.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, gallery, def.Name(), "2026.11.21", v.GalleryImageVersion, nil)
	done(t, p, err)
	regions := func(v armcompute.GalleryImageVersionsClientGetResponse) string {
		text, _ := json.Marshal(v.Properties.PublishingProfile.TargetRegions)
		return string(text)
	}
	before, _ := client.Get(t.Context(), azsim.DefaultResourceGroup, gallery, def.Name(), "2026.11.21", nil)
	f.Finish(fleet.PublishVersion{ID: version.ID, Tags: map[string]string{"published": "now"}})
	f.Finish(fleet.TagVersion{ID: version.ID, Tags: map[string]string{"more": "tags"}})
	v, err = client.Get(t.Context(), azsim.DefaultResourceGroup, gallery, def.Name(), "2026.11.21", nil)
	text, _ := json.Marshal(v)
	if err != nil || !strings.Contains(string(text), string(keys)) || !strings.Contains(string(text), string(there)) || regions(v) != regions(before) || len(v.Tags) != 2 {
		t.Errorf("the published version is %s, %v; before, its regions were %s", text, err, regions(before))
	}

	_, err = f.Cloud.Begin(t.Context(), fleet.CreateSnapshot{ID: simPool.In("snapshots", "plain"), Location: region, Source: disk})
	if !fleet.Is(err, fleet.KindDenied) || !strings.Contains(err.Error(), "Azure Policy") {
		t.Errorf("a snapshot without a set: %v", err)
	}
	f.s.View(func(v *azsim.View) {
		v.Get(string(keys)).(map[string]any)["properties"].(map[string]any)["autoKeyRotationError"] = map[string]any{"code": "KeyVaultNotFound", "message": "No such vault."}
	})
	if set = azuretest.Get(t, f.Cloud.EncryptionSet, keys); set.Problem != "KeyVaultNotFound: No such vault." {
		t.Errorf("the set without a vault is %+v", set)
	}
	_, err = f.Cloud.Begin(t.Context(), fleet.CreateDisk{ID: simPool.In("disks", "late"), Location: region, Source: snapshot, Encryption: encryption})
	if err == nil || !strings.Contains(err.Error(), "KeyVaultAccessForbidden") {
		t.Errorf("a disk with a key that is gone: %v", err)
	}
}
