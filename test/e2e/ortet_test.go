//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// Exit codes, as the manual has them: a test must not take them from the code.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitNeedsPerson = 4
	exitInterrupted = 5
	exitKilled      = -1
)

// An outcome is how one run of ortet ended.
type outcome struct {
	args           []string
	code           int
	stdout, stderr string
	lines          []line // of standard error
}

// A line is one on standard error.
type line struct {
	at   time.Time // when the test read it
	step string    // "" for what is no progress
	// state is "started" for a step's first line, else done, skipped, failed,
	// undone, or "" for news of a running step.
	state string
	text  string
}

var progressLine = regexp.MustCompile(`^\d\d:\d\d:\d\d ([a-z-]+): (?:(done|skipped|failed|undone)\b)?`)

// ortet runs the command. watch, which may be nil, sees each line of standard
// error as it is written, and can send the process a signal by what it returns.
func (p *pool) ortet(t *testing.T, watch func(line) os.Signal, args ...string) outcome {
	t.Helper()
	return p.run(t, watch, append(args, p.access(args)...)...)
}

// ortetImage is what ortet's pods are said to run; the nodes run bin/ortet-node for it.
const ortetImage = "example.invalid/ortet:1"

// access are the flags by which the test's principal reaches Azure and the cluster, and the
// image of a capture.
func (p *pool) access(args []string) []string {
	flags := []string{"--azure-config=" + p.azureConfig, "--kubeconfig=" + p.cp.Kubeconfig}
	if args[0] == "capture" {
		flags = append(flags, "--image="+ortetImage)
	}
	return flags
}

// run runs the command with no arguments but these.
func (p *pool) run(t *testing.T, watch func(line) os.Signal, args ...string) outcome {
	t.Helper()
	o, err := p.try(t.Context(), func(*os.Process) func(line) os.Signal { return watch }, args...)
	must(t, err)
	return o
}

// try is run where the process itself is wanted, or where a test cannot be ended.
func (p *pool) try(ctx context.Context, started func(*os.Process) func(line) os.Signal, args ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "ortet"), args...)
	// Nothing of who runs the test gets in: no Azure CLI's log-in, no kubeconfig.
	cmd.Env = []string{"SSL_CERT_FILE=" + p.azure.Endpoint.CAFile, "HOME=" + p.home, "PATH=" + p.home, "TERM=dumb"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	watch := started(cmd.Process)
	o := outcome{args: args}
	begun := map[string]bool{}
	for in := bufio.NewScanner(pipe); in.Scan(); {
		stderr.WriteString(in.Text() + "\n")
		l := line{at: time.Now(), text: in.Text()}
		if m := progressLine.FindStringSubmatch(l.text); m != nil {
			l.step, l.state = m[1], m[2]
			if l.state == "" && !begun[l.step] {
				begun[l.step], l.state = true, "started"
			}
		}
		o.lines = append(o.lines, l)
		if watch == nil {
			continue
		}
		if signal := watch(l); signal != nil {
			if err := cmd.Process.Signal(signal); err != nil && signal != syscall.SIGKILL {
				return o, err
			}
		}
	}
	err = cmd.Wait()
	o.code, o.stdout, o.stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	if _, ended := err.(*exec.ExitError); err != nil && !ended { //nolint:errorlint // Wait does not wrap it
		return o, err
	}
	return o, nil
}

// on returns a watch that sends a signal at the first such line.
func on(step, state string, signal os.Signal) func(line) os.Signal {
	sent := false
	return func(l line) os.Signal {
		if sent || l.step != step || l.state != state {
			return nil
		}
		sent = true
		return signal
	}
}

// exits ends the test where the command ended otherwise.
func (o outcome) exits(t *testing.T, code int) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("ortet %s: exit %d, want %d\n%s", strings.Join(o.args, " "), o.code, code, o)
	}
	return o
}

// says ends the test where standard output and error lack one of the words,
// wherever their lines are broken.
func (o outcome) says(t *testing.T, words ...string) outcome {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(flat(o.stdout+o.stderr), w) {
			t.Errorf("ortet %s does not say %q\n%s", strings.Join(o.args, " "), w, o)
		}
	}
	return o
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// json reads standard output, which must be one JSON value and nothing else.
func (o outcome) json(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.stdout), into); err != nil {
		t.Fatalf("ortet %s: standard output is not JSON: %v\n%s", strings.Join(o.args, " "), err, o)
	}
}

// fits complains of lines on standard output that are wider than a terminal
// and could have been broken.
func (o outcome) fits(t *testing.T) {
	t.Helper()
	for l := range strings.Lines(o.stdout) {
		l = strings.TrimRight(l, "\n")
		if n := utf8.RuneCountInString(l); n > 80 {
			t.Errorf("ortet %s: a line has %d columns:\n%s", strings.Join(o.args, " "), n, l)
		}
	}
}

func (o outcome) String() string {
	return "-- standard output\n" + o.stdout + "-- standard error\n" + o.stderr
}

// when says when a step came into a state; zero where it did not.
func (o outcome) when(step, state string) time.Time {
	for _, l := range o.lines {
		if l.step == step && l.state == state {
			return l.at
		}
	}
	return time.Time{}
}
