//go:build linux

package machine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/azsim"
)

// Attach implements azsim.Substrate. In a computer that does not run, the disk
// appears at its next boot.
func (s *Substrate) Attach(ctx context.Context, id string, lun int32, v azsim.Volume) error {
	c, err := s.computer(id)
	if err != nil {
		return err
	}
	c.step.Lock()
	defer c.step.Unlock()
	if there, ok := c.luns[lun]; ok && there != v {
		return fmt.Errorf("attach %s to %s: LUN %d holds %s", v, id, lun, there)
	}
	if !exists(s.volumes.file(v)) {
		return fmt.Errorf("attach %s to %s: there is no such volume", v, id)
	}
	if c.run != nil && c.run.running() {
		dev, err := c.dev()
		if err != nil {
			return fmt.Errorf("attach %s to %s: %w", v, id, err)
		}
		defer dev.Close()
		if err := s.plug(ctx, c, dev, lun, v); err != nil {
			return fmt.Errorf("attach %s to %s: %w", v, id, err)
		}
	}
	c.luns[lun] = v
	return nil
}

// Detach implements azsim.Substrate. A disk that is still mounted in the
// computer is refused, since its bytes would go on changing; Azure's detach
// waits for the guest in the same way. An empty LUN is no error.
func (s *Substrate) Detach(ctx context.Context, id string, lun int32) error {
	c := s.known(id)
	if c == nil {
		return nil
	}
	c.step.Lock()
	defer c.step.Unlock()
	v, ok := c.luns[lun]
	if !ok {
		return nil
	}
	if c.run != nil && c.run.running() {
		if err := s.unplug(ctx, c, lun, v); err != nil {
			return fmt.Errorf("detach LUN %d of %s: %w", lun, id, err)
		}
	}
	delete(c.luns, lun)
	return nil
}

// plug makes a volume appear in a computer whose devices are in dev.
func (s *Substrate) plug(ctx context.Context, c *computer, dev *os.Root, lun int32, v azsim.Volume) error {
	disk, err := s.volumes.claim(ctx, v, c.id)
	if err != nil {
		return err
	}
	if err := show(dev, disk, lunLinks(c.desc.NVMe, lun)); err != nil {
		return errors.Join(err, hide(dev, disk, lunLinks(c.desc.NVMe, lun)), s.volumes.release(context.WithoutCancel(ctx), v))
	}
	return nil
}

// unplug takes a volume out of a running computer.
func (s *Substrate) unplug(ctx context.Context, c *computer, lun int32, v azsim.Volume) error {
	locked, unlock := s.volumes.lock(v)
	disk := locked[0].disk
	unlock()
	if disk == nil {
		return nil
	}
	busy, err := disk.inUse()
	if err != nil {
		return err
	}
	if busy {
		return fmt.Errorf("%s (%s) is mounted in the computer, or in a pod there; unmount it first", disk.Name, v)
	}
	dev, err := c.dev()
	if err != nil {
		return err
	}
	defer dev.Close()
	return errors.Join(hide(dev, disk, lunLinks(c.desc.NVMe, lun)), s.volumes.release(ctx, v))
}

// lunLinks are the names, under /dev/disk/azure, that the udev rules of Azure's
// agent and of azure-vm-utils give to a data disk.
func lunLinks(nvme bool, lun int32) []string {
	byLUN := fmt.Sprintf("data/by-lun/%d", lun)
	if nvme {
		return []string{byLUN}
	}
	return []string{byLUN, fmt.Sprintf("scsi1/lun%d", lun)}
}

// showDisks makes, in a folder that the machine copies into its /dev before systemd starts,
// what udev would have made by then: systemd mounts by label within the first second.
func (s *Substrate) showDisks(ctx context.Context, c *computer, folder string, osDisk *loopDisk) error {
	// The mode becomes that of /dev, whatever the umask.
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
		return err
	}
	dev, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := showOSDisk(dev, osDisk); err != nil {
		return err
	}
	for lun, v := range c.luns {
		if err := s.plug(ctx, c, dev, lun, v); err != nil {
			return err
		}
	}
	return nil
}

// showOSDisk makes the names of the disk that a computer runs from, with those
// by the labels of its file systems. udev would make the latter; without
// them mount looks at every disk of the host for the label in /etc/fstab, and
// misses its own while another comes or goes.
func showOSDisk(dev *os.Root, disk *loopDisk) error {
	if err := show(dev, disk, []string{"root", "os"}); err != nil {
		return err
	}
	for _, b := range disk.Partitions {
		label, err := extLabel(b.Name)
		if err != nil {
			return fmt.Errorf("read the label of %s: %w", b.Name, err)
		}
		if label == "" {
			continue
		}
		name := "disk/by-label/" + label
		if err := dev.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := dev.Symlink("../../"+b.Name, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// extLabel reads the label of an ext2, 3 or 4 file system from its superblock;
// "" where there is another file system, no label, or one that is no file name.
func extLabel(name string) (string, error) {
	f, err := openBlock(name, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	super := make([]byte, 1024)
	if n, err := f.ReadAt(super, 1024); n < len(super) {
		if errors.Is(err, io.EOF) {
			return "", nil // smaller than any file system
		}
		return "", err
	}
	if binary.LittleEndian.Uint16(super[56:]) != 0xef53 {
		return "", nil
	}
	label, _, _ := strings.Cut(string(super[120:136]), "\x00")
	if strings.ContainsAny(label, "/ ") || label == "." || label == ".." {
		return "", nil
	}
	return label, nil
}

// show makes a disk's nodes in dev, and links to them. Nodes keep the kernel's
// names, by which programs find a disk's particulars in /sys.
func show(dev *os.Root, disk *loopDisk, links []string) error {
	for _, b := range append([]blockDevice{disk.blockDevice}, disk.Partitions...) {
		if err := mknod(dev, b); err != nil {
			return err
		}
		for _, l := range links {
			if err := link(dev, b, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// hide undoes show.
func hide(dev *os.Root, disk *loopDisk, links []string) error {
	var errs error
	for _, b := range append([]blockDevice{disk.blockDevice}, disk.Partitions...) {
		for _, name := range append(linkNames(b, links), b.Name) {
			if err := dev.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = errors.Join(errs, err)
			}
		}
	}
	return errs
}

// dev opens the computer's /dev, whatever root its first process has.
func (c *computer) dev() (*os.Root, error) {
	return os.OpenRoot(fmt.Sprintf("/proc/%d/root/dev", c.run.pid))
}

func mknod(dev *os.Root, b blockDevice) error {
	dir, err := dev.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	err = unix.Mknodat(int(dir.Fd()), b.Name, unix.S_IFBLK|0o660, int(unix.Mkdev(b.Major, b.Minor)))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the node %s: %w", b.Name, err)
	}
	return nil
}

func linkNames(b blockDevice, links []string) []string {
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = "disk/azure/" + l
		if b.Number > 0 {
			names[i] += fmt.Sprintf("-part%d", b.Number)
		}
	}
	return names
}

func link(dev *os.Root, b blockDevice, l string) error {
	name := linkNames(b, []string{l})[0]
	if err := dev.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	target := b.Name
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		target = "../" + target
	}
	if err := dev.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return dev.Symlink(target, name)
}
