package controlplane

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

// process is a component that runs. done closes when it has ended; err is set by
// then.
type process struct {
	name string
	log  string // file of its standard output and error
	pid  int
	done chan struct{}
	err  error
}

// startProcess starts a component in a process group of its own, which the
// kernel kills when this process ends, however it ends.
func startProcess(name, binary, dir, log string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	command := exec.Command(binary, append([]string{name}, args...)...) // #nosec G204 -- the harness's own binary
	command.Dir = dir
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &process{name: name, log: log, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig fires when the thread that started the child ends, so the
		// thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close() //nolint:errcheck // the child writes to its own descriptor
		if err := command.Start(); err != nil {
			started <- err
			return
		}
		p.pid = command.Process.Pid
		started <- nil
		p.err = command.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// exited says whether the process has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end, and kills its group when grace or ctx ends first.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if p.exited() {
		return nil
	}
	if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s (pid %d): %w", p.name, p.pid, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := syscall.Kill(-p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s (pid %d): %w", p.name, p.pid, err)
	}
	<-p.done
	return nil
}

// logTail quotes the last lines of the component's log.
func (p *process) logTail(lines int) string {
	const most = 16 << 10
	file, err := os.Open(p.log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer file.Close() //nolint:errcheck // read only
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
