//go:build !flaw_cordon && !flaw_prune && !flaw_extension

package engine

// Deliberate flaws, which build tags put in: the simulation has to find each of
// them (test/scenario/play). There are none in what is shipped.
const (
	flawCordon    = false // a donor that we cordoned is not uncordoned
	flawPrune     = false // versions are pruned whoever refers to them
	flawExtension = false // that an extension was deleted is believed
)
