package tree

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A simulated node's disk belongs to a user who is not root, and holds files
// that nobody may write, as a real one does: /etc/machine-id.
func TestOwnerEmptiesWhatIsReadOnly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "machine-id")
	if err := os.WriteFile(file, []byte("0123"), 0o444); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if os.Geteuid() == 0 {
		for _, p := range []string{filepath.Dir(dir), dir, file} {
			if err := os.Chown(p, nobody, -1); err != nil {
				t.Fatal(err)
			}
		}
		// The thread, and it alone, reaches files as that user from here on;
		// it is not given back, so that it ends with the test.
		runtime.LockOSThread()
		if err := unix.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil {
		_ = f.Close()
		t.Fatal("the file can be written as it is: this shows nothing")
	}
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tr.Close() }()
	if err := tr.Wipe("machine-id"); err != nil {
		t.Error(err)
	}
	if _, err := tr.Truncate("machine-id"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Size() != 0 || info.Mode().Perm() != 0o444 {
		t.Errorf("left %v, %v; want an empty file of mode 0444", info, err)
	}
}
