package plan

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
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, errM := strconv.Atoi(x[i])
		n, errN := strconv.Atoi(y[i])
		if errM != nil || errN != nil {
			if c := strings.Compare(x[i], y[i]); c != 0 {
				return c
			}
			continue
		}
		if c := cmp.Compare(m, n); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

// FindVersion gives the version with the id, in any letter case.
func FindVersion(versions []fleet.ImageVersion, id fleet.ResourceID) (fleet.ImageVersion, bool) {
	for _, v := range versions {
		if v.ID.Equal(id) {
			return v, true
		}
	}
	return fleet.ImageVersion{}, false
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
// the version named current, the one to go back to from it, one that a model or instance refers to (or that
// "latest" would give to one that refers to the definition), one whose
// deletion Azure blocks, one that is in the making, and one that neither Ortet
// nor kamino made.
func Prune(versions []fleet.ImageVersion, uses []fleet.ImageUse, current fleet.ResourceID, history int) (doomed []fleet.ImageVersion, spared []Spared) {
	used := map[string]fleet.ResourceID{}
	for _, u := range uses {
		used[strings.ToLower(string(u.Image))] = u.By
	}
	latest := latestOf(versions)
	kept, good := 0, 0
	if _, there := FindVersion(versions, current); !there {
		good = 1 // it is about to be made
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
		byLatest, isLatest := used[strings.ToLower(string(v.ID.Parent()))]
		switch {
		case isUsed:
			spare(fmt.Sprintf("%s refers to it", by))
		case isLatest && latest[strings.ToLower(v.Name)]:
			spare(fmt.Sprintf("%s refers to the latest version", byLatest))
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

// latestOf gives the names that "latest" may mean: Azure goes by number,
// people by date; both are safe.
func latestOf(versions []fleet.ImageVersion) map[string]bool {
	names := map[string]bool{}
	var highest, newest *fleet.ImageVersion
	for i := range versions {
		v := &versions[i]
		if v.ExcludeFromLatest || v.ProvisioningState != Succeeded {
			continue
		}
		if highest == nil || compareNumbers(v.Name, highest.Name) > 0 {
			highest = v
		}
		if newest == nil || v.Published.After(newest.Published) {
			newest = v
		}
	}
	for _, v := range []*fleet.ImageVersion{highest, newest} {
		if v != nil {
			names[strings.ToLower(v.Name)] = true
		}
	}
	return names
}
