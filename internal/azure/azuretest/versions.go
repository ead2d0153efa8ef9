package azuretest

import (
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// latest has a model refer to the image definition: it is shown as it was set, and
// each instance with the version that was the latest when it was made.
func latest(t *testing.T, f Fixture) {
	ctx := t.Context()
	def, snapshot := definition(t, f)
	version := func(name string, excluded bool) fleet.CreateVersion {
		return fleet.CreateVersion{ID: def.Child("versions", name), Location: f.Location, Source: snapshot, Replicas: 1, StorageType: fleet.LRS,
			ReplicationMode: fleet.ReplicationShallow, ExcludeFromLatest: excluded}
	}
	finish(t, f, version("2026.11.21", false))
	finish(t, f, version("2026.1121.120000", true))
	reference := fleet.ImageReference{ID: def}
	finish(t, f, fleet.PatchModel{Pool: f.Pool, Image: reference})
	finish(t, f, fleet.SetCapacity{Pool: f.Pool, Capacity: 3})
	finish(t, f, version("2026.11.22", false))
	if got := f.pool(t).Model.Image; !got.ID.Equal(def) || got.LatestOf() == "" {
		t.Errorf("model's image %+v", got)
	}
	var made fleet.Instance
	for _, i := range instances(t, f, 3) {
		if i.Image.ID != "" {
			made = i
		}
	}
	runs := def.Child("versions", "2026.11.21")
	if !made.Image.ID.Equal(def) || !made.Image.Exact().Equal(runs) {
		t.Errorf("instance's image %+v", made.Image)
	}
	uses := look(t, func() ([]fleet.ImageUse, error) { return f.Cloud.Uses(ctx, def) })
	for _, want := range []fleet.ImageUse{{Image: def, By: f.Pool}, {Image: def, By: made.ID}, {Image: runs, By: made.ID}} {
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
	list := look(t, func() ([]fleet.ImageVersion, error) { return f.Cloud.Versions(ctx, def) })
	for _, v := range list {
		if len(v.Regions) != 1 || !fleet.SameRegion(v.Regions[0], f.Location) {
			t.Errorf("version %s is in %v", v.Name, v.Regions)
		}
	}
}
