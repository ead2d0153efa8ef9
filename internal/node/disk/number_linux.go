package disk

import (
	"io/fs"
	"syscall"
)

// deviceNumber is the number of the device that a node stands for, or 0.
func deviceNumber(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Rdev
	}
	return 0
}
