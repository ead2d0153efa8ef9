package main

import (
	"context"
	"errors"

	"github.com/ortet/ortet/internal/node/patch"
)

const patchHelp = `Usage: ortet-node patch --root DIR [--check]

Updates the packages of the node whose root is DIR by its own package manager:
apt-get, zypper, tdnf or dnf. Packages that are held stay. Run it in a pod on a
node that is captured and deleted again.

Exit codes: 0 done; 10 done, and the node has to restart; 1 failed; 64 wrong
usage.

Flags:
`

func runPatch(ctx context.Context, args []string, std stdio) int {
	fs := flagsOf("patch")
	root := fs.String("root", "", "root `DIR` of the node")
	check := fs.Bool("check", false, "change nothing: only say by the exit code whether a restart is needed")
	if code, ok := parse(fs, patchHelp, args, std, func() error {
		if *root == "" {
			return errors.New("--root is required: the folder where the node's root is mounted")
		}
		return nil
	}); !ok {
		return code
	}
	run := func() (bool, error) { return patch.Run(ctx, *root, std.out) }
	if *check {
		run = func() (bool, error) { return patch.RestartRequired(*root) }
	}
	switch restart, err := run(); {
	case err != nil:
		return failed(std, "patch", err)
	case restart:
		return patch.Restart
	}
	return exitOK
}
