package disk

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fitrim is FITRIM of linux/fs.h: _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xc0185879

// trim gives freed blocks back to the disk, so that neither deleted secrets nor
// dead weight go into the snapshot. Not every disk can; that is only told.
func trim(r Request, dir string) {
	d, err := os.Open(dir)
	if err != nil {
		r.Log.Warn("cannot trim", "error", err)
		return
	}
	rng := struct{ start, length, minimum uint64 }{length: ^uint64(0)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), fitrim, uintptr(unsafe.Pointer(&rng))) //nolint:gosec // the ioctl takes a struct
	if err := d.Close(); err != nil {
		r.Log.Warn("cannot trim", "error", err)
	}
	switch {
	case errno == 0:
		r.Log.Info("gave free blocks back", "bytes", rng.length)
	case errors.Is(errno, unix.EOPNOTSUPP), errors.Is(errno, unix.ENOTTY), errors.Is(errno, unix.EINVAL):
		r.Log.Info("the disk does not take back free blocks")
	default:
		r.Log.Warn("cannot trim", "error", errno)
	}
}
