// Package azuretest is the contract of azure.Cloud as tests: every
// implementation passes them, whether in one process, over a network, or against
// an Azure that is real. They assert what a fresh look shows, not what was
// answered.
package azuretest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A Fixture is a cloud with one pool in it.
type Fixture struct {
	Cloud azure.Cloud
	// Another is the same cloud as another process sees it.
	Another azure.Cloud
	// Restricted is the same cloud with credentials that may do just these
	// actions in the subscription.
	Restricted func(t *testing.T, actions []string) azure.Cloud

	// Pool is a Uniform scale set in a region with zones, with two running Linux
	// instances of Size made from a Marketplace image, upgrade mode Manual, and
	// two extensions: "second" is provisioned after "first".
	Pool     fleet.ResourceID
	Location string
	Size     string

	// Fault makes something go wrong; nil where the cloud is one that cannot be
	// told to.
	Fault func(t *testing.T, f Fault)

	// Wait lets that much of the cloud's time pass, less being no harm.
	Wait func(time.Duration)
}

// Run runs the suite. setup makes a fresh Fixture for each test, and cleans up
// by t.Cleanup.
func Run(t *testing.T, setup func(t *testing.T) Fixture) {
	for _, tc := range Cases() {
		t.Run(tc.Name, func(t *testing.T) { tc.Do(t, setup(t)) })
	}
}

// A Case is one test of the suite, for callers that must start it in their own
// way, such as within virtual time.
type Case struct {
	Name string
	Do   func(t *testing.T, f Fixture)
}

// Cases lists the suite.
func Cases() []Case {
	return []Case{
		{"Reads", reads},
		{"Missing", missing},
		{"Power", power},
		{"Protection", protection},
		{"Snapshot", snapshots},
		{"DataDisk", dataDisks},
		{"Image", images},
		{"Latest", latest},
		{"Extensions", extensions},
		{"Capacity", capacity},
		{"Conditions", conditions},
		{"Resume", resume},
		{"Actions", actions},
		{"Faults", faults},
	}
}

// maxPolls bounds how often one operation is asked after.
const maxPolls = 2000

// finish begins a change and waits for its end.
func finish(t *testing.T, f Fixture, change fleet.Change) {
	t.Helper()
	if err := try(t, f, f.Cloud, change); err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, f Fixture, c azure.Cloud, change fleet.Change) error {
	t.Helper()
	tok, err := c.Begin(t.Context(), change)
	if err != nil {
		return err
	}
	return follow(t, f, c, tok)
}

func follow(t *testing.T, f Fixture, c azure.Cloud, tok fleet.Token) error {
	t.Helper()
	if tok == "" {
		return nil
	}
	for range maxPolls {
		p, err := c.Poll(t.Context(), tok)
		if err != nil || p.Done {
			return err
		}
		if p.Wait <= 0 {
			t.Fatalf("an operation that runs says to wait %v", p.Wait)
		}
		if p.Percent < -1 || p.Percent > 100 {
			t.Fatalf("percent %d", p.Percent)
		}
		f.Wait(p.Wait)
	}
	return errors.New("the operation does not end")
}

// again begins a change whose effect is there: it must change nothing.
func again(t *testing.T, f Fixture, change fleet.Change) {
	t.Helper()
	if tok, err := f.Cloud.Begin(t.Context(), change); err != nil || tok != "" {
		t.Errorf("%s again: token %.20q, error %v", change.Verb(), tok, err)
	}
}

func wantKind(t *testing.T, err error, kind fleet.Kind) {
	t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) {
		t.Errorf("%v is no *fleet.Error", err)
		return
	}
	if e.Kind != kind {
		t.Errorf("kind %q, want %q: %v", e.Kind, kind, err)
	}
	if e.Op == "" || e.Resource == "" {
		t.Errorf("the error does not say what was tried on what: %v", err)
	}
}

// instances lists the pool's, of which there must be n.
func instances(t *testing.T, f Fixture, n int) []fleet.Instance {
	t.Helper()
	list, err := f.Cloud.Instances(t.Context(), f.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != n {
		t.Fatalf("%d instances, want %d", len(list), n)
	}
	return list
}

func look[T any](t *testing.T, get func() (T, error)) T {
	t.Helper()
	v, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (f Fixture) pool(t *testing.T) fleet.Pool {
	t.Helper()
	return look(t, func() (fleet.Pool, error) { return f.Cloud.Pool(t.Context(), f.Pool) })
}

func (f Fixture) instance(t *testing.T, id fleet.ResourceID) fleet.Instance {
	t.Helper()
	return look(t, func() (fleet.Instance, error) { return f.Cloud.Instance(t.Context(), id) })
}

func reads(t *testing.T, f Fixture) {
	p := f.pool(t)
	if !p.ID.Equal(f.Pool) || p.Name != f.Pool.Name() || p.Location != f.Location || p.Size != f.Size || p.Capacity != 2 {
		t.Errorf("pool %+v", p)
	}
	if p.Orchestration != fleet.Uniform || p.UpgradeMode != fleet.Manual || p.AutomaticOSUpgrade || p.AutomaticRepairs || p.Spot || p.ProvisioningState != "Succeeded" || len(p.Zones) == 0 {
		t.Errorf("pool %+v", p)
	}
	m := p.Model
	if m.Image.ID != "" || m.Image.Publisher == "" || m.Image.Offer == "" || m.Image.SKU == "" || m.Image.Version == "" || !m.Linux || m.EphemeralOS {
		t.Errorf("model %+v", m)
	}
	if len(m.Extensions) != 2 || m.Extensions[0].Name != "first" || m.Extensions[1].Name != "second" || !slices.Equal(m.Extensions[1].After, []string{"first"}) {
		t.Errorf("extensions %+v", m.Extensions)
	}
	for _, i := range instances(t, f, 2) {
		if !i.ID.Parent().Equal(f.Pool) || i.InstanceID != i.ID.Name() || i.HostName == "" || i.VMID == "" || i.Size != f.Size || !i.LatestModelApplied {
			t.Errorf("instance %+v", i)
		}
		if i.Power != fleet.PowerRunning || i.ProvisioningState != "Succeeded" || i.Generation == "" || i.OSDisk == "" || len(i.DataDisks) != 0 || i.Zone == "" {
			t.Errorf("instance %+v", i)
		}
		if one := f.instance(t, i.ID); fmt.Sprint(one) != fmt.Sprint(i) {
			t.Errorf("an instance looks different alone and in the list:\n%+v\n%+v", one, i)
		}
		if upper := f.instance(t, fleet.ResourceID(strings.ToUpper(string(i.ID)))); !upper.ID.Equal(i.ID) {
			t.Errorf("letter case counts: %s", upper.ID)
		}
		d := look(t, func() (fleet.Disk, error) { return f.Cloud.Disk(t.Context(), i.OSDisk) })
		if !d.ID.Equal(i.OSDisk) || d.Location != f.Location || d.Zone != i.Zone || d.SizeGB <= 0 || d.SKU == "" || !d.ManagedBy.Equal(i.ID) ||
			d.Generation != i.Generation || d.Architecture == "" || d.ProvisioningState != "Succeeded" {
			t.Errorf("disk %+v", d)
		}
	}
	s := look(t, func() (fleet.SizeInfo, error) {
		return f.Cloud.Size(t.Context(), f.Pool.Segment("subscriptions"), f.Location, f.Size)
	})
	if s.Name != f.Size || s.Architecture == "" || len(s.Generations) == 0 || len(s.Controllers) == 0 || s.MaxDataDisks <= 0 {
		t.Errorf("size %+v", s)
	}
}

func missing(t *testing.T, f Fixture) {
	ctx := t.Context()
	gallery := f.Pool.In("galleries", "none")
	definition := gallery.Child("images", "none")
	for name, read := range map[string]func() error{
		"pool": func() error { _, err := f.Cloud.Pool(ctx, f.Pool.In("virtualMachineScaleSets", "none")); return err },
		"pool's instances": func() error {
			_, err := f.Cloud.Instances(ctx, f.Pool.In("virtualMachineScaleSets", "none"))
			return err
		},
		"instance":   func() error { _, err := f.Cloud.Instance(ctx, f.Pool.Child("virtualMachines", "999")); return err },
		"disk":       func() error { _, err := f.Cloud.Disk(ctx, f.Pool.In("disks", "none")); return err },
		"snapshot":   func() error { _, err := f.Cloud.Snapshot(ctx, f.Pool.In("snapshots", "none")); return err },
		"gallery":    func() error { _, err := f.Cloud.Gallery(ctx, gallery); return err },
		"definition": func() error { _, err := f.Cloud.Definition(ctx, definition); return err },
		"size": func() error {
			_, err := f.Cloud.Size(ctx, f.Pool.Segment("subscriptions"), f.Location, "Standard_None")
			return err
		},
		"instance to stop": func() error {
			_, err := f.Cloud.Begin(ctx, fleet.StopInstance{Instance: f.Pool.Child("virtualMachines", "999")})
			return err
		},
		"version": func() error { _, err := f.Cloud.Version(ctx, definition.Child("versions", "1.0.0")); return err },
		"version to tag": func() error {
			_, err := f.Cloud.Begin(ctx, fleet.TagVersion{ID: definition.Child("versions", "1.0.0"), Tags: map[string]string{"a": "b"}})
			return err
		},
	} {
		if err := read(); !fleet.Is(err, fleet.KindNotFound) { // no subtests in virtual time
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := f.Cloud.Versions(ctx, definition); err != nil || len(list) != 0 {
		t.Errorf("versions of a missing definition: %v, %v", list, err)
	}
	if list, err := f.Cloud.Uses(ctx, definition); err != nil || len(list) != 0 {
		t.Errorf("uses of a missing definition: %v, %v", list, err)
	}
	for _, ch := range []fleet.Change{
		fleet.DeleteSnapshot{ID: f.Pool.In("snapshots", "none")}, fleet.DeleteDisk{ID: f.Pool.In("disks", "none")},
		fleet.DeleteVersion{ID: definition.Child("versions", "1.0.0")}, fleet.DeleteExtension{Pool: f.Pool, Name: "none"},
		fleet.DetachDisk{Instance: f.Pool.Child("virtualMachines", "999"), Disk: f.Pool.In("disks", "none")},
	} {
		again(t, f, ch)
	}
	_, err := f.Cloud.Poll(ctx, "nonsense")
	if !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("a token that is none: %v", err)
	}
}

func power(t *testing.T, f Fixture) {
	i := instances(t, f, 2)[0]
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
		finish(t, f, step.change)
		if got := f.instance(t, i.ID); got.Power != step.want || !got.OSDisk.Equal(i.OSDisk) {
			t.Errorf("after %s: power %q, OS disk %s; want %q, %s", step.change.Verb(), got.Power, got.OSDisk, step.want, i.OSDisk)
		}
	}
	if other := instances(t, f, 2)[1]; other.Power != fleet.PowerRunning {
		t.Errorf("another instance is %q", other.Power)
	}
}

func protection(t *testing.T, f Fixture) {
	i := instances(t, f, 2)[0]
	disk := f.Pool.In("disks", "volume")
	makeDisk(t, f, i, disk)
	finish(t, f, fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 0})
	before := f.instance(t, i.ID)
	for _, p := range []fleet.Protection{{ScaleIn: true, ScaleSetActions: true}, {ScaleIn: true}, {Off: true}, {}} {
		change := fleet.ProtectInstance{Instance: i.ID, Protection: p}
		finish(t, f, change)
		again(t, f, change)
		now := f.instance(t, i.ID)
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
func makeDisk(t *testing.T, f Fixture, i fleet.Instance, disk fleet.ResourceID) {
	t.Helper()
	snapshot := f.Pool.In("snapshots", "of-"+disk.Name())
	finish(t, f, fleet.CreateSnapshot{ID: snapshot, Location: f.Location, Source: i.OSDisk})
	finish(t, f, fleet.CreateDisk{ID: disk, Location: f.Location, Zone: i.Zone, SKU: "Premium_LRS", Source: snapshot, Tags: map[string]string{"why": "test"}})
}

func snapshots(t *testing.T, f Fixture) {
	i := instances(t, f, 2)[0]
	id := f.Pool.In("snapshots", "s1")
	change := fleet.CreateSnapshot{ID: id, Location: f.Location, Source: i.OSDisk, Tags: map[string]string{fleet.TagCapture: "c1"}}
	finish(t, f, change)
	s := look(t, func() (fleet.Snapshot, error) { return f.Cloud.Snapshot(t.Context(), id) })
	if !s.Source.Equal(i.OSDisk) || s.ProvisioningState != "Succeeded" || s.Tags[fleet.TagCapture] != "c1" || s.Created.IsZero() || s.SizeGB <= 0 || s.Generation != i.Generation {
		t.Errorf("snapshot %+v", s)
	}
	again(t, f, change)
	other := change
	other.Source = instances(t, f, 2)[1].OSDisk
	_, err := f.Cloud.Begin(t.Context(), other)
	wantKind(t, err, fleet.KindConflict)
	if now := look(t, func() (fleet.Snapshot, error) { return f.Cloud.Snapshot(t.Context(), id) }); !now.Source.Equal(i.OSDisk) || !now.Created.Equal(s.Created) {
		t.Errorf("the snapshot was made again: %+v", now)
	}
	finish(t, f, fleet.DeleteSnapshot{ID: id})
	_, err = f.Cloud.Snapshot(t.Context(), id)
	wantKind(t, err, fleet.KindNotFound)
	again(t, f, fleet.DeleteSnapshot{ID: id})
}

func dataDisks(t *testing.T, f Fixture) {
	two := instances(t, f, 2)
	i := two[0]
	disk, second := f.Pool.In("disks", "d1"), f.Pool.In("disks", "d2")
	makeDisk(t, f, i, disk)
	makeDisk(t, f, i, second)
	d := look(t, func() (fleet.Disk, error) { return f.Cloud.Disk(t.Context(), disk) })
	if d.Zone != i.Zone || d.Location != f.Location || d.SKU != "Premium_LRS" || d.Tags["why"] != "test" || d.ManagedBy != "" || !d.Source.Equal(f.Pool.In("snapshots", "of-d1")) {
		t.Errorf("disk %+v", d)
	}
	attach := fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 5}
	finish(t, f, attach)
	again(t, f, attach)
	if got := f.instance(t, i.ID); len(got.DataDisks) != 1 || got.DataDisks[0].LUN != 5 || !got.DataDisks[0].Disk.Equal(disk) {
		t.Errorf("data disks %+v", got.DataDisks)
	}
	if d := look(t, func() (fleet.Disk, error) { return f.Cloud.Disk(t.Context(), disk) }); !d.ManagedBy.Equal(i.ID) {
		t.Errorf("managed by %q", d.ManagedBy)
	}
	for _, wrong := range []fleet.AttachDisk{{Instance: i.ID, Disk: disk, LUN: 6}, {Instance: i.ID, Disk: second, LUN: 5}} {
		_, err := f.Cloud.Begin(t.Context(), wrong)
		wantKind(t, err, fleet.KindConflict)
	}
	finish(t, f, fleet.AttachDisk{Instance: i.ID, Disk: second, LUN: 0})
	detach := fleet.DetachDisk{Instance: i.ID, Disk: disk}
	finish(t, f, detach)
	again(t, f, detach)
	if got := f.instance(t, i.ID); len(got.DataDisks) != 1 || !got.DataDisks[0].Disk.Equal(second) {
		t.Errorf("data disks %+v", got.DataDisks)
	}
	finish(t, f, fleet.DetachDisk{Instance: i.ID, Disk: second})
	finish(t, f, fleet.DeleteDisk{ID: disk})
	_, err := f.Cloud.Disk(t.Context(), disk)
	wantKind(t, err, fleet.KindNotFound)
	again(t, f, fleet.DeleteDisk{ID: disk})
}

func extensions(t *testing.T, f Fixture) {
	if err := try(t, f, f.Cloud, fleet.DeleteExtension{Pool: f.Pool, Name: "first"}); err == nil {
		t.Error("an extension that another needs was deleted")
	}
	for _, name := range []string{"second", "first"} {
		finish(t, f, fleet.DeleteExtension{Pool: f.Pool, Name: name})
		again(t, f, fleet.DeleteExtension{Pool: f.Pool, Name: name})
		for _, e := range f.pool(t).Model.Extensions {
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
		After: []string{"first"}, KeyVault: &fleet.KeyVaultSecret{URL: "https://kv.vault.azure.net/secrets/s/1", Vault: f.Pool.In("vaults", "kv")},
	}
	if err := try(t, f, f.Cloud, fleet.WriteExtension{Pool: f.Pool, Extension: second}); err == nil {
		t.Error("an extension was written that needs one that is missing")
	}
	finish(t, f, fleet.WriteExtension{Pool: f.Pool, Extension: first, Protected: fleet.NewSecret(`{"storageAccountKey":"k"}`)})
	finish(t, f, fleet.WriteExtension{Pool: f.Pool, Extension: second})
	replaced := first
	replaced.Settings, replaced.ForceUpdateTag = fleet.NewSecret(`{"commandToExecute":"other"}`), ""
	for range 2 {
		finish(t, f, fleet.WriteExtension{Pool: f.Pool, Extension: replaced})
	}
	got := f.pool(t).Model.Extensions
	if want := []fleet.Extension{replaced, second}; !reflect.DeepEqual(got, want) {
		t.Errorf("extensions %+v, want %+v", got, want)
	}
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "commandToExecute") {
		t.Errorf("public settings are shown: %s, %v", text, err)
	}
}

func capacity(t *testing.T, f Fixture) {
	change := fleet.SetCapacity{Pool: f.Pool, Capacity: 3}
	finish(t, f, change)
	again(t, f, change)
	if p := f.pool(t); p.Capacity != 3 || p.Size != f.Size {
		t.Errorf("pool %+v", p)
	}
	for _, i := range instances(t, f, 3) {
		if i.Power != fleet.PowerRunning {
			t.Errorf("%s is %q", i.Name, i.Power)
		}
	}
}

// resume begins here and asks there, and asks after the end too.
func resume(t *testing.T, f Fixture) {
	i := instances(t, f, 2)[0]
	tok, err := f.Cloud.Begin(t.Context(), fleet.StopInstance{Instance: i.ID})
	if err != nil || tok == "" {
		t.Fatal(tok, err)
	}
	p, err := f.Another.Poll(t.Context(), tok)
	if err != nil || p.Done || p.Status == "" {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = f.Another.Begin(t.Context(), fleet.StartInstance{Instance: i.ID})
	if err != nil {
		wantKind(t, err, fleet.KindConflict)
	}
	if err := follow(t, f, f.Another, tok); err != nil && !fleet.Is(err, fleet.KindConflict) {
		t.Fatal(err)
	}
	if p, err := f.Cloud.Poll(t.Context(), tok); !p.Done {
		t.Errorf("after the end: %+v, %v", p, err)
	}
}
