package prototype

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Provisioning states, as Azure spells them.
const (
	Succeeded = "Succeeded"
	Creating  = "Creating"
	Updating  = "Updating"
	Migrating = "Migrating"
	Failed    = "Failed"
	Deleting  = "Deleting"
)

// RolledBack reports whether somebody went back from the version.
func RolledBack(v fleet.ImageVersion) bool { return v.Tags[fleet.TagRolledBack] != "" }

// Ours reports whether Ortet or kamino made what has these tags.
func Ours(tags map[string]string) bool {
	return tags[fleet.TagCapture] != "" || tags[fleet.TagBuiltFrom] != ""
}

// NewestFirst sorts by publishing date; names decide only between equal dates,
// since they do not order: 2026.1121.090000 was not made after 2027.01.01, and
// is a higher version than 2026.12.01.
func NewestFirst(versions []fleet.ImageVersion) []fleet.ImageVersion {
	sorted := slices.Clone(versions)
	slices.SortStableFunc(sorted, func(a, b fleet.ImageVersion) int {
		return cmp.Or(b.Published.Compare(a.Published), compareNumbers(b.Name, a.Name))
	})
	return sorted
}

// compareNumbers orders version names as Azure's "latest" does.
func compareNumbers(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		m, errM := strconv.Atoi(x)
		n, errN := strconv.Atoi(y)
		if errM != nil || errN != nil {
			return strings.Compare(x, y)
		}
		return cmp.Compare(m, n)
	})
}

// FindVersion gives the version with the id, in any letter case.
func FindVersion(versions []fleet.ImageVersion, id fleet.ResourceID) (fleet.ImageVersion, bool) {
	i := slices.IndexFunc(versions, func(v fleet.ImageVersion) bool { return v.ID.Equal(id) })
	if i < 0 {
		return fleet.ImageVersion{}, false
	}
	return versions[i], true
}

// Newer reports whether a version that Ortet or kamino made was built after
// another, by Azure's clock: the names are those of clocks that may be wrong.
func Newer(a, b fleet.ImageVersion) bool {
	return Ours(a.Tags) && !b.Published.IsZero() && a.Published.After(b.Published)
}

// Latest gives what the definition of the versions stands for in a region, as Azure
// resolves it: the highest number that is there and not excluded. The region ""
// is any.
func Latest(versions []fleet.ImageVersion, region string) (latest fleet.ImageVersion, found bool) {
	for _, v := range versions {
		there := region == "" || len(v.Regions) == 0 ||
			slices.ContainsFunc(v.Regions, func(r string) bool { return fleet.SameRegion(r, region) })
		if there && serves(v) && !v.ExcludeFromLatest && (!found || compareNumbers(v.Name, latest.Name) > 0) {
			latest, found = v, true
		}
	}
	return latest, found
}

// serves reports whether instances can be made from the version; while it is
// updated they can.
func serves(v fleet.ImageVersion) bool {
	return v.ProvisioningState == Succeeded || v.ProvisioningState == Updating
}

// VersionOf gives the version that an image reference stands for in a region: the
// one that it names, that an instance with it runs, or the definition's latest.
func VersionOf(versions []fleet.ImageVersion, image fleet.ImageReference, region string) (fleet.ImageVersion, bool) {
	if id := image.Exact(); id != "" {
		return FindVersion(versions, id)
	}
	definition := image.LatestOf()
	return Latest(slices.DeleteFunc(slices.Clone(versions), func(v fleet.ImageVersion) bool {
		return !v.ID.Parent().Equal(definition)
	}), region)
}

// A Spared version lies beyond the history and stays.
type Spared struct {
	Version fleet.ImageVersion
	Why     string
}

// leastGood is how many versions are kept that nobody rolled back from: the
// newest, and one to go back to.
const leastGood = 2

// Prune says which versions go when the newest history are kept. Never goes:
// the version named current, the one to go back to from it, one that a model or instance refers to or
// runs (or that "latest" would give to one that refers to the definition; any,
// where Azure does not say what such an instance runs), one whose deletion Azure
// blocks, one that is in the making, and one that neither Ortet nor kamino made.
func Prune(versions []fleet.ImageVersion, uses []fleet.ImageUse, current fleet.ResourceID, history int) (doomed []fleet.ImageVersion, spared []Spared) {
	used := map[string]fleet.ResourceID{}
	var byLatest, unknown fleet.ResourceID
	for _, u := range uses {
		if (fleet.ImageReference{ID: u.Image}).LatestOf() == "" {
			used[strings.ToLower(string(u.Image))] = u.By
			continue
		}
		byLatest = u.By
		runs := func(x fleet.ImageUse) bool { return x.By.Equal(u.By) && !x.Image.Equal(u.Image) }
		if u.By.Segment("virtualMachines") != "" && !slices.ContainsFunc(uses, runs) {
			unknown = u.By
		}
	}
	latest := latestOf(versions)
	kept, good := 0, 0
	if _, there := FindVersion(versions, current); !there {
		kept, good = 1, 1 // it is about to be made
	}
	for _, v := range NewestFirst(versions) {
		spare := func(why string) { spared = append(spared, Spared{Version: v, Why: why}) }
		counts := v.ProvisioningState == Succeeded && Ours(v.Tags)
		if v.ID.Equal(current) || counts && (kept < history || good < leastGood && !RolledBack(v)) {
			kept++
			if !RolledBack(v) {
				good++
			}
			continue
		}
		by, isUsed := used[strings.ToLower(string(v.ID))]
		switch {
		case isUsed:
			spare(fmt.Sprintf("%s refers to it", by))
		case byLatest != "" && latest[strings.ToLower(v.Name)]:
			spare(fmt.Sprintf("%s refers to the latest version", byLatest))
		case unknown != "":
			spare(fmt.Sprintf("%s may run it: Azure does not report its version", unknown))
		case v.DeletionBlocked:
			spare("its deletion is blocked until its end of life")
		case !Ours(v.Tags):
			spare("neither Ortet nor kamino made it")
		case v.ProvisioningState == Succeeded, v.ProvisioningState == Failed:
			doomed = append(doomed, v)
		default:
			spare("it is " + v.ProvisioningState)
		}
	}
	return doomed, spared
}

// latestOf gives the names that "latest" may mean: Azure goes by number, in each
// region, people by date; all are safe.
func latestOf(versions []fleet.ImageVersion) map[string]bool {
	names := map[string]bool{}
	for _, v := range versions {
		for _, region := range append([]string{""}, v.Regions...) {
			if latest, ok := Latest(versions, region); ok {
				names[strings.ToLower(latest.Name)] = true
			}
		}
	}
	sorted := NewestFirst(versions)
	if i := slices.IndexFunc(sorted, func(v fleet.ImageVersion) bool { return serves(v) && !v.ExcludeFromLatest }); i >= 0 {
		names[strings.ToLower(sorted[i].Name)] = true
	}
	return names
}
