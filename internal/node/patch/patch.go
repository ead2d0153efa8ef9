// Package patch updates the packages of a node from a pod that has the node's root, by the node's own
// package manager.
package patch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ortet/ortet/deploy/prepare"
)

// Restart is the exit code of a preparation after which the node has to restart.
const Restart = 10

// Run runs the script in the root, and writes to out what it prints. It reports whether a restart is
// needed.
func Run(ctx context.Context, root string, out io.Writer) (restart bool, err error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", prepare.Patch, "patch.sh")
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	if err := within(cmd, root); err != nil {
		return false, err
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == Restart {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("patch the node at %s: %w", root, err)
	}
	return RestartRequired(root)
}

// RestartRequired reports whether the root has the mark of package managers for a restart.
func RestartRequired(root string) (bool, error) {
	for _, mark := range []string{"run/reboot-required", "var/run/reboot-required"} { // var/run may be an absolute link
		_, err := os.Stat(filepath.Join(root, mark))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}
