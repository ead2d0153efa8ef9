//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// interrupted ends the terminal, and presses Ctrl-C twice, while the donor is stopped, and has two
// captures meet on one pool: the last one finishes what the first began.
func interrupted(t *testing.T, w *world) {
	p := w.pool(t, "ctrlc", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	before := p.node(t, donor)
	// Else, under nohup, its children ignore SIGHUP, too.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	args := baked("capture", donor, "--workbench="+bench, "--lease-duration=5s") // renewed every 1.7 s
	twice := func(sent os.Signal) outcome {
		once := on("stop", "started", sent)
		return p.ortet(t, func(l line) os.Signal {
			if strings.HasPrefix(l.text, "Interrupted") {
				return sent
			}
			return once(l)
		}, args...)
	}
	// A terminal that closes: the kernel sends one, and the shell.
	twice(syscall.SIGHUP).exits(t, exitInterrupted).
		says(t, "Interrupted", "is in service as it was found", "run the same command to resume")
	p.whole(t, donor, before)
	p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "capture of "+donor, "can be resumed").fits(t)

	if code := p.readUntil(t, "stop", args...); code != exitInterrupted {
		t.Errorf("with a pipe whose reader ended: exit code %d", code)
	}
	p.whole(t, donor, before)

	// A second Ctrl-C ends it at once, whatever state that leaves.
	for o := twice(os.Interrupt); o.code != exitKilled; o = twice(os.Interrupt) {
		o.exits(t, exitInterrupted) // the second came late, on a machine with much to do
	}

	// While a capture runs, another says who has the pool.
	var other outcome
	first, err := p.try(t.Context(), func(*os.Process) func(line) os.Signal {
		return func(l line) os.Signal {
			if other.args == nil && l.step == "preflight" && l.state == "done" {
				var err error
				other, err = p.try(t.Context(), func(*os.Process) func(line) os.Signal { return nil }, append(args, p.access(args)...)...)
				must(t, err)
			}
			return nil
		}
	}, append(args, p.access(args)...)...)
	must(t, err)
	first.exits(t, exitDone)
	host, err := os.Hostname()
	must(t, err)
	other.exits(t, exitRefused).says(t, "has had the pool lock since", host)

	day := time.Now().UTC().Format("2006.01.02")
	if got := p.versions(t); !slices.Equal(got, []string{day}) {
		t.Errorf("versions are %v, want %s alone", got, day)
	}
	p.pinned(t, day)
	p.whole(t, donor, before)
	p.clean(t)
}

// readUntil reads what the command reports until a step begins, closes the pipe, and returns the
// exit code.
func (p *pool) readUntil(t *testing.T, step string, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "ortet"), append(args, p.access(args)...)...)
	cmd.Env = []string{"SSL_CERT_FILE=" + p.azure.Endpoint.CAFile, "HOME=" + p.home, "PATH=" + p.home, "TERM=dumb"}
	r, w, err := os.Pipe()
	must(t, err)
	cmd.Stderr = w
	must(t, cmd.Start())
	must(t, w.Close())
	for in := bufio.NewScanner(r); in.Scan(); {
		if m := progressLine.FindStringSubmatch(in.Text()); m != nil && m[1] == step {
			break
		}
	}
	must(t, r.Close())
	_ = cmd.Wait() // the exit code says it
	return cmd.ProcessState.ExitCode()
}
