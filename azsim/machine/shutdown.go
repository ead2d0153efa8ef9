//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// powerDown is the signal by which a container's host asks systemd to power
// off: SIGRTMIN+4, the C library's SIGRTMIN being 34.
const powerDown = 34 + 4

// Shutdown implements azsim.Substrate. A graceful one that does not end before
// ctx does leaves the computer running; a hard one always succeeds. One that
// does not run, or is unknown, is no error.
func (s *Substrate) Shutdown(ctx context.Context, id string, graceful bool) error {
	c := s.known(id)
	if c == nil {
		return nil
	}
	c.step.Lock()
	defer c.step.Unlock()
	if c.run == nil {
		return nil
	}
	if graceful && c.run.running() {
		if err := s.runc(ctx, "kill", c.run.container, strconv.Itoa(powerDown)); err != nil && c.run.running() {
			return fmt.Errorf("shut %s down: %w", id, err)
		}
		select {
		case <-c.run.exited:
		case <-ctx.Done():
			return fmt.Errorf("shut %s down: it was asked to power off and still runs: %w", id, ctx.Err())
		}
	}
	if err := s.powerOff(context.WithoutCancel(ctx), c); err != nil {
		return fmt.Errorf("shut %s down: %w", id, err)
	}
	s.log.Info("machine is down", "computer", id, "graceful", graceful)
	return nil
}

// Remove implements azsim.Substrate. An unknown computer is no error.
func (s *Substrate) Remove(ctx context.Context, id string) error {
	c := s.known(id)
	if c == nil {
		return nil
	}
	c.step.Lock()
	defer c.step.Unlock()
	if err := s.powerOff(context.WithoutCancel(ctx), c); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	if err := errors.Join(s.unpublish(id), os.RemoveAll(c.dir)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.computers, id)
	return nil
}

// powerOff ends whatever of the computer runs, and gives back its volumes, its
// network and its control groups. Repeating it does no harm.
func (s *Substrate) powerOff(ctx context.Context, c *computer) error {
	var errs error
	if c.run != nil {
		if c.run.running() {
			if err := s.runc(ctx, "kill", c.run.container, "KILL"); err != nil && c.run.running() {
				errs = errors.Join(errs, err)
			}
		}
		select {
		case <-c.run.exited:
		case <-ctx.Done():
			return errors.Join(errs, ctx.Err())
		}
		errs = errors.Join(errs, c.run.close())
		c.run = nil
	}
	errs = errors.Join(errs, s.runc(ctx, "delete", "--force", fmt.Sprintf("%s-%d", s.fabric.prefix, c.n)))
	for _, v := range c.luns {
		errs = errors.Join(errs, s.volumes.release(ctx, v))
	}
	if c.desc.OSDisk != "" {
		errs = errors.Join(errs, s.volumes.release(ctx, c.desc.OSDisk))
	}
	return errors.Join(errs, s.fabric.disconnect(ctx, c.n), removeCgroups(s.cgroup(c)))
}

// runc runs one of runc's commands on this lab's containers.
func (s *Substrate) runc(ctx context.Context, args ...string) error {
	return runc(ctx, filepath.Join(s.dir, "runc"), args...)
}

func runc(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "runc", append([]string{"--root", root}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("runc %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// removeCgroups removes the groups at path in every hierarchy, innermost first.
// Those that still hold a dying process go with the next call.
func removeCgroups(path string) error {
	tops, err := filepath.Glob("/sys/fs/cgroup/*" + path)
	if err != nil {
		return err
	}
	tops = append(tops, "/sys/fs/cgroup"+path) // version 2
	var errs error
	for _, top := range tops {
		var dirs []string
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return err
		})
		errs = errors.Join(errs, err)
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := unix.Rmdir(dirs[i]); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
				errs = errors.Join(errs, fmt.Errorf("remove control group %s: %w", dirs[i], err))
			}
		}
	}
	return errs
}
