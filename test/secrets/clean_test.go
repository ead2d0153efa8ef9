//go:build e2e

package secrets

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/generalize"
)

// cleanTree is a part of a real system that holds no secrets.
type cleanTree struct {
	name string
	root string   // what the system's / is
	dirs []string // within it
	all  bool     // without bounds
}

// A part of this machine takes at most so much: the test is about alarms, not
// speed. A distribution's root is taken whole.
const (
	treeBytes = 120 << 20
	treeFiles = 6_000
	fileBytes = 8 << 20
)

// ownSecrets are the places at which each system has secrets of its own, as patterns.
func ownSecrets() []string {
	return []string{"etc/shadow", "etc/shadow-", "etc/gshadow", "etc/gshadow-", "etc/ssl/private", "etc/ssh/ssh_host_*", "etc/machine-id", "etc/hostname"}
}

// Programs, libraries and documents of distributions raise few alarms.
func TestCleanTrees(t *testing.T) {
	g := newGen(t)
	trees := cleanTrees(t)
	for _, tree := range trees {
		t.Run(tree.name, func(t *testing.T) {
			dir := t.TempDir()
			files, bytes := copyTree(t, tree, dir)
			if files == 0 {
				t.Skipf("NOT RUN: nothing of %v is on this machine", tree.dirs)
			}
			for name, content := range map[string]string{"etc/hostname": donorName + "\n", "etc/os-release": "NAME=x\n", "var/lib/dpkg/status": ""} {
				if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
					write(t, dir, name, []byte(content))
				}
			}
			write(t, dir, canary, g.ecPEM(g.ec()))
			r := generalized(t, dir, func(o *generalize.Options) { o.DryRun = true })
			by := found(r)
			if len(by[canary]) == 0 {
				t.Errorf("/%s was not found: was the tree searched?", canary)
			}
			delete(by, canary)
			var alarms []string
			for at, f := range by {
				alarms = append(alarms, fmt.Sprintf("/%s: %s, %s", at, f[0].Rule, f[0].Detail))
			}
			slices.Sort(alarms)
			t.Logf("%d of %d files (%d MiB) raised an alarm:\n%s", len(by), files, bytes>>20, strings.Join(alarms, "\n"))
			if len(by) > cleanTreeBound {
				t.Errorf("%d files raised an alarm, want %d at most", len(by), cleanTreeBound)
			}
		})
	}
	if !slices.ContainsFunc(trees, func(c cleanTree) bool { return c.all }) {
		t.Run("a distribution's root", func(t *testing.T) {
			t.Skip("NOT RUN: there is no tree in $ORTET_CACHE/roots; debootstrap makes one")
		})
	}
}

// cleanTrees are parts of this machine, and the roots that the cache has.
func cleanTrees(t *testing.T) []cleanTree {
	t.Helper()
	trees := []cleanTree{
		{"configuration", "/", []string{"etc"}, false},
		{"units and scripts", "/", []string{"usr/lib/systemd", "usr/lib/udev", "usr/lib/tmpfiles.d", "usr/lib/python3", "usr/lib/apt", "usr/lib/dpkg", "usr/lib/git-core", "usr/sbin", "usr/libexec"}, false},
		{"programs", "/", []string{"usr/bin"}, false},
		{"documents", "/", []string{"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/bash-completion"}, false},
		{"libraries", "/", []string{"usr/share/perl", "usr/share/perl5", "usr/lib/x86_64-linux-gnu", "usr/lib/python3.11", "usr/lib/python3.12", "usr/lib/python3.13"}, false},
	}
	roots, err := filepath.Glob(filepath.Join(cmp.Or(os.Getenv("ORTET_CACHE"), "none"), "roots", "[a-z]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range roots {
		trees = append(trees, cleanTree{"root " + filepath.Base(root), root, []string{"."}, true})
	}
	return trees
}

// copyTree copies regular files, up to the bounds: hard links would let a mistake
// of the agent's change the machine.
func copyTree(t *testing.T, tree cleanTree, to string) (files int, bytes int64) {
	t.Helper()
	for _, dir := range tree.dirs {
		err := filepath.WalkDir(filepath.Join(tree.root, dir), func(at string, e fs.DirEntry, err error) error {
			name, relErr := filepath.Rel(tree.root, at)
			if relErr != nil {
				return relErr
			}
			own := slices.ContainsFunc(ownSecrets(), func(p string) bool {
				ok, matchErr := filepath.Match(p, name)
				return ok && matchErr == nil
			})
			if own && e != nil && e.IsDir() {
				return fs.SkipDir
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || own {
				return nil
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a file of a moment
			}
			if err != nil || !tree.all && info.Size() > fileBytes {
				return err
			}
			if !tree.all && (files == treeFiles || bytes > treeBytes) {
				return fs.SkipAll
			}
			files++
			bytes += info.Size()
			return copyFile(at, filepath.Join(to, name))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files, bytes
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
