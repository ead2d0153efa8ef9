//go:build unix

package tree

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner that info tells, where the process may.
func keepOwner(f *os.File, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
