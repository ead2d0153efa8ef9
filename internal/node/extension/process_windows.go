package extension

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/windows"
)

// startDetached starts a process without our console and outside our job, so that
// it lives on when the agent ends the job. Where the job forbids that it starts
// inside.
func startDetached(cmd *exec.Cmd) error {
	const flags = windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP
	outside := *cmd
	outside.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: flags | windows.CREATE_BREAKAWAY_FROM_JOB}
	err := outside.Start()
	if err == nil {
		cmd.Process = outside.Process
		return nil
	}
	if !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: flags}
	return cmd.Start()
}

// askToEnd ends it: a process without a console cannot be asked. All that it keeps
// is written by renaming.
func askToEnd(p *os.Process) error { return p.Kill() }

// lock takes the lock of a folder, and waits for it: it is held for moments. A
// folder cannot be locked, so it lies on the agent's file in it, beyond its end,
// where nobody reads.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(filepath.Join(dir, environmentFile))
	if err != nil {
		return nil, err
	}
	beyond := windows.Overlapped{OffsetHigh: 1 << 30}
	if err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &beyond); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
	}
	return func() {
		_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &beyond)
		_ = f.Close()
	}, nil
}

// bootID is empty: start times are of the calendar.
func bootID() string { return "" }

// startOf is when a process started, in 100 ns of the calendar; an error where
// there is none or it has ended already.
func startOf(pid int) (string, error) {
	p, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return "", err
	}
	defer func() { _ = windows.CloseHandle(p) }()
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(p, &created, &ended, &kernel, &user); err != nil {
		return "", err
	}
	if ended.HighDateTime != 0 || ended.LowDateTime != 0 {
		return "", errors.New("it has ended")
	}
	return strconv.FormatInt(created.Nanoseconds(), 10), nil
}
