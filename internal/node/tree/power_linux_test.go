package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// goDown ends a file system as a power loss does: what is not on the disk is lost.
// Source: Linux' fs/ext4/ioctl.c, EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH.
func goDown(t *testing.T, dir string) {
	t.Helper()
	const shutdown = 0x8004587d
	flags := uint32(2)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), shutdown, uintptr(unsafe.Pointer(&flags)))
	if err := d.Close(); err != nil || errno != 0 {
		t.Fatalf("ending the file system: %v, %v", errno, err)
	}
}

// What WriteFile says is written outlives a power loss: a new file in a new folder,
// and one that was replaced.
func TestWrittenOutlivesAPowerLoss(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a file system that loses its power needs root")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("NOT RUN: a file system that loses its power needs " + tool)
		}
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	command := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	command("truncate", "--size=32M", image)
	// Nothing is written out meanwhile because its time has come.
	mount := func() { command("mount", "-o", "loop,commit=300", image, dir) }
	command("mkfs.ext4", "-q", image)
	// The mounts are this thread's and its children's, and go with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("NOT RUN: a mount of one's own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	mount()
	mounted := true
	defer func() {
		if mounted {
			_ = unix.Unmount(dir, unix.MNT_DETACH) // it has failed before
		}
	}()
	write := func(name, text string) {
		t.Helper()
		tr, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := tr.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"joined", "left"} {
		write("var/lib/ortet/identity.json", text)
		goDown(t, dir)
		command("umount", dir)
		mounted = false
		mount()
		mounted = true
		if got, err := os.ReadFile(filepath.Join(dir, "var/lib/ortet/identity.json")); err != nil || string(got) != text {
			t.Errorf("%q, %v; written was %q", got, err, text)
		}
	}
	command("umount", dir)
	mounted = false
}
