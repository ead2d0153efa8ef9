//go:build flaw_cordon

package engine

// See flaw.go.
const (
	flawCordon    = true
	flawPrune     = false
	flawExtension = false
)
