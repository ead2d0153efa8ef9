package generalize

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// What cannot be read may hold anything. Root reads everything, so as root the
// scan runs on a thread without the capabilities to.
func TestUnreadableFileFailsTheScan(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	d.write(map[string]string{"srv/x": "x"})
	if err := os.Chmod(filepath.Join(d.dir, "srv/x"), 0); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var capabilities [2]unix.CapUserData
	if err := unix.Capget(&header, &capabilities[0]); err != nil {
		t.Fatal(err)
	}
	capabilities[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&header, &capabilities[0]); err != nil {
		t.Fatal(err)
	}
	r := d.run(accept)
	if r.Outcome == wire.Generalized {
		t.Errorf("outcome %s although a file was not read: %+v", r.Outcome, r)
	}
	wantOutcome(t, r, wire.SecretsFound)
}
