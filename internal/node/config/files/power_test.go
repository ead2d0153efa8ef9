package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/ortet/ortet/internal/node/config/files"
)

// Six paths: a new file, a changed one, a removed one, a link, a file in a new folder, and
// a mode alone.
const (
	newFile  = "/etc/app/new.conf"
	changed  = "/etc/app/changed.conf"
	removed  = "/etc/other/removed.conf"
	link     = "/etc/systemd/system/multi-user.target.wants/a.service"
	inFolder = "/opt/app/conf.d/a.conf"
	modeOnly = "/etc/sysctl.d/90-a.conf"
)

var six = []string{changed, newFile, removed, modeOnly, link, inFolder}

func file(name, content string, mode fs.FileMode) files.Entry {
	return files.Entry{Path: name, Content: []byte(content), Mode: mode}
}

// image is what lay there before the first set.
var image = []files.Entry{file(changed, "image", 0o640), file(removed, "image", 0o644), file(modeOnly, "a=1", 0o644)}

// first and second are sets of which the second makes all six changes of the first or of
// the image; third is one for afterwards.
var (
	first = files.Set{
		file(changed, "first", 0o600), file(removed, "first", 0o644), file(modeOnly, "a=1", 0o644),
		{Path: link, Link: "/etc/systemd/system/old.service"},
	}
	second = files.Set{
		file(changed, "second", 0o600), file(newFile, "second", 0o644), {Path: removed, Absent: true}, file(modeOnly, "a=1", 0o600),
		{Path: link, Link: "/etc/systemd/system/a.service"}, {Path: inFolder, Content: []byte("second"), Mode: 0o644, UID: 7, GID: 8},
	}
	third = files.Set{file(changed, "third", 0o600), {Path: newFile, Link: "third"}, file(inFolder, "third", 0o600)}
)

// view is the six paths as text.
func view(m *memory) string {
	var text strings.Builder
	for _, name := range six {
		n, err := m.find(name)
		if err != nil {
			fmt.Fprintf(&text, "%s absent\n", name)
			continue
		}
		i := m.live[n]
		fmt.Fprintf(&text, "%s %v %d:%d %q %q\n", name, i.mode, i.uid, i.gid, i.link, i.content)
	}
	return text.String()
}

// machine is a disk with the image's files, and with a set that was kept if one is given.
func machine(t *testing.T, set files.Set) *memory {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1) // equal disks have equal names for what is staged
	m := newMemory(disk{1: {mode: fs.ModeDir | 0o755, entries: map[string]int{}}})
	for _, e := range image {
		dir := ""
		for part := range strings.SplitSeq(path.Dir(e.Path)[1:], "/") {
			dir += "/" + part
			if err := m.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
		if err := m.Create(e.Path, e.Content, e.Mode, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if set != nil {
		if err := apply(m, set, "kept before"); err != nil {
			t.Fatal(err)
		}
	}
	return newMemory(m.live)
}

func apply(m *memory, set files.Set, record string) error {
	s, err := files.Open(m)
	if err != nil {
		return err
	}
	if _, err := s.Begin(set, []byte(record)); err != nil {
		return err
	}
	return s.Keep()
}

// expectation is what has to lie there once recovery has run.
type expectation int

const (
	old expectation = iota
	either
	all // the new
)

// search cuts the power at every step and checks the disks that can be left.
type search struct {
	image, before, after string // views
	cuts, tried, states  int    // subsets of changes tried, and different disks among them
	most                 int    // changes that waited for a sync at once
	seen                 map[string]bool
}

func newSearch(t *testing.T, kept files.Set) *search {
	s := &search{image: view(machine(t, nil)), before: view(machine(t, kept)), seen: map[string]bool{}}
	m := machine(t, kept)
	if err := apply(m, second, "new"); err != nil {
		t.Fatal(err)
	}
	s.after = view(m)
	return s
}

// survivors checks each disk that m can leave, where at most limit of the changes that
// were not synced are lost, or are the only ones that were written.
func (s *search) survivors(m *memory, want expectation, limit int) error {
	s.cuts++
	s.most = max(s.most, len(m.pending))
	var chosen []int
	try := func() error {
		for _, lost := range []bool{true, false} {
			d := m.survivor(func(i int) bool {
				for _, c := range chosen {
					if c == i {
						return !lost
					}
				}
				return lost
			})
			s.tried++
			key := fmt.Sprint(want, d)
			if s.seen[key] {
				continue
			}
			s.seen[key] = true
			s.states++
			if err := s.check(d.clone(), want, m.skip); err != nil {
				return fmt.Errorf("step %d, changes %v of %d lost %v: %w\n%v", m.steps, chosen, len(m.pending), lost, err, d)
			}
			if limit > 0 {
				if err := s.recoveryCut(d, want, m.skip); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var choose func(from int) error
	choose = func(from int) error {
		if err := try(); err != nil || len(chosen) == limit {
			return err
		}
		for i := from; i < len(m.pending); i++ {
			chosen = append(chosen, i)
			if err := choose(i + 1); err != nil {
				return err
			}
			chosen = chosen[:len(chosen)-1]
		}
		return nil
	}
	return choose(0)
}

// recoveryCut cuts the power again at every step of a disk's recovery; all that was not
// synced is lost, or nothing.
func (s *search) recoveryCut(d disk, want expectation, skip func(string) bool) error {
	for cut := 0; ; cut++ {
		m := newMemory(d.clone())
		m.cut, m.skip = cut, skip
		store, err := files.Open(m)
		if err == nil {
			err = store.Discard()
		}
		if err == nil {
			return nil
		}
		if err := s.survivors(m, want, 0); err != nil {
			return fmt.Errorf("cut in the recovery: %w", err)
		}
	}
}

// check recovers a disk and asserts what an operator would find, and that the store works
// on.
func (s *search) check(d disk, want expectation, skip func(string) bool) error {
	m := newMemory(d)
	m.skip = skip
	store, err := files.Open(m)
	if err != nil {
		return err
	}
	if err := store.Discard(); err != nil {
		return err
	}
	_, record, err := store.Current()
	if err != nil {
		return err
	}
	got, isNew := view(m), string(record) == "new"
	if isNew && want == old || !isNew && want == all {
		return fmt.Errorf("the current set is %q", record)
	}
	if expected := map[bool]string{true: s.after, false: s.before}[isNew]; got != expected {
		return fmt.Errorf("after recovery:\n%swant:\n%s", got, expected)
	}
	sets := 0
	var stale []string
	m.live.walk(1, "/", func(name string, _ inode) {
		if strings.HasPrefix(path.Base(name), ".") {
			stale = append(stale, name)
		}
		if strings.HasPrefix(name, files.Dir+"/set-") {
			sets++
		}
	})
	if len(stale) > 0 || sets > 1 {
		return fmt.Errorf("left after recovery: %v, %d sets", stale, sets)
	}
	if _, pending, err := store.Pending(); pending || err != nil {
		return fmt.Errorf("pending after recovery: %v, %w", pending, err)
	}
	if err := apply(m, third, "third"); err != nil {
		return fmt.Errorf("the next set: %w", err)
	}
	if drift, err := store.Drift(); err != nil || len(drift) > 0 {
		return fmt.Errorf("drift of the next set: %v, %w", drift, err)
	}
	if err := apply(m, nil, "none"); err != nil {
		return fmt.Errorf("the empty set: %w", err)
	}
	m = newMemory(m.survivor(func(int) bool { return false })) // and all of it is on the disk
	if view(m) != s.image {
		return fmt.Errorf("after the empty set:\n%swant:\n%s", view(m), s.image)
	}
	return nil
}

// run cuts at every step of an apply of six files over a kept set, and of a Restore.
func run(t *testing.T, kept files.Set, skip func(string) bool) (*search, error) {
	s := newSearch(t, kept)
	for cut := 0; ; cut++ {
		m := machine(t, kept)
		m.cut, m.skip = cut, skip
		want := old
		store, err := files.Open(m)
		if err == nil {
			_, err = store.Begin(second, []byte("new"))
		}
		if err == nil {
			want = either
			if err = store.Keep(); err == nil {
				want = all
			}
		}
		if err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if err := s.survivors(m, want, 3); err != nil {
			return s, fmt.Errorf("apply: %w", err)
		}
		// The agent alone was killed, the next one restores, and then the power goes.
		kill := m.steps < cut
		m.cut = -1
		if store, err = files.Open(m); err == nil {
			err = store.Discard()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.survivors(m, want, 3); err != nil {
			return s, fmt.Errorf("restored after a kill: %w", err)
		}
		if kill {
			break
		}
	}
	for cut := 0; ; cut++ {
		m := machine(t, kept)
		m.skip = skip
		store, err := files.Open(m)
		if err == nil {
			_, err = store.Begin(second, []byte("new"))
		}
		if err != nil {
			t.Fatal(err)
		}
		m.cut = m.steps + cut
		err = store.Discard()
		if err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if err := s.survivors(m, old, 3); err != nil {
			return s, fmt.Errorf("restore: %w", err)
		}
		done := err == nil
		m.cut = -1
		if store, err = files.Open(m); err == nil {
			err = store.Discard()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.survivors(m, old, 3); err != nil {
			return s, fmt.Errorf("restored after a kill in a restore: %w", err)
		}
		if done {
			return s, nil
		}
	}
}

// A power cut at any moment leaves the old files or the new ones once Restore has run.
func TestPowerCut(t *testing.T) {
	for name, kept := range map[string]files.Set{"over the image": nil, "over a kept set": first} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			s, err := run(t, kept, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d cuts, at most %d changes not synced, %d subsets lost or kept, %d different disks recovered, %v", s.cuts, s.most, s.tried, s.states, time.Since(begun).Round(time.Millisecond))
		})
	}
}

// A power cut while the store forgets leaves the files, and a store that has the set and
// its baselines or neither.
func TestPowerCutWhileForgetting(t *testing.T) {
	image, kept := view(machine(t, nil)), view(machine(t, first))
	forgotten := map[bool]int{}
	for cut, done := 0, false; !done; cut++ {
		m := machine(t, first)
		s, err := files.Open(m)
		if err != nil {
			t.Fatal(err)
		}
		m.cut = m.steps + cut
		err = s.Forget()
		if done = err == nil; !done && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		for chosen := range 1 << len(m.pending) {
			left := newMemory(m.survivor(func(i int) bool { return chosen&(1<<i) != 0 }))
			s, err := files.Open(left)
			if err == nil {
				err = s.Discard()
			}
			if err != nil || view(left) != kept {
				t.Fatalf("cut %d, %b: %v, files:\n%s", cut, chosen, err, view(left))
			}
			set, _, err := s.Current()
			if err != nil || done && set != nil {
				t.Fatalf("cut %d, %b: current set %v, %v", cut, chosen, set, err)
			}
			want := image
			if set == nil {
				want = kept
			}
			if err := errors.Join(apply(left, second, "new"), apply(left, nil, "none")); err != nil || view(left) != want {
				t.Fatalf("cut %d, %b: %v, after the empty set:\n%swant:\n%s", cut, chosen, err, view(left), want)
			}
			forgotten[set == nil]++
		}
	}
	if forgotten[true] == 0 || forgotten[false] == 0 {
		t.Errorf("%v: want disks of both kinds", forgotten)
	}
}

// Without any one of these syncs a power cut leaves a mix, and the search finds it.
func TestPowerCutFindsAMissingSync(t *testing.T) {
	for _, c := range []struct{ name, sync string }{
		{"a staged file", "Sync /etc/app/.*.ortet-config"},
		{"the journal", "Sync " + files.Dir + "/.journal.json.ortet-config"},
		{"the next set", "Sync " + files.Dir + "/.set-a.json.ortet-config"},
		{"the store's folder", "SyncDir " + files.Dir},
		{"a folder of names that changed", "SyncDir /etc/app"},
		{"the parent of a new folder", "SyncDir /opt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := run(t, nil, func(sync string) bool { ok, _ := path.Match(c.sync, sync); return ok })
			if err == nil {
				t.Errorf("%s was skipped, and none of %d disks was a mix", c.sync, s.states)
			}
		})
	}
}
