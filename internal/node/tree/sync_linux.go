package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sync writes out what was changed on the file system of the tree's top.
func (t *Tree) Sync() error { return t.SyncAt(".") }

// SyncAt is Sync of the file system that a directory lies on.
func (t *Tree) SyncAt(name string) error {
	at, err := t.Resolve(name, true)
	if err != nil {
		return err
	}
	dir, err := t.root.Open(at)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
		return fmt.Errorf("writing out %s in %s: %w", at, t.dir, err)
	}
	return nil
}

// syncs says whether Sync covers a file, which may lie on a file system that is
// mounted in the tree.
func (t *Tree) syncs(info fs.FileInfo) bool {
	top, err := t.root.Lstat(".")
	if err != nil {
		return false
	}
	a, ok1 := top.Sys().(*syscall.Stat_t)
	b, ok2 := info.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && a.Dev == b.Dev
}

// SyncDirIn writes out a directory: what was made in it or renamed is there after
// a power loss only then. A file's own sync is of what the file holds.
func SyncDirIn(root *os.Root, at string) error {
	d, err := root.Open(at)
	if err != nil {
		return err
	}
	// Some file systems know no such thing: fsync(2).
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
