//go:build linux

package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// consoleTail is how much of a console is kept, as boot diagnostics does.
const consoleTail = 1 << 20

// A console is the file that a machine's console output is appended to. It
// survives boots, as the serial log in boot diagnostics does.
type console struct {
	mu   sync.Mutex
	path string
	size int64
}

func openConsole(path string) (*console, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return &console{path: path}, nil
	}
	if err != nil {
		return nil, err
	}
	return &console{path: path, size: info.Size()}, nil
}

// Write appends, and cuts the file to its tail when it gets four times as long.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size > 4*consoleTail {
		tail, err := c.read()
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(c.path, tail, 0o600); err != nil {
			return 0, err
		}
		c.size = int64(len(tail))
	}
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(p)
	c.size += int64(n)
	return n, errors.Join(err, f.Close())
}

// tail returns the last of what was written.
func (c *console) tail() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *console) read() ([]byte, error) {
	f, err := os.Open(c.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, max(0, c.size-consoleTail), consoleTail))
}

// openTerminal makes a pseudo-terminal: the end that is read, and the one that a
// process has as its terminal.
func openTerminal() (read, process *os.File, err error) {
	read, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a console: %w", err)
	}
	n, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(read.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(read.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 160})
	}
	if err == nil {
		process, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make a console: %w", err), read.Close())
	}
	return read, process, nil
}
