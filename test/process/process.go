// Package process starts the programs that tests, demo and lab run beside
// themselves, and sees to it that they end: when they are stopped, and when the
// program that started them ends, however it ends.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Process is a program that runs.
type Process struct {
	Name string
	Log  string // file of its standard output and error
	PID  int
	done chan struct{}
	err  error
}

// A Command says what to start.
type Command struct {
	Name   string // for messages
	Binary string
	Args   []string
	Dir    string
	Env    []string // nil means this process' own
	Log    string   // file that takes standard output and error
}

// Start starts a program in a process group of its own, which the kernel kills
// when this process ends.
func Start(c Command) (*Process, error) {
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	command := exec.Command(c.Binary, c.Args...)
	command.Dir, command.Env = c.Dir, c.Env
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &Process{Name: c.Name, Log: c.Log, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig fires when the thread that started the child ends, so the
		// thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		if err := command.Start(); err != nil {
			started <- err
			return
		}
		p.PID = command.Process.Pid
		started <- nil
		p.err = command.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// Done closes when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended: nil for exit code 0. It is meaningful once Done is closed.
func (p *Process) Err() error {
	if !p.Exited() {
		return nil
	}
	return p.err
}

// Exited says whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop asks the process to end, and kills its group when grace or ctx ends first.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if p.Exited() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s (pid %d): %w", p.Name, p.PID, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := syscall.Kill(-p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s (pid %d): %w", p.Name, p.PID, err)
	}
	<-p.done
	return nil
}

// LogTail quotes the last lines of its log.
func (p *Process) LogTail(lines int) string {
	const most = 16 << 10
	file, err := os.Open(p.Log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		if _, err := file.Seek(-most, io.SeekEnd); err != nil {
			return "(log: " + err.Error() + ")"
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return "(log: " + err.Error() + ")"
	}
	split := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	if len(split) > lines {
		split = split[len(split)-lines:]
	}
	return string(bytes.Join(split, []byte("\n")))
}
