package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const pool = fleet.ResourceID("/subscriptions/s/resourceGroups/my-group/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func options() Request {
	return Request{Node: "pool1000000", GracePeriod: 300 * time.Second, History: 3, Replicas: 3, Bootstrap: BootstrapBaked}
}

func TestNames(t *testing.T) {
	n := NamesOf(pool, "2026.11.21")
	for got, want := range map[string]string{
		n.Gallery.Name(): "SIG_my_group", n.Definition.Name(): "kamino-pool1-prototype", n.Version.Name(): "2026.11.21",
		n.Snapshot.Name(): "snapshot_pool1", n.Generalized.Name(): "snapshot_pool1_generalized", JobName(pool,
			"20261121-120000"): "ortet-generalize-pool1-20261121-120000",
		VersionName(noon, false): "2026.11.21", VersionName(noon, true): "2026.1121.120000",
		CaptureName(noon): "20261121-120000",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if n.Version.Parent() != n.Definition || n.Definition.Parent() != n.Gallery {
		t.Errorf("%+v do not lie in each other", n)
	}
}

func ver(name string, day int, state string, tags ...string) fleet.ImageVersion {
	v := fleet.ImageVersion{
		ID: DefinitionOf(pool).Child("versions", name), Name: name, ProvisioningState: state,
		Published: noon.AddDate(0, 0, day), Tags: map[string]string{fleet.TagBuiltFrom: "n"},
	}
	for _, k := range tags {
		v.Tags[k] = "x"
	}
	return v
}

func names(versions []fleet.ImageVersion) (out []string) {
	for _, v := range versions {
		out = append(out, v.Name)
	}
	return out
}

func TestPrune(t *testing.T) {
	foreign := ver("2026.1.1", -300, Succeeded)
	foreign.Tags = nil
	blocked := ver("2026.11.10", -11, Succeeded)
	blocked.DeletionBlocked = true
	all := []fleet.ImageVersion{
		ver("2026.11.21", 0, Succeeded), ver("2026.1120.230000", -1, Succeeded), ver("2026.11.20", -1, Succeeded), ver("2026.11.15", -6,
			Succeeded),
		ver("2026.11.14", -7, Failed), ver("2026.11.13", -8, Updating), ver("2026.11.12", -9, Succeeded), blocked, foreign,
	}
	uses := []fleet.ImageUse{{Image: fleet.ResourceID(strings.ToUpper(string(all[6].ID))), By: pool}}
	obsolete, kept := Prune(all, uses, all[0].ID, 3, noon)
	if got, want := names(obsolete), []string{"2026.11.15", "2026.11.14"}; !slices.Equal(got, want) {
		t.Errorf("obsolete %v, want %v", got, want)
	}
	var why []string
	for _, s := range kept {
		name, _, _ := strings.Cut(s, ":")
		why = append(why, name)
	}
	if want := []string{"2026.11.13", "2026.11.12", "2026.11.10", "2026.1.1"}; !slices.Equal(why, want) {
		t.Errorf("kept %v, want %v", why, want)
	}
	// The new version is kept also where Azure dates it before others, and the
	// latest where somebody refers to the definition.
	obsolete, _ = Prune(all, []fleet.ImageUse{{Image: DefinitionOf(pool), By: pool}}, all[3].ID, 2, noon)
	if slices.Contains(names(obsolete), "2026.11.15") {
		t.Errorf("the current version is obsolete: %v", names(obsolete))
	}
	obsolete, _ = Prune(all, []fleet.ImageUse{{Image: DefinitionOf(pool), By: pool}}, all[0].ID, 1, noon)
	if slices.Contains(names(obsolete), "2026.1120.230000") {
		t.Errorf("the highest version by number is obsolete while somebody uses the latest: %v", names(obsolete))
	}
}

func TestNewestIsByDate(t *testing.T) {
	got := names(NewestFirst([]fleet.ImageVersion{ver("2026.1121.090000", -5, Succeeded), ver("2026.11.22", 1, Succeeded),
		ver("2026.11.9", -12, Succeeded)}))
	if want := []string{"2026.11.22", "2026.1121.090000", "2026.11.9"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestExtensions(t *testing.T) {
	all := []fleet.Extension{
		{Name: "cse", Type: "CustomScript"}, {Name: "second", Type: "customScript", After: []string{"CSE"}},
		{Name: "capz", Type: "CAPZ.Linux.Bootstrapping"}, {Name: "myAKSLinuxBilling", Type: "Compute.AKS-Engine.Linux.Billing"},
		{Name: "monitor", Type: "AzureMonitorLinuxAgent"},
	}
	for name, c := range map[string]struct {
		rule     ExtensionRule
		add      []fleet.Extension
		obsolete []string
		kept     int
	}{
		"default":  {ExtensionRule{}, nil, []string{"second", "cse", "capz"}, 0},
		"none":     {ExtensionRule{None: true}, nil, nil, 0},
		"kamino":   {ExtensionRule{All: true, Keep: []string{"*AKSLinuxBilling*"}}, nil, []string{"second", "cse", "capz", "monitor"}, 0},
		"keep one": {ExtensionRule{Keep: []string{"capz"}}, nil, []string{"second", "cse"}, 0},
		"kept depends": {ExtensionRule{}, []fleet.Extension{{Name: "x", Type: "y", After: []string{"cse"}}}, []string{"second", "capz", "cse"},
			1},
		"keep a second": {ExtensionRule{Keep: []string{"second"}}, nil, []string{"cse", "capz"}, 1},
	} {
		obsolete, kept := c.rule.ToDelete(append(slices.Clone(all), c.add...))
		if got := extensionNames(obsolete); !slices.Equal(got, c.obsolete) && len(got)+len(c.obsolete) > 0 || len(kept) != c.kept {
			t.Errorf("%s: obsolete %v, kept %v; want %v, %d", name, got, kept, c.obsolete, c.kept)
		}
	}
	circle := []fleet.Extension{{Name: "a", Type: "CustomScript", After: []string{"b"}},
		{Name: "b", Type: "CustomScript", After: []string{"a"}}}
	if obsolete, _ := (ExtensionRule{}).ToDelete(circle); len(obsolete) != 2 {
		t.Errorf("a circle gives %v", obsolete)
	}
	if (ExtensionRule{Keep: []string{"["}}).Check() == nil {
		t.Error("a pattern that cannot be read is taken")
	}
}

func extensionNames(extensions []fleet.Extension) (names []string) {
	for _, e := range extensions {
		names = append(names, e.Name)
	}
	return names
}

// The age of what never was live, and of what nobody judged, decides at its limits.
func TestAges(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		age           time.Duration
		kept, retried bool
	}{{second, true, true}, {48*time.Hour - second, true, true}, {48 * time.Hour, true, false}, {7*24*time.Hour - second, true, false},
		{7 * 24 * time.Hour, false, false}, {30 * 24 * time.Hour, false, false}} {
		v := fleet.ImageVersion{ID: DefinitionOf(pool).Child("versions", "1.0.0"), Name: "1.0.0", ProvisioningState: Succeeded, Published: noon.Add(-c.age),
			Tags: map[string]string{fleet.TagBuiltFrom: "n", fleet.TagNotLive: "t", fleet.TagCanary: Unjudged}}
		if _, found := Retried(DefinitionOf(pool), []fleet.ImageVersion{v}, noon); found != c.retried {
			t.Errorf("proves a version that is %s old: %v", c.age, found)
		}
		all := []fleet.ImageVersion{v}
		for i := range 3 { // fill the history
			name := fmt.Sprintf("2.0.%d", i)
			all = append(all, fleet.ImageVersion{ID: DefinitionOf(pool).Child("versions", name), Name: name, ProvisioningState: Succeeded,
				Published: noon.Add(time.Duration(i) * second), Tags: map[string]string{fleet.TagBuiltFrom: "n"}})
		}
		if obsolete, _ := Prune(all, nil, all[3].ID, 3, noon); len(obsolete) == 0 != c.kept {
			t.Errorf("prunes a version that never was live and is %s old: %v", c.age, obsolete)
		}
	}
}

// What a definition's latest stands for in a region is the same after versions are pruned, also of
// those whose regions are not known.
func TestOutcomePruneLeavesLatestOfEachRegion(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- the same at every run
	regions := []string{"westeurope", "northeurope", "uksouth"}
	for range 2000 {
		var all []fleet.ImageVersion
		for i := range 2 + random.IntN(6) {
			name := fmt.Sprintf("1.0.%d", i)
			v := fleet.ImageVersion{ID: DefinitionOf(pool).Child("versions", name), Name: name, ProvisioningState: Succeeded, ExcludeFromLatest: random.IntN(3) == 0,
				Published: noon.Add(-time.Duration(random.IntN(100)) * time.Hour), Tags: map[string]string{fleet.TagBuiltFrom: "n"}}
			for _, r := range regions {
				if i%4 > 0 && random.IntN(2) == 0 { // some name none: Azure's answer may leave them out
					v.Regions = append(v.Regions, r)
				}
			}
			all = append(all, v)
		}
		latest := fleet.ImageReference{ID: DefinitionOf(pool)}
		obsolete, _ := Prune(all, []fleet.ImageUse{{Image: DefinitionOf(pool), By: pool}}, all[random.IntN(len(all))].ID, 2, noon)
		left := slices.DeleteFunc(slices.Clone(all), func(v fleet.ImageVersion) bool { _, goes := FindVersion(obsolete, v.ID); return goes })
		for _, region := range append(regions, "", "eastus") {
			before, _ := VersionOf(all, latest, region)
			if after, _ := VersionOf(left, latest, region); after.ID != before.ID {
				t.Fatalf("the latest in %q was %s and is %q, after %v of %v were pruned", region, before.Name, after.Name, obsolete, all)
			}
		}
	}
}

// A record keeps a limited number of what donors' disks showed, and the first of them counts.
func TestLearnedIsLimited(t *testing.T) {
	var o Original
	counts := ""
	for i := range 100 {
		counts = o.Learn(counts, Learned{Kind: "customData", SHA256: fmt.Sprint(i), Donor: fmt.Sprint(i)})
		if counts != "0" || len(o.Learned) > maxLearned || o.Learned[0].SHA256 != "0" {
			t.Fatalf("after %d donors %s counts of %d", i+1, counts, len(o.Learned))
		}
	}
}

// A way out names a flag only where that makes the refusal go.
func TestWayOutOfDeniedDeletion(t *testing.T) {
	for verb, names := range map[string]bool{fleet.DeleteInstances{}.Verb(): true, fleet.DeleteScaleSet{}.Verb(): false, fleet.PatchModel{}.Verb(): false} {
		var p Problems
		p.Denied(pool, azure.Actions(verb), nil)
		if got := strings.Contains(p[0].WayOut, "--bad-nodes cordon"); got != names {
			t.Errorf("without the right to %s: %s", verb, p[0].WayOut)
		}
	}
}
