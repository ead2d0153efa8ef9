package files

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

const (
	// Dir is the folder of the store's state.
	Dir = "/var/lib/ortet/config"
	// Journal exists from Begin to Keep or Discard: its content is a journal.
	Journal = Dir + "/journal.json"
	// current is the journal of the last Begin that was kept.
	current = Dir + "/current.json"
	// The current set's file, and one for the next, take turns.
	setA, setB = Dir + "/set-a.json", Dir + "/set-b.json"

	// maxState bounds a file of the store's state, in bytes.
	maxState = 256 << 20
)

var errPending = errors.New("a change is pending; keep or restore it first")

// A journal names the files of the old and the new set; From is empty for none.
type journal struct {
	From string `json:"from,omitempty"`
	To   string `json:"to"`
}

// stored is a set as its file has it.
type stored struct {
	Set    Set    `json:"set"`
	Record []byte `json:"record,omitempty"`
	// Staging is a random key: where the set's entries are staged.
	Staging string `json:"staging,omitempty"`
	// Baselines is what lay at each path before a set touched it: of the set's, and of the
	// set before.
	Baselines Set `json:"baselines,omitempty"`
}

// state is all that the store's folder says.
type state struct {
	current string   // the current set's file, "" for none
	journal *journal // nil where nothing is pending
	kept    stored   // the current set
	next    stored   // the journal's new set
}

// A Store changes a set of files as one step. One process may use it at a time, and from
// one goroutine.
type Store struct {
	fs     FS
	synced map[string]bool // folders whose names, up to the root, are on the disk
}

// Open opens the store and makes its folder where it is missing. It changes nothing else:
// the caller calls Discard at its start.
func Open(fsys FS) (*Store, error) {
	s := &Store{fsys, map[string]bool{}}
	if err := s.makeFolder(Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store of configuration files: %w", err)
	}
	return s, nil
}

// Current is the set that was kept last, with its record; nil for none. Begin does not
// change it, Keep does.
func (s *Store) Current() (set Set, record []byte, err error) {
	st, err := s.read()
	return st.kept.Set, st.kept.Record, err
}

// Pending says whether a set was begun and neither kept nor discarded, and gives its record.
func (s *Store) Pending() (record []byte, pending bool, err error) {
	st, err := s.read()
	return st.next.Record, st.journal != nil, err
}

// Changes is the paths that Begin would change.
func (s *Store) Changes(next Set) ([]string, error) {
	st, err := s.read()
	if err != nil {
		return nil, err
	}
	changes, _, err := s.plan(st, next)
	if err != nil {
		return nil, fmt.Errorf("compare files with the next set: %w", err)
	}
	return paths(changes), nil
}

// Begin makes the files as next says, and gives the paths that it changed. What the
// current set has and next lacks goes back to its baseline. The record is opaque and kept
// with the set.
//
// An error before the journal is written leaves the files as they were; after one behind
// it they were restored, or the error says why not and Discard can be tried again.
// Folders that were made stay, empty or not.
func (s *Store) Begin(next Set, record []byte) (changed []string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("change files: %w", err)
		}
	}()
	st, err := s.read()
	if err != nil {
		return nil, err
	}
	if st.journal != nil {
		return nil, errPending
	}
	if err := s.clean(st); err != nil {
		return nil, err
	}
	changes, base, err := s.plan(st, next)
	if err != nil {
		return nil, err
	}
	key := rand.Text()
	j := journal{From: st.current, To: setA}
	if j.From == setA {
		j.To = setB
	}
	// The set comes before anything is staged: clean finds by it what a power cut left.
	for _, step := range []func() error{
		func() error { return s.save(j.To, stored{next, record, key, base}) },
		func() error { return each(changes, key, s.stage) },
		func() error { return s.save(Journal, j) },
		func() error { return each(changes, key, s.swap) },
		func() error { return s.syncFolders(changes) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.Discard())
		}
	}
	return paths(changes), nil
}

// Keep makes the set that was begun the current one. Afterwards Restore no longer goes
// back.
func (s *Store) Keep() error {
	st, err := s.read()
	if err != nil {
		return err
	}
	if st.journal == nil {
		return errors.New("keep files: no change is pending")
	}
	// One rename: the set becomes current and the journal goes.
	err = s.fs.Rename(Journal, current)
	if err == nil {
		err = s.fs.SyncDir(Dir)
	}
	if err != nil {
		return fmt.Errorf("keep files: %w", err)
	}
	st.current, st.journal = st.journal.To, nil
	_ = s.clean(st) // kept all the same; the next Begin cleans again
	return nil
}

// Restore goes back to the files before Begin, and gives the paths that differ between the
// two sets. The change stays pending until Discard, so that who is killed before it acted
// on the paths has them again. Where nothing is pending it only removes what a power cut
// left of a Begin. A path that cannot be restored (a folder was made there) is an error;
// the others are restored.
func (s *Store) Restore() (changed []string, err error) {
	st, err := s.read()
	if err == nil {
		changed, err = s.restore(st)
	}
	return changed, err
}

// Discard is Restore, and ends the change.
func (s *Store) Discard() error {
	st, err := s.read()
	if err != nil {
		return err
	}
	if _, err := s.restore(st); err != nil || st.journal == nil {
		return err
	}
	if err = s.fs.Remove(Journal); err == nil {
		err = s.fs.SyncDir(Dir)
	}
	if err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	st.journal = nil
	_ = s.clean(st) // restored all the same; the next Begin cleans again
	return nil
}

func (s *Store) restore(st state) (changed []string, err error) {
	if err := s.clean(st); err != nil || st.journal == nil {
		return nil, err
	}
	// Both have the same paths.
	wanted, err := over(st.next.Set, st.kept.Set, st.next.Baselines)
	if err != nil {
		return nil, fmt.Errorf("restore files: %w", err)
	}
	undone, err := over(st.kept.Set, st.next.Set, st.next.Baselines)
	if err != nil {
		return nil, fmt.Errorf("restore files: %w", err)
	}
	for i, e := range wanted {
		if !same(e, undone[i]) {
			changed = append(changed, e.Path)
		}
	}
	changes, blocked := s.differing(wanted)
	for _, e := range changes {
		at := stagedAt(st.next.Staging+restoring, e.Path)
		err := s.stage(e, at)
		if err == nil {
			err = s.swap(e, at)
		}
		blocked = errors.Join(blocked, err)
	}
	// All folders: a Restore that was killed may have renamed without a sync.
	if err = errors.Join(s.syncFolders(wanted), blocked); err != nil {
		return changed, fmt.Errorf("restore files: %w", errors.Join(err, s.clean(st)))
	}
	return changed, nil
}

// each does an act with each entry and where it is staged, until one fails.
func each(set Set, key string, act func(e Entry, at string) error) error {
	for _, e := range set {
		if err := act(e, stagedAt(key, e.Path)); err != nil {
			return err
		}
	}
	return nil
}

// Drift is the paths of the current set where something else lies now. While a change is
// pending it is an error.
func (s *Store) Drift() ([]string, error) {
	st, err := s.read()
	if err != nil {
		return nil, err
	}
	if st.journal != nil {
		return nil, fmt.Errorf("compare files with the current set: %w", errPending)
	}
	var drift []string
	for _, e := range st.kept.Set {
		found, err := s.observe(e.Path)
		switch {
		case blocks(err) || err == nil && !same(found, e):
			drift = append(drift, e.Path)
		case err != nil:
			return nil, err
		}
	}
	return drift, nil
}

// Forget drops the current set and all baselines and leaves the files: what lies there
// now is the baseline of later sets.
func (s *Store) Forget() error {
	st, err := s.read()
	if err != nil {
		return err
	}
	if st.journal != nil {
		return fmt.Errorf("forget files: %w", errPending)
	}
	_, err = s.remove(current)
	if err == nil {
		err = s.fs.SyncDir(Dir)
	}
	if err != nil {
		return fmt.Errorf("forget files: %w", err)
	}
	return s.clean(state{})
}

// read reads the store's state.
func (s *Store) read() (st state, err error) {
	var last, open journal
	if _, err := s.load(current, &last); err != nil {
		return state{}, err
	}
	if st.current = last.To; st.current != "" {
		if err := s.loadSet(st.current, &st.kept); err != nil {
			return state{}, err
		}
	}
	if ok, err := s.load(Journal, &open); err != nil || !ok {
		return st, err
	}
	st.journal = &open
	return st, s.loadSet(open.To, &st.next)
}

// loadSet is load of a file that has to be there.
func (s *Store) loadSet(name string, into *stored) error {
	ok, err := s.load(name, into)
	if err == nil && !ok {
		err = fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	return err
}

// load reads a file of the store's folder, if it exists.
func (s *Store) load(name string, into any) (ok bool, err error) {
	text, _, err := s.fs.ReadFile(name, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}

// save replaces a file of the store's folder; on the disk when it returns.
func (s *Store) save(name string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = s.fs.Create(temp(name), text, 0o600, 0, 0)
	}
	if err == nil {
		err = s.fs.Sync(temp(name))
	}
	if err == nil {
		err = s.fs.Rename(temp(name), name)
	}
	if err == nil {
		err = s.fs.SyncDir(Dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// clean removes staged files, and the set that neither the journal nor current names.
// Staged files lie beside paths of a set whose file is there.
func (s *Store) clean(st state) error {
	// What was read has to be on the disk before what it made unused goes.
	if err := s.fs.SyncDir(Dir); err != nil {
		return fmt.Errorf("clean %s: %w", Dir, err)
	}
	var staged Set
	var unused, keys []string
	for _, name := range []string{setA, setB} {
		var set stored
		ok, err := s.load(name, &set)
		if err != nil {
			return err
		}
		staged, keys = append(staged, set.Set...), append(keys, set.Staging, set.Staging+restoring)
		if ok && name != st.current && st.journal == nil {
			unused = append(unused, name)
		}
	}
	unused = append(unused, temp(setA), temp(setB), temp(Journal))
	var touched Set
	for _, e := range staged {
		for _, key := range keys {
			at := stagedAt(key, e.Path)
			if info, err := s.fs.Lstat(at); errors.Is(err, ErrUnsafe) || err == nil && info.Mode.IsDir() {
				continue // of who owns the folder
			}
			ok, err := s.remove(at)
			if err != nil {
				return err
			}
			if ok {
				touched = append(touched, e)
			}
		}
	}
	if err := s.syncFolders(touched); err != nil {
		return err
	}
	for _, name := range unused {
		if _, err := s.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// remove removes what need not be there.
func (s *Store) remove(name string) (ok bool, err error) {
	_, err = s.fs.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = s.fs.Remove(name)
	}
	if err != nil {
		return false, fmt.Errorf("remove unused file: %w", err)
	}
	return true, nil
}

func paths(set Set) []string {
	var names []string
	for _, e := range set {
		names = append(names, e.Path)
	}
	return names
}

func (set Set) find(name string) (Entry, bool) {
	i := slices.IndexFunc(set, func(e Entry) bool { return e.Path == name })
	if i < 0 {
		return Entry{}, false
	}
	return set[i], true
}
