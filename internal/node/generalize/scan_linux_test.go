package generalize

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// What cannot be read may hold anything. Root reads everything, so as root the
// scan runs on a thread that reaches files as another user.
func TestUnreadableFileFailsTheScan(t *testing.T) {
	d := newDonor(t)
	d.write(map[string]string{"srv/x": "x"})
	if err := os.Chmod(filepath.Join(d.dir, "srv/x"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		const nobody = 65534
		err := filepath.WalkDir(filepath.Dir(d.dir), func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, nobody, -1)
		})
		if err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread() // never given back: the thread ends with the test
		if err := unix.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
	}
	r := d.run(accept)
	if r.Outcome == wire.Generalized {
		t.Errorf("outcome %s although a file was not read: %+v", r.Outcome, r)
	}
	wantOutcome(t, r, wire.SecretsFound)
}
