//go:build unix

package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/config/files"
)

const (
	app   = 65534 // a user who is not root
	other = 65533
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: folders of other users need root; TestHole03OnlyRootLeadsElsewhere has the rule")
	}
}

// usersMachine has a folder of a user's, with a folder conf.d in it, and folders of root's.
func usersMachine(t *testing.T) string {
	t.Helper()
	needRoot(t)
	root := t.TempDir()
	for _, folder := range []string{"/etc/sudoers.d", "/var/lib/app/conf.d"} {
		if err := os.MkdirAll(root+folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own(t, root, app, "/var/lib/app", "/var/lib/app/conf.d")
	return root
}

func own(t *testing.T, root string, uid int, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Lchown(root+name, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
}

// linkTo has a user replace what is empty by a link.
func linkTo(t *testing.T, root string, uid int, target, name string) {
	t.Helper()
	if err := os.Remove(root + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Symlink(target, root+name); err != nil {
		t.Fatal(err)
	}
	own(t, root, uid, name)
}

// nothing says that a folder of root's has nothing.
func nothing(t *testing.T, root, folder string) {
	t.Helper()
	if found, err := os.ReadDir(root + folder); err != nil || len(found) > 0 {
		t.Errorf("%s has %v, %v", folder, found, err)
	}
}

const usersFile = "/var/lib/app/conf.d/x.conf"

// Each path goes from what a user owns to what is another's.
func TestHole03FileBelowAUsersFolder(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		prepare func(t *testing.T, root string)
		path    string
		names   string // what the error names besides
	}{
		"link":                {func(t *testing.T, root string) { linkTo(t, root, app, "/etc/sudoers.d", "/var/lib/app/conf.d") }, usersFile, "/var/lib/app/conf.d belongs to user 65534"},
		"relative link":       {func(t *testing.T, root string) { linkTo(t, root, app, "../../../etc/sudoers.d", "/var/lib/app/conf.d") }, usersFile, "/var/lib/app/conf.d"},
		"folder below a link": {func(t *testing.T, root string) { linkTo(t, root, app, "/etc", "/var/lib/app/c") }, "/var/lib/app/c/sudoers.d/x", "/var/lib/app/c"},
		"link in a folder of all": {func(t *testing.T, root string) {
			if err := errors.Join(os.Mkdir(root+"/srv", 0o777), os.Chmod(root+"/srv", 0o777)); err != nil {
				t.Fatal(err)
			}
			linkTo(t, root, app, "../etc/sudoers.d", "/srv/conf.d")
		}, "/srv/conf.d/x.conf", "/srv/conf.d"},
		"folder of root's":    {func(t *testing.T, root string) { own(t, root, 0, "/var/lib/app/conf.d") }, usersFile, "/var/lib/app/conf.d of user 0"},
		"folder of another's": {func(t *testing.T, root string) { own(t, root, other, "/var/lib/app/conf.d") }, usersFile, "/var/lib/app/conf.d of user 65533"},
		"folder to be made":   {func(*testing.T, string) {}, "/var/lib/app/new/x.conf", "/var/lib/app/new is missing"},
		"file through a link": {func(t *testing.T, root string) { linkTo(t, root, app, "/etc/shadow", "/var/lib/app/link") }, "/var/lib/app/link/x", "/var/lib/app/link"},
		"link of root's to it": {func(t *testing.T, root string) {
			linkTo(t, root, 0, "/var/lib/app/conf.d", "/etc/app")
			own(t, root, 0, "/var/lib/app/conf.d")
		}, "/etc/app/x.conf", "/var/lib/app/conf.d"},
	} {
		t.Run(name, func(t *testing.T) {
			root := usersMachine(t)
			c.prepare(t, root)
			s := openAt(t, root)
			set := files.Set{file("/etc/a", "a", 0o644), file(c.path, "content", 0o440)}
			for what, err := range map[string]error{"Changes": failure(s.Changes(set)), "Begin": failure(s.Begin(set, nil))} {
				if err == nil || !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), c.names) {
					t.Errorf("%s: %v; want an error that names %s and %q", what, err, c.path, c.names)
				}
			}
			nothing(t, root, "/etc/sudoers.d")
			if _, err := os.Lstat(root + "/etc/a"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("another file was written: %v", err)
			}
		})
	}
}

func failure[T any](_ T, err error) error { return err }

// What one user owns all along, and where root leads, is written, and again.
func TestHole03OneOwnersFolderIsWritten(t *testing.T) {
	root := usersMachine(t)
	linkTo(t, root, 0, "/var/lib/app/conf.d", "/etc/app")
	linkTo(t, root, app, "conf.d", "/var/lib/app/own")
	s := openAt(t, root)
	paths := []string{"/etc/app/1", "/var/lib/app/conf.d/2", "/var/lib/app/own/3"}
	for _, content := range []string{"one", "two"} {
		begin(t, s, files.Set{file(paths[0], content, 0o644), file(paths[1], content, 0o644), file(paths[2], content, 0o644)}, paths...)
		keep(t, s)
	}
	begin(t, s, nil, paths...)
	keep(t, s)
	nothing(t, root, "/var/lib/app/conf.d")
}

// A folder that a user makes where the file was staged disturbs nothing.
func TestHole03FolderAtTheTemporaryName(t *testing.T) {
	root := usersMachine(t)
	occupy := func(name string) {
		t.Helper()
		if err := os.MkdirAll(root+name+"/full", 0o755); err != nil {
			t.Fatal(err)
		}
		own(t, root, app, name)
	}
	occupy("/var/lib/app/conf.d/.x.conf.ortet-config")
	machine, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	watched := &watching{FS: machine}
	s, err := files.Open(watched)
	if err != nil {
		t.Fatal(err)
	}
	set := files.Set{file("/etc/a", "a", 0o644), file(usersFile, "content", 0o644)}
	begin(t, s, set, "/etc/a", usersFile)
	// Its name was seen by now.
	for _, name := range watched.created {
		if strings.HasPrefix(name, "/var/lib/app") {
			occupy(name)
		}
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root + usersFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not restored: %v", err)
	}
	begin(t, s, set, "/etc/a", usersFile)
	keep(t, s)
	if text, err := os.ReadFile(root + usersFile); string(text) != "content" {
		t.Errorf("%q, %v", text, err)
	}
}

// watching sees the names at which files are made, and does something before one.
type watching struct {
	files.FS
	created []string
	before  func(name string)
	after   func(name string) // after Lstat
}

func (w *watching) Create(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	w.created = append(w.created, name)
	if w.before != nil {
		w.before(name)
	}
	return w.FS.Create(name, content, mode, uid, gid)
}

func (w *watching) Lstat(name string) (files.Info, error) {
	i, err := w.FS.Lstat(name)
	if w.after != nil {
		w.after(name)
	}
	return i, err
}

// The user waits until the path was judged, and swaps the folder then.
func TestHole03SwapAfterTheCheck(t *testing.T) {
	root := usersMachine(t)
	machine, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{FS: machine}
	s, err := files.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	w.before = func(name string) {
		if filepath.Dir(name) == "/var/lib/app/conf.d" {
			linkTo(t, root, app, "/etc/sudoers.d", "/var/lib/app/conf.d")
		}
	}
	if _, err := s.Begin(files.Set{file("/etc/a", "a", 0o644), file(usersFile, "content", 0o644)}, nil); err == nil || !strings.Contains(err.Error(), usersFile) {
		t.Errorf("begun: %v", err)
	}
	nothing(t, root, "/etc/sudoers.d")
	if _, err := os.Lstat(root + "/etc/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another file stays: %v", err)
	}
}

// A user who swaps the folder while a change is pending, or kept: nothing of root's is
// removed or written, all else is restored, and drift is reported.
func TestHole03SwapBeforeRestore(t *testing.T) {
	for _, kept := range []bool{false, true} {
		root := usersMachine(t)
		write(t, root, "/etc/a", "image", 0o644)
		write(t, root, usersFile, "image", 0o644)
		write(t, root, "/etc/sudoers.d/x.conf", "root's", 0o440)
		s := openAt(t, root)
		begin(t, s, files.Set{file("/etc/a", "next", 0o644), file(usersFile, "next", 0o644)}, "/etc/a", usersFile)
		if kept {
			keep(t, s)
		}
		if err := os.Rename(root+"/var/lib/app/conf.d", root+"/var/lib/app/moved"); err != nil {
			t.Fatal(err)
		}
		linkTo(t, root, app, "/etc/sudoers.d", "/var/lib/app/conf.d")
		if kept {
			if drift, err := s.Drift(); err != nil || !slices.Equal(drift, []string{usersFile}) {
				t.Errorf("drift %v, %v", drift, err)
			}
			if _, err := s.Begin(nil, nil); err == nil || !strings.Contains(err.Error(), usersFile) {
				t.Errorf("begun: %v", err)
			}
		} else {
			if err := s.Discard(); err == nil || !strings.Contains(err.Error(), usersFile) {
				t.Errorf("restored: %v", err)
			}
			if text, _ := os.ReadFile(root + "/etc/a"); string(text) != "image" {
				t.Errorf("/etc/a is %q", text)
			}
		}
		if text, _ := os.ReadFile(root + "/etc/sudoers.d/x.conf"); string(text) != "root's" {
			t.Errorf("root's file is %q", text)
		}
		// The user gives in.
		if err := errors.Join(os.Remove(root+"/var/lib/app/conf.d"), os.Rename(root+"/var/lib/app/moved", root+"/var/lib/app/conf.d")); err != nil {
			t.Fatal(err)
		}
		if kept {
			begin(t, s, nil, "/etc/a", usersFile)
		} else if err := s.Discard(); err != nil {
			t.Error(err)
		}
		expect(t, root, "/etc/a -rw-r--r-- image", "/etc/sudoers.d/x.conf -r--r----- root's", usersFile+" -rw-r--r-- image")
	}
}

// A baseline's mode and owner are those of the file whose content it has: otherwise a user
// swaps a setuid program's hard link for a program of the own, which Restore makes root's.
func TestHole03BaselineIsOfOneFile(t *testing.T) {
	root := usersMachine(t)
	write(t, root, "/usr/bin/su", "root's program", fs.ModeSetuid|0o755)
	if err := os.Link(root+"/usr/bin/su", root+usersFile); err != nil {
		t.Fatal(err)
	}
	machine, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{FS: machine}
	s, err := files.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	w.after = func(name string) {
		if name == usersFile {
			w.after = nil
			if err := os.Remove(root + usersFile); err != nil {
				t.Fatal(err)
			}
			write(t, root, usersFile, "the user's program", 0o755)
			own(t, root, app, usersFile)
		}
	}
	if _, err := s.Begin(files.Set{file(usersFile, "next", 0o644)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(root+usersFile, &st); err != nil || st.Uid != app || st.Mode&0o7777 != 0o755 {
		t.Errorf("restored as user %d's, mode %o, %v", st.Uid, st.Mode&0o7777, err)
	}
}

// A link to a secret, and a FIFO, at the place of a file: neither is read, and nothing waits.
func TestHole03LinkToASecretIsNotRead(t *testing.T) {
	root := usersMachine(t)
	write(t, root, "/etc/shadow", "secret", 0o600)
	machine, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{FS: machine}
	s, err := files.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	for what, swap := range map[string]func() error{
		"link": func() error { return os.Symlink("/etc/shadow", root+usersFile) },
		"FIFO": func() error { return unix.Mkfifo(root+usersFile, 0o644) },
	} {
		write(t, root, usersFile, "the user's", 0o644)
		w.after = func(name string) {
			if name == usersFile {
				w.after = nil
				if err := errors.Join(os.Remove(root+usersFile), swap()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := s.Begin(files.Set{file(usersFile, "next", 0o644)}, nil); err == nil {
			t.Errorf("%s: begun", what)
		}
		state, err := os.ReadDir(root + files.Dir)
		if err != nil || len(state) > 0 {
			t.Errorf("%s: %v, %v", what, state, err)
		}
		if err := os.Remove(root + usersFile); err != nil {
			t.Fatal(err)
		}
	}
}
