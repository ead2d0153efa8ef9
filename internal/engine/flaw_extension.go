//go:build flaw_extension

package engine

// See flaw.go.
const (
	flawCordon    = false
	flawPrune     = false
	flawExtension = true
)
