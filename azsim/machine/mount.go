//go:build linux

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// The requests of linux/fs.h that stop and resume writing to a file system.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// mountRoot mounts a root partition, in the propagation that a container needs:
// what is mounted in it does not come back to the host.
func mountRoot(d blockDevice, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	node := "/dev/" + d.Name
	if _, err := os.Stat(node); errors.Is(err, os.ErrNotExist) {
		node = dir + ".node"
		if err := errors.Join(removeIfThere(node), unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(d.Major, d.Minor)))); err != nil {
			return fmt.Errorf("make a node for %s: %w", d.Name, err)
		}
	}
	var all error
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		err := unix.Mount(node, dir, fs, 0, "")
		if err == nil {
			return unix.Mount("", dir, "", unix.MS_PRIVATE, "")
		}
		all = errors.Join(all, fmt.Errorf("as %s: %w", fs, err))
	}
	return fmt.Errorf("mount the root partition %s: %w", d.Name, all)
}

// unmount ends a mount; none is no error. It is busy while anything has a file of it
// open, as a program that another goroutine starts has until it runs.
func unmount(ctx context.Context, dir string) error {
	what := "unmount " + dir
	return patiently(ctx, what, func() (bool, error) {
		switch err := unix.Unmount(dir, 0); {
		case errors.Is(err, unix.EBUSY):
			return false, nil
		case err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT):
			return false, fmt.Errorf("%s: %w", what, err)
		}
		return true, nil
	})
}

func freeze(mountpoint string) error {
	return fsRequest(mountpoint, fiFreeze, "freeze", unix.EBUSY)
}

// thaw lets a file system go on; one that is not frozen is no error.
func thaw(mountpoint string) error { return fsRequest(mountpoint, fiThaw, "thaw", unix.EINVAL) }

func fsRequest(mountpoint string, request uint, verb string, done error) error {
	f, err := os.Open(mountpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), request, 0); err != nil && !errors.Is(err, done) {
		return fmt.Errorf("%s the file system at %s: %w", verb, mountpoint, err)
	}
	return nil
}

// mountsUnder lists the mount points in dir, innermost first.
func mountsUnder(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		at := unescapeMount(fields[4])
		if strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(found)))
	return found, nil
}

// unescapeMount undoes the octal escapes that the kernel writes for blanks.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
