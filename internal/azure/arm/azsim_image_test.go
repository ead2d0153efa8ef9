package arm_test

import (
	"fmt"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// definition makes a gallery and a definition that fits the pool, and a
// snapshot to make versions from.
func definition(f fixture) (def, snapshot fleet.ResourceID) {
	t := f.t
	t.Helper()
	i := f.instances(2)[0]
	d := get(t, f.cloud.Disk, i.OSDisk)
	gallery := simPool.In("galleries", "SIG_test")
	def, snapshot = gallery.Child("images", "kamino-test-prototype"), simPool.In("snapshots", "generalized")
	create := fleet.CreateGallery{ID: gallery, Location: region, Tags: map[string]string{"a": "b"}}
	f.finish(create)
	f.again(create)
	if g := get(t, f.cloud.Gallery, gallery); g.Location != region || g.Tags["a"] != "b" {
		t.Errorf("gallery %+v", g)
	}
	want := fleet.Definition{ID: def, Location: region, Publisher: "VMSS-Prototype-Pattern", Offer: "g", SKU: "p", OSState: "Generalized", Linux: true,
		Generation: i.Generation, Architecture: d.Architecture, SecurityType: "Standard", Accelerated: true, Tags: map[string]string{"c": "d"}}
	if i.Generation == "V2" {
		want.Controllers = "SCSI, NVMe"
	}
	f.finish(fleet.CreateDefinition{Definition: want})
	f.again(fleet.CreateDefinition{Definition: want})
	got := get(t, f.cloud.Definition, def)
	if all := get(t, f.cloud.Definitions, def.Parent()); len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(got) {
		t.Errorf("definitions %+v, want %+v alone", all, got)
	}
	if none := get(t, f.cloud.Definitions, def.Parent()+"_other"); len(none) > 0 {
		t.Errorf("a missing gallery has %+v", none)
	}
	want.ProvisioningState = "Succeeded"
	got.ID = want.ID
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("definition\n%+v, want\n%+v", got, want)
	}
	f.finish(fleet.CreateSnapshot{ID: snapshot, Location: region, Source: i.OSDisk})
	return def, snapshot
}

func testImages(t *testing.T, f fixture) {
	ctx := t.Context()
	def, snapshot := definition(f)
	version := func(name string) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: region, Source: snapshot, Replicas: 2, StorageType: fleet.ZRS,
			ReplicationMode: fleet.ReplicationFull, ExcludeFromLatest: true, Tags: map[string]string{fleet.TagBuiltFrom: "node-1", "drop": "me"}}
	}
	v1 := version("2026.11.21")
	tok, err := f.cloud.Begin(ctx, v1)
	if err != nil || tok == "" {
		t.Fatal(tok, err)
	}
	// While it is made it shows, and whoever asks for it again joins.
	list := get(t, f.cloud.Versions, def)
	if len(list) != 1 || list[0].ProvisioningState != "Creating" || list[0].Progress < 0 || list[0].Progress >= 100 {
		t.Errorf("versions %+v", list)
	}
	joined, err := f.another.Begin(ctx, v1)
	if err != nil || joined == "" {
		t.Fatalf("the same version again: %q, %v", joined, err)
	}
	if err := f.follow(f.another, joined); err != nil {
		t.Fatal(err)
	}
	if err := f.follow(f.cloud, tok); err != nil {
		t.Fatal(err)
	}
	f.again(v1)
	list = get(t, f.cloud.Versions, def)
	if len(list) != 1 {
		t.Fatalf("%d versions", len(list))
	}
	got := list[0]
	if one := get(t, f.cloud.Version, v1.ID); fmt.Sprintf("%+v", unreplicated(one)) != fmt.Sprintf("%+v", unreplicated(got)) {
		t.Errorf("alone the version is %+v, in the list %+v", one, got)
	}
	if !got.ID.Equal(v1.ID) || got.Name != "2026.11.21" || got.ProvisioningState != "Succeeded" || got.Published.IsZero() || !got.ExcludeFromLatest ||
		got.Replicas != 2 || got.StorageType != fleet.ZRS || got.ReplicationMode != fleet.ReplicationFull || !got.Source.Equal(snapshot) || got.Tags[fleet.TagBuiltFrom] != "node-1" || got.DeletionBlocked {
		t.Errorf("version %+v", got)
	}

	tags := fleet.TagVersion{ID: v1.ID, Tags: map[string]string{"new": "tag", "drop": ""}}
	f.finish(tags)
	f.again(tags)
	list = get(t, f.cloud.Versions, def)
	if got := list[0].Tags; len(got) != 2 || got["new"] != "tag" || got[fleet.TagBuiltFrom] != "node-1" {
		t.Errorf("tags %v", got)
	}

	// The model points at it, and back.
	before := get(t, f.cloud.Pool, simPool)
	custom := fleet.NewSecret("#cloud-config\n")
	f.finish(fleet.PatchModel{Pool: simPool, Image: fleet.ImageReference{ID: v1.ID}, CustomData: &custom})
	now := get(t, f.cloud.Pool, simPool)
	if im := now.Model.Image; !im.ID.Equal(v1.ID) || im.Publisher != "" || im.Offer != "" || im.SKU != "" || im.Version != "" {
		t.Errorf("model's image %+v", im)
	}
	if now.Model.Created.Equal(before.Model.Created) && f.flexible {
		t.Errorf("another model of the same time, %v", now.Model.Created)
	}
	changed := now
	now.Model.Image, now.Etag, now.Model.Created = before.Model.Image, before.Etag, before.Model.Created
	if fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("something else changed:\n%+v\n%+v", before, now)
	}
	uses := f.uses(def)
	if len(uses) != 1 || !uses[0].Image.Equal(v1.ID) || !uses[0].By.Equal(simPool) {
		t.Errorf("uses %+v", uses)
	}
	f.finish(fleet.SetCapacity{Pool: simPool, Capacity: 3})
	fresh := 0
	for _, i := range f.instances(3) {
		if i.Image.ID.Equal(v1.ID) {
			fresh++
			if !i.MadeFrom(changed) {
				t.Errorf("%s was made from the model, not so it is reported", i.Name)
			}
		} else if i.MadeFrom(changed) {
			t.Errorf("%s has the latest model, it says", i.Name)
		}
	}
	if uses = f.uses(def); fresh != 1 || len(uses) != 2 {
		t.Errorf("%d instances from the version, uses %+v", fresh, uses)
	}
	f.finish(fleet.PatchModel{Pool: simPool, Image: before.Model.Image})
	if im := get(t, f.cloud.Pool, simPool).Model.Image; im != before.Model.Image {
		t.Errorf("the Marketplace image is not restored: %+v, was %+v", im, before.Model.Image)
	}

	v2 := version("2026.11.22")
	v2.ReplicationMode, v2.Replicas, v2.StorageType = fleet.ReplicationShallow, 1, fleet.LRS
	f.finish(v2)
	f.finish(fleet.DeleteVersion{ID: v2.ID})
	if list = get(t, f.cloud.Versions, def); len(list) != 1 {
		t.Errorf("versions %+v", list)
	}
	f.again(fleet.DeleteVersion{ID: v2.ID})
}

// unreplicated leaves out what the list of versions says of unfinished ones alone.
func unreplicated(v fleet.ImageVersion) fleet.ImageVersion {
	v.Progress = -1
	return v
}

// testLatest has a model refer to the image definition: it is shown as it was set, and
// each instance with the version that was the latest when it was made.
func testLatest(t *testing.T, f fixture) {
	def, snapshot := definition(f)
	version := func(name string, excluded bool) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: region, Source: snapshot, Replicas: 1, StorageType: fleet.LRS,
			ReplicationMode: fleet.ReplicationShallow, ExcludeFromLatest: excluded}
	}
	f.finish(version("2026.11.21", false))
	f.finish(version("2026.1121.120000", true))
	reference := fleet.ImageReference{ID: def}
	f.finish(fleet.PatchModel{Pool: simPool, Image: reference})
	f.finish(fleet.SetCapacity{Pool: simPool, Capacity: 3})
	f.finish(version("2026.11.22", false))
	if got := get(t, f.cloud.Pool, simPool).Model.Image; !got.ID.Equal(def) || got.LatestOf() == "" {
		t.Errorf("model's image %+v", got)
	}
	var made fleet.Instance
	for _, i := range f.instances(3) {
		if i.Image.ID != "" {
			made = i
		}
	}
	runs := def.Child("versions", "2026.11.21")
	if !made.Image.ID.Equal(def) || !made.Image.Exact().Equal(runs) {
		t.Errorf("instance's image %+v", made.Image)
	}
	uses := f.uses(def)
	for _, want := range []fleet.ImageUse{{Image: def, By: simPool}, {Image: def, By: made.ID}, {Image: runs, By: made.ID}} {
		found := false
		for _, u := range uses {
			found = found || u.Image.Equal(want.Image) && u.By.Equal(want.By)
		}
		if !found {
			t.Errorf("%+v is missing among %+v", want, uses)
		}
	}
	if len(uses) != 3 {
		t.Errorf("uses %+v", uses)
	}
	list := get(t, f.cloud.Versions, def)
	for _, v := range list {
		if len(v.Regions) != 1 || !fleet.SameRegion(v.Regions[0], region) {
			t.Errorf("version %s is in %v", v.Name, v.Regions)
		}
	}
}
