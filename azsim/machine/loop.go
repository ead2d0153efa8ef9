//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A blockDevice is a disk or a partition as the kernel knows it.
type blockDevice struct {
	Name         string // the kernel's: "loop3", "loop3p1"
	Number       int    // of the partition; 0 for the disk
	Major, Minor uint32
	Sectors      int64 // of 512 bytes
}

// A loopDisk is an image file as a block device, with its partitions.
type loopDisk struct {
	blockDevice
	File       string
	Partitions []blockDevice
}

// attachLoop makes file a loop device whose partitions the kernel looks for.
func attachLoop(ctx context.Context, file string) (*loopDisk, error) {
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices are needed: %w", err)
	}
	defer control.Close()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		err = configureLoop(n, backing, file)
		if errors.Is(err, unix.EBUSY) {
			continue // another process was faster; the kernel offers the next one
		}
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("loop%d", n)
		disk, err := scanLoop(ctx, name)
		if err != nil {
			return nil, errors.Join(err, detachLoop(context.WithoutCancel(ctx), name, file))
		}
		disk.File = file
		return disk, nil
	}
}

func configureLoop(n int, backing *os.File, file string) error {
	// Where /dev is not the kernel's own, the node of a new device is missing.
	device, err := openBlock(fmt.Sprintf("loop%d", n), os.O_RDWR)
	if err != nil {
		return err
	}
	defer device.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	config.Info.Flags = unix.LO_FLAGS_PARTSCAN
	copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(file))
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
		return fmt.Errorf("make %s a loop device: %w", file, err)
	}
	return nil
}

// scanLoop makes the partitions of a new device known to the kernel, and returns
// them. Kernels that cannot read GPT themselves are told by partx; an empty
// disk has none, which partx reports as a failure.
func scanLoop(ctx context.Context, name string) (*loopDisk, error) {
	disk, err := readLoop(name)
	if err != nil || len(disk.Partitions) > 0 {
		return disk, err
	}
	if err := exec.CommandContext(ctx, "partx", "--add", "/dev/"+name).Run(); err != nil {
		return disk, ctx.Err()
	}
	return readLoop(name)
}

// openBlock opens a block device by the kernel's name for it, wherever its node
// is; one is made for the moment where there is none.
func openBlock(name string, flag int) (*os.File, error) {
	f, err := os.OpenFile("/dev/"+name, flag, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	d, err := readBlock(filepath.Join("/sys/class/block", name))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "block")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	node := filepath.Join(dir, name)
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(d.Major, d.Minor))); err != nil {
		return nil, fmt.Errorf("make a node for %s: %w", name, err)
	}
	return os.OpenFile(node, flag, 0)
}

// readLoop asks the kernel what it knows of a disk.
func readLoop(name string) (*loopDisk, error) {
	dir := filepath.Join("/sys/block", name)
	whole, err := readBlock(dir)
	if err != nil {
		return nil, err
	}
	disk := &loopDisk{blockDevice: whole}
	if file, err := os.ReadFile(filepath.Join(dir, "loop/backing_file")); err == nil {
		disk.File = strings.TrimSuffix(strings.TrimSpace(string(file)), " (deleted)")
	}
	parts, err := filepath.Glob(filepath.Join(dir, name+"p*"))
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		part, err := readBlock(p)
		if err != nil {
			return nil, err
		}
		disk.Partitions = append(disk.Partitions, part)
	}
	return disk, nil
}

func readBlock(dir string) (blockDevice, error) {
	d := blockDevice{Name: filepath.Base(dir)}
	numbers, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return d, fmt.Errorf("read the kernel's account of %s: %w", d.Name, err)
	}
	if _, err := fmt.Sscanf(string(numbers), "%d:%d", &d.Major, &d.Minor); err != nil {
		return d, fmt.Errorf("read the device number of %s: %w", d.Name, err)
	}
	if d.Sectors, err = readInt(filepath.Join(dir, "size")); err != nil {
		return d, err
	}
	if n, err := readInt(filepath.Join(dir, "partition")); err == nil {
		d.Number = int(n)
	}
	return d, nil
}

func readInt(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// root is the partition with the root file system: the largest, as in every
// cloud image.
func (d *loopDisk) root() (blockDevice, error) {
	var largest blockDevice
	for _, p := range d.Partitions {
		if p.Sectors > largest.Sectors {
			largest = p
		}
	}
	if largest.Sectors == 0 {
		return largest, fmt.Errorf("%s: no partition table: not an OS disk", d.File)
	}
	return largest, nil
}

// flush brings what was written to the devices into the file behind them: a
// partition's own device has a page cache of its own.
func (d *loopDisk) flush() error {
	var all error
	for _, b := range append([]blockDevice{d.blockDevice}, d.Partitions...) {
		f, err := openBlock(b.Name, os.O_RDONLY)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		all = errors.Join(all, f.Sync(), f.Close())
	}
	return all
}

// inUse says whether the disk or a partition is mounted or held by another
// driver somewhere.
func (d *loopDisk) inUse() (bool, error) {
	for _, b := range append([]blockDevice{d.blockDevice}, d.Partitions...) {
		f, err := openBlock(b.Name, os.O_RDONLY|os.O_EXCL)
		if errors.Is(err, unix.EBUSY) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if err := f.Close(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// detachPatience bounds the wait for the kernel to let go of a device or a mount.
const detachPatience = 30 * time.Second

// detachLoop takes the device away, and returns when it is gone; one that is
// gone is no error. The kernel takes mount namespaces down after the last of
// their processes has ended: until then the file system is still mounted there,
// and the file behind it not yet what it will be.
func detachLoop(ctx context.Context, name, file string) error {
	return patiently(ctx, fmt.Sprintf("take loop device %s of %s away", name, file), func() (bool, error) { return clearLoop(name, file) })
}

// patiently tries until it is done or has failed, for as long as detachPatience.
func patiently(ctx context.Context, what string, try func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, detachPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: something still has it mounted or open: %w", what, ctx.Err())
		}
	}
}

// clearLoop asks for the device to be taken away, and says whether it is.
func clearLoop(name, file string) (gone bool, err error) {
	disk, err := readLoop(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && disk.File != file {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	f, err := openBlock(name, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EBUSY) {
		return false, fmt.Errorf("take loop device %s away: %w", name, err)
	}
	return false, nil // it goes when f is closed; the next look will tell
}

// loopsUnder lists the loop devices whose files lie in dir.
func loopsUnder(dir string) ([]*loopDisk, error) {
	all, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		return nil, err
	}
	var found []*loopDisk
	for _, d := range all {
		if _, err := os.Stat(filepath.Join(d, "loop")); err != nil {
			continue // not in use
		}
		disk, err := readLoop(filepath.Base(d))
		if err != nil {
			continue // gone since
		}
		if strings.HasPrefix(disk.File, dir+"/") {
			found = append(found, disk)
		}
	}
	return found, nil
}
