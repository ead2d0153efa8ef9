package boot

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// disk counts what was read from the OS disk, before this program reads anything of it.
func (c *collection) disk() {
	if !c.o.own() {
		return
	}
	device, bytes, ok := diskRead(c.o.under)
	if now, known := readClocks(); ok && known {
		c.read = wire.BootSource{Name: wire.SourceDiskRead, Path: "/dev/" + device, State: wire.SourceRead,
			Detail: wire.DiskRead(bytes, now.Monotonic)}
	}
}

// diskRead returns the disk of the root file system and how many bytes were read from it since the
// kernel found it. Of a file system on several disks, on none and on a loop device it is not known.
// Source of fact: the kernel's Documentation/block/stat.rst; a sector is 512 bytes.
func diskRead(under func(string) string) (device string, bytes int64, ok bool) {
	mounts, _ := readSmall(under("/proc/self/mountinfo")) // without it no disk is found
	number, _ := rootDevice(mounts)
	dir, err := filepath.EvalSymlinks(under("/sys/dev/block/" + number))
	for range 4 { // a logical volume on an encrypted one on a partition of a disk
		below, _ := filepath.Glob(filepath.Join(dir, "slaves", "*")) // the pattern is good
		if _, part := os.Stat(filepath.Join(dir, "partition")); err == nil && part == nil {
			dir = filepath.Dir(dir)
		} else if len(below) == 1 {
			dir, err = filepath.EvalSymlinks(below[0])
		} else if len(below) > 1 {
			return "", 0, false
		}
	}
	stat, unread := readSmall(filepath.Join(dir, "stat"))
	f := strings.Fields(stat)
	if device = filepath.Base(dir); err != nil || unread != nil || len(f) < 3 || strings.HasPrefix(device, "loop") {
		return "", 0, false
	}
	sectors, err := strconv.ParseInt(f[2], 10, 50)
	return device, sectors * 512, err == nil
}

// rootDevice returns the number of the root file system's device, and whether it is btrfs, by mountinfo.
func rootDevice(mounts string) (number string, btrfs bool) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" { // the last one is seen
			number, btrfs = f[2], strings.Contains(line, " - btrfs ")
		}
	}
	return number, btrfs
}
