//go:build linux

package machine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse is the error of New and Clean while another process runs machines in the folder.
var ErrInUse = errors.New("another process runs them")

// Clean takes away what a killed process left of its machines in dir: processes,
// mounts, loop devices, network, control groups. Volumes stay. It is refused
// while a process runs machines there (ErrInUse). A folder without machines is no error,
// nor one that is gone, whose machines may not be.
func Clean(dir string) error {
	if !exists(dir) {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		return clean(context.Background(), abs)
	}
	abs, lock, err := take(dir)
	if err != nil {
		return err
	}
	return errors.Join(clean(context.Background(), abs), lock.Close())
}

// clean finds leftovers by looking for what carries the folder's path or prefix.
func clean(ctx context.Context, dir string) error {
	mounts, errs := mountsUnder(dir)
	for _, m := range mounts {
		// A process that died in the middle of a copy left the file system frozen:
		// whoever writes to it cannot even be killed.
		errs = errors.Join(errs, thaw(m))
	}
	errs = errors.Join(errs, removeContainers(ctx, filepath.Join(dir, "runc")))
	for _, m := range mounts {
		errs = errors.Join(errs, unmount(ctx, m))
	}
	loops, err := loopsUnder(dir)
	errs = errors.Join(errs, err)
	for _, l := range loops {
		errs = errors.Join(errs, l.flush(), detachLoop(ctx, l.Name, l.File))
	}
	errs = errors.Join(errs, fabric{prefix: Prefix(dir)}.remove(ctx), removeCgroups("/"+Prefix(dir)))
	parts, err := filepath.Glob(filepath.Join(dir, "volumes", "*.part"))
	errs = errors.Join(errs, err)
	for _, p := range parts {
		errs = errors.Join(errs, removeIfThere(p))
	}
	return errs
}

// removeContainers kills the machines of a killed run, and waits for their end,
// so that their disks are free.
func removeContainers(ctx context.Context, root string) error {
	if !exists(root) {
		return nil
	}
	out, err := exec.CommandContext(ctx, "runc", "--root", root, "list", "--quiet").Output()
	if err != nil {
		return errors.Join(errors.New("list the machines of a former run"), err)
	}
	var errs error
	for _, id := range strings.Fields(string(out)) {
		pid := initPID(root, id)
		errs = errors.Join(errs, runc(ctx, root, "delete", "--force", id), awaitEnd(pid))
	}
	return errs
}

// initPID is the first process of a container by runc's record; 0 if unknown.
func initPID(root, id string) int {
	body, err := os.ReadFile(filepath.Join(root, id, "state.json"))
	if err != nil {
		return 0
	}
	return parseInitPID(body)
}

// awaitEnd waits until a process is gone, at most for the kernel to kill it.
func awaitEnd(pid int) error {
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
