package patch

import (
	"os/exec"
	"path/filepath"
	"syscall"
)

// within has the command see root as /.
func within(cmd *exec.Cmd, root string) error {
	if filepath.Clean(root) != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	return nil
}
