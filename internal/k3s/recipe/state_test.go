package recipe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/recipe"
)

// stateDisk is where boot.py finds the state disk: an image file.
const stateDisk = "/dev/disk/azure/scsi1/lun0"

// newStateWorld is a server whose mounts are real, in a mount namespace of each boot.
func newStateWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil || os.Geteuid() != 0 {
		t.Skipf("mounts need root: %v %s", err, out)
	}
	mount, err := exec.LookPath("mount")
	if err != nil {
		t.Skip(err)
	}
	w.program(w.programs+"/mount", `echo "mount $*" >>"$ORTET_ROOT/commands"
case "$*" in *cifs*) ;; *) exec `+mount+` "$@" ;; esac`)
	w.wrap = []string{"unshare", "--mount", "--propagation", "private"}
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key", "private", 0o600)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	return w
}

// onDisk runs a command of debugfs on the state disk.
func (w *world) onDisk(command string) string {
	w.t.Helper()
	out, err := exec.Command("debugfs", "-w", "-R", command, w.root+stateDisk).Output()
	if err != nil {
		w.t.Fatalf("debugfs %s: %v", command, err)
	}
	return string(out)
}

// another makes the virtual machine again: its disk of the system is new.
func (w *world) another() {
	w.t.Helper()
	disk := w.t.TempDir() + "/disk"
	if err := errors.Join(os.Rename(w.root+stateDisk, disk), os.RemoveAll(w.root), os.MkdirAll(w.root+"/dev/disk/azure/scsi1", 0o755), os.Rename(disk, w.root+stateDisk)); err != nil {
		w.t.Fatal(err)
	}
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key", "another", 0o600)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAanother root@server\n", 0o644)
	w.put(w.root+"/etc/ssh/ssh_host_mldsa_key", "of a newer image", 0o600)
}

// failure waits until the boot reports a reason, which is to have this text, and kills it.
func (w *world) failure(want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	before := len(w.states) // no boot runs
	wait := w.start(ctx)
	ended := make(chan string, 1)
	go func() {
		out, _ := wait()
		ended <- out
	}()
	reason := ""
	eventually(w.t, "the boot reports a reason", func() bool {
		select {
		case out := <-ended:
			w.t.Fatalf("the boot ended, and did not report %q:\n%s", want, out)
		default:
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		states := w.states[before:]
		if i := slices.IndexFunc(states, func(state string) bool { return strings.Contains(state, ": ") }); i >= 0 {
			reason = states[i]
		}
		return reason != ""
	})
	cancel()
	<-ended
	if !strings.Contains(reason, want) {
		w.t.Errorf("the boot reported %q, want %q", reason, want)
	}
	if _, err := os.Stat(w.root + "/run/ortet/booted"); err == nil {
		w.t.Error("the boot went on")
	}
}

// partition writes what sgdisk -o does: an empty GPT, or its backup alone.
func partition(t *testing.T, disk string, backupOnly bool) {
	t.Helper()
	const sector, entrySectors = 512, 32
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	last := uint64(size/sector - 1)
	entries := make([]byte, entrySectors*sector)
	header := func(at, other, entriesAt uint64) []byte {
		var b []byte
		for _, field := range []any{
			[]byte("EFI PART"), uint32(1 << 16), uint32(92), uint32(0), uint32(0), at, other,
			uint64(2 + entrySectors), last - 1 - entrySectors, []byte("a disk's own id."), entriesAt, uint32(128), uint32(128), crc32.ChecksumIEEE(entries),
		} {
			b, _ = binary.Append(b, binary.LittleEndian, field) // of fixed size: no error
		}
		binary.LittleEndian.PutUint32(b[16:], crc32.ChecksumIEEE(b))
		return append(b, make([]byte, sector-len(b))...)
	}
	mbr := make([]byte, sector)
	copy(mbr[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(mbr[458:], uint32(last))
	copy(mbr[510:], []byte{0x55, 0xaa})
	if !backupOnly {
		_, wrong := f.WriteAt(slices.Concat(mbr, header(1, last, 2), entries), 0)
		err = errors.Join(err, wrong)
	}
	_, wrong := f.WriteAt(append(entries, header(last, 1, last-entrySectors)...), size-(1+entrySectors)*sector)
	if err := errors.Join(err, wrong, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestStateDiskIsFormattedOnce(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t)
	if out := w.boot(); !strings.Contains(out, "formatting the state disk, which is blank") {
		t.Errorf("a blank disk was not formatted:\n%s", out)
	}
	for name, target := range map[string]string{"server": "/var/lib/rancher/k3s/server", "storage": "/var/lib/rancher/k3s/storage", "node": "/etc/rancher/node"} {
		if want := "mount --bind " + w.root + "/var/lib/ortet/state/" + name + " " + w.root + target + "\n"; !strings.Contains(w.read("/commands"), want) {
			t.Errorf("commands lack %s:\n%s", want, w.read("/commands"))
		}
	}
	// What boot.py writes below k3s's folder is on the disk, so the folder is bound.
	if got := w.onDisk("cat /server/manifests/ortet-admission.yaml"); !strings.Contains(got, "ValidatingAdmissionPolicy") {
		t.Errorf("the disk has the manifest %q", got)
	}
	w.put(w.root+"/of-k3s", "a datastore", 0o600)
	w.onDisk("write " + w.root + "/of-k3s /server/of-k3s")
	w.onDisk("write " + w.root + "/of-k3s /node/password")
	w.another()
	if out := w.boot(); strings.Contains(out, "formatting") {
		t.Errorf("the disk was formatted again:\n%s", out)
	}
	for _, file := range []string{"/server/of-k3s", "/node/password"} {
		if got := w.onDisk("cat " + file); got != "a datastore" {
			t.Errorf("%s is %q after another virtual machine booted", file, got)
		}
	}
	for file, want := range map[string]string{"ssh_host_ed25519_key": "private", "ssh_host_ed25519_key.pub": "ssh-ed25519 AAAAhost root@server\n", "ssh_host_mldsa_key": "of a newer image"} {
		if got, kept := w.read("/etc/ssh/"+file), w.onDisk("cat /ssh/"+file); got != want || kept != want {
			t.Errorf("%s is %q, and %q on the disk, want %q", file, got, kept, want)
		}
	}
	if i, err := os.Stat(w.root + "/etc/ssh/ssh_host_ed25519_key"); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", i, err)
	}
	if strings.Count(w.read("/commands"), "try-restart --no-block ssh.service\n") != 1 {
		t.Errorf("sshd was not restarted once with its keys:\n%s", w.read("/commands"))
	}
}

// A host key whose copy was interrupted is copied by the next boot.
func TestHostKeysAreCopiedAfterAnInterruption(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t)
	w.boot()
	w.onDisk("rm /ssh/ssh_host_ed25519_key.pub")
	w.boot()
	if got := w.onDisk("cat /ssh/ssh_host_ed25519_key.pub"); got != "ssh-ed25519 AAAAhost root@server\n" {
		t.Errorf("the disk has %q", got)
	}
}

func TestStateDiskGrows(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t)
	w.boot()
	if err := os.Truncate(w.root+stateDisk, 64<<20); err != nil {
		t.Fatal(err)
	}
	w.boot()
	out, err := exec.Command("blkid", "-p", "-o", "value", "-s", "FSSIZE", w.root+stateDisk).Output()
	if super := w.onDisk("show_super_stats -h"); err != nil || !strings.Contains(super, "Block count:              65536\n") {
		t.Errorf("%s %v: the file system did not grow:\n%s", out, err, super)
	}
}

func TestStateDiskThatComesLater(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t)
	if err := os.Rename(w.root+stateDisk, w.root+"/disk"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx)
	eventually(t, "the tag has the reason", func() bool { return strings.Contains(w.tag(recipe.TagBoot), "no disk at LUN 0 yet") })
	if err := os.Rename(w.root+"/disk", w.root+stateDisk); err != nil {
		t.Fatal(err)
	}
	if out, err := wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.read("/run/ortet/booted")
}

func TestForeignDiskIsLeftAlone(t *testing.T) {
	t.Parallel()
	const neither = "the disk at LUN 0 is neither blank nor a state disk: "
	type table int
	const (
		none table = iota
		whole
		backup
	)
	for name, c := range map[string]struct {
		script string
		table  table // written after the script
		want   string
	}{
		"another label":              {`mkfs.ext4 -q -L data "$1"`, none, neither + "DEVNAME="},
		"a longer label":             {`mkfs.ext4 -q -L "ortet-state x" "$1"`, none, neither + "DEVNAME="},
		"no label":                   {`mkfs.ext4 -q "$1"`, none, neither + "DEVNAME="},
		"another file system":        {`mkfs.ext2 -q -L ortet-state "$1"`, none, neither + "DEVNAME="},
		"swap":                       {`mkswap -q "$1"`, none, neither + "DEVNAME="},
		"LUKS":                       {`printf 'LUKS\272\276\000\001aes' | dd of="$1" conv=notrunc status=none`, none, neither},
		"LVM":                        {`printf 'LABELONE\001\0\0\0\0\0\0\0aaaa\040\0\0\0LVM2 001' | dd of="$1" bs=512 seek=1 conv=notrunc status=none`, none, neither},
		"a table of partitions":      {`true`, whole, neither + "DEVNAME="},
		"a table at its end":         {`true`, backup, neither},
		"two signatures":             {`mkfs.ext4 -q -L ortet-state "$1"`, whole, neither},
		"data":                       {`dd if=/dev/urandom of="$1" bs=4k count=1 seek=1 conv=notrunc status=none`, none, neither + "it has data without a signature"},
		"data in the middle":         {`truncate -s 64M "$1"; dd if=/dev/urandom of="$1" bs=1M count=8 seek=30 conv=notrunc status=none`, none, neither + "it has data without a signature"},
		"data at its end":            {`printf x | dd of="$1" bs=1 seek=16777215 conv=notrunc status=none`, none, neither + "it has data without a signature"},
		"damage that needs a person": {`mkfs.ext4 -q -L ortet-state "$1"; debugfs -w -R "clri <2>" "$1"`, none, "fsck.ext4 -f -p: exit code 4: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t)
			disk := w.root + stateDisk
			if out, err := exec.Command("sh", "-ec", c.script, "sh", disk).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if c.table != none {
				partition(t, disk, c.table == backup)
			}
			before := w.read(stateDisk)
			w.failure(c.want)
			// fsck.ext4 notes in the superblock that the file system has errors.
			if !strings.HasPrefix(c.want, "fsck") && w.read(stateDisk) != before {
				t.Error("the disk changed")
			}
			if strings.Contains(w.read("/commands"), "mount -t ext4") {
				t.Errorf("the disk was mounted:\n%s", w.read("/commands"))
			}
		})
	}
}

func TestStateDiskIsCorrected(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t)
	w.boot()
	w.onDisk("set_inode_field /server links_count 9")
	if err := exec.Command("fsck.ext4", "-f", "-n", w.root+stateDisk).Run(); err == nil {
		t.Fatal("the file system is not damaged")
	}
	if out := w.boot(); strings.Contains(out, "formatting") {
		t.Error(out)
	}
	if out, err := exec.Command("fsck.ext4", "-f", "-n", w.root+stateDisk).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
