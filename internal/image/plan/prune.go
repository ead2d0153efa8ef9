package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// abandoned is how long a version is kept that no model named: the same command may use it, and
// another tool may be about to.
const abandoned = 7 * 24 * time.Hour

// Prune says which versions go when the newest history are kept, and two of current's kind that
// are good, and which others are kept, with the reason. A version that never was live takes only
// the room that those leave which were, and is kept for a week in any case. Where Azure does not
// say which version of the definition an instance runs, none goes.
func Prune(versions []fleet.ImageVersion, uses []fleet.ImageUse, current fleet.ResourceID,
	history int, now time.Time) (obsolete []fleet.ImageVersion, kept []string) {
	used, byLatest, unknown := map[string]fleet.ResourceID{}, map[string]fleet.ResourceID{}, map[string]fleet.ResourceID{} // by version, and by definition
	for _, u := range uses {
		used[strings.ToLower(string(u.Image))] = u.By
		latest := strings.ToLower(string((fleet.ImageReference{ID: u.Image}).LatestOf()))
		if latest == "" {
			continue
		}
		byLatest[latest] = u.By
		runs := func(x fleet.ImageUse) bool { return x.By.Equal(u.By) && !x.Image.Equal(u.Image) }
		if u.By.Segment("virtualMachines") != "" && !slices.ContainsFunc(uses, runs) {
			unknown[latest] = u.By
		}
	}
	others := slices.DeleteFunc(NewestFirst(versions), func(v fleet.ImageVersion) bool { return v.ID.Equal(current) })
	for i, v := range others {
		if used[strings.ToLower(string(v.ID))] != "" { // by the model, or by machines: it is live
			tags := maps.Clone(v.Tags)
			maps.DeleteFunc(tags, func(name, _ string) bool { _, marks := WentLive()[name]; return marks })
			others[i].Tags = tags
		}
	}
	slices.SortStableFunc(others, func(a, b fleet.ImageVersion) int {
		return cmp.Compare(when(NeverLive(a), 1), when(NeverLive(b), 1))
	})
	regions := []string{"", "elsewhere"} // any, and one that no version names: a version without regions may be in each
	for _, v := range versions {
		regions = append(regions, v.Regions...)
	}
	newest, goods := 1, 1 // of the history; current, which may be about to be made
	for _, v := range others {
		good := isGood(v) && v.ID.Parent().Equal(current.Parent()) // to go back to
		if v.ProvisioningState == Succeeded && Ours(v.Tags) && (newest < history || goods < 2 && good) {
			newest++
			if good {
				goods++
			}
			continue
		}
		isLatest := func(region string) bool {
			latest, _ := VersionOf(versions, fleet.ImageReference{ID: v.ID.Parent()}, region)
			return latest.ID == v.ID
		}
		of := strings.ToLower(string(v.ID.Parent()))
		by, byLatest, unknown := used[strings.ToLower(string(v.ID))], byLatest[of], unknown[of]
		why := cmp.Or(
			when(by != "", string(by)+" refers to it"),
			when(byLatest != "" && slices.ContainsFunc(regions, isLatest),
				string(byLatest)+" refers to the latest version"),
			when(unknown != "", string(unknown)+" may run it: Azure does not report its version"),
			when(v.DeletionBlocked, "its deletion is blocked until its end of life"),
			when(!Ours(v.Tags), "neither Ortet nor kamino made it"),
			when(v.ProvisioningState != Succeeded && v.ProvisioningState != Failed, "it is "+v.ProvisioningState),
			when(v.ProvisioningState == Succeeded && NeverLive(v) && now.Sub(v.Published) < abandoned,
				"it was not live yet, and is less than a week old"),
		)
		if why == "" {
			obsolete = append(obsolete, v)
		} else {
			kept = append(kept, v.Name+": "+why)
		}
	}
	return obsolete, kept
}
