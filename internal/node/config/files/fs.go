package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/ortet/ortet/internal/node/tree"
)

// An FS is the file system that a Store changes. Names are absolute; links in their
// folders are followed, a link in the last place is not. Nothing is on the disk before
// Sync (a file's content, mode and owner) or SyncDir (the names in a folder).
type FS interface {
	Lstat(name string) (Info, error) // fs.ErrNotExist also where a parent is no folder
	// IsDir says whether a name leads to a folder, following a link.
	IsDir(name string) (bool, error)
	// ReadFile reads a regular file; more than limit bytes are tree.ErrTooLarge.
	ReadFile(name string, limit int64) ([]byte, error)
	Readlink(name string) (string, error)

	// Create makes a file that must not exist and writes it.
	Create(name string, content []byte, mode fs.FileMode, uid, gid int) error
	Sync(name string) error
	Symlink(target, name string) error
	Rename(from, to string) error // within one folder, and over what is there
	Remove(name string) error
	Mkdir(name string, mode fs.FileMode) error
	SyncDir(name string) error
}

// Info describes what lies at a name.
type Info struct {
	Mode     fs.FileMode
	UID, GID int
}

// machine is the FS of a directory of this machine.
type machine struct {
	*tree.Tree
	owners bool
}

// OS is the machine's file system below root, which no path or link leaves. It stays open
// until the process ends. A process that is not root neither sets nor sees owners.
func OS(root string) (FS, error) {
	t, err := tree.Open(root)
	if err != nil {
		return nil, err
	}
	return &machine{t, os.Geteuid() == 0}, nil
}

// in calls do with a name whose folder has no links.
func (m *machine) in(name string, do func(root *os.Root, at string) error) error {
	folder, err := m.Resolve(path.Dir(name), true)
	if err != nil {
		return err
	}
	return do(m.Root(), path.Join(folder, path.Base(name)))
}

func (m *machine) Lstat(name string) (Info, error) {
	info, err := m.Tree.Lstat(name)
	if errors.Is(err, syscall.ENOTDIR) {
		err = fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return Info{}, err
	}
	i := Info{Mode: info.Mode()}
	if m.owners {
		i.UID, i.GID = tree.Owner(info)
	}
	return i, nil
}

func (m *machine) IsDir(name string) (bool, error) {
	info, err := m.Stat(name)
	return err == nil && info.IsDir(), err
}

func (m *machine) Readlink(name string) (target string, err error) {
	err = m.in(name, func(root *os.Root, at string) error {
		target, err = root.Readlink(at)
		return err
	})
	return target, err
}

func (m *machine) Create(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	return m.in(name, func(root *os.Root, at string) error {
		f, err := root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		if err == nil && m.owners {
			err = f.Chown(uid, gid)
		}
		if err == nil { // after the owner, whose change clears setuid; the umask does not count
			err = f.Chmod(mode)
		}
		return errors.Join(err, f.Close())
	})
}

func (m *machine) Sync(name string) error {
	f, _, err := m.OpenRegular(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (m *machine) Symlink(target, name string) error {
	return m.in(name, func(root *os.Root, at string) error { return root.Symlink(target, at) })
}

func (m *machine) Rename(from, to string) error {
	return m.in(from, func(root *os.Root, at string) error {
		return root.Rename(at, path.Join(path.Dir(at), path.Base(to)))
	})
}

func (m *machine) Remove(name string) error {
	return m.in(name, func(root *os.Root, at string) error { return root.Remove(at) })
}

func (m *machine) Mkdir(name string, mode fs.FileMode) error {
	return m.in(name, func(root *os.Root, at string) error { return root.Mkdir(at, mode) })
}
