//go:build linux

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Exec runs a command in a running computer, as root, and returns its standard
// output: what Azure calls a run command. A failure carries standard error.
func (s *Substrate) Exec(ctx context.Context, id string, stdin []byte, argv ...string) ([]byte, error) {
	c := s.known(id)
	if c == nil {
		return nil, fmt.Errorf("run %q on %s: no such computer", argv, id)
	}
	container := fmt.Sprintf("%s-%d", s.fabric.prefix, c.n)
	args := append([]string{"--root", filepath.Join(s.dir, "runc"), "exec", container}, argv...)
	cmd := exec.CommandContext(ctx, "runc", args...) //nolint:gosec // running the caller's command is what it is for
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("run %q on %s: %w: %s", argv, id, err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}
