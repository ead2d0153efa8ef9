package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// latest is a reference to the pool's image definition, as kamino makes it.
func latest(exact string) fleet.ImageReference {
	return fleet.ImageReference{ID: DefinitionOf(pool), ExactVersion: exact}
}

// TestVersionOf: what a reference stands for, as Azure resolves it.
func TestVersionOf(t *testing.T) {
	excluded := ver("2026.1120.230000", -1, Succeeded)
	excluded.ExcludeFromLatest = true
	elsewhere := ver("2026.11.30", -2, Succeeded)
	elsewhere.Regions = []string{"North Europe"}
	all := []fleet.ImageVersion{
		ver("2026.11.20", -1, Succeeded), excluded, elsewhere, ver("2026.11.9", 0, Succeeded), ver("2026.12.1", 0, Failed), ver("2026.11.21", 0,
			Updating),
	}
	for name, c := range map[string]struct {
		image  fleet.ImageReference
		region string
		want   string
	}{
		"a version":              {fleet.ImageReference{ID: all[0].ID}, "westeurope", "2026.11.20"},
		"the definition":         {latest(""), "westeurope", "2026.11.21"},
		"another region":         {latest(""), "northeurope", "2026.11.30"},
		"the version latest":     {fleet.ImageReference{ID: DefinitionOf(pool).Child("versions", "Latest")}, "westeurope", "2026.11.21"},
		"what an instance runs":  {latest("2026.11.9"), "westeurope", "2026.11.9"},
		"a version that is gone": {latest("2026.1.1"), "westeurope", ""},
		"another definition":     {fleet.ImageReference{ID: DefinitionOf(pool + "2")}, "westeurope", ""},
		"a marketplace image":    {fleet.ImageReference{Publisher: "p", ExactVersion: "2026.11.9"}, "westeurope", ""},
	} {
		if v, ok := VersionOf(all, c.image, c.region); v.Name != c.want || ok != (c.want != "") {
			t.Errorf("%s is %q, want %q", name, v.Name, c.want)
		}
	}
}

// TestInUse: what a model or an instance refers to or runs never goes, nor the only
// version to go back to.
func TestInUse(t *testing.T) {
	all := []fleet.ImageVersion{
		ver("2026.11.21", 0, Succeeded), ver("2026.11.20", -1, Succeeded), ver("2026.11.19", -2, Succeeded), ver("2026.11.18", -3,
			Succeeded), ver("2026.11.17", -4, Succeeded),
	}
	instance := pool.Child("virtualMachines", "1")
	for name, c := range map[string]struct {
		uses []fleet.ImageUse
		want []string
	}{
		"nobody": {nil, []string{"2026.11.19", "2026.11.18", "2026.11.17"}},
		"an instance": {[]fleet.ImageUse{{Image: DefinitionOf(pool), By: instance}, {Image: all[3].ID, By: instance}},
			[]string{"2026.11.19", "2026.11.17"}},
		"a model":           {[]fleet.ImageUse{{Image: DefinitionOf(pool), By: pool}}, []string{"2026.11.19", "2026.11.18", "2026.11.17"}},
		"nobody knows":      {[]fleet.ImageUse{{Image: DefinitionOf(pool), By: instance}}, nil},
		"by latest":         {[]fleet.ImageUse{{Image: DefinitionOf(pool).Child("versions", "latest"), By: instance}}, nil},
		"a virtual machine": {[]fleet.ImageUse{{Image: all[4].ID, By: pool.In("virtualMachines", "vm")}}, []string{"2026.11.19", "2026.11.18"}},
	} {
		obsolete, _ := Prune(all, c.uses, all[0].ID, 2, noon)
		if got := names(obsolete); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v go, want %v", name, got, c.want)
		}
	}
	all[1].Tags[fleet.TagRolledBack] = "x"
	if obsolete, _ := Prune(all, nil, all[0].ID, 2, noon); !slices.Equal(names(obsolete), []string{"2026.11.18", "2026.11.17"}) {
		t.Errorf("%v go", names(obsolete))
	}
}

// TestTodaysVersionIsTheNewest: by when it was built, and not by its name.
func TestTodaysVersionIsTheNewest(t *testing.T) {
	foreign := ver("2026.1121.235959", 1, Succeeded)
	foreign.Tags = nil
	plain, again := ver("2026.11.21", 0, Succeeded), ver("2026.1121.090000", 0, Succeeded)
	older := again
	again.Published = again.Published.Add(time.Hour)
	older.Published = older.Published.Add(-time.Hour)
	left := again
	left.Tags = map[string]string{fleet.TagCapture: "c", fleet.TagRolledBack: "now"}
	another := plain
	another.ID = ofKind(pool, "-v2-tl").Child("versions", plain.Name)
	for name, c := range map[string]struct {
		versions []fleet.ImageVersion
		want     string
		uses     []string
	}{
		"none":                   {nil, "2026.11.21", nil},
		"of another kind":        {[]fleet.ImageVersion{another}, "2026.1121.120000", nil},
		"deleted, and in use":    {nil, "2026.1121.120000", []string{"2026.11.20", "2026.11.21"}},
		"others in use":          {nil, "2026.11.21", []string{"2026.11.20", "kamino-pool1-prototype"}},
		"in use":                 {[]fleet.ImageVersion{plain}, "2026.11.21", []string{"2026.11.21"}},
		"yesterday's":            {[]fleet.ImageVersion{ver("2026.11.20", 0, Succeeded)}, "2026.11.21", nil},
		"made again":             {[]fleet.ImageVersion{plain, again}, "2026.1121.090000", nil},
		"again, by a fast clock": {[]fleet.ImageVersion{plain, older}, "2026.11.21", nil},
		"again, and rolled back": {[]fleet.ImageVersion{plain, left}, "2026.11.21", nil},
		"again, and Failed":      {[]fleet.ImageVersion{plain, ver("2026.1121.120100", 1, Failed)}, "2026.11.21", nil},
		"only again":             {[]fleet.ImageVersion{again}, "2026.1121.090000", nil},
		"somebody else's":        {[]fleet.ImageVersion{plain, foreign}, "2026.11.21", nil},
	} {
		var uses []fleet.ImageUse
		for _, name := range c.uses {
			uses = append(uses, fleet.ImageUse{Image: fleet.ResourceID("/x/versions/" + name)})
		}
		if got := TodaysVersion(DefinitionOf(pool), c.versions, uses, noon); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
