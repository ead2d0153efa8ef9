package packages

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
)

// ProcessCPU is the processors' time that this process had: what other processes have does not count.
func ProcessCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The fields of an RPM header that are read cost no more than the header has bytes, whatever its entries name.
func TestHeaderOfManyEntries(t *testing.T) {
	const entries, length = 1 << 20, 16 << 20 // what a row holds at most
	header := binary.BigEndian.AppendUint32(nil, entries)
	header = binary.BigEndian.AppendUint32(header, length)
	entry := []byte{0, 0, tagName >> 8, tagName & 0xff, 0, 0, 0, typeString, 0, 0, 0, 0, 0, 0, 0, 1}
	header = append(header, slices.Repeat(entry, entries)...)
	header = append(header, strings.Repeat("a", length)...)
	begin := ProcessCPU(t)
	if p, err := rpmOf(header); err == nil {
		t.Errorf("%d entries with one name give %q", entries, p.Name)
	}
	if d := ProcessCPU(t) - begin; d > 5*time.Second {
		t.Errorf("a header of %d MB takes %v", len(header)>>20, d)
	}
}

// All files of dpkg together are read as far as one may be.
func TestManyFilesOfDpkg(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "var/lib/dpkg/status.d")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		name := filepath.Join(at, string(rune('a'+i/10))+string(rune('a'+i%10)))
		if err := os.WriteFile(name, []byte("Package: a\nVersion: 1\n\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, maxStatus); err != nil { // no block of it is on the disk
			t.Fatal(err)
		}
	}
	tr, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close() // nothing was written
	begin := ProcessCPU(t)
	got, notes := Read(tr)
	if d := ProcessCPU(t) - begin; d > 5*time.Second || len(got) != 1 || !strings.Contains(strings.Join(notes, "\n"), "of which") {
		t.Errorf("took %v: %v %q", d, got, notes)
	}
}

// A database of the size that is read at most ends in time, whatever its pages are.
func TestLargeDatabases(t *testing.T) {
	le := binary.LittleEndian
	slots := slices.Repeat([]byte("Slot\x01\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00"), 2*maxCells) // each leads to nothing
	copy(slots, "RpmP\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00")
	meta := make([]byte, bdbMeta) // of pages that are free
	le.PutUint32(meta[12:], bdbMagic)
	le.PutUint32(meta[20:], bdbMeta)
	le.PutUint32(meta[32:], maxDatabase/bdbMeta-1)
	le.PutUint32(meta[88:], 1)
	for name, c := range map[string]struct {
		begin []byte
		read  rpmReader
		note  string
	}{
		"ndb": {slots, ndbHeaders, "its slot leads to no blob of it"},
		"bdb": {meta, bdbHeaders, "it has 0 entries, and should have 1"},
	} {
		at := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(at, c.begin, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(at, maxDatabase); err != nil { // no more blocks of it are on the disk
			t.Fatal(err)
		}
		f, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // nothing was written
		var l list
		begin := ProcessCPU(t)
		err = l.headers(c.read, f, maxDatabase)
		if d := ProcessCPU(t) - begin; d > 30*time.Second || err == nil || !strings.Contains(err.Error(), c.note) {
			t.Errorf("%s took %v: %v, want %q", name, d, err, c.note)
		}
	}
}
