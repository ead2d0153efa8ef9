package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// Count says how much was removed or emptied, or would be.
type Count struct {
	Paths int   // files, links, directories
	Bytes int64 // apparent size of the files
}

// Add adds other to c.
func (c *Count) Add(other Count) { c.Paths += other.Paths; c.Bytes += other.Bytes }

// Measure counts a path and all below it, without following links.
func (t *Tree) Measure(name string) (Count, error) {
	at, err := t.Resolve(name, false)
	if err != nil {
		return Count{}, err
	}
	return t.measure(at, 0)
}

func (t *Tree) measure(at string, depth int) (Count, error) {
	info, err := t.root.Lstat(at)
	if err != nil {
		return Count{}, err
	}
	c := Count{Paths: 1}
	if info.Mode().IsRegular() {
		c.Bytes = info.Size()
	}
	if !info.IsDir() || depth > maxDepth {
		return c, nil
	}
	entries, err := readDir(t.root, at)
	if err != nil {
		return c, err
	}
	for _, e := range entries {
		below, err := t.measure(path.Join(at, e.Name()), depth+1)
		if err != nil {
			return c, err
		}
		c.Add(below)
	}
	return c, nil
}

// Remove removes a path and all below it. A link in the last place is removed
// itself; what it points to stays. What is not there counts as removed.
func (t *Tree) Remove(name string) (Count, error) {
	at, err := t.Resolve(name, false)
	if err != nil {
		return Count{}, ignoreAbsent(err)
	}
	if at == "." {
		return Count{}, fmt.Errorf("removing %q: it is the tree's top", name)
	}
	c, err := t.measure(at, 0)
	if err != nil {
		return Count{}, ignoreAbsent(err)
	}
	if err := t.root.RemoveAll(at); err != nil {
		return Count{}, fmt.Errorf("removing /%s: %w", at, err)
	}
	return c, nil
}

// Shred overwrites the regular files at and below a path with zeros, in place,
// and then removes it. A snapshot copies blocks, freed ones too, so a key that
// was only unlinked could be read from a clone's free space.
func (t *Tree) Shred(name string) (Count, error) {
	if err := t.Wipe(name); err != nil {
		return Count{}, err
	}
	if err := t.Sync(); err != nil {
		return Count{}, err
	}
	return t.Remove(name)
}

// Wipe is Shred's first half: the zeros are on the disk after the next Sync, and
// only what is removed after that is gone for good. It serves many paths that
// share one Sync. What is not there counts as done.
func (t *Tree) Wipe(name string) error {
	at, err := t.Resolve(name, false)
	if err != nil {
		return ignoreAbsent(err)
	}
	return ignoreAbsent(t.wipe(at, 0))
}

func (t *Tree) wipe(at string, depth int) error {
	info, err := t.root.Lstat(at)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir() && depth <= maxDepth:
		entries, err := readDir(t.root, at)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := t.wipe(path.Join(at, e.Name()), depth+1); err != nil {
				return err
			}
		}
	case info.Mode().IsRegular():
		return t.zero(at, 0)
	}
	return nil
}

// zero overwrites a regular file with zeros from the offset to its end.
func (t *Tree) zero(at string, from int64) error {
	f, info, err := OpenRegularIn(t.root, at, os.O_WRONLY)
	if err != nil {
		return err
	}
	zeros := make([]byte, 64<<10)
	for off := from; off < info.Size() && err == nil; {
		n := min(int64(len(zeros)), info.Size()-off)
		_, err = f.WriteAt(zeros[:n], off)
		off += n
	}
	if err == nil && !t.syncs(info) {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("overwriting /%s: %w", at, err)
	}
	return nil
}

// ZeroFrom overwrites a regular file with zeros from the offset to its end and
// keeps its length and its blocks.
func (t *Tree) ZeroFrom(name string, from int64) error {
	at, err := t.Resolve(name, true)
	if err != nil {
		return err
	}
	return t.zero(at, from)
}

// Truncate makes a regular file empty and keeps its owner and mode. What is
// not there, or is no regular file, is left.
func (t *Tree) Truncate(name string) (Count, error) {
	f, info, err := t.OpenRegular(name, os.O_WRONLY)
	if err != nil {
		if errors.Is(err, ErrNotRegular) {
			return Count{}, nil
		}
		return Count{}, ignoreAbsent(err)
	}
	if info.Size() == 0 {
		return Count{}, f.Close()
	}
	if err := errors.Join(f.Truncate(0), f.Close()); err != nil {
		return Count{}, fmt.Errorf("emptying /%s: %w", name, err)
	}
	return Count{Paths: 1, Bytes: info.Size()}, nil
}

// WriteFile replaces a file's content as one step: readers see the old or the
// new. An existing file's owner and mode are kept; a new one gets perm and the
// caller's owner. Links within the tree are followed to the file that counts. It is
// on the disk when this returns, on Linux its name too.
func (t *Tree) WriteFile(name string, data []byte, perm fs.FileMode) error {
	at, err := t.Resolve(name, true)
	if err != nil {
		return err
	}
	info, err := t.root.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		info = nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("writing /%s: %w", at, ErrNotRegular)
	default:
		perm = info.Mode().Perm()
	}
	tmp := path.Join(path.Dir(at), "."+path.Base(at)+".ortet")
	if err := t.root.RemoveAll(tmp); err != nil {
		return fmt.Errorf("writing /%s: %w", at, err)
	}
	f, err := t.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, perm)
	if err != nil {
		return fmt.Errorf("writing /%s: %w", at, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm) // the process's umask does not count here
	}
	if err == nil && info != nil {
		err = keepOwner(f, info)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = t.root.Rename(tmp, at)
	}
	if err != nil {
		return fmt.Errorf("writing /%s: %w", at, errors.Join(err, t.root.RemoveAll(tmp)))
	}
	if err := SyncDirIn(t.root, path.Dir(at)); err != nil {
		return fmt.Errorf("writing /%s: %w", at, err)
	}
	return nil
}

// MkdirAll makes a directory and those above it. Made ones are on the disk when it
// returns, as with WriteFile.
func (t *Tree) MkdirAll(name string, perm fs.FileMode) error {
	at, err := t.Resolve(name, true)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// Directories on the way are missing: make them one by one, so that
		// links above them count.
		if err := t.MkdirAll(path.Dir(path.Clean("/"+name)), perm); err != nil {
			return err
		}
		if at, err = t.Resolve(name, true); err != nil {
			return err
		}
	}
	if _, err := t.root.Lstat(at); err == nil || at == "." {
		return t.root.MkdirAll(at, perm) // or says that it is none
	}
	// Those above it are there.
	if err := t.root.MkdirAll(at, perm); err != nil {
		return err
	}
	return SyncDirIn(t.root, path.Dir(at))
}

// SyncDir writes a directory's entries to the disk, following links within the tree to
// it: names that were made, renamed or removed in it survive a power loss only then.
// Outside Linux it does nothing.
func (t *Tree) SyncDir(name string) error {
	at, err := t.Resolve(name, true)
	if err != nil {
		return err
	}
	if err := SyncDirIn(t.root, at); err != nil {
		return fmt.Errorf("sync folder /%s: %w", at, err)
	}
	return nil
}
