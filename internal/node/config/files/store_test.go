//go:build unix

package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/config/files"
)

// open returns a store on the real file system below a new folder, and that folder.
func open(t *testing.T) (*files.Store, string) {
	t.Helper()
	root := t.TempDir()
	return openAt(t, root), root
}

func openAt(t *testing.T, root string) *files.Store {
	t.Helper()
	fsys, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := files.Open(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, root, name, content string, mode fs.FileMode) {
	t.Helper()
	full := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(full, mode); err != nil {
		t.Fatal(err)
	}
}

// list is all files and links below root but the store's own: "/a 0644 content".
func list(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(full, root)
		if err != nil {
			return err
		}
		if name == files.Dir {
			return fs.SkipDir
		}
		info, err := d.Info()
		switch {
		case err != nil || d.IsDir():
			return err
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(full)
			found = append(found, name+" -> "+target)
			return err
		}
		content, err := os.ReadFile(full)
		found = append(found, name+" "+info.Mode().String()+" "+string(content[:min(len(content), 20)]))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expect(t *testing.T, root string, want ...string) {
	t.Helper()
	if got := list(t, root); !slices.Equal(got, want) {
		t.Errorf("found:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func begin(t *testing.T, s *files.Store, set files.Set, want ...string) {
	t.Helper()
	planned, err := s.Changes(set)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Begin(set, []byte("record"))
	if err != nil || !slices.Equal(got, want) || !slices.Equal(planned, want) {
		t.Fatalf("changed %v, planned %v, %v; want %v", got, planned, err, want)
	}
}

func keep(t *testing.T, s *files.Store) {
	t.Helper()
	if err := s.Keep(); err != nil {
		t.Fatal(err)
	}
}

func TestAllKindsThereAndBack(t *testing.T) {
	s, root := open(t)
	write(t, root, "/etc/changed", "image", 0o640)
	write(t, root, "/etc/removed", "image", 0o4755)
	write(t, root, "/etc/mode", "image", 0o644)
	write(t, root, "/usr/lib/same", "same", 0o644)
	for link, target := range map[string]string{"/etc/link": "/usr/lib/same", "/lib": "/usr/lib"} {
		if err := os.Symlink(target, root+link); err != nil {
			t.Fatal(err)
		}
	}
	image := list(t, root)
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(root+"/usr/lib/same", long, long); err != nil {
		t.Fatal(err)
	}
	next := files.Set{
		file("/etc/changed", "next", 0o600), file("/etc/link", "now a file", 0o644), file("/etc/mode", "image", 0o400),
		{Path: "/etc/removed", Absent: true}, file("/lib/new", "through a link", 0o644), file("/lib/same", "same", 0o644),
		{Path: "/opt/a/b/link", Link: "../nowhere"}, {Path: "/srv/none", Absent: true},
	}
	changes := []string{"/etc/changed", "/etc/link", "/etc/mode", "/etc/removed", "/lib/new", "/opt/a/b/link"}
	made := []string{
		"/etc/changed -rw------- next", "/etc/link -rw-r--r-- now a file", "/etc/mode -r-------- image", "/lib -> /usr/lib",
		"/opt/a/b/link -> ../nowhere", "/usr/lib/new -rw-r--r-- through a link", "/usr/lib/same -rw-r--r-- same",
	}
	begin(t, s, next, changes...)
	expect(t, root, made...)
	if _, err := s.Begin(nil, nil); err == nil || !strings.Contains(err.Error(), "pending") {
		t.Errorf("a second Begin: %v", err)
	}
	if set, record, err := s.Current(); set != nil || record != nil || err != nil {
		t.Errorf("current before Keep: %v, %q, %v", set, record, err)
	}

	// Another process, after a crash.
	s = openAt(t, root)
	if _, pending, err := s.Pending(); err != nil || !pending {
		t.Errorf("pending %v, %v", pending, err)
	}
	if got, err := s.Restore(); err != nil || !slices.Equal(got, changes) {
		t.Errorf("restored %v, %v", got, err)
	}
	expect(t, root, image...)
	// Whoever was killed before it acted on them has the paths again.
	if got, err := s.Restore(); err != nil || !slices.Equal(got, changes) {
		t.Errorf("restored again %v, %v", got, err)
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	if got, err := s.Restore(); err != nil || got != nil {
		t.Errorf("restored again: %v, %v", got, err)
	}
	if err := s.Keep(); err == nil {
		t.Error("kept what was restored")
	}

	begin(t, s, next, changes...)
	keep(t, s)
	expect(t, root, made...)
	set, record, err := s.Current()
	if err != nil || len(set) != len(next) || string(record) != "record" {
		t.Errorf("current %v, %q, %v", set, record, err)
	}
	begin(t, s, next)
	keep(t, s)
	if info, err := os.Stat(root + "/usr/lib/same"); err != nil || !info.ModTime().Equal(long) {
		t.Errorf("a file that was as wanted was written: %v, %v", info, err)
	}
	begin(t, s, next[:1], changes[1:]...)
	keep(t, s)
	begin(t, s, nil, "/etc/changed")
	keep(t, s)
	expect(t, root, image...)
}

func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: other owners need root")
	}
	s, root := open(t)
	write(t, root, "/etc/a", "image", 0o644)
	if err := os.Chown(root+"/etc/a", 11, 12); err != nil {
		t.Fatal(err)
	}
	owner := func(uid, gid uint32) {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Lstat(root+"/etc/a", &st); err != nil || st.Uid != uid || st.Gid != gid {
			t.Errorf("owner %d:%d, %v; want %d:%d", st.Uid, st.Gid, err, uid, gid)
		}
	}
	begin(t, s, files.Set{{Path: "/etc/a", Content: []byte("image"), Mode: 0o644, UID: 21, GID: 22}}, "/etc/a")
	keep(t, s)
	owner(21, 22)
	begin(t, s, nil, "/etc/a")
	keep(t, s)
	owner(11, 12)
}

func TestDrift(t *testing.T) {
	s, root := open(t)
	set := files.Set{
		file("/a", "a", 0o644), file("/b", "b", 0o644), file("/c", "c", 0o644), file("/d", "d", 0o644), file("/e", "e", 0o644), {Path: "/f", Absent: true},
	}
	begin(t, s, set, "/a", "/b", "/c", "/d", "/e")
	if drift, err := s.Drift(); err == nil {
		t.Errorf("drift while pending: %v", drift)
	}
	keep(t, s)
	if drift, err := s.Drift(); err != nil || drift != nil {
		t.Errorf("drift %v, %v; want none", drift, err)
	}
	write(t, root, "/a", strings.Repeat("a", 2<<20), 0o644)
	write(t, root, "/f", "f", 0o644)
	err := errors.Join(os.Remove(root+"/b"), os.Mkdir(root+"/b", 0o755), os.Chmod(root+"/c", 0o600), os.Remove(root+"/d"))
	if err != nil {
		t.Fatal(err)
	}
	drift, err := s.Drift()
	if want := []string{"/a", "/b", "/c", "/d", "/f"}; err != nil || !slices.Equal(drift, want) {
		t.Errorf("drift %v, %v; want %v", drift, err, want)
	}
	if err := os.Remove(root + "/b"); err != nil {
		t.Fatal(err)
	}
	begin(t, s, set, "/a", "/b", "/c", "/d", "/f")
	keep(t, s)
	expect(t, root, "/a -rw-r--r-- a", "/b -rw-r--r-- b", "/c -rw-r--r-- c", "/d -rw-r--r-- d", "/e -rw-r--r-- e")
}

// What was changed by hand while no set had it is the baseline of the next set.
func TestBaselineIsFromBeforeTheSet(t *testing.T) {
	s, root := open(t)
	write(t, root, "/a", "image", 0o644)
	begin(t, s, files.Set{file("/a", "set", 0o644)}, "/a")
	keep(t, s)
	begin(t, s, nil, "/a")
	keep(t, s)
	write(t, root, "/a", "by hand", 0o644)
	begin(t, s, files.Set{file("/a", "set", 0o644)}, "/a")
	keep(t, s)
	begin(t, s, nil, "/a")
	expect(t, root, "/a -rw-r--r-- by hand")
}

func TestForget(t *testing.T) {
	s, root := open(t)
	write(t, root, "/a", "image", 0o644)
	begin(t, s, files.Set{file("/a", "first", 0o644), file("/b", "first", 0o644)}, "/a", "/b")
	if err := s.Forget(); err == nil {
		t.Error("forgot while a change is pending")
	}
	keep(t, s)
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	expect(t, root, "/a -rw-r--r-- first", "/b -rw-r--r-- first")
	if set, record, err := s.Current(); set != nil || record != nil || err != nil {
		t.Errorf("current after Forget: %v, %q, %v", set, record, err)
	}
	begin(t, s, files.Set{file("/a", "second", 0o644)}, "/a")
	keep(t, s)
	begin(t, s, nil, "/a")
	keep(t, s)
	expect(t, root, "/a -rw-r--r-- first", "/b -rw-r--r-- first")
}

// What cannot be changed is an error that names the path, and nothing is touched.
func TestRefused(t *testing.T) {
	s, root := open(t)
	write(t, root, "/etc/file", "image", 0o644)
	write(t, root, "/etc/large", strings.Repeat("x", 1<<20+1), 0o644)
	if err := errors.Join(os.Mkdir(root+"/etc/folder", 0o755), unix.Mkfifo(root+"/etc/fifo", 0o644), os.Symlink("/gone", root+"/etc/broken")); err != nil {
		t.Fatal(err)
	}
	first := file("/etc/a", "would be changed first", 0o644)
	for name, c := range map[string]struct {
		set  files.Set
		want string
	}{
		"folder":          {files.Set{first, file("/etc/folder", "x", 0o644)}, "/etc/folder: a folder"},
		"device":          {files.Set{first, file("/etc/fifo", "x", 0o644)}, "/etc/fifo: a folder or a device"},
		"parent":          {files.Set{first, file("/etc/file/x", "x", 0o644)}, "/etc/file/x: its parent /etc/file is no folder"},
		"parent of more":  {files.Set{first, file("/etc/file/x/y/z", "x", 0o644)}, "its parent /etc/file is no folder"},
		"broken parent":   {files.Set{first, file("/etc/broken/x", "x", 0o644)}, "/etc/broken"},
		"baseline":        {files.Set{first, file("/etc/large", "x", 0o644)}, "/etc/large: "},
		"content":         {files.Set{first, file("/etc/new", strings.Repeat("x", 1<<20+1), 0o644)}, "/etc/new: 1048577 bytes"},
		"file and parent": {files.Set{first, file("/etc/a/b", "x", 0o644)}, "/etc/a/b: its parent /etc/a"},
		"twice":           {files.Set{first, first}, "/etc/a: "},
		"not sorted":      {files.Set{file("/etc/b", "x", 0o644), first}, "/etc/a: "},
		"not clean":       {files.Set{file("/etc/../etc/a", "x", 0o644)}, "/etc/../etc/a"},
		"not absolute":    {files.Set{file("etc/a", "x", 0o644)}, "etc/a"},
		"the store's own": {files.Set{file(files.Journal, "x", 0o644)}, files.Journal},
	} {
		t.Run(name, func(t *testing.T) {
			_, changes := s.Changes(c.set)
			got, err := s.Begin(c.set, nil)
			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("changed %v, %v; want an error with %q", got, err, c.want)
			}
			// A broken parent shows when its folder is made.
			if changes == nil && name != "broken parent" {
				t.Error("Changes does not refuse it")
			}
			if _, pending, err := s.Pending(); pending || err != nil {
				t.Errorf("pending %v, %v", pending, err)
			}
			if _, err := os.Lstat(root + "/etc/a"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a path before it was changed: %v", err)
			}
		})
	}
	begin(t, s, files.Set{first}, "/etc/a")
}

// A store that lost a part of its state says which, and changes nothing.
func TestLostState(t *testing.T) {
	s, root := open(t)
	begin(t, s, files.Set{file("/a", "first", 0o644)}, "/a")
	keep(t, s)
	begin(t, s, files.Set{file("/b", "second", 0o644)}, "/a", "/b")
	if err := os.Remove(root + files.Dir + "/set-b.json"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Restore(); got != nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "set-b.json") {
		t.Errorf("restored %v, %v", got, err)
	}
	expect(t, root, "/b -rw-r--r-- second")
}

// Where one path cannot be restored, the others are, and the change stays pending until
// it can.
func TestRestoreIsBlocked(t *testing.T) {
	s, root := open(t)
	write(t, root, "/a", "image", 0o644)
	write(t, root, "/b", "image", 0o644)
	begin(t, s, files.Set{file("/a", "next", 0o644), file("/b", "next", 0o644)}, "/a", "/b")
	if err := errors.Join(os.Remove(root+"/a"), os.Mkdir(root+"/a", 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(); err == nil || !strings.Contains(err.Error(), "/a: a folder") {
		t.Errorf("restored: %v", err)
	}
	if _, pending, err := s.Pending(); err != nil || !pending {
		t.Errorf("pending %v, %v", pending, err)
	}
	expect(t, root, "/b -rw-r--r-- image")
	if err := os.Remove(root + "/a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	expect(t, root, "/a -rw-r--r-- image", "/b -rw-r--r-- image")
}

// Links that lead out of the root lead to its own paths, as after a chroot.
func TestStaysBelowTheRoot(t *testing.T) {
	s, root := open(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, root+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root+outside, 0o755); err != nil {
		t.Fatal(err)
	}
	begin(t, s, files.Set{file("/link/a", "a", 0o644)}, "/link/a")
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if _, err := os.Stat(root + outside + "/a"); err != nil {
		t.Error(err)
	}
}

// failing is an FS of which one operation fails.
type failing struct {
	files.FS
	after, count int // the operation that fails; 0 for none
	ever         bool
}

func (f *failing) fail() error {
	f.count++
	if f.after > 0 && (f.count == f.after || f.ever && f.count > f.after) {
		return syscall.ENOSPC
	}
	return nil
}

func (f *failing) Create(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	if err := f.fail(); err != nil {
		// A full disk leaves a part.
		return errors.Join(err, f.FS.Create(name, content[:len(content)/2], mode, uid, gid))
	}
	return f.FS.Create(name, content, mode, uid, gid)
}

func (f *failing) Sync(name string) error { return errors.Join(f.fail(), f.FS.Sync(name)) }

func (f *failing) Symlink(target, name string) error {
	return errors.Join(f.fail(), f.FS.Symlink(target, name))
}

func (f *failing) Rename(from, to string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *failing) Remove(name string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *failing) SyncDir(name string) error { return errors.Join(f.fail(), f.FS.SyncDir(name)) }

// Whichever operation of a Begin fails, the files are as they were when it returns, or,
// where all later operations fail too, once Restore is tried again.
func TestAnyOperationFails(t *testing.T) {
	before := view(machine(t, first))
	for _, ever := range []bool{false, true} {
		for after := 1; ; after++ {
			m := machine(t, first)
			f := &failing{FS: m, ever: ever}
			s, err := files.Open(f)
			if err != nil {
				t.Fatal(err)
			}
			f.after, f.count = after, 0
			if _, err = s.Begin(second, []byte("new")); err == nil {
				t.Logf("each of %d operations failed", after-1)
				if after < 20 {
					t.Error("too few")
				}
				break
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("operation %d: %v", after, err)
			}
			f.after = 0
			if ever {
				if err := s.Discard(); err != nil {
					t.Errorf("operation %d: restore again: %v", after, err)
				}
			}
			if _, pending, err := s.Pending(); pending || err != nil {
				t.Errorf("operation %d: pending %v, %v", after, pending, err)
			}
			if got := view(m); got != before {
				t.Errorf("operation %d:\n%swant:\n%s", after, got, before)
			}
			if got := m.live.String(); strings.Contains(got, "/.") {
				t.Errorf("operation %d left staged files:\n%s", after, got)
			}
			if err := apply(m, second, "new"); err != nil {
				t.Errorf("operation %d: next apply: %v", after, err)
			}
		}
	}
}
