//go:build flaw_prune

package engine

// See flaw.go.
const (
	flawCordon    = false
	flawPrune     = true
	flawExtension = false
)
