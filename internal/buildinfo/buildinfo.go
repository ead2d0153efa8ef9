// Package buildinfo says which version a program reports: what the linker wrote into
// it, or the version of the module that `go install MODULE@VERSION` built.
package buildinfo

import "runtime/debug"

// unreleased is what a build of no version reports, as that of a test.
const unreleased = "dev"

// Version returns linked, the value of the linker's -X main.version, unless it is empty.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, _ := debug.ReadBuildInfo()
	return ofModule(info)
}

// ofModule returns the main module's version; the go command writes (devel) where
// it knows none.
func ofModule(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return unreleased
	}
	return info.Main.Version
}
