//go:build unix

package join

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errNotAlone
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", lockFile, err)
	}
	return nil
}
