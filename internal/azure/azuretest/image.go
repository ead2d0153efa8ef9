package azuretest

import (
	"fmt"

	"github.com/ortet/ortet/internal/fleet"
)

// Definition makes a gallery and a definition that fits the pool, and a
// snapshot to make versions from.
func Definition(f Fixture) (def, snapshot fleet.ResourceID) {
	f.Helper()
	i := f.Instances(2)[0]
	d := Get(f, f.Cloud.Disk, i.OSDisk)
	gallery := f.Pool.In("galleries", "SIG_"+f.Pool.Name())
	def, snapshot = gallery.Child("images", "kamino-test-prototype"), f.name("snapshots", "generalized")
	create := fleet.CreateGallery{ID: gallery, Location: f.Location, Tags: map[string]string{"a": "b"}}
	f.Finish(create)
	f.Again(create)
	if g := Get(f, f.Cloud.Gallery, gallery); g.Location != f.Location || g.Tags["a"] != "b" {
		f.Errorf("gallery %+v, expected its region and tags as asked", g)
	}
	f.claim(ClaimStandard)
	want := fleet.Definition{ID: def, Location: f.Location, Publisher: "VMSS-Prototype-Pattern", Offer: "g", SKU: "p",
		OSState: "Generalized", Linux: true,
		Generation: i.Generation, Architecture: d.Architecture, SecurityType: "Standard", Accelerated: true,
		Tags: map[string]string{"c": "d"}}
	if i.Generation == "V2" {
		want.Controllers = "SCSI, NVMe"
	}
	f.Finish(fleet.CreateDefinition{Definition: want})
	f.Again(fleet.CreateDefinition{Definition: want})
	got := Get(f, f.Cloud.Definition, def)
	if all := Get(f, f.Cloud.Definitions, def.Parent()); len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(got) {
		f.Errorf("definitions %+v, expected %+v alone", all, got)
	}
	if none := Get(f, f.Cloud.Definitions, def.Parent()+"_other"); len(none) > 0 {
		f.Errorf("a missing gallery has %+v", none)
	}
	want.ProvisioningState = "Succeeded"
	got.ID = want.ID
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("definition %+v, expected %+v", got, want)
	}
	f.claim("")
	f.Finish(fleet.CreateSnapshot{ID: snapshot, Location: f.Location, Source: i.OSDisk})
	return def, snapshot
}

func checkImages(f Fixture) {
	def, snapshot := Definition(f)
	version := func(name string) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: f.Location, Source: snapshot, Replicas: 2,
			StorageType:     fleet.ZRS,
			ReplicationMode: fleet.ReplicationFull, ExcludeFromLatest: true, Tags: map[string]string{fleet.TagBuiltFrom: "node-1",
				"drop": "me"}}
	}
	v1 := version("2026.11.21")
	f.adopt(v1)
	list := Get(f, f.Cloud.Versions, def)
	if len(list) != 1 {
		f.Fatalf("%d versions", len(list))
	}
	got := list[0]
	if one := Get(f, f.Cloud.Version, v1.ID); fmt.Sprintf("%+v", unreplicated(one)) != fmt.Sprintf("%+v", unreplicated(got)) {
		f.Errorf("alone the version is %+v, expected %+v as in the list", one, got)
	}
	if !got.ID.Equal(v1.ID) || got.Name != "2026.11.21" || got.ProvisioningState != "Succeeded" || got.Published.IsZero() ||
		!got.ExcludeFromLatest ||
		got.Replicas != 2 || got.StorageType != fleet.ZRS || got.ReplicationMode != fleet.ReplicationFull || !got.Source.Equal(snapshot) ||
		got.Tags[fleet.TagBuiltFrom] != "node-1" || got.DeletionBlocked {
		f.Errorf("version %+v, expected %+v", got, v1)
	}

	tags := fleet.TagVersion{ID: v1.ID, Tags: map[string]string{"new": "tag", "drop": ""}}
	f.Finish(tags)
	f.Again(tags)
	list = Get(f, f.Cloud.Versions, def)
	if got := list[0].Tags; len(got) != 2 || got["new"] != "tag" || got[fleet.TagBuiltFrom] != "node-1" {
		f.Errorf("tags %v, expected the new one and that of its making", got)
	}

	f.publish(v1.ID, snapshot)

	// The model points at it, and back.
	before := Get(f, f.Cloud.Pool, f.Pool)
	custom := fleet.NewSecret("#cloud-config\n")
	f.claim(ClaimNull)
	f.Finish(fleet.PatchModel{Pool: f.Pool, Image: fleet.ImageReference{ID: v1.ID}, CustomData: &custom})
	now := Get(f, f.Cloud.Pool, f.Pool)
	if im := now.Model.Image; !im.ID.Equal(v1.ID) || im.Publisher != "" || im.Offer != "" || im.SKU != "" || im.Version != "" {
		f.Errorf("model's image %+v, expected %s alone", im, v1.ID)
	}
	f.claim("")
	if now.Model.Created.Equal(before.Model.Created) && f.Flexible {
		f.Errorf("another model of the time %v, expected a later one", now.Model.Created)
	}
	changed := now
	now.Model.Image, now.Etag, now.Model.Created = before.Model.Image, before.Etag, before.Model.Created
	if fmt.Sprint(now) != fmt.Sprint(before) {
		f.Errorf("the scale set is %+v, expected %+v as before", now, before)
	}
	uses := f.uses(def)
	if len(uses) != 1 || !uses[0].Image.Equal(v1.ID) || !uses[0].By.Equal(f.Pool) {
		f.Errorf("uses %+v, expected the model's alone", uses)
	}
	f.Finish(fleet.SetCapacity{Pool: f.Pool, Capacity: 3})
	fresh := 0
	for _, i := range f.Instances(3) {
		if i.Image.ID.Equal(v1.ID) {
			fresh++
			if !i.MadeFrom(changed) {
				f.Errorf("%s is reported as behind the model; expected as made from it", i.Name)
			}
		} else if i.MadeFrom(changed) {
			f.Errorf("%s is reported as made from the model; expected as behind it", i.Name)
		}
	}
	if uses = f.uses(def); fresh != 1 || len(uses) != 2 {
		f.Errorf("%d instances from the version, uses %+v; expected 1 and 2", fresh, uses)
	}
	f.Finish(fleet.PatchModel{Pool: f.Pool, Image: before.Model.Image})
	if im := Get(f, f.Cloud.Pool, f.Pool).Model.Image; im != before.Model.Image {
		f.Errorf("the model's image is %+v, expected %+v as before", im, before.Model.Image)
	}

	v2 := version("2026.11.22")
	v2.ReplicationMode, v2.Replicas, v2.StorageType = fleet.ReplicationShallow, 1, fleet.LRS
	f.Finish(v2)
	f.Finish(fleet.DeleteVersion{ID: v2.ID})
	if list = Get(f, f.Cloud.Versions, def); len(list) != 1 {
		f.Errorf("versions %+v", list)
	}
	f.Again(fleet.DeleteVersion{ID: v2.ID})
}

// adopt has another process join the making of a version.
func (f Fixture) adopt(v1 fleet.CreateVersion) {
	tok, err := f.Cloud.Begin(f.Context(), v1)
	if err != nil || tok == "" {
		f.Fatalf("token %q, error %v; expected a token", tok, err)
	}
	// While it is made it shows, and whoever asks for it again joins.
	list := Get(f, f.Cloud.Versions, v1.ID.Parent())
	if len(list) != 1 || list[0].ProvisioningState != "Creating" || list[0].Progress < 0 || list[0].Progress >= 100 {
		f.Errorf("versions %+v", list)
	}
	f.claim(ClaimAdopt)
	joined, err := f.Another.Begin(f.Context(), v1)
	if err != nil || joined == "" {
		f.Fatalf("the same version again: token %q, %v; expected the token of its operation", joined, err)
	}
	if err := f.Follow(f.Another, joined); err != nil {
		f.Fatal(err)
	}
	if err := f.Follow(f.Cloud, tok); err != nil {
		f.Fatal(err)
	}
	f.Again(v1)
	f.claim("")
}

// publish has a version leave excludeFromLatest.
func (f Fixture) publish(version, source fleet.ResourceID) {
	f.claim(ClaimPublish)
	f.Finish(fleet.PublishVersion{ID: version, Tags: map[string]string{"published": "now"}})
	if one := Get(f, f.Cloud.Version, version); one.ExcludeFromLatest || !one.Source.Equal(source) || one.Tags["published"] != "now" {
		f.Errorf("published, the version is %+v, expected not to be excluded from latest, with its source", one)
	}
	f.claim("")
}

// unreplicated leaves out what the list of versions says of unfinished ones alone.
func unreplicated(v fleet.ImageVersion) fleet.ImageVersion {
	v.Progress = -1
	return v
}

// testLatest has a model refer to the image definition: it is shown as it was set, and
// each instance with the version that was the latest when it was made.
func checkLatest(f Fixture) {
	def, snapshot := Definition(f)
	version := func(name string, excluded bool) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: f.Location, Source: snapshot, Replicas: 1,
			StorageType:     fleet.LRS,
			ReplicationMode: fleet.ReplicationShallow, ExcludeFromLatest: excluded}
	}
	f.Finish(version("2026.11.21", false))
	f.Finish(version("2026.1121.120000", true))
	reference := fleet.ImageReference{ID: def}
	f.Finish(fleet.PatchModel{Pool: f.Pool, Image: reference})
	f.Finish(fleet.SetCapacity{Pool: f.Pool, Capacity: 3})
	f.Finish(version("2026.11.22", false))
	if got := Get(f, f.Cloud.Pool, f.Pool).Model.Image; !got.ID.Equal(def) || got.LatestOf() == "" {
		f.Errorf("model's image %+v", got)
	}
	var made fleet.Instance
	for _, i := range f.Instances(3) {
		if i.Image.ID != "" {
			made = i
		}
	}
	runs := def.Child("versions", "2026.11.21")
	if !made.Image.ID.Equal(def) || !made.Image.Exact().Equal(runs) {
		f.Errorf("instance's image %+v", made.Image)
	}
	uses := f.uses(def)
	for _, want := range []fleet.ImageUse{{Image: def, By: f.Pool}, {Image: def, By: made.ID}, {Image: runs, By: made.ID}} {
		found := false
		for _, u := range uses {
			found = found || u.Image.Equal(want.Image) && u.By.Equal(want.By)
		}
		if !found {
			f.Errorf("%+v is missing among %+v", want, uses)
		}
	}
	if len(uses) != 3 {
		f.Errorf("uses %+v", uses)
	}
	list := Get(f, f.Cloud.Versions, def)
	for _, v := range list {
		if len(v.Regions) != 1 || !fleet.SameRegion(v.Regions[0], f.Location) {
			f.Errorf("version %s is in %v", v.Name, v.Regions)
		}
	}
}
