package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/ortet/ortet/internal/node/tree"
)

// An FS is the file system that a Store changes. Names are absolute; links in their
// folders are followed, a link in the last place is not. A name that a user who is not
// root can lead elsewhere is ErrUnsafe. Nothing is on the disk before Sync (a file's
// content, mode and owner) or SyncDir (the names in a folder).
type FS interface {
	Lstat(name string) (Info, error) // fs.ErrNotExist also where a parent is no folder
	// Stat is Lstat of what a name leads to, following a link; of a folder only its
	// description, of all else only that it is none.
	Stat(name string) (Info, error)
	// ReadFile reads a regular file, and describes it; more than limit bytes are
	// tree.ErrTooLarge.
	ReadFile(name string, limit int64) ([]byte, Info, error)
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
	top    *os.Root
	owners bool
}

// OS is the machine's file system below root, which no path or link leaves. It stays open
// until the process ends. A process that is not root neither sets nor sees owners.
func OS(root string) (FS, error) {
	t, err := tree.Open(root)
	if err != nil {
		return nil, err
	}
	return &machine{t.Root(), os.Geteuid() == 0}, nil
}

// in calls do with a name's folder and what the name is in it.
func (m *machine) in(name string, do func(folder *os.Root, at string) error) error {
	return m.folder(path.Dir(name), func(folder *os.Root) error { return do(folder, path.Base(name)) })
}

func (m *machine) info(info fs.FileInfo) Info {
	i := Info{Mode: info.Mode()}
	if m.owners {
		i.UID, i.GID = tree.Owner(info)
	}
	return i
}

func (m *machine) Lstat(name string) (i Info, err error) {
	if name == "/" {
		return m.Stat(name)
	}
	err = m.in(name, func(folder *os.Root, at string) error {
		info, err := folder.Lstat(at)
		if err == nil {
			i = m.info(info)
		}
		return err
	})
	if errors.Is(err, errParent) {
		err = fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return i, err
}

func (m *machine) Stat(name string) (i Info, err error) {
	err = m.folder(name, func(folder *os.Root) error {
		info, err := folder.Stat(".")
		if err == nil {
			i = m.info(info)
		}
		return err
	})
	if errors.Is(err, errParent) {
		return Info{}, nil
	}
	return i, err
}

func (m *machine) ReadFile(name string, limit int64) (content []byte, i Info, err error) {
	err = m.in(name, func(folder *os.Root, at string) error {
		text, info, err := tree.ReadFileIn(folder, at, limit)
		if err == nil {
			content, i = text, m.info(info)
		}
		return err
	})
	return content, i, err
}

func (m *machine) Readlink(name string) (target string, err error) {
	err = m.in(name, func(folder *os.Root, at string) error {
		target, err = folder.Readlink(at)
		return err
	})
	return target, err
}

func (m *machine) Create(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	return m.in(name, func(folder *os.Root, at string) error {
		f, err := folder.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
	return m.in(name, func(folder *os.Root, at string) error {
		f, _, err := tree.OpenRegularIn(folder, at, os.O_RDONLY)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

func (m *machine) Symlink(target, name string) error {
	return m.in(name, func(folder *os.Root, at string) error { return folder.Symlink(target, at) })
}

func (m *machine) Rename(from, to string) error {
	return m.in(from, func(folder *os.Root, at string) error { return folder.Rename(at, path.Base(to)) })
}

func (m *machine) Remove(name string) error {
	return m.in(name, func(folder *os.Root, at string) error { return folder.Remove(at) })
}

func (m *machine) Mkdir(name string, mode fs.FileMode) error {
	return m.in(name, func(folder *os.Root, at string) error { return folder.Mkdir(at, mode) })
}

func (m *machine) SyncDir(name string) error {
	err := m.folder(name, func(folder *os.Root) error { return tree.SyncDirIn(folder, ".") })
	if errors.Is(err, errParent) {
		err = fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return err
}
