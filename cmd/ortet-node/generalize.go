package main

import (
	"context"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/node/generalize/program"
)

const generalizeHelp = `Usage: ortet-node generalize --root DIR FLAGS
       ortet-node generalize --lun N --host DIR FLAGS

Removes a node's identity from a copy of its OS disk, and scans the copy for
secrets. Never run it on the disk of a node that stays in use. Standard output
has JSON lines: progress, and last the report.

Exit codes: 0 generalized; 1 failed; 3 secrets found; 4 disk refused, nothing
changed; 64 wrong usage.

Flags:
`

func runGeneralize(ctx context.Context, args []string, std stdio) int {
	var f program.Flags
	fs := flagsOf("generalize")
	f.Define(fs)
	var o generalize.Options
	// On standard output there are JSON lines only.
	if code, ok := parse(fs, generalizeHelp, args, stdio{out: std.err, err: std.err}, func() (err error) {
		o, err = f.Options()
		return err
	}); !ok {
		return code
	}
	return program.Run(ctx, f, o, std.out, std.err)
}
