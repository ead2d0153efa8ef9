package disk

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/tree"
)

// check makes a file system consistent before it is written to. The snapshot
// is of a machine that was stopped, but caching may have cut a write short.
func (b *bench) check(ctx context.Context, p part) error {
	switch p.sb.Kind {
	case Ext4:
		return b.fsck(ctx, p, []string{"e2fsck", "fsck.ext4"}, "-f", "-p")
	case XFS:
		return b.checkXFS(ctx, p)
	default:
		return nil // replays or repairs itself at the mount
	}
}

// onHost is a partition's device node for a program in the host's root.
func (b *bench) onHost(p part) string { return path.Join(b.in, filepath.Base(p.node)) }

// fsck runs the host's e2fsck. Exit code 1 is "errors corrected", 2 "corrected,
// reboot", which concerns mounted file systems only (e2fsck(8)).
func (b *bench) fsck(ctx context.Context, p part, tools []string, args ...string) error {
	code, output, err := runOnHost(ctx, b.r.Host, tools, append(args, b.onHost(p))...)
	if err != nil {
		return err
	}
	b.r.Log.Info("checked the file system", "partition", p.name, "exitCode", code, "output", tail(output))
	if code > 2 {
		return fmt.Errorf("%s does not make %s consistent (exit code %d): %s", tools[0], p.name, code, tail(output))
	}
	return nil
}

// checkXFS lets the kernel replay the log, which xfs_repair refuses to do, and
// then looks, where the host has the tool, whether all is well.
func (b *bench) checkXFS(ctx context.Context, p part) error {
	if err := mount(p, b.root(), true); err != nil {
		return err
	}
	if err := unix.Unmount(b.root(), unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("replaying the log of %s: %w", p.name, err)
	}
	code, output, err := runOnHost(ctx, b.r.Host, []string{"xfs_repair"}, "-n", b.onHost(p))
	if errors.Is(err, errNoTool) {
		b.r.Log.Warn("this node has no xfs_repair: only the log was replayed", "partition", p.name)
		return nil
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("xfs_repair finds %s damaged (exit code %d): %s", p.name, code, tail(output))
	}
	return nil
}

var errNoTool = errors.New("the host does not have it")

// runOnHost runs a program of the host's, in the host's root, on the calling
// thread's mount namespace. An exit code is no error.
func runOnHost(ctx context.Context, host string, names []string, args ...string) (code int, output string, err error) {
	program, err := program(host, names)
	if err != nil {
		return 0, "", err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if filepath.Clean(host) != "/" {
		cmd.SysProcAttr.Chroot = host
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return 0, "", ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode(), string(out), nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("running the host's %s: %w", program, err)
	}
	return 0, string(out), nil
}

// program finds the first of the names in the host's usual folders.
func program(host string, names []string) (string, error) {
	t, err := tree.Open(host)
	if err != nil {
		return "", err
	}
	defer func() { _ = t.Close() }() // only looked at
	for _, name := range names {
		for _, dir := range []string{"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/", "/usr/local/sbin/"} {
			if info, err := t.Stat(dir + name); err == nil && info.Mode().IsRegular() {
				return dir + name, nil
			}
		}
	}
	return "", fmt.Errorf("%s below %s: %w", strings.Join(names, " or "), host, errNoTool)
}

// tail is the end of a program's output on one line.
func tail(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 400 {
		s = "…" + strings.ToValidUTF8(s[len(s)-400:], "")
	}
	return s
}
