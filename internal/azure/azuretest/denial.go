package azuretest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// Roles lists the action lists that the fixtures' Restricted is asked for, for
// implementations that must know before.
func Roles() [][]string {
	var roles [][]string
	add := func(need, of []string) {
		roles = append(roles, need)
		for _, a := range of {
			roles = append(roles, without(need, a))
		}
	}
	for _, ch := range azure.Changes() {
		add(needed(ch), azure.Actions(ch.Verb()))
	}
	add(azure.BootActions(), azure.BootActions())
	add(azure.MemberActions(), azure.MemberActions())
	return roles
}

// needed are the actions of one change alone. A role without any action would be no role.
func needed(ch fleet.Change) []string {
	return append(azure.Actions(ch.Verb()), "Microsoft.Storage/storageAccounts/read")
}

func without(all []string, action string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(a string) bool { return a == action })
}

// actions makes every change with exactly its own actions, after it was refused
// without any one of them.
func actions(t *testing.T, f Fixture) {
	i := instances(t, f, 2)[0]
	d := look(t, func() (fleet.Disk, error) { return f.Cloud.Disk(t.Context(), i.OSDisk) })
	snapshot, disk := f.Pool.In("snapshots", "s"), f.Pool.In("disks", "d")
	gallery := f.Pool.In("galleries", "SIG_test")
	def := gallery.Child("images", "img")
	version := func(name string) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: f.Location, Source: snapshot, Replicas: 1, StorageType: fleet.LRS, ReplicationMode: fleet.ReplicationShallow}
	}
	made := map[string]bool{}
	for _, ch := range []fleet.Change{
		fleet.ProtectInstance{Instance: i.ID, Protection: fleet.Protection{ScaleIn: true, ScaleSetActions: true}},
		fleet.StopInstance{Instance: i.ID}, fleet.StartInstance{Instance: i.ID}, fleet.StopInstance{Instance: i.ID, Deallocate: true}, fleet.StartInstance{Instance: i.ID},
		fleet.CreateSnapshot{ID: snapshot, Location: f.Location, Source: i.OSDisk},
		fleet.CreateDisk{ID: disk, Location: f.Location, Zone: i.Zone, SKU: "Premium_LRS", Source: snapshot},
		fleet.AttachDisk{Instance: i.ID, Disk: disk, LUN: 1}, fleet.DetachDisk{Instance: i.ID, Disk: disk}, fleet.DeleteDisk{ID: disk},
		fleet.CreateGallery{ID: gallery, Location: f.Location},
		fleet.CreateDefinition{Definition: fleet.Definition{ID: def, Location: f.Location, Publisher: "p", Offer: "o", SKU: "s", OSState: "Generalized",
			Linux: true, Generation: i.Generation, Architecture: d.Architecture}},
		version("1.0.0"), version("2.0.0"), fleet.DeleteSnapshot{ID: snapshot},
		fleet.TagVersion{ID: version("1.0.0").ID, Tags: map[string]string{"x": "y"}}, fleet.DeleteVersion{ID: version("2.0.0").ID},
		fleet.PatchModel{Pool: f.Pool, Image: fleet.ImageReference{ID: version("1.0.0").ID}},
		fleet.DeleteExtension{Pool: f.Pool, Name: "second"},
		fleet.WriteExtension{Pool: f.Pool, Extension: fleet.Extension{Name: "third", Publisher: "p", Type: "t", Version: "1.0"}}, fleet.SetCapacity{Pool: f.Pool, Capacity: 3},
	} {
		made[ch.Verb()] = true
		need := needed(ch)
		for _, a := range azure.Actions(ch.Verb()) {
			if linkedDisk(ch, a) {
				continue
			}
			err := try(t, f, f.Restricted(t, without(need, a)), ch)
			if !fleet.Is(err, fleet.KindDenied) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(a)) {
				t.Errorf("%s without %s: %v", ch.Verb(), a, err)
			}
		}
		if err := try(t, f, f.Restricted(t, need), ch); err != nil {
			t.Errorf("%s with all that it needs: %v", ch.Verb(), err)
		}
	}
	for _, ch := range azure.Changes() {
		if !made[ch.Verb()] {
			t.Errorf("%s was not tried", ch.Verb())
		}
	}
}

// linkedDisk tells the rights on the disk itself that Azure's documentation of
// attaching asks for, which the simulation does not check.
func linkedDisk(ch fleet.Change, action string) bool {
	switch ch.(type) {
	case fleet.AttachDisk, fleet.DetachDisk:
		return strings.HasPrefix(action, "Microsoft.Compute/disks/")
	}
	return false
}

// deniedWithout takes the actions away one by one: with all of them nothing is denied,
// and without one the error names it. It gives how many of the errors did, by action.
func deniedWithout(t *testing.T, all []string, try func(actions []string) []error) map[string]int {
	t.Helper()
	if err := errors.Join(try(all)...); err != nil {
		t.Errorf("with all that is documented: %v", err)
	}
	denied := map[string]int{}
	for _, action := range all {
		for _, err := range try(without(all, action)) {
			if err == nil {
				continue
			}
			denied[action]++
			wantKind(t, err, fleet.KindDenied)
			if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(action)) {
				t.Errorf("the error does not name %s: %v", action, err)
			}
		}
	}
	return denied
}
