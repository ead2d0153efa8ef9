package generalize

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// A flush writes out the disk's other file systems too, as the EFI partition's, /boot's and
// those of volumes: the workbench mounts them all. Data disks (nofail) are not awaited.
func TestFlushOfPartitions(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: real file systems need root, for loop devices and mounts")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("NOT TESTED: mkfs.ext4 is not installed")
	}
	const inNamespace = "ORTET_TEST_IN_NAMESPACE"
	if os.Getenv(inNamespace) == "" { // no mount of it outlives it
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	d := newDonor(t).capz()
	d.write(map[string]string{"etc/fstab": "UUID=1 / ext4 defaults 0 1\n" +
		"UUID=2 /boot ext4 defaults 0 2\n/dev/rootvg/varlv /var/opt\\040x auto defaults\nLABEL=d /srv/data ext4 defaults,nofail 0 2\n" +
		"server:/export /absent nfs defaults 0 0\nUUID=3 /gone ext4 defaults 0 2\n"})
	images := map[string]string{"boot": "", "var/opt x": "", "srv/data": ""}
	for dir := range images {
		images[dir] = filepath.Join(t.TempDir(), "image")
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"truncate", "-s", "8M", images[dir]}, {"mkfs.ext4", "-q", images[dir]}, {"mount", "-o", "loop", images[dir], filepath.Join(d.dir, dir)},
		} {
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
		}
		d.write(map[string]string{filepath.Join(dir, "new"): "just written, never synced"})
	}
	r := d.run(func(o *Options) { o.Flush, o.DryRun, o.Now = true, true, time.Now })
	wantOutcome(t, r, wire.Generalized)
	for dir, image := range images {
		data, err := os.ReadFile(image)
		if err != nil {
			t.Fatal(err)
		}
		if written := bytes.Contains(data, []byte("just written, never synced")); written != (dir != "srv/data") {
			t.Errorf("what was written to /%s is on its disk: %t", dir, written)
		}
		if err := unix.Unmount(filepath.Join(d.dir, dir), 0); err != nil {
			t.Error(err)
		}
	}
}
