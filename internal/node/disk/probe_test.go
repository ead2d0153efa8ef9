package disk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestProbe(t *testing.T) {
	const uuid = "6d1b3c8e-0f4a-4a51-9a52-0123456789ab"
	for _, c := range []struct {
		name, size string
		args       []string
		want       Superblock
	}{
		{"ext4", "16M", []string{"mkfs.ext4", "-q", "-U", uuid, "-L", "root"}, Superblock{Ext4, uuid, "root"}},
		{"xfs", "320M", []string{"mkfs.xfs", "-q", "-m", "uuid=" + uuid, "-L", "root"}, Superblock{XFS, uuid, "root"}},
		{"fat16", "16M", []string{"mkfs.vfat", "-F", "16", "-i", "ABCD1234", "-n", "UEFI"}, Superblock{VFAT, "ABCD-1234", "UEFI"}},
		{"fat32", "64M", []string{"mkfs.vfat", "-F", "32", "-i", "00CD1234", "-n", "UEFI"}, Superblock{VFAT, "00CD-1234", "UEFI"}},
		{"swap", "1M", []string{"mkswap", "-q", "-U", uuid}, Superblock{Swap, uuid, ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool, err := exec.LookPath(c.args[0])
			if err != nil {
				t.Skipf("NOT TESTED: %s is not installed", c.args[0])
			}
			image := filepath.Join(t.TempDir(), "image")
			f, err := os.Create(image)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if err := f.Truncate(sizes[c.size]); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(tool, append(c.args[1:], image)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got, err := Probe(f)
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

var sizes = map[string]int64{"1M": 1 << 20, "16M": 16 << 20, "64M": 64 << 20, "320M": 320 << 20}

func FuzzSuperblock(f *testing.F) {
	f.Add([]byte("XFSB"))
	f.Add(bytes.Repeat([]byte{0x55, 0xaa}, 300))
	f.Add(append(make([]byte, 512), "LABELONE"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		sb := parseSuperblock(b)
		if sb.Kind == Unknown && sb.UUID != "" {
			t.Errorf("a UUID %q of nothing", sb.UUID)
		}
	})
}

func FuzzFstab(f *testing.F) {
	f.Add([]byte("UUID=1 / ext4 defaults 0 1\nLABEL=UEFI /boot/efi vfat\n/dev/sdb1 /mnt\\040x auto\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range parseFstab(b) {
			if e.dir == "/" || e.dir[0] != '/' {
				t.Errorf("mount point %q", e.dir)
			}
		}
	})
}
