package generalize

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeLocked reports whether a process, in whatever namespace, has locked the file for
// itself, as dpkg and rpm do.
func writeLocked(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
	return err == nil && lock.Type == unix.F_WRLCK, err
}
