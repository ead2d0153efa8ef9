package azuretest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

func checkReads(f Fixture) {
	p := Get(f, f.Cloud.Pool, f.Pool)
	if !p.ID.Equal(f.Pool) || p.Name != f.Pool.Name() || p.Location != f.Location || p.Size != f.Size || p.Capacity != 2 {
		f.Errorf("pool %+v", p)
	}
	if (p.Orchestration == fleet.Flexible) != f.Flexible || p.Model.Created.IsZero() == f.Flexible || p.UpgradeMode != fleet.Manual ||
		p.AutomaticOSUpgrade || p.AutomaticRepairs || p.Spot || p.ProvisioningState != "Succeeded" || len(p.Zones) == 0 {
		f.Errorf("pool %+v", p)
	}
	m := p.Model
	if m.Image.ID != "" || m.Image.Publisher == "" || m.Image.Offer == "" || m.Image.SKU == "" || m.Image.Version == "" || !m.Linux ||
		m.EphemeralOS {
		f.Errorf("model %+v", m)
	}
	if len(m.Extensions) != 2 || m.Extensions[0].Name != "first" || m.Extensions[1].Name != "second" ||
		!slices.Equal(m.Extensions[1].After, []string{"first"}) {
		f.Errorf("extensions %+v", m.Extensions)
	}
	for _, i := range f.Instances(2) {
		if !i.ID.Equal(f.instance(i.ID.Name())) || !i.Pool.Equal(f.Pool) || i.InstanceID != i.ID.Name() || i.HostName == "" ||
			i.VMID == "" || i.Size != f.Size || !i.MadeFrom(p) {
			f.Errorf("instance %+v", i)
		}
		if i.Power != fleet.PowerRunning || i.ProvisioningState != "Succeeded" || i.Generation == "" || i.OSDisk == "" ||
			len(i.DataDisks) != 0 || i.Zone == "" {
			f.Errorf("instance %+v", i)
		}
		if one := Get(f, f.Cloud.Instance, i.ID); fmt.Sprint(one) != fmt.Sprint(i) {
			f.Errorf("an instance looks different alone and in the list:\n%+v\n%+v", one, i)
		}
		if upper := Get(f, f.Cloud.Instance, fleet.ResourceID(strings.ToUpper(string(i.ID)))); !upper.ID.Equal(i.ID) {
			f.Errorf("letter case counts: %s", upper.ID)
		}
		d := Get(f, f.Cloud.Disk, i.OSDisk)
		if !d.ID.Equal(i.OSDisk) || d.Location != f.Location || d.Zone != i.Zone || d.SizeGB <= 0 || d.SKU == "" ||
			!d.ManagedBy.Equal(i.ID) ||
			d.Generation != i.Generation || d.Architecture == "" || d.ProvisioningState != "Succeeded" {
			f.Errorf("disk %+v", d)
		}
	}
	s, err := f.Cloud.Size(f.Context(), f.Pool.Segment("subscriptions"), f.Location, f.Size)
	if err != nil || s.Name != f.Size || s.Architecture == "" || len(s.Generations) == 0 || len(s.Controllers) == 0 || s.MaxDataDisks <= 0 {
		f.Errorf("size %+v, %v", s, err)
	}
}

func checkMissing(f Fixture) {
	ctx := f.Context()
	gallery := f.Pool.In("galleries", "none")
	definition := gallery.Child("images", "none")
	version := definition.Child("versions", "1.0.0")
	instance := f.instance("999")
	for name, err := range map[string]error{
		"pool":             only(f.Cloud.Pool(ctx, f.Pool.In("virtualMachineScaleSets", "none"))),
		"pool's instances": only(f.Cloud.Instances(ctx, f.Pool.In("virtualMachineScaleSets", "none"))),
		"instance":         only(f.Cloud.Instance(ctx, instance)),
		"disk":             only(f.Cloud.Disk(ctx, f.name("disks", "none"))),
		"snapshot":         only(f.Cloud.Snapshot(ctx, f.name("snapshots", "none"))),
		"gallery":          only(f.Cloud.Gallery(ctx, gallery)),
		"definition":       only(f.Cloud.Definition(ctx, definition)),
		"size":             only(f.Cloud.Size(ctx, f.Pool.Segment("subscriptions"), f.Location, "Standard_None")),
		"instance to stop": only(f.Cloud.Begin(ctx, fleet.StopInstance{Instance: instance})),
		"version":          only(f.Cloud.Version(ctx, version)),
		"version to tag":   only(f.Cloud.Begin(ctx, fleet.TagVersion{ID: version, Tags: map[string]string{"a": "b"}})),
	} {
		if !fleet.Is(err, fleet.KindNotFound) { // no subtests in virtual time
			f.Errorf("%s: %v", name, err)
		}
	}
	if list, err := f.Cloud.Versions(ctx, definition); err != nil || len(list) != 0 {
		f.Errorf("versions of a missing definition: %v, %v", list, err)
	}
	if list, err := f.Cloud.Uses(ctx, definition); err != nil || len(list) != 0 {
		f.Errorf("uses of a missing definition: %v, %v", list, err)
	}
	for _, ch := range []fleet.Change{
		fleet.DeleteSnapshot{ID: f.name("snapshots", "none")}, fleet.DeleteDisk{ID: f.name("disks", "none")},
		fleet.DeleteVersion{ID: version}, fleet.DeleteExtension{Pool: f.Pool, Name: "none"}, fleet.DetachDisk{Instance: instance,
			Disk: f.name("disks", "none")},
	} {
		f.Again(ch)
	}
}
