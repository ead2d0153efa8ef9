package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/tree"
)

const inNamespaceVar = "ORTET_TEST_IN_NAMESPACE"

// ownNamespace runs the calling test again as a process in a mount namespace of
// its own, so that no mount of it outlives it, and says whether this is that
// process. Without root it skips, aloud.
func ownNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: real disks need root, for loop devices and mounts")
	}
	for _, tool := range []string{"losetup", "sfdisk", "mkfs.ext4", "mkfs.xfs", "mkfs.vfat", "e2fsck"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT TESTED: %s is not installed", tool)
		}
	}
	if os.Getenv(inNamespaceVar) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=90s")
	cmd.Env = append(os.Environ(), inNamespaceVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

func command(t *testing.T, input string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

const twinUUID = "6d1b3c8e-0f4a-4a51-9a52-0123456789ab"

// espKind is FAT, or what stands in for it on a kernel without.
func espKind(t *testing.T) string {
	t.Helper()
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(known), "\tvfat\n") {
		return "vfat"
	}
	t.Log("NOT TESTED with FAT, which this kernel does not know: the EFI system partition is ext4")
	return "ext4"
}

// newImage makes a partitioned image: a root of the given kind and an EFI
// system partition, as a marketplace image has them.
func newImage(t *testing.T, kind Kind) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	size := int64(64 << 20)
	if kind == XFS {
		size = 320 << 20 // the least that mkfs.xfs takes
	}
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size+26<<20)); err != nil {
		t.Fatal(err)
	}
	command(t, fmt.Sprintf("label: gpt\nstart=1MiB, size=20MiB, type=uefi\nsize=%dMiB, type=linux\n", size>>20), "sfdisk", "-q", image)
	boot, root := attach(t, image, 1), attach(t, image, 2)
	switch kind {
	case Ext4:
		command(t, "", "mkfs.ext4", "-q", "-U", twinUUID, root)
	case XFS:
		command(t, "", "mkfs.xfs", "-q", "-f", "-m", "uuid="+twinUUID, root)
	}
	espID := "ABCD-1234"
	if espKind(t) == "vfat" {
		command(t, "", "mkfs.vfat", "-F", "12", "-i", "ABCD1234", boot)
	} else {
		espID = "0b1b3c8e-0f4a-4a51-9a52-0123456789ab"
		command(t, "", "mkfs.ext4", "-q", "-U", espID, boot)
	}
	dir := mountAt(t, root, string(kind))
	write(t, dir, map[string]string{
		"etc/os-release": "PRETTY_NAME=Test\n", "etc/hostname": "donor\n",
		"etc/fstab": "UUID=" + twinUUID + " / auto defaults 0 1\nUUID=" + espID + " /boot/efi vfat umask=0077 0 1\n/dev/disk/cloud/azure_resource-part1 /mnt auto nofail 0 2\n",
	})
	if err := os.MkdirAll(dir+"/boot/efi", 0o755); err != nil {
		t.Fatal(err)
	}
	esp := mountAt(t, boot, espKind(t))
	write(t, esp, map[string]string{"loader/random-seed": "seed"})
	for _, d := range []string{esp, dir} {
		if err := unix.Unmount(d, 0); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "", "losetup", "-d", root)
	command(t, "", "losetup", "-d", boot)
	return image
}

// attach makes a loop device of one of newImage's two partitions, or of the
// whole image (0). The kernel need not know partition tables.
func attach(t *testing.T, image string, partition int) string {
	t.Helper()
	args := []string{"-f", "--show", image}
	switch partition {
	case 1:
		args = append(args, "-o", "1MiB", "--sizelimit", "20MiB")
	case 2:
		info, err := os.Stat(image)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "-o", "21MiB", "--sizelimit", fmt.Sprint(info.Size()-26<<20))
	}
	loop := command(t, "", "losetup", args...)
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	// A device keeps the partitions that a killed test told the kernel of.
	forgetPartitions(t, loop)
	return loop
}

// forgetPartitions makes the kernel forget a disk's partitions. The one that was
// unmounted last may be busy for a moment more.
func forgetPartitions(t *testing.T, loop string) {
	t.Helper()
	name := filepath.Base(loop)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		known, err := filepath.Glob("/sys/block/" + name + "/" + name + "p*")
		if err != nil {
			t.Fatal(err)
		}
		if len(known) == 0 {
			return
		}
		out, err := exec.Command("partx", "-d", loop).CombinedOutput()
		if time.Now().After(deadline) {
			t.Errorf("the kernel still knows %v: partx -d %s: %v: %s", known, loop, err, out)
			return
		}
	}
}

// inside mounts the root of an image while do runs.
func inside(t *testing.T, image string, do func(dir string)) {
	t.Helper()
	loop := attach(t, image, 2)
	dir := mountAt(t, loop, "ext4")
	do(dir)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	command(t, "", "losetup", "-d", loop)
}

func mountAt(t *testing.T, device, kind string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ortet-test-")
	if err != nil {
		t.Fatal(err)
	}
	options := ""
	if kind == "xfs" {
		options = "nouuid"
	}
	if err := unix.Mount(device, dir, kind, 0, options); err != nil {
		t.Fatalf("mounting %s: %v", device, err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // mostly gone already
		_ = os.Remove(dir)
	})
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hostWith is a host's root like this machine's, whose LUN 3 is the loop device.
func hostWith(t *testing.T, loop string) string {
	t.Helper()
	host := t.TempDir()
	if err := unix.Mount("/", host, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(host, unix.MNT_DETACH) })
	dev := filepath.Join(host, "dev")
	if err := unix.Mount("tmpfs", dev, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, node := range append([]string{loop, "/dev/null"}, glob(t, loop+"p*")...) {
		var st unix.Stat_t
		if err := unix.Stat(node, &st); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(filepath.Join(dev, filepath.Base(node)), st.Mode, int(st.Rdev)); err != nil {
			t.Fatal(err)
		}
	}
	links := filepath.Join(dev, "disk/azure/scsi1")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../"+filepath.Base(loop), links+"/lun3"); err != nil {
		t.Fatal(err)
	}
	return host
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func realRequest(host string) Request {
	r := request(host, 3, Auto)
	r.IsRoot = func(t *tree.Tree) (bool, error) { return t.Exists("/etc/os-release") }
	r.Check = func(*tree.Tree) error { return nil }
	r.Work = func(*tree.Tree) error { return nil }
	return r
}

// idle fails the test unless nothing holds the device: an exclusive open works.
func idle(t *testing.T, device string) {
	t.Helper()
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatalf("%s is still in use: %v", device, err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

// A copy with the UUIDs of a disk that the host has mounted, and a journal that
// was never replayed, is checked, lent with its ESP, changed and given back.
func TestTwinOfAMountedDisk(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	for _, kind := range []Kind{Ext4, XFS} {
		t.Run(string(kind), func(t *testing.T) {
			original := newImage(t, kind)
			dir := mountAt(t, attach(t, original, 2), string(kind))
			write(t, dir, map[string]string{"var/lib/late": "written just before the copy"})
			command(t, "", "sync", "-f", dir)
			copied := filepath.Join(t.TempDir(), "copy")
			command(t, "", "cp", "--sparse=always", original, copied) // while it is mounted: the log is dirty
			loop := attach(t, copied, 0)
			host := hostWith(t, loop)

			r := realRequest(host)
			checked := false
			r.Check = func(tr *tree.Tree) error {
				checked = true
				if err := tr.WriteFile("/etc/x", nil, 0o600); !errors.Is(err, unix.EROFS) {
					t.Errorf("writing during the check: %v, want a read-only file system", err)
				}
				return nil
			}
			r.Work = func(tr *tree.Tree) error {
				if late, err := tr.ReadFile("/var/lib/late", 100); err != nil || len(late) == 0 {
					t.Errorf("what only the journal held: %q, %v", late, err)
				}
				if _, err := tr.Shred("/boot/efi/loader/random-seed"); err != nil {
					return err
				}
				return tr.WriteFile("/etc/done", []byte("yes"), 0o600)
			}
			if err := With(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if !checked {
				t.Error("the disk was changed without a check")
			}
			idle(t, loop)
			root := attach(t, copied, 2)
			if kind == Ext4 {
				command(t, "", "e2fsck", "-f", "-n", root)
			} else {
				command(t, "", "xfs_repair", "-n", root)
			}
			back := mountAt(t, root, string(kind))
			if got, err := os.ReadFile(back + "/etc/done"); err != nil || string(got) != "yes" {
				t.Errorf("after it: %q, %v", got, err)
			}
			esp := mountAt(t, attach(t, copied, 1), espKind(t))
			if _, err := os.Stat(esp + "/loader/random-seed"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the ESP still has its random seed: %v", err)
			}
			if _, err := os.Stat(dir + "/etc/done"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the twin that the host has mounted was changed: %v", err)
			}
		})
	}
}

func TestRefusedDisksStayAsTheyWere(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	image := newImage(t, Ext4)
	wrong := errors.New("somebody else's")
	for _, c := range []struct {
		name  string
		setup func(t *testing.T, loop string, r *Request)
		want  string
	}{
		{"claimed", func(t *testing.T, loop string, _ *Request) {
			fd, err := unix.Open(loop, unix.O_RDONLY|unix.O_EXCL, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
		}, "in use"},
		{"somebody else's", func(_ *testing.T, _ string, r *Request) {
			r.Check = func(*tree.Tree) error { return wrong }
		}, wrong.Error()},
		{"no system", func(_ *testing.T, _ string, r *Request) {
			r.IsRoot = func(*tree.Tree) (bool, error) { return false, nil }
		}, "no partition holds the root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			loop := attach(t, image, 0)
			r := realRequest(hostWith(t, loop))
			r.Work = func(*tree.Tree) error { return errors.New("worked on") }
			before := command(t, "", "sha256sum", image)
			c.setup(t, loop, &r)
			err := With(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if after := command(t, "", "sha256sum", image); after != before {
				t.Error("a refused disk was changed")
			}
		})
	}
}

// State on another disk cannot be cleaned, so it is not left to chance.
func TestStateOnAnotherDisk(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	image := newImage(t, Ext4)
	inside(t, image, func(dir string) {
		write(t, dir, map[string]string{"etc/fstab": "UUID=0000 /var ext4 defaults 0 2\n"})
	})
	loop := attach(t, image, 0)
	r := realRequest(hostWith(t, loop))
	r.Work = func(*tree.Tree) error { return errors.New("worked on") }
	refusal := (*RefusedError)(nil)
	if err := With(t.Context(), r); !errors.As(err, &refusal) {
		t.Fatalf("error %v, want a refusal", err)
	}
	idle(t, loop)
}

// A link on the disk cannot make a partition be mounted over the host's tree.
func TestMountPointsStayOnTheDisk(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	image := newImage(t, Ext4)
	inside(t, image, func(dir string) {
		if err := errors.Join(os.Remove(dir+"/boot/efi"), os.Symlink("/../../../../etc", dir+"/boot/efi")); err != nil {
			t.Fatal(err)
		}
	})
	loop := attach(t, image, 0)
	r := realRequest(hostWith(t, loop))
	r.Work = func(tr *tree.Tree) error {
		if _, err := os.Stat("/etc/loader/random-seed"); err == nil {
			return errors.New("the partition covers this machine's /etc")
		}
		if ok, err := tr.Exists("/etc/loader/random-seed"); err != nil || !ok {
			return fmt.Errorf("the link leads elsewhere than to the disk's own /etc: %v, %w", ok, err)
		}
		return nil
	}
	if err := With(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	idle(t, loop)
}

// A file system without a partition table, mounted by the host, is let alone.
func TestMountedDiskIsRefused(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	image := filepath.Join(t.TempDir(), "image")
	command(t, "", "truncate", "-s", "16M", image)
	loop := attach(t, image, 0)
	command(t, "", "mkfs.ext4", "-q", loop)
	mountAt(t, loop, "ext4")
	r := realRequest(hostWith(t, loop))
	r.Work = func(*tree.Tree) error { return errors.New("worked on") }
	refusal := (*RefusedError)(nil)
	if err := With(t.Context(), r); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "is mounted at") {
		t.Fatalf("error %v, want a refusal that names the mount point", err)
	}
}

// Partitions that the kernel knows are used as they are, and one of them that is
// mounted makes the disk refused.
func TestKernelPartitions(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	if _, err := exec.LookPath("partx"); err != nil {
		t.Skip("NOT TESTED: partx is not installed")
	}
	image := newImage(t, Ext4)
	loop := attach(t, image, 0)
	command(t, "", "partx", "-a", loop)
	t.Cleanup(func() { forgetPartitions(t, loop) })
	host := hostWith(t, loop)
	r := realRequest(host)
	r.Work = func(tr *tree.Tree) error {
		if ok, err := tr.Exists("/boot/efi/loader/random-seed"); err != nil || !ok {
			return fmt.Errorf("the second partition is not mounted: %v, %w", ok, err)
		}
		return tr.WriteFile("/etc/done", []byte("yes"), 0o600)
	}
	if err := With(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	idle(t, loop)
	dir := mountAt(t, loop+"p2", "ext4")
	if got, err := os.ReadFile(dir + "/etc/done"); err != nil || string(got) != "yes" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	refusal := (*RefusedError)(nil)
	if err := With(t.Context(), r); !errors.As(err, &refusal) {
		t.Errorf("error %v with a partition mounted, want a refusal", err)
	}
}
