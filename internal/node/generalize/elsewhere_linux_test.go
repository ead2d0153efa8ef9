package generalize

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// An inspection names the kubelet's folder and image stores that are mounted from another disk, also
// behind a link, with what is used there, and nothing that lies on the root's.
func TestFoldersOnAnotherDisk(t *testing.T) {
	d := newDonor(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its mounts with it
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skip("needs a mount namespace:", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"var/lib/kubelet", "mnt", "var/lib/docker"} {
		at := filepath.Join(d.dir, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "var/lib/docker" {
			continue
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }() // before the folder is removed
	}
	if err := os.MkdirAll(filepath.Join(d.dir, "mnt/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(d.dir, "var/lib/containerd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/mnt/containerd", filepath.Join(d.dir, "var/lib/containerd")); err != nil {
		t.Fatal(err)
	}
	d.write(map[string]string{"mnt/containerd/layer": string(make([]byte, 64<<10))})
	r := d.run(func(o *Options) { accept(o); inspecting(o) })
	if r.Outcome == wire.GeneralizeFailed || len(r.Elsewhere) != 2 {
		t.Fatalf("report %+v", r)
	}
	if f := r.Elsewhere[0]; f.Path != "/var/lib/kubelet" || !f.Kubelet {
		t.Errorf("the kubelet's folder is %+v", f)
	}
	if f := r.Elsewhere[1]; f.Path != "/mnt/containerd" || f.Kubelet || f.Bytes < 64<<10 || f.Bytes > 1<<20 {
		t.Errorf("the image store is %+v", f)
	}
}
