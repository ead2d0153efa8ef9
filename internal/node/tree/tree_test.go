package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newTree builds a tree; values beginning with "->" are links.
func newTree(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(content), 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func TestResolve(t *testing.T) {
	tr := newTree(t, map[string]string{
		"etc/os-release": "->../usr/lib/os-release", "usr/lib/os-release": "x",
		"var/run": "->/run", "run/x": "x", "lib": "->usr/lib",
		"up": "->../../../../../usr/lib", "self": "->self", "a": "->b", "b": "->a",
		"srv/deep": "->/var/run", "dangling": "->/none/there",
	})
	for _, c := range []struct {
		name, want string
		follow     bool
		err        error
	}{
		{"/etc/os-release", "usr/lib/os-release", true, nil},
		{"/etc/os-release", "etc/os-release", false, nil},
		{"/var/run/x", "run/x", true, nil},
		{"lib/os-release", "usr/lib/os-release", false, nil},
		{"up/os-release", "usr/lib/os-release", false, nil},
		{"../../etc/../usr", "usr", true, nil},
		{"srv/deep/x", "run/x", true, nil},
		{"/", ".", true, nil},
		{"", ".", true, nil},
		{"usr/none", "usr/none", true, nil},
		{"usr/none/below", "", true, fs.ErrNotExist},
		{"run/x/below", "", true, fs.ErrNotExist},
		{"dangling", "", true, fs.ErrNotExist},
	} {
		got, err := tr.Resolve(c.name, c.follow)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
	for _, name := range []string{"self", "a", "b/x"} {
		if _, err := tr.Resolve(name, true); err == nil {
			t.Errorf("%q resolves, and is a loop", name)
		}
	}
}

func TestGlob(t *testing.T) {
	tr := newTree(t, map[string]string{
		"home/a/.bash_history": "x", "home/b/.zsh_history": "x", "home/c": "->/home/a", "home/file": "x", "etc/x.conf": "x", "etc/loop": "->loop",
	})
	for pattern, want := range map[string][]string{
		"/home/*/.*_history":    {"home/a/.bash_history", "home/b/.zsh_history"},
		"/etc/*.conf":           {"etc/x.conf"},
		"/etc/loop/*":           nil,
		"/none/*/x":             nil,
		"/home/file/x":          nil,
		"/home/c/.bash_*":       {"home/a/.bash_history"},
		"/home/c":               {"home/c"},
		"etc/[":                 nil,
		"/home/c/../b/.zsh_hi*": {"home/b/.zsh_history"},
	} {
		got, err := tr.Glob(pattern)
		if (err != nil) != (pattern == "etc/[") || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", pattern, got, err, want)
		}
	}
}

func TestRemoveTakesTheLinkNotItsTarget(t *testing.T) {
	tr := newTree(t, map[string]string{"etc/link": "->/srv", "srv/x": "content", "srv/sub/y": "more"})
	for _, c := range []struct {
		name string
		want Count
	}{{"etc/link", Count{Paths: 1}}, {"srv", Count{Paths: 4, Bytes: 11}}, {"srv", Count{}}, {"none/below", Count{}}} {
		got, err := tr.Remove(c.name)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
		if c.name == "etc/link" {
			if ok, err := tr.Exists("srv/x"); err != nil || !ok {
				t.Errorf("the link's target is gone: %v, %v", ok, err)
			}
		}
	}
	if _, err := tr.Remove("/"); err == nil {
		t.Error("the top was removed")
	}
}

// What is shredded is overwritten in place: another name of the same file,
// which stands for its blocks, shows zeros.
func TestShredOverwrites(t *testing.T) {
	tr := newTree(t, map[string]string{"keys/a": strings.Repeat("secret", 50000)})
	other := filepath.Join(t.TempDir(), "blocks")
	if err := os.Link(filepath.Join(tr.Dir(), "keys/a"), other); err != nil {
		t.Skipf("NOT TESTED: no hard link to a file outside: %v", err)
	}
	if n, err := tr.Shred("keys"); err != nil || n.Bytes != 300000 || n.Paths != 2 {
		t.Fatalf("%+v, %v", n, err)
	}
	data, err := os.ReadFile(other)
	if err != nil || len(data) != 300000 || strings.Trim(string(data), "\x00") != "" {
		t.Errorf("%d bytes, %v: not overwritten", len(data), err)
	}
}

func TestWriteKeepsModeAndFollowsWithin(t *testing.T) {
	tr := newTree(t, map[string]string{"etc/hosts": "->/srv/hosts", "srv/hosts": "old"})
	if err := tr.WriteFile("etc/hosts", []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := tr.Stat("srv/hosts")
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v; want it kept", info.Mode(), err)
	}
	if got, err := tr.ReadFile("srv/hosts", 10); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
	if entries, err := tr.ReadDir("srv"); err != nil || len(entries) != 1 {
		t.Errorf("left over: %v, %v", entries, err)
	}
	if err := tr.MkdirAll("var/log/x", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tr.WriteFile("var/log/x/new", nil, 0o604); err != nil {
		t.Fatal(err)
	}
	if info, err := tr.Stat("var/log/x/new"); err != nil || info.Mode().Perm() != 0o604 {
		t.Errorf("mode of a new file: %v", err)
	}
	if err := tr.WriteFile("srv", nil, 0o600); !errors.Is(err, ErrNotRegular) {
		t.Errorf("writing a folder: %v", err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	tr := newTree(t, map[string]string{"x": "12345"})
	if _, err := tr.ReadFile("x", 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if _, err := tr.ReadFile("/", 4); !errors.Is(err, ErrNotRegular) {
		t.Errorf("%v, want ErrNotRegular", err)
	}
}

// No path, whatever links lie on it, resolves to something outside.
func FuzzResolve(f *testing.F) {
	f.Add("a/b", "../..", "/c")
	f.Add("../x", "/../..", ".")
	f.Fuzz(func(t *testing.T, name, one, two string) {
		dir := t.TempDir()
		if strings.ContainsRune(one+two, 0) || one == "" || two == "" || len(one)+len(two) > 1000 {
			return
		}
		if err := errors.Join(os.Symlink(one, filepath.Join(dir, "a")), os.Symlink(two, filepath.Join(dir, "b"))); err != nil {
			return
		}
		tr, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tr.Close() }()
		got, err := tr.Resolve(name, true)
		if err == nil && (strings.HasPrefix(got, "/") || got == ".." || strings.HasPrefix(got, "../")) {
			t.Errorf("%q resolves to %q", name, got)
		}
	})
}
