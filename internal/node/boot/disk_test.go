package boot

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// What was read is counted by the whole disk that the root file system is on, through partitions and
// logical volumes; where that is not one disk of this machine it is unknown.
func TestDiskOfTheRoot(t *testing.T) {
	const sda = "sys/devices/host0/block/sda/"
	files := map[string]string{
		sda + "stat": "  1200  10  80000 900 0 0 0 0 0 0 0\n", sda + "sda1/partition": "1\n", sda + "sda1/stat": " 1 1 8 1\n", sda + "sda4/partition": "4\n",
		"sys/devices/virtual/block/dm-0/dm/name": "rootvg-rootlv\n", "sys/devices/virtual/block/loop3/stat": " 5 5 5 5\n",
		"sys/devices/virtual/block/md0/stat": " 5 5 5 5\n", "sys/devices/host0/block/sdb/stat": "broken\n",
	}
	for name, c := range map[string]struct {
		root, device string
		bytes        int64
	}{
		"partition":            {"8:1", "sda", 80000 * 512},
		"whole disk":           {"8:0", "sda", 80000 * 512},
		"logical volume":       {"253:0", "sda", 80000 * 512},
		"loop device":          {"7:3", "", 0},
		"two disks":            {"9:0", "", 0},
		"a count that is none": {"8:16", "", 0},
		"overlay, btrfs":       {"0:35", "", 0},
	} {
		files["proc/self/mountinfo"] = "21 1 0:2 / / rw - rootfs rootfs rw\n22 21 8:2 / /boot rw - ext4 /dev/sda2 rw\n23 21 " + c.root + " / / rw,relatime shared:1 - ext4 /dev/root rw\n"
		root := tree(t, files)
		for from, to := range map[string]string{
			"sys/dev/block/8:0": "devices/host0/block/sda", "sys/dev/block/8:1": "devices/host0/block/sda/sda1", "sys/dev/block/253:0": "devices/virtual/block/dm-0",
			"sys/dev/block/7:3": "devices/virtual/block/loop3", "sys/dev/block/9:0": "devices/virtual/block/md0", "sys/dev/block/8:16": "devices/host0/block/sdb",
			"sys/devices/virtual/block/dm-0/slaves/sda4": "devices/host0/block/sda/sda4",
			"sys/devices/virtual/block/md0/slaves/sda1":  "devices/host0/block/sda/sda1", "sys/devices/virtual/block/md0/slaves/sdb": "devices/host0/block/sdb",
		} {
			path := filepath.Join(root, from)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(root, "sys", to), path); err != nil {
				t.Fatal(err)
			}
		}
		device, bytes, ok := diskRead(func(path string) string { return filepath.Join(root, path) })
		if ok != (c.device != "") || ok && (device != c.device || bytes != c.bytes) {
			t.Errorf("%s: %d bytes of %q, %v; want %d of %q", name, bytes, device, ok, c.bytes, c.device)
		}
	}
	if _, _, ok := diskRead(func(path string) string { return filepath.Join(t.TempDir(), path) }); ok {
		t.Error("a disk is found where no kernel tells of any")
	}
}

// A clone of a baked image is reported as one where kubelet-early gains time, and no other machine.
func TestBakedClone(t *testing.T) {
	clone := func(change func(files map[string]string)) map[string]string {
		files := map[string]string{"var/log/ancestry.log": "2026-11-21T12:00:00Z donor capture\n", "var/lib/cloud/instance/user-data.txt": "#cloud-config\n",
			"proc/self/mountinfo": "23 21 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n", "dev/sda": "", "dev/sda1": "",
			"sys/class/block/sda/stat": "", "sys/class/block/sda1/partition": "1\n",
			"sys/devices/block/sda/sda1/partition": "1\n", "sys/devices/virtual/block/dm-0/stat": ""}
		change(files)
		return files
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"baked": {clone(func(map[string]string) {}), true},
		"keep": {clone(func(f map[string]string) {
			f["var/lib/cloud/instance/user-data.txt"] = "#cloud-config\nruncmd: [join]\n"
		}), false},
		"no user data":   {clone(func(f map[string]string) { delete(f, "var/lib/cloud/instance/user-data.txt") }), false},
		"generic":        {clone(func(f map[string]string) { delete(f, "var/log/ancestry.log") }), false},
		"temporary disk": {clone(func(f map[string]string) { f["dev/sdb"], f["sys/class/block/sdb/stat"] = "", "" }), false},
		"local NVMe":     {clone(func(f map[string]string) { f["dev/nvme0n1"], f["sys/class/block/nvme0n1/stat"] = "", "" }), false},
		"LVM": {clone(func(f map[string]string) {
			f["proc/self/mountinfo"] = "23 21 253:0 / / rw - ext4 /dev/mapper/root rw\n"
		}), false},
		"btrfs":            {clone(func(f map[string]string) { f["proc/self/mountinfo"] = "23 21 0:35 /root / rw - btrfs /dev/sda1 rw\n" }), false},
		"no kernel's word": {clone(func(f map[string]string) { delete(f, "proc/self/mountinfo") }), false},
	} {
		root := tree(t, c.files)
		for from, to := range map[string]string{"8:1": "block/sda/sda1", "253:0": "virtual/block/dm-0"} {
			link := filepath.Join(root, "sys/dev/block", from)
			if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(root, "sys/devices", to), link)); err != nil {
				t.Fatal(err)
			}
		}
		report := Collect(t.Context(), Options{Root: root}, time.Now(), slog.New(slog.DiscardHandler))
		if has := slices.ContainsFunc(report.Sources, func(s wire.BootSource) bool { return s.Name == wire.SourceBaked }); has != c.want {
			t.Errorf("%s: %v, want %v", name, has, c.want)
		}
	}
}

// The facts of a report stay in an annotation that has no room for words.
func TestFactsOutliveDetails(t *testing.T) {
	r := large(400, 4000)
	r.Sources = []wire.BootSource{{Name: wire.SourceDiskRead, Path: "/dev/sda", State: wire.SourceRead, Detail: wire.DiskRead(4096, 5e6)},
		{Name: wire.SourceEarlierBoots, State: wire.SourceRead, Detail: wire.EarlierBoots(1, 600e6)}}
	value, err := encodeReduced(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeBootAnnotation(value)
	if err != nil {
		t.Fatal(err)
	}
	if bytes, at, ok := wire.ParseDiskRead(got.Sources[0]); !ok || bytes != 4096 || at != 5e6 {
		t.Errorf("%d bytes by %d, of %+v", bytes, at, got.Sources)
	}
	if n, before, ok := wire.ParseEarlierBoots(got.Sources[1]); !ok || n != 1 || before != 600e6 {
		t.Errorf("%d boots, the first by %d before, of %+v", n, before, got.Sources)
	}
}
