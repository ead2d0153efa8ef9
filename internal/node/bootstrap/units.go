package bootstrap

import "slices"

// watchedUnits are those that are reported, without repetition.
func watchedUnits(asked []string) []string {
	all := slices.Concat(asked, kubeletUnits(), cloudInitUnits(), runtimeUnits())
	slices.Sort(all)
	return slices.Compact(all)
}

// unitSource reports units from notifications, without polling.
type unitSource interface {
	// look returns the watched units' state now; ok is false while no source is connected.
	look() (units map[string]unitSeen, ok bool)
	// failed are the units in state failed, up to maxFailedUnits.
	failed() []unitSeen
	// retry signals that a bus may have come up.
	retry()
	close()
}

// maxFailedUnits limits the reported failed units.
const maxFailedUnits = 8
