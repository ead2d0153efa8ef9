package join

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// A disk without room keeps no node from leaving, and it has joined anew before an
// agent starts again.
func TestLeaveOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a disk that is full needs root")
	}
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(time.Hour))
	record, dir := w.read(RecordFile), w.path("/var/lib/ortet")
	// The mount is this thread's alone, and goes with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("NOT RUN: a mount of one's own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	w.write(RecordFile, record)
	if os.WriteFile(dir+"/more", make([]byte, 64<<10), 0o600) == nil {
		t.Fatal("there is room")
	}
	w.options.Agent = &service{}
	if err := w.client().Depart(t.Context(), Departure{Cause: "Preempt", Within: 10 * time.Second, Part: LeftPart}); err != nil {
		t.Error(err)
	}
	if got := w.asked[len(w.asked)-1]; !strings.HasPrefix(got, wire.LeftPath) || w.record().State != HasLeft || w.there(ReadyFile) {
		t.Errorf("asked %s; %+v", got, w.record())
	}
}
