//go:build !linux

package patch

import (
	"errors"
	"os/exec"
)

func within(*exec.Cmd, string) error { return errors.ErrUnsupported }
