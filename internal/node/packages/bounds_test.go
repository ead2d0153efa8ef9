package packages

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
)

// The fields of an RPM header that are read cost no more than the header has bytes, whatever its entries name.
func TestHeaderOfManyEntries(t *testing.T) {
	const entries, length = 1 << 20, 16 << 20 // what a row holds at most
	header := binary.BigEndian.AppendUint32(nil, entries)
	header = binary.BigEndian.AppendUint32(header, length)
	entry := []byte{0, 0, tagName >> 8, tagName & 0xff, 0, 0, 0, typeString, 0, 0, 0, 0, 0, 0, 0, 1}
	header = append(header, slices.Repeat(entry, entries)...)
	header = append(header, strings.Repeat("a", length)...)
	begin := time.Now()
	if p, err := rpmOf(header); err == nil {
		t.Errorf("%d entries with one name give %q", entries, p.Name)
	}
	if d := time.Since(begin); d > 5*time.Second {
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
	begin := time.Now()
	got, notes := Read(tr)
	if d := time.Since(begin); d > 5*time.Second || len(got) != 1 || !strings.Contains(strings.Join(notes, "\n"), "of which") {
		t.Errorf("took %v: %v %q", d, got, notes)
	}
}
