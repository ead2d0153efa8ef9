package generalize

import (
	"errors"
	"os"

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
