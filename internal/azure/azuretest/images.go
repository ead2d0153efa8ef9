package azuretest

import (
	"fmt"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// definition makes a gallery and a definition that fits the pool, and a
// snapshot to make versions from.
func definition(t *testing.T, f Fixture) (def, snapshot fleet.ResourceID) {
	t.Helper()
	i := instances(t, f, 2)[0]
	d := look(t, func() (fleet.Disk, error) { return f.Cloud.Disk(t.Context(), i.OSDisk) })
	gallery := f.Pool.In("galleries", "SIG_test")
	def, snapshot = gallery.Child("images", "kamino-test-prototype"), f.Pool.In("snapshots", "generalized")
	create := fleet.CreateGallery{ID: gallery, Location: f.Location, Tags: map[string]string{"a": "b"}}
	finish(t, f, create)
	again(t, f, create)
	if g := look(t, func() (fleet.Gallery, error) { return f.Cloud.Gallery(t.Context(), gallery) }); g.Location != f.Location || g.Tags["a"] != "b" {
		t.Errorf("gallery %+v", g)
	}
	want := fleet.Definition{ID: def, Location: f.Location, Publisher: "VMSS-Prototype-Pattern", Offer: "g", SKU: "p", OSState: "Generalized", Linux: true,
		Generation: i.Generation, Architecture: d.Architecture, SecurityType: "Standard", Accelerated: true, Tags: map[string]string{"c": "d"}}
	if i.Generation == "V2" {
		want.Controllers = "SCSI, NVMe"
	}
	finish(t, f, fleet.CreateDefinition{Definition: want})
	again(t, f, fleet.CreateDefinition{Definition: want})
	got := look(t, func() (fleet.Definition, error) { return f.Cloud.Definition(t.Context(), def) })
	want.ProvisioningState = "Succeeded"
	got.ID = want.ID
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("definition\n%+v, want\n%+v", got, want)
	}
	finish(t, f, fleet.CreateSnapshot{ID: snapshot, Location: f.Location, Source: i.OSDisk})
	return def, snapshot
}

func images(t *testing.T, f Fixture) {
	ctx := t.Context()
	def, snapshot := definition(t, f)
	version := func(name string) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: f.Location, Source: snapshot, Replicas: 2, StorageType: fleet.ZRS,
			ReplicationMode: fleet.ReplicationFull, ExcludeFromLatest: true, Tags: map[string]string{fleet.TagBuiltFrom: "node-1", "drop": "me"}}
	}
	v1 := version("2026.11.21")
	tok, err := f.Cloud.Begin(ctx, v1)
	if err != nil || tok == "" {
		t.Fatal(tok, err)
	}
	// While it is made it shows, and whoever asks for it again joins.
	list := look(t, func() ([]fleet.ImageVersion, error) { return f.Cloud.Versions(ctx, def) })
	if len(list) != 1 || list[0].ProvisioningState != "Creating" || list[0].Progress < 0 || list[0].Progress >= 100 {
		t.Errorf("versions %+v", list)
	}
	joined, err := f.Another.Begin(ctx, v1)
	if err != nil || joined == "" {
		t.Fatalf("the same version again: %q, %v", joined, err)
	}
	if err := follow(t, f, f.Another, joined); err != nil {
		t.Fatal(err)
	}
	if err := follow(t, f, f.Cloud, tok); err != nil {
		t.Fatal(err)
	}
	again(t, f, v1)
	list = look(t, func() ([]fleet.ImageVersion, error) { return f.Cloud.Versions(ctx, def) })
	if len(list) != 1 {
		t.Fatalf("%d versions", len(list))
	}
	got := list[0]
	if one := look(t, func() (fleet.ImageVersion, error) { return f.Cloud.Version(ctx, v1.ID) }); fmt.Sprintf("%+v", unreplicated(one)) != fmt.Sprintf("%+v", unreplicated(got)) {
		t.Errorf("alone the version is %+v, in the list %+v", one, got)
	}
	if !got.ID.Equal(v1.ID) || got.Name != "2026.11.21" || got.ProvisioningState != "Succeeded" || got.Published.IsZero() || !got.ExcludeFromLatest ||
		got.Replicas != 2 || got.StorageType != fleet.ZRS || got.ReplicationMode != fleet.ReplicationFull || !got.Source.Equal(snapshot) || got.Tags[fleet.TagBuiltFrom] != "node-1" || got.DeletionBlocked {
		t.Errorf("version %+v", got)
	}

	tags := fleet.TagVersion{ID: v1.ID, Tags: map[string]string{"new": "tag", "drop": ""}}
	finish(t, f, tags)
	again(t, f, tags)
	list = look(t, func() ([]fleet.ImageVersion, error) { return f.Cloud.Versions(ctx, def) })
	if got := list[0].Tags; len(got) != 2 || got["new"] != "tag" || got[fleet.TagBuiltFrom] != "node-1" {
		t.Errorf("tags %v", got)
	}

	// The model points at it, and back.
	before := f.pool(t)
	custom := fleet.NewSecret("#cloud-config\n")
	finish(t, f, fleet.PatchModel{Pool: f.Pool, Image: fleet.ImageReference{ID: v1.ID}, CustomData: &custom})
	now := f.pool(t)
	if im := now.Model.Image; !im.ID.Equal(v1.ID) || im.Publisher != "" || im.Offer != "" || im.SKU != "" || im.Version != "" {
		t.Errorf("model's image %+v", im)
	}
	now.Model.Image, now.Etag = before.Model.Image, before.Etag
	if fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("something else changed:\n%+v\n%+v", before, now)
	}
	uses := look(t, func() ([]fleet.ImageUse, error) { return f.Cloud.Uses(ctx, def) })
	if len(uses) != 1 || !uses[0].Image.Equal(v1.ID) || !uses[0].By.Equal(f.Pool) {
		t.Errorf("uses %+v", uses)
	}
	finish(t, f, fleet.SetCapacity{Pool: f.Pool, Capacity: 3})
	fresh := 0
	for _, i := range instances(t, f, 3) {
		if i.Image.ID.Equal(v1.ID) {
			fresh++
		} else if i.LatestModelApplied {
			t.Errorf("%s has the latest model, it says", i.Name)
		}
	}
	if uses = look(t, func() ([]fleet.ImageUse, error) { return f.Cloud.Uses(ctx, def) }); fresh != 1 || len(uses) != 2 {
		t.Errorf("%d instances from the version, uses %+v", fresh, uses)
	}
	finish(t, f, fleet.PatchModel{Pool: f.Pool, Image: before.Model.Image})
	if im := f.pool(t).Model.Image; im != before.Model.Image {
		t.Errorf("the Marketplace image is not restored: %+v, was %+v", im, before.Model.Image)
	}

	v2 := version("2026.11.22")
	v2.ReplicationMode, v2.Replicas, v2.StorageType = fleet.ReplicationShallow, 1, fleet.LRS
	finish(t, f, v2)
	finish(t, f, fleet.DeleteVersion{ID: v2.ID})
	if list = look(t, func() ([]fleet.ImageVersion, error) { return f.Cloud.Versions(ctx, def) }); len(list) != 1 {
		t.Errorf("versions %+v", list)
	}
	again(t, f, fleet.DeleteVersion{ID: v2.ID})
}

// unreplicated leaves out what the list of versions says of unfinished ones alone.
func unreplicated(v fleet.ImageVersion) fleet.ImageVersion {
	v.Progress = -1
	return v
}
