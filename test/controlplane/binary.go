package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binary returns the path of the multi-call binary: $ORTET_CONTROLPLANE, or what
// hack/controlplane/build.sh put into its cache. It does not build, since that
// takes minutes when cold; the error says how to. The checkout is found from the
// working directory upwards.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv("ORTET_CONTROLPLANE"); path != "" {
		if _, err := os.Stat(path); err != nil { // #nosec G703 -- the caller's own variable
			return "", fmt.Errorf("the control plane that ORTET_CONTROLPLANE names: %w", err)
		}
		return filepath.Abs(path)
	}
	script, err := buildScript()
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "/bin/sh", script, "--path")
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s --path: %w: %s", script, err, strings.TrimSpace(stderr.String()))
	}
	return filepath.Join(strings.TrimSpace(string(out)), "controlplane"), nil
}

func buildScript() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, "hack", "controlplane", "build.sh")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no hack/controlplane/build.sh in %s or above: run from the checkout, or let ORTET_CONTROLPLANE name the binary", start)
		}
	}
}
