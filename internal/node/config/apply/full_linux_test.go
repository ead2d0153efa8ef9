package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/nodeconfig"
)

// A full disk, of the files or of the agent's own notes: the node keeps what it had, and
// goes on when there is room.
func TestFullDiskChangesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED on a full disk: a small file system needs root")
	}
	// The mounts are this thread's and go with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("NOT TESTED on a full disk: a mount of one's own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	var a *agent
	url := serve(t, &a)
	for _, folder := range []string{"/etc/data", "/var/lib/ortet/config"} {
		a = newAgent(t)
		a.url = url
		at := filepath.Join(a.root, folder)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=256k"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
		a.restart()
		a.write(folder+"/file", "of the image")
		a.push(1, motd("old"))
		a.expect("Applied 1/1")
		before := a.disk()
		_ = os.WriteFile(at+"/filler", make([]byte, 1<<20), 0o600) // as much as there is room for
		c := motd("new")
		c.Sysctls = map[string]string{"net.core.somaxconn": "4096"}
		c.Files = append(c.Files, nodeconfig.File{Path: "/etc/data/file", Content: strings.Repeat("x", 100<<10)})
		a.push(2, c)
		a.expect("Failed ApplyFailed 1/2")
		if err := os.Remove(at + "/filler"); err != nil {
			t.Fatal(err)
		}
		if after := a.disk(); fmt.Sprint(before) != fmt.Sprint(after) || a.pending() {
			t.Errorf("%s: before %v\nafter %v", folder, before, after)
		}
		a.push(3, c)
		a.expect("Applied 3/3", "sysctl net.core.somaxconn=4096")
	}
}
