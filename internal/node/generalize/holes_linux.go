package generalize

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nextData is the first offset at or after off that holds data; size where only
// holes follow. A file system that does not know holes has data everywhere.
func nextData(f *os.File, off, size int64) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return off, nil
	case err != nil:
		return off, err
	}
	return max(at, off), nil
}

// deviceOf names the file system that a file lies on.
func deviceOf(info fs.FileInfo) (device uint64, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(s.Dev), true //nolint:unconvert // 32 bits on some architectures
}

// usedBytes is how much is used of the file system that a file lies on.
func usedBytes(f *os.File) int64 {
	var s unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &s) != nil {
		return 0
	}
	return int64(s.Blocks-s.Bfree) * int64(s.Bsize) //nolint:unconvert // 32 bits on some architectures
}

// linked says whether a file has other names: overwriting it changes them too.
func linked(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Nlink > 1
}
