package files_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/config/files"
)

// A full disk is an error, and nothing is touched.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a small file system needs root")
	}
	root := t.TempDir()
	// The mount is this thread's and goes with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("NOT RUN: a mount of one's own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
	write(t, root, "/etc/a", "image", 0o644)
	s := openAt(t, root)
	for name, size := range map[string]int{"the set": 900 << 10, "a staged file": 450 << 10} {
		set := files.Set{file("/etc/a", "next", 0o644), file("/etc/b", strings.Repeat("b", size), 0o644)}
		if _, err := s.Begin(set, nil); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%s does not fit: %v", name, err)
		} else {
			t.Log(err)
		}
		expect(t, root, "/etc/a -rw-r--r-- image")
	}
	begin(t, s, files.Set{file("/etc/a", "next", 0o644)}, "/etc/a")
	keep(t, s)
}
