package extension

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// startDetached starts a process in a session, and so a process group, of its own,
// with none of our files.
func startDetached(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// lock takes the lock of a folder, and waits for it: it is held for moments. It
// lies on the folder itself, since there may be no room for a file.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// bootID is this boot's id: numbers and start times of processes are its own.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// startOf is when a process started, in clock ticks after the boot; an error where
// there is none or it has ended already. Source: proc(5), fields 3 and 22 of stat,
// counted behind the program's name, which may hold anything.
func startOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("the state of process %d: %.100q", pid, text)
	}
	if s := fields[0][0]; s == 'Z' || s == 'X' {
		return "", errors.New("it has ended")
	}
	return string(fields[19]), nil
}
