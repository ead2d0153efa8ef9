package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

const (
	// maxFile bounds a file's content and its baseline's, in bytes.
	maxFile = 1 << 20
	// tempSuffix ends the hidden name beside its target under which a file is staged. No
	// service reads such a name from a drop-in folder.
	tempSuffix = ".ortet-config"
	// restoring is added to a set's key for what Restore stages.
	restoring = "/restore"
	modeBits  = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

var (
	errNotFile = errors.New("a folder or a device lies there; remove it or choose another path")
	errParent  = errors.New("is no folder; remove it or choose another path")
)

// temp is where a file of the store's own folder is staged.
func temp(name string) string {
	return path.Join(path.Dir(name), "."+path.Base(name)+tempSuffix)
}

// stagedAt is where an entry is staged. Who owns its folder cannot know the name before,
// and so cannot occupy it.
func stagedAt(key, name string) string {
	sum := sha256.Sum256([]byte(key + name))
	return path.Join(path.Dir(name), "."+hex.EncodeToString(sum[:12])+tempSuffix)
}

// blocks says whether err of observe means that something lies there which is no entry, or
// that a user leads the path elsewhere.
func blocks(err error) bool {
	return errors.Is(err, errNotFile) || errors.Is(err, tree.ErrTooLarge) || errors.Is(err, ErrUnsafe)
}

// check refuses a set that cannot be made as one step.
func check(set Set) error {
	all := map[string]bool{}
	for i, e := range set {
		switch {
		case !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || e.Path == "/":
			return fmt.Errorf("path %q is not absolute and clean", e.Path)
		case i > 0 && set[i-1].Path >= e.Path:
			return fmt.Errorf("%s: paths are not sorted, or one is there twice", e.Path)
		case e.Path == Dir || strings.HasPrefix(e.Path, Dir+"/"):
			return fmt.Errorf("%s: the folder %s is the store's own", e.Path, Dir)
		case len(e.Content) > maxFile:
			return fmt.Errorf("%s: %d bytes, at most %d", e.Path, len(e.Content), maxFile)
		}
		all[e.Path] = true
	}
	for _, e := range set {
		for up := path.Dir(e.Path); up != "/"; up = path.Dir(up) {
			if all[up] {
				return fmt.Errorf("%s: its parent %s is a file of the same set", e.Path, up)
			}
		}
	}
	return nil
}

// over is what has to lie there to go from one set to another: the entries of to, and the
// baselines of what only from has.
func over(from, to, base Set) (Set, error) {
	wanted := slices.Clone(to)
	for _, e := range from {
		if _, ok := to.find(e.Path); ok {
			continue
		}
		b, ok := base.find(e.Path)
		if !ok {
			return nil, fmt.Errorf("%s: its baseline is missing in %s", e.Path, Dir)
		}
		wanted = append(wanted, b)
	}
	slices.SortFunc(wanted, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return wanted, nil
}

// plan is what has to change for next, and the baselines of the current set and of next.
// What lies now at a path that the current set lacks is its baseline, whatever an earlier
// set found there.
func (s *Store) plan(st state, next Set) (changes, base Set, err error) {
	if err := check(next); err != nil {
		return nil, nil, err
	}
	wanted, err := over(st.kept.Set, next, st.kept.Baselines)
	if err != nil {
		return nil, nil, err
	}
	var blocked []error
	for _, e := range wanted {
		b, ok := st.kept.Baselines.find(e.Path)
		if _, covered := st.kept.Set.find(e.Path); !covered || !ok {
			if b, err = s.observe(e.Path); err != nil {
				blocked = append(blocked, fmt.Errorf("keep what was there before: %w", err))
			}
		}
		base = append(base, b)
	}
	if len(blocked) > 0 {
		return nil, nil, errors.Join(blocked...)
	}
	changes, err = s.differing(wanted)
	return changes, base, err
}

// differing is the entries that do not lie there as wanted. Those that cannot lie there
// are left out and named by the error.
func (s *Store) differing(wanted Set) (Set, error) {
	var changes Set
	var blocked []error
	for _, e := range wanted {
		found, err := s.observe(e.Path)
		if errors.Is(err, tree.ErrTooLarge) {
			found, err = Entry{Path: e.Path}, nil // larger than any entry
		}
		if err == nil && found.Absent && !e.Absent {
			err = s.checkParent(e.Path)
		}
		if err != nil {
			blocked = append(blocked, err)
		} else if !same(found, e) {
			changes = append(changes, e)
		}
	}
	return changes, errors.Join(blocked...)
}

// observe is what lies at a path.
func (s *Store) observe(name string) (Entry, error) {
	e := Entry{Path: name}
	info, err := s.fs.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Entry{Path: name, Absent: true}, nil
	case err != nil:
	case info.Mode.IsRegular():
		// Of what was read: another file may have come there since.
		e.Content, info, err = s.fs.ReadFile(name, maxFile)
		e.Mode, e.UID, e.GID = info.Mode&modeBits, info.UID, info.GID
	case info.Mode.Type() == fs.ModeSymlink:
		e.Link, err = s.fs.Readlink(name)
	default:
		err = errNotFile
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}

// checkParent refuses a path with a parent that is no folder, and one whose folder would
// have to be made in a user's: as root's it would be on an unsafe path from then on.
func (s *Store) checkParent(name string) error {
	for up := path.Dir(name); ; up = path.Dir(up) {
		info, err := s.fs.Stat(up)
		switch {
		case err == nil && info.Mode.IsDir() && info.UID != 0 && up != path.Dir(name):
			return fmt.Errorf("%s: %w: folder %s is missing, and user %d owns %s; make it as that user", name, ErrUnsafe, path.Dir(name), info.UID, up)
		case err == nil && info.Mode.IsDir():
			return nil
		case err == nil:
			return fmt.Errorf("%s: its parent %s %w", name, up, errParent)
		case !errors.Is(err, fs.ErrNotExist) || up == "/":
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func same(a, b Entry) bool {
	switch {
	case a.Absent || b.Absent:
		return a.Absent == b.Absent
	case a.Link != "" || b.Link != "":
		return a.Link == b.Link
	}
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && bytes.Equal(a.Content, b.Content)
}

// stage writes an entry beside its target. Its content and its folders are on the disk
// when it returns.
func (s *Store) stage(e Entry, at string) error {
	if e.Absent {
		return nil
	}
	err := s.makeFolder(path.Dir(e.Path), 0o755)
	switch {
	case err != nil:
	case e.Link != "":
		err = s.fs.Symlink(e.Link, at)
	default:
		err = s.fs.Create(at, e.Content, e.Mode, e.UID, e.GID)
		if err == nil {
			err = s.fs.Sync(at)
		}
	}
	if err != nil {
		return fmt.Errorf("stage %s: %w", e.Path, err)
	}
	return nil
}

// swap gives a staged entry its name, or removes what is to be absent.
func (s *Store) swap(e Entry, at string) error {
	var err error
	if e.Absent {
		err = s.fs.Remove(e.Path)
	} else {
		err = s.fs.Rename(at, e.Path)
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", e.Path, err)
	}
	return nil
}

// syncFolders syncs the entries' folders, where they exist; nothing changed in one that is
// unsafe.
func (s *Store) syncFolders(set Set) error {
	done := map[string]bool{}
	for _, e := range set {
		folder := path.Dir(e.Path)
		if done[folder] {
			continue
		}
		done[folder] = true
		if err := s.fs.SyncDir(folder); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnsafe) {
			return fmt.Errorf("sync %s: %w", folder, err)
		}
	}
	return nil
}

// makeFolder makes a folder and those above it; their names are on the disk when it
// returns. Those that exist are synced once too: a process that was killed may have made
// them.
func (s *Store) makeFolder(name string, mode fs.FileMode) error {
	info, err := s.fs.Stat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ok := info.Mode.IsDir()
	if ok && (name == "/" || s.synced[name]) {
		return nil
	}
	if err := s.makeFolder(path.Dir(name), 0o755); err != nil {
		return err
	}
	if !ok {
		if err := s.fs.Mkdir(name, mode); err != nil {
			return err
		}
	}
	if err := s.fs.SyncDir(path.Dir(name)); err != nil {
		return err
	}
	s.synced[name] = true
	return nil
}
