// Package tree works on the file tree of a disk that is not trusted: every path
// is looked up as if the tree's top were "/", symbolic links included, and no
// path, link or device node in it can make the caller touch anything outside.
//
// os.Root gives the confinement (it opens component by component and never
// leaves its directory); this package adds what a system disk needs on top:
// absolute links resolve inside the tree, as they would after a chroot; only
// regular files are opened, so that a device node or FIFO on the disk cannot
// reach the host's devices or block; and what is removed is counted.
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// maxLinks bounds symbolic links on one path, as the kernel's limit does.
const maxLinks = 40

// maxDepth bounds directories within each other in one path.
const maxDepth = 200

var (
	// ErrTooLarge says that a file exceeds the bound that its reader gave.
	ErrTooLarge = errors.New("larger than its bound")
	// ErrNotRegular says that a path is no regular file where one was needed.
	ErrNotRegular = errors.New("not a regular file")
	// ErrNotDirectory says that a path is no directory where one was needed.
	ErrNotDirectory = errors.New("not a directory")
)

// Tree is the tree below one directory. Its methods take slash-separated paths
// from the tree's top, with or without a leading slash.
type Tree struct {
	root *os.Root
	dir  string
}

// Open opens the tree whose top is dir, a directory of the host's.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the tree at %s: %w", dir, err)
	}
	return &Tree{root: root, dir: dir}, nil
}

// Close gives up the tree. Paths resolved from it stay meaningless after.
func (t *Tree) Close() error { return t.root.Close() }

// Dir is the host's directory that was opened.
func (t *Tree) Dir() string { return t.dir }

// Root is the confined directory itself, for a walk that opens directory by
// directory instead of path by path.
func (t *Tree) Root() *os.Root { return t.root }

// Resolve returns the path without symbolic links, relative to the top
// ("." for the top). The last component is followed only when follow is set,
// and need not exist. A missing directory on the way is fs.ErrNotExist.
func (t *Tree) Resolve(name string, follow bool) (string, error) {
	pending := components(name)
	var done []string
	links := 0
	for len(pending) > 0 {
		c := pending[0]
		pending = pending[1:]
		if c == ".." {
			if len(done) > 0 {
				done = done[:len(done)-1]
			}
			continue
		}
		if len(done) >= maxDepth {
			return "", fmt.Errorf("resolving %s: %w", name, syscall.ENAMETOOLONG)
		}
		at := path.Join(append(slices.Clone(done), c)...)
		last := len(pending) == 0
		if last && !follow {
			return at, nil
		}
		info, err := t.root.Lstat(at)
		if err != nil {
			if last && errors.Is(err, fs.ErrNotExist) {
				return at, nil
			}
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if !last && !info.IsDir() {
				return "", fmt.Errorf("resolving %s: %s: %w", name, at, fs.ErrNotExist)
			}
			done = append(done, c)
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("resolving %s: %w", name, syscall.ELOOP)
		}
		target, err := t.root.Readlink(at)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			done = done[:0]
		}
		pending = append(components(target), pending...)
	}
	if len(done) == 0 {
		return ".", nil
	}
	return path.Join(done...), nil
}

// components splits a path, dropping what is empty or ".".
func components(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(c string) bool { return c == "" || c == "." })
}

// Lstat describes the path itself; a link in its last place is not followed.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	at, err := t.Resolve(name, false)
	if err != nil {
		return nil, err
	}
	return t.root.Lstat(at)
}

// Stat describes what the path leads to within the tree.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	at, err := t.Resolve(name, true)
	if err != nil {
		return nil, err
	}
	return t.root.Lstat(at)
}

// Exists says whether something lies at the path, be it a dangling link.
func (t *Tree) Exists(name string) (bool, error) {
	_, err := t.Lstat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

// OpenRegular opens a regular file with the given flags, following links
// within the tree. Anything else is ErrNotRegular and is not opened.
func (t *Tree) OpenRegular(name string, flag int) (*os.File, fs.FileInfo, error) {
	at, err := t.Resolve(name, true)
	if err != nil {
		return nil, nil, err
	}
	return OpenRegularIn(t.root, at, flag)
}

// OpenRegularIn is OpenRegular for a path below root that holds no links.
func OpenRegularIn(root *os.Root, at string, flag int) (*os.File, fs.FileInfo, error) {
	info, err := root.Lstat(at)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: %w", at, ErrNotRegular)
	}
	f, err := root.OpenFile(at, flag|openFlags, 0)
	if errors.Is(err, fs.ErrPermission) && flag&(os.O_WRONLY|os.O_RDWR) != 0 && info.Mode()&0o200 == 0 {
		f, err = openReadOnly(root, at, flag, info.Mode())
	}
	if err != nil {
		return nil, nil, err
	}
	// What was looked at and what was opened can differ on a tree in use.
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", at, ErrNotRegular)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// openReadOnly opens a file for writing that its mode forbids its owner to
// write, such as /etc/machine-id, and leaves the mode as it was. Root needs no
// such thing; the owner of a tree that is no file system does.
func openReadOnly(root *os.Root, at string, flag int, mode fs.FileMode) (*os.File, error) {
	if err := root.Chmod(at, mode|0o200); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(at, flag|openFlags, 0)
	if err := errors.Join(err, root.Chmod(at, mode)); err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	return f, nil
}

// ReadFile reads a whole regular file of at most limit bytes.
func (t *Tree) ReadFile(name string, limit int64) ([]byte, error) {
	at, err := t.Resolve(name, true)
	if err != nil {
		return nil, err
	}
	data, _, err := ReadFileIn(t.root, at, limit)
	return data, err
}

// ReadFileIn is ReadFile for a path below root that holds no links. The description is of
// the file that was read, whatever lies at the path by now.
func ReadFileIn(root *os.Root, at string, limit int64) ([]byte, fs.FileInfo, error) {
	f, info, err := OpenRegularIn(root, at, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	if info.Size() > limit {
		return nil, nil, fmt.Errorf("%s: %d bytes: %w", at, info.Size(), ErrTooLarge)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", at, err)
	}
	if int64(len(data)) > limit {
		return nil, nil, fmt.Errorf("%s: %w", at, ErrTooLarge)
	}
	return data, info, nil
}

// ReadDir lists a directory by name, following links within the tree to it.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := t.Resolve(name, true)
	if err != nil {
		return nil, err
	}
	return readDir(t.root, at)
}

func readDir(root *os.Root, at string) ([]fs.DirEntry, error) {
	info, err := root.Lstat(at)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: %w", at, ErrNotDirectory)
	}
	d, err := root.Open(at)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, fmt.Errorf("listing %s: %w", at, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Glob returns the paths, relative to the top and free of links but for the
// last component, that match a pattern of path.Match components. What does not
// exist matches nothing; that is no error. "**" is not known.
func (t *Tree) Glob(pattern string) ([]string, error) {
	at := []string{"."}
	parts := components(pattern)
	for i, part := range parts {
		var next []string
		for _, dir := range at {
			found, err := t.step(dir, part, i == len(parts)-1)
			if err != nil {
				return nil, fmt.Errorf("looking for %s: %w", pattern, err)
			}
			next = append(next, found...)
		}
		at = next
	}
	slices.Sort(at)
	return slices.Compact(at), nil
}

func (t *Tree) step(dir, part string, last bool) ([]string, error) {
	resolved, err := t.Resolve(dir, true)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	if !strings.ContainsAny(part, `*?[\`) {
		at := path.Join(resolved, part)
		if _, err := t.root.Lstat(at); err != nil {
			return nil, ignoreAbsent(err)
		}
		return []string{at}, nil
	}
	entries, err := readDir(t.root, resolved)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	var found []string
	for _, e := range entries {
		ok, err := path.Match(part, e.Name())
		if err != nil {
			return nil, err
		}
		if ok && (last || e.IsDir() || e.Type()&fs.ModeSymlink != 0) {
			found = append(found, path.Join(resolved, e.Name()))
		}
	}
	return found, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, ErrNotDirectory) || errors.Is(err, syscall.ELOOP) {
		return nil
	}
	return err
}
