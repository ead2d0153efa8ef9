package packages_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/packages"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const status = `Package: curl
Status: install ok installed
Architecture: amd64
Version: 7.88.1-10+deb12u8
Description: command line tool
 Version: of a continuation line

Package: libssl3
Status: install ok half-configured
Architecture: amd64
Source: openssl
Version: 3.0.15-1~deb12u1

Package: libgcc-s1
Status: install ok installed
Architecture: amd64
Source: gcc-12 (12.2.0-14)
Version: 2:12.2.0-14

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
`

// sqliteDB is what SQLite 3.40 wrote: pages of 512 bytes, a table of three levels, rows of several
// pages, and headers of 36 packages and a key.
func sqliteDB(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/rpmdb.sqlite")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func read(t *testing.T, files map[string]string) ([]wire.Package, []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return packages.Read(tr)
}

func TestDpkg(t *testing.T) {
	got, notes := read(t, map[string]string{"var/lib/dpkg/status": status,
		"var/lib/dpkg/status.d/tzdata": "Package: tzdata\nVersion: 2024b-0\nArchitecture: all\n", "var/lib/dpkg/status.d/tzdata.md5sums": "x"})
	want := []wire.Package{
		{Type: "deb", Name: "curl", Version: "7.88.1-10+deb12u8", Arch: "amd64"},
		{Type: "deb", Name: "libgcc-s1", Version: "2:12.2.0-14", Arch: "amd64", Source: "gcc-12", SourceVersion: "12.2.0-14"},
		{Type: "deb", Name: "libssl3", Version: "3.0.15-1~deb12u1", Arch: "amd64", Source: "openssl"},
		{Type: "deb", Name: "tzdata", Version: "2024b-0", Arch: "all"},
	}
	if !slices.Equal(got, want) || len(notes) > 0 {
		t.Errorf("got  %v %q\nwant %v", got, notes, want)
	}
}

func TestRPM(t *testing.T) {
	got, notes := read(t, map[string]string{"usr/lib/sysimage/rpm/rpmdb.sqlite": string(sqliteDB(t))})
	var lines []string
	for _, p := range got {
		if !strings.HasPrefix(p.Name, "lib0") && !strings.HasPrefix(p.Name, "lib1") && !strings.HasPrefix(p.Name, "lib2") {
			lines = append(lines, strings.Join([]string{p.Type, p.Name, p.Version, p.Arch, p.Source}, " "))
		}
	}
	want := `rpm bind-libs 32:9.20.1-3.azl3 x86_64 bind-9.20.1-3.azl3.src.rpm
rpm containerd2 2.0.0-12.azl3 x86_64 containerd2-2.0.0-12.azl3.src.rpm
rpm kernel 6.6.57.1-7.azl3 x86_64 kernel-6.6.57.1-7.azl3.src.rpm
rpm kernel 6.6.64.2-9.azl3 x86_64 kernel-6.6.64.2-9.azl3.src.rpm
rpm kubernetes-kubelet 1.31.2-1.azl3 x86_64 kubernetes-1.31.2-1.azl3.src.rpm
rpm openssl-libs 3.3.2-1.azl3 x86_64 openssl-3.3.2-1.azl3.src.rpm`
	if strings.Join(lines, "\n") != want || len(got) != 36 || len(notes) > 0 {
		t.Errorf("%d packages, %q, without the libraries:\n%s\nwant 36:\n%s", len(got), notes, strings.Join(lines, "\n"), want)
	}
}

// What cannot be read is named, and the rest is there.
func TestHostile(t *testing.T) {
	const rpm, dpkg = "var/lib/rpm/rpmdb.sqlite", "var/lib/dpkg/status"
	whole := sqliteDB(t)
	change := func(do func(db []byte)) string {
		db := bytes.Clone(whole)
		do(db)
		return string(db)
	}
	loops := change(func(db []byte) { // each interior page leads to the root of its table
		for n := 1; n < len(db)/512; n++ {
			if page := db[n*512:]; page[0] == 5 {
				for c := range int(binary.BigEndian.Uint16(page[3:])) {
					at := binary.BigEndian.Uint16(page[12+2*c:])
					binary.BigEndian.PutUint32(page[at:], uint32(n+1))
				}
				binary.BigEndian.PutUint32(page[8:], uint32(n+1))
			}
		}
	})
	long := "Package: big\nVersion: " + strings.Repeat("9", 8<<20) + "\nArchitecture: amd64\n\n" + status
	large := strings.Replace(status, "curl", "curl\x1b[2J\u202e", 1) + strings.Repeat(" a line of the description\n", 50<<20/27)
	for name, c := range map[string]struct {
		files    map[string]string
		note     string // part of one; "" for none
		min, max int    // packages
	}{
		"none (Flatcar)":           {map[string]string{"etc/os-release": "ID=flatcar"}, "no package database of dpkg or RPM", 0, 0},
		"two databases":            {map[string]string{rpm: string(whole), dpkg: status}, "", 39, 39},
		"50 MB of dpkg":            {map[string]string{dpkg: large}, "", 3, 3},
		"more than 64 MB of dpkg":  {map[string]string{dpkg: large + large}, "67108864 are read", 3, 3},
		"a line of 8 MB":           {map[string]string{dpkg: long}, "", 4, 4},
		"half a package":           {map[string]string{dpkg: status + "\nPackage: half\nStatus: install ok installed\n"}, "ends in the middle of a package", 3, 3},
		"half a package between":   {map[string]string{dpkg: "Status: install ok installed\nVersion: 1\n\n" + status}, "1 entries of /var/lib/dpkg/status have no name or no version", 3, 3},
		"empty dpkg":               {map[string]string{dpkg: ""}, "", 0, 0},
		"dpkg of zeros":            {map[string]string{dpkg: strings.Repeat("\x00", 1<<20)}, "", 0, 0},
		"many packages":            {map[string]string{dpkg: many(30_000)}, "only the first 20000 are listed", 20_000, 20_000},
		"RPM cut":                  {map[string]string{rpm: string(whole[:33*512])}, "it is cut: 33 of 35 pages", 1, 35},
		"RPM cut in its header":    {map[string]string{rpm: string(whole[:50])}, "it is no SQLite database", 0, 0},
		"RPM with loops":           {map[string]string{rpm: loops}, "is used twice", 0, 0},
		"RPM of zero pages":        {map[string]string{rpm: change(func(db []byte) { clear(db[512:]) })}, "is none of a table", 0, 0},
		"RPM with a -wal":          {map[string]string{rpm: string(whole), rpm + "-wal": "x"}, "incomplete: changes in /var/lib/rpm/rpmdb.sqlite-wal are not read", 36, 36},
		"RPM with an empty -wal":   {map[string]string{rpm: string(whole), rpm + "-wal": ""}, "", 36, 36},
		"RPM of another encoding":  {map[string]string{rpm: change(func(db []byte) { db[59] = 2 })}, "its text is not UTF-8", 0, 0},
		"RPM with pages of 7":      {map[string]string{rpm: change(func(db []byte) { db[16], db[17] = 0, 7 })}, "pages of 7 bytes", 0, 0},
		"RPM without the table":    {map[string]string{rpm: strings.ReplaceAll(string(whole), "Packages", "Pakcages")}, "it has no table Packages", 0, 0},
		"RPM's bdb (RHEL 8)":       {map[string]string{"var/lib/rpm/Packages": "x"}, "/var/lib/rpm/Packages is RPM's database as Berkeley DB (bdb), which is not read", 0, 0},
		"RPM's ndb (SUSE)":         {map[string]string{"usr/lib/sysimage/rpm/Packages.db": "x"}, "Packages.db is RPM's database as ndb, which is not read", 0, 0},
		"apk":                      {map[string]string{"lib/apk/db/installed": "x"}, "apk's database, which is not read", 0, 0},
		"a folder in dpkg's place": {map[string]string{dpkg + "/x": "x"}, "/var/lib/dpkg/status cannot be read", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			got, notes := read(t, c.files)
			if d := time.Since(begin); d > 30*time.Second {
				t.Errorf("took %v", d)
			}
			if len(got) < c.min || len(got) > c.max {
				t.Errorf("%d packages, want %d to %d", len(got), c.min, c.max)
			}
			if (c.note == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			for _, p := range got {
				if p.Name != wire.Word(p.Name) || p.Version != wire.Word(p.Version) {
					t.Errorf("a word that a terminal acts on: %q", p)
				}
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Package: p%d\nVersion: 1\n\n", i)
	}
	return b.String()
}
