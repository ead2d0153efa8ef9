package hollow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A tree is the folder that holds a volume's files. Names in it are absolute, as
// a computer that runs from it sees them, and links are followed inside it, also
// absolute ones, so that no name leads out of it.
type tree string

// mountPoints are what a running Linux mounts over: never part of the disk.
var mountPoints = []string{"dev", "proc", "run", "sys"}

// maxLinks is Linux' own limit on the links in one name.
const maxLinks = 40

// resolve returns the path by which this process reaches name. The last element
// may be absent, and is followed when it is a link and follow is set.
func (t tree) resolve(name string, follow bool) (string, error) {
	rest := strings.Split(path.Clean("/"+name), "/")[1:]
	at := "/"
	links := 0
	for len(rest) > 0 {
		element := rest[0]
		rest = rest[1:]
		if element == "" {
			continue
		}
		next := path.Join(at, element)
		target, err := os.Readlink(filepath.Join(string(t), next))
		if err != nil || (len(rest) == 0 && !follow) {
			at = next // no link, or not there: then opening it will say so
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many links", name)
		}
		if !path.IsAbs(target) {
			target = path.Join(at, target)
		}
		at = "/"
		rest = append(strings.Split(path.Clean(target), "/")[1:], rest...)
	}
	return filepath.Join(string(t), at), nil
}

func (t tree) readFile(name string) ([]byte, error) {
	p, err := t.resolve(name, true)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(p)
}

// readTrimmed returns a file's text without space around it, "" when absent.
func (t tree) readTrimmed(name string) (string, error) {
	content, err := t.readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

func (t tree) exists(name string) bool {
	p, err := t.resolve(name, false)
	if err != nil {
		return false
	}
	_, err = os.Lstat(p)
	return err == nil
}

// writeFile writes a file and makes the folders that lead to it.
func (t tree) writeFile(name string, content []byte, mode fs.FileMode) error {
	p, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(p, content, mode); err != nil {
		return err
	}
	return os.Chmod(p, mode) // also where the file was, and whatever the umask
}

func (t tree) appendFile(name string, content []byte, mode fs.FileMode) (err error) {
	p, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(p, os.O_CREATE|os.O_APPEND|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(content)
	return err
}

func (t tree) mkdir(name string, mode fs.FileMode) error {
	p, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	return os.MkdirAll(p, mode)
}

// symlink makes name a link to target, whatever it was.
func (t tree) symlink(target, name string) error {
	p, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, p)
}

// remove takes a file or link away; an absent one is no error.
func (t tree) remove(name string) error {
	p, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(p); err != nil {
		return err
	}
	return nil
}

// glob returns the names in the folder that match pattern.
func (t tree) glob(folder, pattern string) ([]string, error) {
	p, err := t.resolve(folder, true)
	if err != nil {
		return nil, err
	}
	matches, err := filepath.Glob(filepath.Join(p, pattern))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(matches))
	for _, m := range matches {
		names = append(names, path.Join(folder, filepath.Base(m)))
	}
	return names, nil
}

// unmount empties what only a running computer has, so that the tree is the
// disk's content alone.
func (t tree) unmount() error {
	var errs []error
	for _, name := range mountPoints {
		p := filepath.Join(string(t), name)
		entries, err := os.ReadDir(p)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		for _, entry := range entries {
			errs = append(errs, os.RemoveAll(filepath.Join(p, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
