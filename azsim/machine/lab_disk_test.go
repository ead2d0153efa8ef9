//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/azsim"
)

var platform = azsim.Source{Platform: "debian:debian-12:12-gen2:latest"}

// seed makes digests comparable within a run of the tests.
var seed = maphash.MakeSeed()

// digest is a fast hash of all of a volume's bytes. Holes are skipped, and blocks
// of zeros with them, so that it does not matter where a copy has its holes.
func digest(t *testing.T, s *Substrate, v azsim.Volume) uint64 {
	t.Helper()
	f, err := os.Open(s.VolumeFile(v))
	must(t, err)
	defer f.Close()
	var h maphash.Hash
	h.SetSeed(seed)
	block, zeros := make([]byte, 4096), make([]byte, 4096)
	for at := int64(0); ; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return h.Sum64()
		}
		must(t, err)
		if at, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		for ; start < at; start += int64(len(block)) {
			if _, err := f.ReadAt(block, start); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(block, zeros) {
				maphash.WriteComparable(&h, start)
				_, _ = h.Write(block) // never fails
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A stopped machine's disk is clean; a snapshot of it is the disk, stays so when
// the machine runs on, and the machine is itself again.
func TestSnapshotOfStoppedMachine(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	c := instance(1)
	boot(ctx, t, s, c, platform)
	before := command(ctx, t, s, c.ID, "sh", "-c", "cat /etc/machine-id /etc/hostname /etc/ssh/ssh_host_*.pub")
	must(t, s.Shutdown(ctx, c.ID, true))

	snapshot := azsim.Volume("/snapshots/one")
	must(t, s.CreateVolume(ctx, snapshot, azsim.Source{Volume: c.OSDisk}))
	sum := digest(t, s, snapshot)
	if disk := digest(t, s, c.OSDisk); disk != sum {
		t.Errorf("the snapshot differs from the stopped disk")
	}
	if out := rootCheck(t, s, snapshot); !strings.Contains(out, "clean") {
		t.Errorf("the disk of a stopped machine is not clean: %s", out)
	}

	c.Provision = false
	boot(ctx, t, s, c, azsim.Source{})
	if after := command(ctx, t, s, c.ID, "sh", "-c", "cat /etc/machine-id /etc/hostname /etc/ssh/ssh_host_*.pub"); after != before {
		t.Errorf("after a restart the machine is another:\n%s\nbefore:\n%s", after, before)
	}
	command(ctx, t, s, c.ID, "sh", "-c", "echo later >/var/lib/later && sync")
	if now := digest(t, s, snapshot); now != sum {
		t.Errorf("the snapshot changed while the machine ran")
	}
}

// rootCheck is what e2fsck says of a volume's root partition, changing nothing.
func rootCheck(t *testing.T, s *Substrate, v azsim.Volume) string {
	t.Helper()
	disk, err := attachLoop(t.Context(), s.VolumeFile(v))
	must(t, err)
	defer func() { must(t, detachLoop(context.Background(), disk.Name, disk.File)) }()
	root, err := disk.root()
	must(t, err)
	out, _ := exec.CommandContext(t.Context(), "e2fsck", "-n", "/dev/"+root.Name).CombinedOutput()
	return string(out)
}

// A snapshot of a running machine holds what was written before it, and its file
// system can be repaired by its journal alone.
func TestSnapshotOfRunningMachine(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	c := instance(1)
	boot(ctx, t, s, c, platform)
	command(ctx, t, s, c.ID, "sh", "-c", "echo before >/var/lib/marker")
	snapshot := azsim.Volume("/snapshots/running")
	must(t, s.CreateVolume(ctx, snapshot, azsim.Source{Volume: c.OSDisk}))
	command(ctx, t, s, c.ID, "sh", "-c", "echo after >/var/lib/marker && sync")

	clone := instance(2)
	boot(ctx, t, s, clone, azsim.Source{Volume: snapshot})
	if got := command(ctx, t, s, clone.ID, "cat", "/var/lib/marker"); got != "before" {
		t.Errorf("the snapshot holds %q", got)
	}
	// The clone started while the donor's disk was mounted, and must not hold it.
	must(t, s.Shutdown(ctx, c.ID, true))
	if out := rootCheck(t, s, c.OSDisk); !strings.Contains(out, "clean") {
		t.Errorf("the disk of a machine that stopped beside another is not clean: %s", out)
	}
}

// A disk that was generalised by hand boots as somebody else; one that was not
// has the donor's machine id and keys, as on Azure.
func TestCloneHasAnIdentityOfItsOwn(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	donor := instance(1)
	boot(ctx, t, s, donor, platform)
	must(t, s.Shutdown(ctx, donor.ID, true))
	identity := "cat /etc/machine-id /etc/hostname; cat /etc/ssh/ssh_host_*.pub | cut -d' ' -f2"

	disk := azsim.Volume("/disks/copy")
	must(t, s.CreateVolume(ctx, disk, azsim.Source{Volume: donor.OSDisk}))
	workbench := instance(2)
	boot(ctx, t, s, workbench, platform)
	must(t, s.Attach(ctx, workbench.ID, 0, disk))
	command(ctx, t, s, workbench.ID, "sh", "-ec", `
		mount /dev/disk/azure/scsi1/lun0-part1 /mnt
		: >/mnt/etc/machine-id
		rm -rf /mnt/etc/ssh/ssh_host_* /mnt/etc/hostname /mnt/var/lib/cloud
		umount /mnt`)
	must(t, s.Detach(ctx, workbench.ID, 0))

	must(t, s.CreateVolume(ctx, "/versions/1", azsim.Source{Volume: disk}))
	seen := map[string]string{}
	donor.Provision = false
	boot(ctx, t, s, donor, azsim.Source{})
	for _, c := range []azsim.Computer{instance(3), instance(4)} {
		boot(ctx, t, s, c, azsim.Source{Volume: "/versions/1"})
	}
	for _, c := range []azsim.Computer{donor, instance(3), instance(4)} {
		for _, line := range strings.Fields(command(ctx, t, s, c.ID, "sh", "-c", identity)) {
			if strings.HasPrefix(line, "ssh-") || strings.HasPrefix(line, "ecdsa-") {
				continue
			}
			if other, ok := seen[line]; ok {
				t.Errorf("%s and %s share %s", c.HostName, other, line)
			}
			seen[line] = c.HostName
		}
		if got := command(ctx, t, s, c.ID, "hostname"); got != c.HostName {
			t.Errorf("%s calls itself %s", c.HostName, got)
		}
	}
}

func TestAttachAndDetach(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	c := instance(1)
	must(t, s.CreateVolume(ctx, "/disks/early", azsim.Source{SizeGB: 1}))
	must(t, s.Attach(ctx, c.ID, 5, "/disks/early")) // before it ran
	boot(ctx, t, s, c, platform)
	if got := command(ctx, t, s, c.ID, "blockdev", "--getsize64", "/dev/disk/azure/scsi1/lun5"); got != "1073741824" {
		t.Errorf("LUN 5 has %s bytes", got)
	}
	must(t, s.CreateVolume(ctx, "/disks/copy", platform))
	for range 2 {
		must(t, s.Attach(ctx, c.ID, 0, "/disks/copy"))
	}
	names := strings.Fields(command(ctx, t, s, c.ID, "ls", "/dev/disk/azure/scsi1", "/dev/disk/azure/data/by-lun"))
	for _, want := range []string{"lun0", "lun0-part1", "lun0-part14", "lun0-part15", "0-part1"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
	command(ctx, t, s, c.ID, "sh", "-ec", "mount /dev/disk/azure/scsi1/lun0-part1 /mnt; echo mark >/mnt/mark")
	if err := s.Detach(ctx, c.ID, 0); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("detaching a mounted disk: %v", err)
	}
	command(ctx, t, s, c.ID, "umount", "/mnt")
	for range 2 {
		must(t, s.Detach(ctx, c.ID, 0))
	}
	if got := command(ctx, t, s, c.ID, "ls", "/dev/disk/azure/scsi1"); got != "lun5" {
		t.Errorf("left after detaching: %s", got)
	}
	if err := s.Attach(ctx, c.ID, 5, "/disks/copy"); err == nil {
		t.Error("a LUN took a second disk")
	}
	must(t, s.DeleteVolume(ctx, "/disks/copy"))
	if err := s.DeleteVolume(ctx, "/disks/early"); err == nil {
		t.Error("an attached disk was deleted")
	}
}

// The guest may restart itself, and then runs on as itself.
func TestMachineRestartsItself(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	c := instance(1)
	boot(ctx, t, s, c, platform)
	first := command(ctx, t, s, c.ID, "cat", "/etc/machine-id")
	booted := command(ctx, t, s, c.ID, "cat", "/proc/sys/kernel/random/boot_id")
	c.Provision = false
	if _, err := s.Exec(ctx, c.ID, nil, "systemctl", "reboot"); err != nil {
		t.Log(err) // its own session may end with it
	}
	deadline, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for now := booted; now == booted || now == ""; {
		if deadline.Err() != nil {
			log, _ := s.Console(ctx, c.ID)
			t.Fatalf("it did not come back: %s", log[max(0, len(log)-2000):])
		}
		time.Sleep(100 * time.Millisecond)
		out, _ := s.Exec(deadline, c.ID, nil, "cat", "/proc/sys/kernel/random/boot_id")
		now = strings.TrimSpace(string(out))
	}
	must(t, s.Boot(deadline, c)) // waits until it is up
	if got := command(ctx, t, s, c.ID, "cat", "/etc/machine-id"); got != first {
		t.Errorf("it came back as another")
	}
	if got := command(ctx, t, s, c.ID, "sh", "-c", "journalctl --list-boots -q | grep -c '^ *[-0-9]'"); got != "2" {
		t.Errorf("its journal knows %s boots", got)
	}

	if _, err := s.Exec(ctx, c.ID, nil, "systemctl", "poweroff"); err != nil {
		t.Log(err)
	}
	for deadline.Err() == nil && s.running(c.ID) {
		time.Sleep(20 * time.Millisecond)
	}
	if loops, err := loopsUnder(s.volumes.dir); err != nil || len(loops) > 0 {
		t.Errorf("off by its own will, it keeps its disks: %v, %v", loops, err)
	}
}

// running says whether the computer runs or is being seen to.
func (s *Substrate) running(id string) bool {
	c := s.known(id)
	c.step.Lock()
	defer c.step.Unlock()
	return c.run != nil
}

// A computer that cannot start leaves nothing; one that is slow goes on starting.
func TestBootsThatFail(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	empty := instance(1)
	must(t, s.CreateVolume(ctx, empty.OSDisk, azsim.Source{SizeGB: 1}))
	if err := s.Boot(ctx, empty); err == nil || !strings.Contains(err.Error(), "partition table") {
		t.Errorf("booting an empty disk: %v", err)
	}
	unknown := instance(2)
	if err := s.Boot(ctx, unknown); err == nil || !strings.Contains(err.Error(), "no such volume") {
		t.Errorf("booting without a disk: %v", err)
	}
	if loops, err := loopsUnder(s.volumes.dir); err != nil || len(loops) > 0 {
		t.Errorf("left: %v, %v", loops, err)
	}
	if left, _ := filepath.Glob(filepath.Join(netnsFolder, s.fabric.prefix+"-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	slow := instance(3)
	slow.CustomData = []byte("#cloud-config\nruncmd:\n- while [ ! -e /run/go-on ]; do sleep 0.1; done\n")
	must(t, s.CreateVolume(ctx, slow.OSDisk, platform))
	short, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := s.Boot(short, slow); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a boot without end: %v", err)
	}
	command(ctx, t, s, slow.ID, "touch", "/run/go-on")
	boot(ctx, t, s, slow, platform)
}

// labChild makes the test binary play a process that runs a machine until it is
// killed.
const labChild = "ORTET_LAB_CHILD"

func TestCleanAfterKill(t *testing.T) {
	if dir := os.Getenv(labChild); dir != "" {
		s, err := New(Config{Dir: dir, Images: map[string]string{"*": labImage(t)}})
		must(t, err)
		c := instance(1)
		must(t, s.CreateVolume(t.Context(), c.OSDisk, platform))
		must(t, s.CreateVolume(t.Context(), "/disks/data", platform))
		must(t, s.Attach(t.Context(), c.ID, 0, "/disks/data"))
		must(t, s.Boot(t.Context(), c))
		must(t, freeze(filepath.Join(s.known(c.ID).dir, "root"))) // the worst moment
		must(t, os.WriteFile(filepath.Join(dir, "up"), nil, 0o600))
		<-t.Context().Done()
	}
	labImage(t)
	dir := labDir(t)
	must(t, Clean(dir))
	must(t, os.RemoveAll(dir))
	child := exec.Command(os.Args[0], "-test.run=^TestCleanAfterKill$", "-test.timeout=3m")
	child.Env = append(os.Environ(), labChild+"="+dir)
	must(t, child.Start())
	for deadline := time.Now().Add(2 * time.Minute); !exists(filepath.Join(dir, "up")) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if err := Clean(dir); err == nil {
		t.Error("machines of a living process were cleaned away")
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // killed
	if left := leftovers(t, dir); len(left) == 0 {
		t.Fatal("the child left nothing, so this shows nothing")
	}
	must(t, Clean(dir))
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left after cleaning: %v", left)
	}
	s, err := New(Config{Dir: dir, Images: map[string]string{"*": labImage(t)}})
	must(t, err)
	c := instance(1)
	c.Provision = false
	boot(t.Context(), t, s, c, azsim.Source{})
	must(t, s.Close())
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left after closing: %v", left)
	}
}

// leftovers are things on the host that belong to a lab in dir.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	mounts, err := mountsUnder(dir)
	must(t, err)
	all := mounts
	loops, err := loopsUnder(dir)
	must(t, err)
	for _, l := range loops {
		all = append(all, l.Name)
	}
	for _, pattern := range []string{"/run/netns/%", "/sys/class/net/%", "/sys/fs/cgroup/*/%", "/sys/fs/cgroup/%", dir + "/runc/%"} {
		found, err := filepath.Glob(strings.ReplaceAll(pattern, "%", Prefix(dir)+"*"))
		must(t, err)
		all = append(all, found...)
	}
	return all
}

func TestCopyKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	f, err := os.Create(from)
	must(t, err)
	for _, at := range []int64{0, 300 << 20, 900 << 20} {
		_, err := f.WriteAt([]byte("data"), at)
		must(t, err)
	}
	must(t, f.Truncate(1<<30))
	must(t, f.Close())
	must(t, copySparse(t.Context(), from, to, 2<<30))
	var stat unix.Stat_t
	must(t, unix.Stat(to, &stat))
	if stat.Size != 2<<30 || stat.Blocks*512 > 1<<20 {
		t.Errorf("the copy has %d bytes, %d on disk", stat.Size, stat.Blocks*512)
	}
	g, err := os.Open(to)
	must(t, err)
	defer g.Close()
	for _, at := range []int64{0, 300 << 20, 900 << 20} {
		b := make([]byte, 5)
		_, err := g.ReadAt(b, at)
		must(t, err)
		if string(b) != "data\x00" {
			t.Errorf("at %d: %q", at, b)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := copySparse(ctx, from, filepath.Join(dir, "third"), 0); err == nil {
		if _, reflink := os.Stat(filepath.Join(dir, "third")); reflink != nil {
			t.Error("a cancelled copy reported success")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A data disk is there at the first boot, and what is on it outlives its machine: by
// itself, and by a snapshot that was made while it was written to.
func TestDataDiskOutlivesItsMachine(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	state, copied, second := azsim.Volume("/disks/state"), azsim.Volume("/disks/copied"), instance(2)
	must(t, s.CreateVolume(ctx, state, azsim.Source{SizeGB: 1}))
	first := instance(1)
	first.DataDisks = map[int32]azsim.Volume{0: state}
	boot(ctx, t, s, first, platform)
	command(ctx, t, s, first.ID, "sh", "-ec", `
		test "$(readlink -f /dev/disk/azure/scsi1/lun0)" = "$(readlink -f /dev/disk/azure/data/by-lun/0)"
		mkfs.ext4 -q -L state /dev/disk/azure/data/by-lun/0
		mount /dev/disk/azure/data/by-lun/0 /mnt
		echo kept >/mnt/kept
		(while echo more >>/mnt/log; do cp /mnt/log /mnt/log.$((i = (i + 1) % 50)); done) >/dev/null 2>&1 &
		sleep 1`)
	snapshot := azsim.Volume("/snapshots/state")
	must(t, s.CreateVolume(ctx, snapshot, azsim.Source{Volume: state}))
	if out, err := exec.CommandContext(ctx, "e2fsck", "-fn", s.VolumeFile(snapshot)).CombinedOutput(); err != nil {
		t.Errorf("the snapshot is damaged: %v\n%s", err, out)
	}
	command(ctx, t, s, first.ID, "sh", "-ec", "echo later >/mnt/later; sync")
	must(t, s.Shutdown(ctx, first.ID, true))
	must(t, s.GrowVolume(ctx, state, 2))
	must(t, s.Remove(ctx, first.ID))

	must(t, s.CreateVolume(ctx, copied, azsim.Source{Volume: snapshot, SizeGB: 1}))
	second.DataDisks = map[int32]azsim.Volume{0: state, 1: copied}
	boot(ctx, t, s, second, platform)
	got := command(ctx, t, s, second.ID, "sh", "-ec", `
		e2fsck -fp /dev/disk/azure/scsi1/lun0 >/dev/null
		resize2fs /dev/disk/azure/scsi1/lun0 >/dev/null 2>&1 # a mounted one is refused: machines lack CAP_SYS_RESOURCE
		for n in 0 1; do
			blockdev --getsize64 /dev/disk/azure/scsi1/lun$n
			blkid -p -s LABEL -o value /dev/disk/azure/scsi1/lun$n
			mkdir -p /mnt/$n && mount /dev/disk/azure/scsi1/lun$n /mnt/$n
			cat /mnt/$n/kept && ls /mnt/$n | grep -c later || true
		done
		stat -f -c '%b' /mnt/0`)
	lines := strings.Split(got, "\n")
	if want := "2147483648 state kept 1 1073741824 state kept 0"; len(lines) != 9 || strings.Join(lines[:8], " ") != want || !strings.HasPrefix(lines[8], "5") {
		t.Errorf("the second machine has %q, want %s and more than 500,000 blocks", lines, want)
	}
	if err := s.GrowVolume(ctx, state, 3); err == nil {
		t.Error("a disk grew while a machine ran with it")
	}
}
