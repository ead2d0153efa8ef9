package bootstrap

import "slices"

// watchedUnits are those that are told of, without repetition.
func watchedUnits(asked []string) []string {
	all := slices.Concat(asked, kubeletUnits(), cloudInitUnits(), runtimeUnits())
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
