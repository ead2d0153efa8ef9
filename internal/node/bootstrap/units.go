package bootstrap

import "slices"

// cloudInitUnits are cloud-init's, by the names of 20 to 26. After these nothing
// of it runs.
func cloudInitUnits() []string { return []string{"cloud-final.service"} }

// watchedUnits are those that are told of, without repetition.
func watchedUnits(asked []string) []string {
	all := slices.Concat(asked, kubeletUnits(), cloudInitUnits(), []string{"containerd.service"})
	slices.Sort(all)
	return slices.Compact(all)
}

// unitSource tells of units without being asked again and again.
type unitSource interface {
	// look is what is known of the watched units now; ok is false while nobody
	// tells.
	look() (units map[string]unitSeen, ok bool)
	// failed are the units in state failed, at most maxFailedUnits.
	failed() []unitSeen
	// retry says that a bus may have come up.
	retry()
	close()
}

// maxFailedUnits bounds what is told of failed units.
const maxFailedUnits = 8
