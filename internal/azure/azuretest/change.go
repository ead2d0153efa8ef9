package azuretest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

func checkPower(f Fixture) {
	i := f.Instances(2)[0]
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
		f.Finish(step.change)
		if got := Get(f, f.Cloud.Instance, i.ID); got.Power != step.want || !got.OSDisk.Equal(i.OSDisk) {
			f.Errorf("after %s: power %q, OS disk %s; expected %q, %s", step.change.Verb(), got.Power, got.OSDisk, step.want, i.OSDisk)
		}
	}
	if other := f.Instances(2)[1]; other.Power != fleet.PowerRunning {
		f.Errorf("another instance is %q, expected %q", other.Power, fleet.PowerRunning)
	}
}

func checkProtection(f Fixture) {
	i := f.Instances(2)[0]
	disk := f.name("disks", "volume")
	f.makeDisk(i, disk)
	f.Finish(fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 0})
	before := Get(f, f.Cloud.Instance, i.ID)
	f.claim(ClaimProtect)
	for _, p := range []fleet.Protection{{ScaleIn: true, ScaleSetActions: true}, {ScaleIn: true}, {Off: true}, {}} {
		if p == (fleet.Protection{}) {
			f.claim(ClaimUnprotect)
		}
		change := fleet.ProtectInstance{Instance: i.ID, Protection: p}
		f.Finish(change)
		f.Again(change)
		now := Get(f, f.Cloud.Instance, i.ID)
		if now.Protection != p {
			f.Errorf("protection %+v, expected %+v", now.Protection, p)
		}
		now.Protection = before.Protection
		if fmt.Sprint(now) != fmt.Sprint(before) {
			f.Errorf("the instance is %+v, expected %+v as before", now, before)
		}
	}
}

// makeDisk makes a disk from a snapshot of the instance's OS disk.
func (f Fixture) makeDisk(i fleet.Instance, disk fleet.ResourceID) {
	f.Helper()
	snapshot := f.Pool.In("snapshots", "of-"+disk.Name())
	f.Finish(fleet.CreateSnapshot{ID: snapshot, Location: f.Location, Source: i.OSDisk})
	f.Finish(fleet.CreateDisk{ID: disk, Location: f.Location, Zone: i.Zone, SKU: "Premium_LRS", Source: snapshot,
		Tags: map[string]string{"why": "test"}})
}

func checkSnapshots(f Fixture) {
	i := f.Instances(2)[0]
	id := f.name("snapshots", "s1")
	change := fleet.CreateSnapshot{ID: id, Location: f.Location, Source: i.OSDisk, Tags: map[string]string{fleet.TagCapture: "c1"}}
	f.Finish(change)
	s := Get(f, f.Cloud.Snapshot, id)
	if !s.Source.Equal(i.OSDisk) || s.ProvisioningState != "Succeeded" || s.Tags[fleet.TagCapture] != "c1" || s.Created.IsZero() ||
		s.SizeGB <= 0 || s.Generation != i.Generation {
		f.Errorf("snapshot %+v, expected one of %s with its size, generation, tags and time", s, i.OSDisk)
	}
	f.Again(change)
	other := change
	other.Source = f.Instances(2)[1].OSDisk
	_, err := f.Cloud.Begin(f.Context(), other)
	WantKind(f, err, fleet.KindConflict)
	if now := Get(f, f.Cloud.Snapshot, id); !now.Source.Equal(i.OSDisk) || !now.Created.Equal(s.Created) {
		f.Errorf("the snapshot is %+v, expected %+v as before", now, s)
	}
	f.Finish(fleet.DeleteSnapshot{ID: id})
	_, err = f.Cloud.Snapshot(f.Context(), id)
	WantKind(f, err, fleet.KindNotFound)
	f.Again(fleet.DeleteSnapshot{ID: id})
}

func checkDataDisks(f Fixture) {
	two := f.Instances(2)
	i := two[0]
	disk, second := f.name("disks", "d1"), f.name("disks", "d2")
	f.makeDisk(i, disk)
	f.makeDisk(i, second)
	d := Get(f, f.Cloud.Disk, disk)
	if d.Zone != i.Zone || d.Location != f.Location || d.SKU != "Premium_LRS" || d.Tags["why"] != "test" || d.ManagedBy != "" ||
		!d.Source.Equal(f.Pool.In("snapshots", "of-"+disk.Name())) {
		f.Errorf("disk %+v, expected one of the snapshot in zone %s with SKU, region and tags as asked", d, i.Zone)
	}
	if !f.Flexible {
		f.claim(ClaimAttach)
	}
	attach := fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 5}
	f.Finish(attach)
	f.Again(attach)
	if got := Get(f, f.Cloud.Instance, i.ID); len(got.DataDisks) != 1 || got.DataDisks[0].LUN != 5 || !got.DataDisks[0].Disk.Equal(disk) {
		f.Errorf("data disks %+v, expected %s alone at LUN 5", got.DataDisks, disk)
	}
	if d := Get(f, f.Cloud.Disk, disk); !d.ManagedBy.Equal(i.ID) {
		f.Errorf("managed by %q, expected %s", d.ManagedBy, i.ID)
	}
	f.claim("")
	for _, wrong := range []fleet.AttachDisk{{Instance: i.ID, Disk: disk, LUN: 6}, {Instance: i.ID, Disk: second, LUN: 5}} {
		_, err := f.Cloud.Begin(f.Context(), wrong)
		WantKind(f, err, fleet.KindConflict)
	}
	f.Finish(fleet.AttachDisk{Instance: i.ID, Disk: second, LUN: 0})
	detach := fleet.DetachDisk{Instance: i.ID, Disk: disk}
	f.Finish(detach)
	f.Again(detach)
	if got := Get(f, f.Cloud.Instance, i.ID); len(got.DataDisks) != 1 || !got.DataDisks[0].Disk.Equal(second) {
		f.Errorf("data disks %+v, expected %s alone", got.DataDisks, second)
	}
	f.Finish(fleet.DetachDisk{Instance: i.ID, Disk: second})
	f.Finish(fleet.DeleteDisk{ID: disk})
	_, err := f.Cloud.Disk(f.Context(), disk)
	WantKind(f, err, fleet.KindNotFound)
	f.Again(fleet.DeleteDisk{ID: disk})
}

func checkExtensions(f Fixture) {
	if err := f.Try(fleet.DeleteExtension{Pool: f.Pool, Name: "first"}); err == nil {
		f.Error("an extension that another needs was deleted")
	}
	for _, name := range []string{"second", "first"} {
		f.Finish(fleet.DeleteExtension{Pool: f.Pool, Name: name})
		f.Again(fleet.DeleteExtension{Pool: f.Pool, Name: name})
		for _, e := range Get(f, f.Cloud.Pool, f.Pool).Model.Extensions {
			if e.Name == name {
				f.Errorf("%s is still there", name)
			}
		}
	}
	first := fleet.Extension{
		Name: "first", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript", Version: "2.1", AutoUpgradeMinorVersion: true,
		ForceUpdateTag:   "2",
		SuppressFailures: true, HasProtectedSettings: true,
		Settings: fleet.NewSecret(`{"commandToExecute":"join \u003ehere","n":12345678901234567890}`),
	}
	second := fleet.Extension{
		Name: "second", Publisher: "Microsoft.Azure.Monitor", Type: "AzureMonitorLinuxAgent", Version: "1.0", AutomaticUpgrade: true,
		HasProtectedSettings: true,
		After:                []string{"first"},
	}
	if f.Vault != "" {
		second.KeyVault = &fleet.KeyVaultSecret{URL: "https://kv.vault.azure.net/secrets/s/1", Vault: f.Vault}
	}
	if err := f.Try(fleet.WriteExtension{Pool: f.Pool, Extension: second}); err == nil {
		f.Error("an extension was written that needs a missing one")
	}
	f.claim(ClaimExtension)
	f.Finish(fleet.WriteExtension{Pool: f.Pool, Extension: first, Protected: fleet.NewSecret(`{"storageAccountKey":"k"}`)})
	f.Finish(fleet.WriteExtension{Pool: f.Pool, Extension: second})
	replaced := first
	replaced.Settings, replaced.ForceUpdateTag = fleet.NewSecret(`{"commandToExecute":"other"}`), ""
	for range 2 {
		f.Finish(fleet.WriteExtension{Pool: f.Pool, Extension: replaced})
	}
	got := Get(f, f.Cloud.Pool, f.Pool).Model.Extensions
	if want := []fleet.Extension{replaced, second}; !reflect.DeepEqual(got, want) {
		f.Errorf("extensions %+v, expected %+v", got, want)
	}
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "commandToExecute") {
		f.Errorf("public settings are shown: %s, %v", text, err)
	}
}

func checkCapacity(f Fixture) {
	change := fleet.SetCapacity{Pool: f.Pool, Capacity: 3}
	f.Finish(change)
	f.Again(change)
	if p := Get(f, f.Cloud.Pool, f.Pool); p.Capacity != 3 || p.Size != f.Size {
		f.Errorf("pool %+v, expected capacity 3 of %s", p, f.Size)
	}
	for _, i := range f.Instances(3) {
		if i.Power != fleet.PowerRunning {
			f.Errorf("%s is %q, expected %q", i.Name, i.Power, fleet.PowerRunning)
		}
	}
}

// testResume begins here and asks there, and asks after the end too.
func checkResume(f Fixture) {
	i := f.Instances(2)[0]
	tok, err := f.Cloud.Begin(f.Context(), fleet.StopInstance{Instance: i.ID})
	if err != nil || tok == "" {
		f.Fatalf("token %q, error %v; expected a token", tok, err)
	}
	p, err := f.Another.Poll(f.Context(), tok)
	if err != nil || p.Done || p.Status == "" {
		f.Errorf("%+v, %v; expected an operation that runs", p, err)
	}
	_, err = f.Another.Begin(f.Context(), fleet.StartInstance{Instance: i.ID})
	if err != nil {
		WantKind(f, err, fleet.KindConflict)
	}
	if err := f.Follow(f.Another, tok); err != nil && !fleet.Is(err, fleet.KindConflict) {
		f.Fatal(err)
	}
	if p, err := f.Cloud.Poll(f.Context(), tok); !p.Done {
		f.Errorf("after the end: %+v, %v; expected done", p, err)
	}
}

// testConditions: what was computed from a scale set that has changed since then has
// no effect.
func checkConditions(f Fixture) {
	f.claim(ClaimETag)
	pool := func() fleet.Pool { return Get(f, f.Cloud.Pool, f.Pool) }
	read := pool()
	f.Finish(fleet.SetCapacity{Pool: f.Pool, Capacity: 4, Etag: read.Etag})
	before := pool()
	secret := fleet.NewSecret("#cloud-config\n")
	for _, change := range []fleet.Change{
		fleet.SetCapacity{Pool: f.Pool, Capacity: 3, Etag: read.Etag},
		fleet.SetCapacity{Pool: f.Pool, Capacity: 4, Etag: read.Etag}, // it is 4, but not since the read
		fleet.PatchModel{Pool: f.Pool, CustomData: &secret, Etag: read.Etag},
	} {
		WantKind(f, f.Try(change), fleet.KindStale)
	}
	if now := pool(); read.Etag == "" || before.Etag == read.Etag || now.Capacity != 4 || now.Etag != before.Etag {
		f.Errorf("the scale set is %+v, expected %+v, as before changes whose ETag was another", now, before)
	}
	f.Finish(fleet.PatchModel{Pool: f.Pool, CustomData: &secret, Etag: before.Etag})
	f.Finish(fleet.SetCapacity{Pool: f.Pool, Capacity: 3, Etag: pool().Etag})
	if n := pool().Capacity; n != 3 {
		f.Errorf("capacity %d, expected 3", n)
	}
}
