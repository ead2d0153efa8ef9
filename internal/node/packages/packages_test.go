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

// database returns one of testdata, each with the headers of 36 packages and a key. SQLite 3.40
// wrote rpmdb.sqlite: pages of 512 bytes, a table of three levels, rows of several pages. Berkeley
// DB 5.3 wrote Packages: pages of 1,024 bytes, entries on them and in chains. RPM's rpmpkg.c wrote
// Packages.db, with free slots.
func database(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
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
	want := `rpm bind-libs 32:9.20.1-3.azl3 x86_64 bind-9.20.1-3.azl3.src.rpm
rpm containerd2 2.0.0-12.azl3 x86_64 containerd2-2.0.0-12.azl3.src.rpm
rpm kernel 6.6.57.1-7.azl3 x86_64 kernel-6.6.57.1-7.azl3.src.rpm
rpm kernel 6.6.64.2-9.azl3 x86_64 kernel-6.6.64.2-9.azl3.src.rpm
rpm kubernetes-kubelet 1.31.2-1.azl3 x86_64 kubernetes-1.31.2-1.azl3.src.rpm
rpm openssl-libs 3.3.2-1.azl3 x86_64 openssl-3.3.2-1.azl3.src.rpm`
	for _, name := range []string{"rpmdb.sqlite", "Packages", "Packages.db"} {
		got, notes := read(t, map[string]string{"usr/lib/sysimage/rpm/" + name: string(database(t, name))})
		var lines []string
		for _, p := range got {
			if !strings.HasPrefix(p.Name, "lib0") && !strings.HasPrefix(p.Name, "lib1") && !strings.HasPrefix(p.Name, "lib2") {
				lines = append(lines, strings.Join([]string{p.Type, p.Name, p.Version, p.Arch, p.Source}, " "))
			}
		}
		if strings.Join(lines, "\n") != want || len(got) != 36 || len(notes) > 0 {
			t.Errorf("%s: %d packages, %q, without the libraries:\n%s\nwant 36:\n%s", name, len(got), notes, strings.Join(lines, "\n"), want)
		}
	}
}

// What cannot be read is named, and the rest is there.
func TestHostile(t *testing.T) {
	const rpm, bdb, ndb, dpkg = "var/lib/rpm/rpmdb.sqlite", "var/lib/rpm/Packages", "var/lib/rpm/Packages.db", "var/lib/dpkg/status"
	whole, wholeBDB, wholeNDB := database(t, "rpmdb.sqlite"), database(t, "Packages"), database(t, "Packages.db")
	changed := func(whole []byte, do func(db []byte)) string {
		db := bytes.Clone(whole)
		do(db)
		return string(db)
	}
	change := func(do func(db []byte)) string { return changed(whole, do) }
	overflow := func(do func(n uint32, page []byte)) map[string]string { // each page of a chain
		return map[string]string{bdb: changed(wholeBDB, func(db []byte) {
			for n := 1; n < len(db)/1024; n++ {
				if page := db[n*1024:][:1024]; page[25] == 7 {
					do(uint32(n), page)
				}
			}
		})}
	}
	hash := func(do func(page []byte, key, value int)) map[string]string { // each entry, the last of a page first
		return map[string]string{bdb: changed(wholeBDB, func(db []byte) {
			for n := 1; n < len(db)/1024; n++ {
				page := db[n*1024:][:1024]
				for i := int(page[20]) - 1; i > 0 && (page[25] == 13 || page[25] == 2); i -= 2 {
					do(page, 24+2*i, int(binary.LittleEndian.Uint16(page[26+2*i:])))
				}
			}
		})}
	}
	slots := func(do func(slot []byte)) map[string]string { // each that is used
		return map[string]string{ndb: changed(wholeNDB, func(db []byte) {
			for at := 32; at < 4096; at += 16 {
				if binary.LittleEndian.Uint32(db[at+8:]) > 0 {
					do(db[at:][:16])
				}
			}
		})}
	}
	le := binary.LittleEndian
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
		"none (Flatcar)":          {map[string]string{"etc/os-release": "ID=flatcar"}, "no package database of dpkg or RPM", 0, 0},
		"two databases":           {map[string]string{rpm: string(whole), dpkg: status}, "", 39, 39},
		"50 MB of dpkg":           {map[string]string{dpkg: large}, "", 3, 3},
		"more than 64 MB of dpkg": {map[string]string{dpkg: large + large}, "67108864 are read", 3, 3},
		"a line of 8 MB":          {map[string]string{dpkg: long}, "", 4, 4},
		"half a package":          {map[string]string{dpkg: status + "\nPackage: half\nStatus: install ok installed\n"}, "ends in the middle of a package", 3, 3},
		"half a package between":  {map[string]string{dpkg: "Status: install ok installed\nVersion: 1\n\n" + status}, "1 entries of /var/lib/dpkg/status have no name or no version", 3, 3},
		"empty dpkg":              {map[string]string{dpkg: ""}, "", 0, 0},
		"dpkg of zeros":           {map[string]string{dpkg: strings.Repeat("\x00", 1<<20)}, "", 0, 0},
		"many packages":           {map[string]string{dpkg: many(30_000)}, "only the first 20000 are listed", 20_000, 20_000},
		"RPM cut":                 {map[string]string{rpm: string(whole[:33*512])}, "it is cut: 33 of 35 pages", 1, 35},
		"RPM cut in its header":   {map[string]string{rpm: string(whole[:50])}, "it is no SQLite database", 0, 0},
		"RPM with loops":          {map[string]string{rpm: loops}, "is used twice", 0, 0},
		"RPM of zero pages":       {map[string]string{rpm: change(func(db []byte) { clear(db[512:]) })}, "is none of a table", 0, 0},
		"RPM with a -wal":         {map[string]string{rpm: string(whole), rpm + "-wal": "x"}, "incomplete: changes in /var/lib/rpm/rpmdb.sqlite-wal are not read", 36, 36},
		"RPM with an empty -wal":  {map[string]string{rpm: string(whole), rpm + "-wal": ""}, "", 36, 36},
		"RPM of another encoding": {map[string]string{rpm: change(func(db []byte) { db[59] = 2 })}, "its text is not UTF-8", 0, 0},
		"RPM with pages of 7":     {map[string]string{rpm: change(func(db []byte) { db[16], db[17] = 0, 7 })}, "pages of 7 bytes", 0, 0},
		"RPM without the table":   {map[string]string{rpm: strings.ReplaceAll(string(whole), "Packages", "Pakcages")}, "it has no table Packages", 0, 0},
		"two databases of RPM": {map[string]string{rpm: string(whole), bdb: string(wholeBDB)},
			"/var/lib/rpm has rpmdb.sqlite and Packages, of which RPM uses one: the packages of all are listed", 36, 36},
		"bdb before 4.6":    {hash(func(page []byte, _, _ int) { page[25] = 2 }), "", 36, 36},
		"bdb cut":           {map[string]string{bdb: string(wholeBDB[:12*1024])}, "/var/lib/rpm/Packages: it is cut: 12 of 19 pages are there", 1, 35},
		"bdb cut in a page": {map[string]string{bdb: string(wholeBDB[:18*1024+500])}, "it is cut: 18 of 19 pages are there", 1, 36},
		"bdb cut in its header": {map[string]string{bdb: string(wholeBDB[:50])},
			"/var/lib/rpm/Packages: it is no hash table of Berkeley DB that a little-endian machine wrote", 0, 0},
		"bdb cut after its header":   {map[string]string{bdb: string(wholeBDB[:600])}, "pages of 1024 bytes", 0, 0},
		"bdb of zero pages":          {map[string]string{bdb: changed(wholeBDB, func(db []byte) { clear(db[1024:]) })}, "it has 0 entries, and should have 38", 0, 0},
		"bdb with pages of 7":        {map[string]string{bdb: changed(wholeBDB, func(db []byte) { le.PutUint32(db[20:], 7) })}, "pages of 7 bytes", 0, 0},
		"bdb with checksums":         {map[string]string{bdb: changed(wholeBDB, func(db []byte) { db[26] = 1 })}, "its pages have checksums", 0, 0},
		"bdb with loops":             {overflow(func(n uint32, page []byte) { le.PutUint32(page[16:], n) }), "is used twice", 34, 34},
		"bdb with a loop of two":     {overflow(func(n uint32, page []byte) { le.PutUint32(page[16:], n^1) }), "is used twice", 34, 34},
		"bdb with a chain that ends": {overflow(func(_ uint32, page []byte) { le.PutUint32(page[16:], 0) }), "an entry is cut", 34, 34},
		"bdb with empty pages":       {overflow(func(_ uint32, page []byte) { le.PutUint16(page[22:], 0) }), "an entry is cut", 34, 34},
		"bdb with too much a page":   {overflow(func(_ uint32, page []byte) { le.PutUint16(page[22:], 60_000) }), "is none of an entry's data", 34, 34},
		"bdb that leads elsewhere":   {overflow(func(_ uint32, page []byte) { le.PutUint32(page[16:], 1<<31) }), "page 2147483648 of 18 is not there", 34, 34},
		"bdb with 4 GB": {hash(func(page []byte, _, value int) {
			if page[value] == 3 {
				le.PutUint32(page[value+8:], 1<<32-1)
			}
		}), "an entry of 4294967295 bytes", 34, 34},
		"bdb with entries outside":  {hash(func(page []byte, key, _ int) { le.PutUint16(page[key:], 1024) }), "lies outside of it", 0, 0},
		"bdb with odd entries":      {hash(func(page []byte, _, _ int) { page[20] |= 1 }), "entries", 0, 0},
		"bdb with a kind":           {hash(func(page []byte, _, value int) { page[value] = 4 }), "an entry of kind 4", 0, 0},
		"ndb cut":                   {map[string]string{ndb: string(wholeNDB[:9000])}, "/var/lib/rpm/Packages.db: it is cut: package", 1, 35},
		"ndb cut in its slots":      {map[string]string{ndb: string(wholeNDB[:2000])}, "it is cut: read page 0 of slots", 0, 0},
		"ndb cut in its header":     {map[string]string{ndb: string(wholeNDB[:20])}, "it is no database of kind ndb, version 0", 0, 0},
		"ndb of version 1":          {map[string]string{ndb: changed(wholeNDB, func(db []byte) { db[4] = 1 })}, "it is no database of kind ndb, version 0", 0, 0},
		"ndb of zeros":              {map[string]string{ndb: changed(wholeNDB, func(db []byte) { clear(db[4096:]) })}, "its slot leads to no blob of it", 0, 0},
		"ndb with 16 TB of slots":   {map[string]string{ndb: changed(wholeNDB, func(db []byte) { le.PutUint32(db[12:], 1<<32-1) })}, "page 1 is none of slots", 36, 36},
		"ndb with one blob for all": {slots(func(slot []byte) { le.PutUint32(slot[8:], 256) }), "its slot leads to no blob of it", 1, 1},
		"ndb that overlaps": {slots(func(slot []byte) {
			copy(slot[4:], "\x01\x00\x00\x00\x00\x01\x00\x00\x40\x03\x00\x00") // package 1, of 13 kB
		}), "its packages overlap", 1, 1},
		"ndb that leads elsewhere": {slots(func(slot []byte) { le.PutUint32(slot[8:], 1<<32-1) }), "it is cut: package 1 is not there", 0, 0},
		"ndb with 64 GB":           {slots(func(slot []byte) { le.PutUint32(slot[12:], 1<<32-1) }), "it is cut: package 1 is not there", 0, 0},
		"ndb with no blocks":       {slots(func(slot []byte) { le.PutUint32(slot[12:], 1) }), "bytes in 16", 0, 0},
		"apk":                      {map[string]string{"lib/apk/db/installed": "x"}, "apk's database, which is not read", 0, 0},
		"a folder in dpkg's place": {map[string]string{dpkg + "/x": "x"}, "/var/lib/dpkg/status cannot be read", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			begin := packages.ProcessCPU(t)
			got, notes := read(t, c.files)
			if d := packages.ProcessCPU(t) - begin; d > 30*time.Second {
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
