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

// Owner is the user and group that own what info describes; 0 where the system has none.
func Owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return int(st.Uid), int(st.Gid)
}
