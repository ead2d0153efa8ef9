package packages

import (
	"bytes"
	"os"
	"testing"
)

// A database was written by whoever had the disk: it ends neither the process nor its time, and
// has no more packages than bytes.

func FuzzDpkg(f *testing.F) {
	f.Add([]byte("Package: a\nVersion: 1:2-3\nSource: b (4)\nStatus: install ok installed\n\nPackage: c"))
	f.Add([]byte("\n\n:\n : \nVersion:\n\nSource: ()\nPackage: x\nVersion: 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var l list
		l.dpkg(bytes.NewReader(data), "status")
		check(t, &l, data)
	})
}

func FuzzSQLite(f *testing.F) { fuzzRPM(f, "rpmdb.sqlite", sqliteHeaders) }
func FuzzBDB(f *testing.F)    { fuzzRPM(f, "Packages", bdbHeaders) }
func FuzzNDB(f *testing.F)    { fuzzRPM(f, "Packages.db", ndbHeaders) }

func fuzzRPM(f *testing.F, name string, read rpmReader) {
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:6<<10])
	f.Fuzz(func(t *testing.T, data []byte) {
		var l list
		_ = l.headers(read, bytes.NewReader(data), int64(len(data)))
		check(t, &l, data)
	})
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x03\xe8\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x03\xe9\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00\x00\x01a\x001\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := rpmOf(data)
		if err == nil && (p.Name == "" || p.Version == "" || len(p.Name)+len(p.Version) > 2*len(data)+16) {
			t.Errorf("%q", p)
		}
	})
}

func check(t *testing.T, l *list, data []byte) {
	t.Helper()
	if len(l.packages) > len(data) {
		t.Errorf("%d packages of %d bytes", len(l.packages), len(data))
	}
	for _, p := range l.packages {
		if p.Name == "" || p.Version == "" {
			t.Errorf("a package without a name or version: %q", p)
		}
	}
}
