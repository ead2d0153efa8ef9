package arm_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

func testPower(t *testing.T, f fixture) {
	i := f.instances(2)[0]
	for _, step := range []struct {
		change fleet.Change
		want   fleet.PowerState
	}{
		{fleet.StopInstance{Instance: i.ID}, fleet.PowerStopped},
		{fleet.StopInstance{Instance: i.ID}, fleet.PowerStopped},
		{fleet.StartInstance{Instance: i.ID}, fleet.PowerRunning},
		{fleet.StartInstance{Instance: i.ID}, fleet.PowerRunning},
		{fleet.StopInstance{Instance: i.ID, Deallocate: true}, fleet.PowerDeallocated},
		{fleet.StartInstance{Instance: i.ID}, fleet.PowerRunning},
	} {
		f.finish(step.change)
		if got := get(t, f.cloud.Instance, i.ID); got.Power != step.want || !got.OSDisk.Equal(i.OSDisk) {
			t.Errorf("after %s: power %q, OS disk %s; want %q, %s", step.change.Verb(), got.Power, got.OSDisk, step.want, i.OSDisk)
		}
	}
	if other := f.instances(2)[1]; other.Power != fleet.PowerRunning {
		t.Errorf("another instance is %q", other.Power)
	}
}

func testProtection(t *testing.T, f fixture) {
	i := f.instances(2)[0]
	disk := simPool.In("disks", "volume")
	f.makeDisk(i, disk)
	f.finish(fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 0})
	before := get(t, f.cloud.Instance, i.ID)
	for _, p := range []fleet.Protection{{ScaleIn: true, ScaleSetActions: true}, {ScaleIn: true}, {Off: true}, {}} {
		change := fleet.ProtectInstance{Instance: i.ID, Protection: p}
		f.finish(change)
		f.again(change)
		now := get(t, f.cloud.Instance, i.ID)
		if now.Protection != p {
			t.Errorf("protection %+v, want %+v", now.Protection, p)
		}
		now.Protection = before.Protection
		if fmt.Sprint(now) != fmt.Sprint(before) {
			t.Errorf("something else changed:\n%+v\n%+v", before, now)
		}
	}
}

// makeDisk makes a disk from a snapshot of the instance's OS disk.
func (f fixture) makeDisk(i fleet.Instance, disk fleet.ResourceID) {
	f.t.Helper()
	snapshot := simPool.In("snapshots", "of-"+disk.Name())
	f.finish(fleet.CreateSnapshot{ID: snapshot, Location: region, Source: i.OSDisk})
	f.finish(fleet.CreateDisk{ID: disk, Location: region, Zone: i.Zone, SKU: "Premium_LRS", Source: snapshot, Tags: map[string]string{"why": "test"}})
}

func testSnapshots(t *testing.T, f fixture) {
	i := f.instances(2)[0]
	id := simPool.In("snapshots", "s1")
	change := fleet.CreateSnapshot{ID: id, Location: region, Source: i.OSDisk, Tags: map[string]string{fleet.TagCapture: "c1"}}
	f.finish(change)
	s := get(t, f.cloud.Snapshot, id)
	if !s.Source.Equal(i.OSDisk) || s.ProvisioningState != "Succeeded" || s.Tags[fleet.TagCapture] != "c1" || s.Created.IsZero() || s.SizeGB <= 0 || s.Generation != i.Generation {
		t.Errorf("snapshot %+v", s)
	}
	f.again(change)
	other := change
	other.Source = f.instances(2)[1].OSDisk
	_, err := f.cloud.Begin(t.Context(), other)
	wantKind(t, err, fleet.KindConflict)
	if now := get(t, f.cloud.Snapshot, id); !now.Source.Equal(i.OSDisk) || !now.Created.Equal(s.Created) {
		t.Errorf("the snapshot was made again: %+v", now)
	}
	f.finish(fleet.DeleteSnapshot{ID: id})
	_, err = f.cloud.Snapshot(t.Context(), id)
	wantKind(t, err, fleet.KindNotFound)
	f.again(fleet.DeleteSnapshot{ID: id})
}

func testDataDisks(t *testing.T, f fixture) {
	two := f.instances(2)
	i := two[0]
	disk, second := simPool.In("disks", "d1"), simPool.In("disks", "d2")
	f.makeDisk(i, disk)
	f.makeDisk(i, second)
	d := get(t, f.cloud.Disk, disk)
	if d.Zone != i.Zone || d.Location != region || d.SKU != "Premium_LRS" || d.Tags["why"] != "test" || d.ManagedBy != "" || !d.Source.Equal(simPool.In("snapshots", "of-d1")) {
		t.Errorf("disk %+v", d)
	}
	attach := fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 5}
	f.finish(attach)
	f.again(attach)
	if got := get(t, f.cloud.Instance, i.ID); len(got.DataDisks) != 1 || got.DataDisks[0].LUN != 5 || !got.DataDisks[0].Disk.Equal(disk) {
		t.Errorf("data disks %+v", got.DataDisks)
	}
	if d := get(t, f.cloud.Disk, disk); !d.ManagedBy.Equal(i.ID) {
		t.Errorf("managed by %q", d.ManagedBy)
	}
	for _, wrong := range []fleet.AttachDisk{{Instance: i.ID, Disk: disk, LUN: 6}, {Instance: i.ID, Disk: second, LUN: 5}} {
		_, err := f.cloud.Begin(t.Context(), wrong)
		wantKind(t, err, fleet.KindConflict)
	}
	f.finish(fleet.AttachDisk{Instance: i.ID, Disk: second, LUN: 0})
	detach := fleet.DetachDisk{Instance: i.ID, Disk: disk}
	f.finish(detach)
	f.again(detach)
	if got := get(t, f.cloud.Instance, i.ID); len(got.DataDisks) != 1 || !got.DataDisks[0].Disk.Equal(second) {
		t.Errorf("data disks %+v", got.DataDisks)
	}
	f.finish(fleet.DetachDisk{Instance: i.ID, Disk: second})
	f.finish(fleet.DeleteDisk{ID: disk})
	_, err := f.cloud.Disk(t.Context(), disk)
	wantKind(t, err, fleet.KindNotFound)
	f.again(fleet.DeleteDisk{ID: disk})
}

func testExtensions(t *testing.T, f fixture) {
	if err := f.try(fleet.DeleteExtension{Pool: simPool, Name: "first"}); err == nil {
		t.Error("an extension that another needs was deleted")
	}
	for _, name := range []string{"second", "first"} {
		f.finish(fleet.DeleteExtension{Pool: simPool, Name: name})
		f.again(fleet.DeleteExtension{Pool: simPool, Name: name})
		for _, e := range get(t, f.cloud.Pool, simPool).Model.Extensions {
			if e.Name == name {
				t.Errorf("%s is still there", name)
			}
		}
	}
	first := fleet.Extension{
		Name: "first", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript", Version: "2.1", AutoUpgradeMinorVersion: true, ForceUpdateTag: "2",
		SuppressFailures: true, HasProtectedSettings: true, Settings: fleet.NewSecret(`{"commandToExecute":"join \u003ehere","n":12345678901234567890}`),
	}
	second := fleet.Extension{
		Name: "second", Publisher: "Microsoft.Azure.Monitor", Type: "AzureMonitorLinuxAgent", Version: "1.0", AutomaticUpgrade: true, HasProtectedSettings: true,
		After: []string{"first"}, KeyVault: &fleet.KeyVaultSecret{URL: "https://kv.vault.azure.net/secrets/s/1", Vault: simPool.In("vaults", "kv")},
	}
	if err := f.try(fleet.WriteExtension{Pool: simPool, Extension: second}); err == nil {
		t.Error("an extension was written that needs a missing one")
	}
	f.finish(fleet.WriteExtension{Pool: simPool, Extension: first, Protected: fleet.NewSecret(`{"storageAccountKey":"k"}`)})
	f.finish(fleet.WriteExtension{Pool: simPool, Extension: second})
	replaced := first
	replaced.Settings, replaced.ForceUpdateTag = fleet.NewSecret(`{"commandToExecute":"other"}`), ""
	for range 2 {
		f.finish(fleet.WriteExtension{Pool: simPool, Extension: replaced})
	}
	got := get(t, f.cloud.Pool, simPool).Model.Extensions
	if want := []fleet.Extension{replaced, second}; !reflect.DeepEqual(got, want) {
		t.Errorf("extensions %+v, want %+v", got, want)
	}
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "commandToExecute") {
		t.Errorf("public settings are shown: %s, %v", text, err)
	}
}

func testCapacity(t *testing.T, f fixture) {
	change := fleet.SetCapacity{Pool: simPool, Capacity: 3}
	f.finish(change)
	f.again(change)
	if p := get(t, f.cloud.Pool, simPool); p.Capacity != 3 || p.Size != size {
		t.Errorf("pool %+v", p)
	}
	for _, i := range f.instances(3) {
		if i.Power != fleet.PowerRunning {
			t.Errorf("%s is %q", i.Name, i.Power)
		}
	}
}

// testResume begins here and asks there, and asks after the end too.
func testResume(t *testing.T, f fixture) {
	i := f.instances(2)[0]
	tok, err := f.cloud.Begin(t.Context(), fleet.StopInstance{Instance: i.ID})
	if err != nil || tok == "" {
		t.Fatal(tok, err)
	}
	p, err := f.another.Poll(t.Context(), tok)
	if err != nil || p.Done || p.Status == "" {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = f.another.Begin(t.Context(), fleet.StartInstance{Instance: i.ID})
	if err != nil {
		wantKind(t, err, fleet.KindConflict)
	}
	if err := f.follow(f.another, tok); err != nil && !fleet.Is(err, fleet.KindConflict) {
		t.Fatal(err)
	}
	if p, err := f.cloud.Poll(t.Context(), tok); !p.Done {
		t.Errorf("after the end: %+v, %v", p, err)
	}
}

// testConditions: what was computed from a scale set that has changed since then has
// no effect.
func testConditions(t *testing.T, f fixture) {
	pool := func() fleet.Pool { return get(t, f.cloud.Pool, simPool) }
	read := pool()
	f.finish(fleet.SetCapacity{Pool: simPool, Capacity: 4, Etag: read.Etag})
	before := pool()
	secret := fleet.NewSecret("#cloud-config\n")
	for _, change := range []fleet.Change{
		fleet.SetCapacity{Pool: simPool, Capacity: 3, Etag: read.Etag},
		fleet.SetCapacity{Pool: simPool, Capacity: 4, Etag: read.Etag}, // it is 4, but not since the read
		fleet.PatchModel{Pool: simPool, CustomData: &secret, Etag: read.Etag},
	} {
		wantKind(t, f.try(change), fleet.KindStale)
	}
	if now := pool(); read.Etag == "" || before.Etag == read.Etag || now.Capacity != 4 || now.Etag != before.Etag {
		t.Errorf("%+v: a change on a condition that did not hold has changed something", now)
	}
	f.finish(fleet.PatchModel{Pool: simPool, CustomData: &secret, Etag: before.Etag})
	f.finish(fleet.SetCapacity{Pool: simPool, Capacity: 3, Etag: pool().Etag})
	if n := pool().Capacity; n != 3 {
		t.Errorf("capacity %d", n)
	}
}
