//go:build !linux && !windows

package extension

import (
	"errors"
	"os"
	"os/exec"
)

// There is no Azure agent on other systems; this is for building there.

func startDetached(*exec.Cmd) error { return errors.ErrUnsupported }

func askToEnd(p *os.Process) error { return p.Kill() }

func lock(string) (func(), error) { return nil, errors.ErrUnsupported }

func bootID() string { return "" }

func startOf(int) (string, error) { return "", errors.ErrUnsupported }
