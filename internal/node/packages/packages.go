// Package packages lists the packages that are installed on a disk, by the databases of dpkg and
// RPM that lie on it. The disk is not trusted: what is read is bounded in bytes, pages and
// packages, nothing is written, and what could not be read is named and no error.
package packages

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const (
	maxPackages = 20_000
	maxStatus   = 64 << 20 // bytes of dpkg's database, all files together
	maxDatabase = 1 << 30  // bytes of RPM's database
	maxEntries  = 1000     // files of /var/lib/dpkg/status.d
)

// rpmFolders are where RPM's database lies: by default, on Fedora and SUSE, and with rpm-ostree.
func rpmFolders() []string {
	return []string{"/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm"}
}

type list struct {
	packages []wire.Package
	notes    []string
	full     bool
}

// Read returns the packages, sorted, and what of them is not there, a sentence each.
func Read(t *tree.Tree) ([]wire.Package, []string) {
	var l list
	found := l.debian(t)
	seen := map[string]bool{}
	for _, folder := range rpmFolders() {
		at, err := t.Resolve(folder, true)
		if err != nil || seen[at] {
			continue
		}
		seen[at] = true
		found = l.rpm(t, at) || found
	}
	if ok, err := t.Exists("/lib/apk/db/installed"); ok || err != nil {
		l.note("/lib/apk/db/installed is apk's database, which is not read")
		found = true
	}
	if !found {
		l.note("no package database of dpkg or RPM is on the disk")
	}
	if l.full {
		l.note("only the first %d are listed", maxPackages)
	}
	slices.SortFunc(l.packages, func(a, b wire.Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Type, b.Type), cmp.Compare(a.Source, b.Source), cmp.Compare(a.SourceVersion, b.SourceVersion))
	})
	return slices.Compact(l.packages), l.notes
}

func (l *list) note(format string, args ...any) {
	l.notes = append(l.notes, wire.Word("packages: "+fmt.Sprintf(format, args...)))
}

func (l *list) add(p wire.Package) {
	if len(l.packages) >= maxPackages {
		l.full = true
		return
	}
	for _, s := range []*string{&p.Name, &p.Version, &p.Arch, &p.Source, &p.SourceVersion} {
		*s = wire.Word(*s)
	}
	l.packages = append(l.packages, p)
}

// open opens a regular file; ok is false where there is none, or none that can be read, which is noted.
func (l *list) open(t *tree.Tree, at string) (f *os.File, size int64, ok bool) {
	f, info, err := t.OpenRegular(at, os.O_RDONLY)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.note("%s cannot be read: %v", path.Join("/", at), err)
		}
		return nil, 0, false
	}
	return f, info.Size(), true
}

// debian reads dpkg's database, and what images without dpkg have in its place. It returns
// whether one is there.
func (l *list) debian(t *tree.Tree) (found bool) {
	files, err := t.Glob("/var/lib/dpkg/status.d/*")
	if err != nil || len(files) > maxEntries {
		l.note("incomplete: /var/lib/dpkg/status.d cannot be read, or has more than %d files", maxEntries)
		files = files[:min(len(files), maxEntries)]
	}
	left := int64(maxStatus)
	for _, at := range append([]string{"var/lib/dpkg/status"}, files...) {
		if path.Ext(at) == ".md5sums" {
			continue
		}
		f, size, ok := l.open(t, at)
		if !ok {
			continue
		}
		found = true
		if size > left {
			l.note("incomplete: /%s has %d bytes, of which %d are read", at, size, left)
		}
		l.dpkg(io.LimitReader(f, left), "/"+at)
		_ = f.Close() // nothing was written
		if left -= size; left < 0 {
			break
		}
	}
	return found
}

// rpm reads the databases in one folder. RPM would use one, by its configuration; of several all
// packages are listed, and that is noted. It returns whether one is there.
func (l *list) rpm(t *tree.Tree, folder string) (found bool) {
	var all []string
	for _, db := range []struct {
		name string
		read rpmReader
	}{{"rpmdb.sqlite", sqliteHeaders}, {"Packages.db", ndbHeaders}, {"Packages", bdbHeaders}} {
		at := folder + "/" + db.name
		f, size, ok := l.open(t, at)
		if !ok {
			continue
		}
		all = append(all, db.name)
		for _, journal := range []string{"-wal", "-journal"} { // of SQLite
			if info, err := t.Stat(at + journal); err == nil && info.Size() > 0 {
				l.note("incomplete: changes in /%s%s are not read", at, journal)
			}
		}
		if err := l.headers(db.read, f, min(size, maxDatabase)); err != nil {
			l.note("incomplete: /%s: %v", at, err)
		}
		_ = f.Close() // nothing was written
	}
	if len(all) > 1 {
		l.note("/%s has %s, of which RPM uses one: the packages of all are listed", folder, strings.Join(all, " and "))
	}
	return len(all) > 0
}
