package main

import (
	"context"
	"fmt"

	"github.com/ortet/ortet/internal/buildinfo"
)

// version is set when it is linked.
var version string

const versionHelp = `Usage: ortet-node version

Shows the version of this program.
`

func runVersion(_ context.Context, args []string, std stdio) int {
	if code, ok := parse(flagsOf("version"), versionHelp, args, std, func() error { return nil }); !ok {
		return code
	}
	_, _ = fmt.Fprintln(std.out, buildinfo.Version(version))
	return exitOK
}
