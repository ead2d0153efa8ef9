package mistakes

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit is no bound on what is good: a command that outlasts it is killed, and written down
// as hung.
var limit = flag.Duration("limit", 2*time.Minute, "time limit of a row")

// A program is the ortet under test.
type program struct {
	path    string
	timeout bool // it has --timeout
}

// build builds ortet, or takes the program that a flag names.
func build(t *testing.T, path string) program {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "ortet")
		text, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, "../../cmd/ortet").CombinedOutput()
		if err != nil {
			t.Fatalf("build ortet: %v\n%s", err, text)
		}
	}
	help, err := exec.CommandContext(t.Context(), path, "status", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s status --help: %v\n%s", path, err, help)
	}
	return program{path: path, timeout: bytes.Contains(help, []byte("--timeout"))}
}

// A result is what a user saw.
type result struct {
	command     string
	out, err    string
	exit        int
	hung        bool
	took, first time.Duration // until its end; until it printed anything
	failure     error         // of the test, not of ortet
}

// said is what a stream got, and when it began.
type said struct {
	mu    sync.Mutex
	text  bytes.Buffer
	began time.Time
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began = time.Now()
	}
	return s.text.Write(p)
}

// environment is what a child process finds: nothing of whoever runs the test.
func (w *world) environment(r row) []string {
	empty := filepath.Join(w.dir, "empty")
	return []string{
		"HOME=" + empty, "PATH=" + empty, "COLUMNS=80", "TERM=dumb",
		"KUBECONFIG=" + r.kubeconfig, "SSL_CERT_FILE=" + r.roots, "SSL_CERT_DIR=" + empty,
	}
}

// command is ortet in a session of its own, so that it has no terminal.
func (w *world) command(ctx context.Context, p program, r row) (*exec.Cmd, string) {
	args := strings.Fields(r.args)
	if p.timeout && r.timeout != "" {
		args = append(args, "--timeout", r.timeout)
	}
	shown := "ortet " + strings.Join(args, " ")
	cmd := exec.CommandContext(ctx, p.path, append(args, "--azure-config", r.azure)...)
	cmd.Dir, cmd.Env = w.dir, w.environment(r)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd, shown
}

// run does what the row says.
func (w *world) run(ctx context.Context, p program, r row) (got result) {
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	cmd, shown := w.command(ctx, p, r)
	var out, complaint said
	cmd.Stdout, cmd.Stderr = &out, &complaint
	begin := time.Now()
	err := cmd.Run()
	got = result{command: shown, out: out.text.String(), err: complaint.text.String(), took: time.Since(begin), hung: ctx.Err() != nil}
	got.first = got.took
	for _, s := range []*said{&out, &complaint} {
		if !s.began.IsZero() {
			got.first = min(got.first, s.began.Sub(begin))
		}
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got.exit = exit.ExitCode()
	} else if err != nil && !got.hung {
		got.failure = err
	}
	return got
}

// twice runs the row while the same command is at work, which is interrupted then.
func (w *world) twice(ctx context.Context, p program, r row) (got result) {
	ctx, cancel := context.WithTimeout(ctx, 2**limit)
	defer cancel()
	first, _ := w.command(ctx, p, r)
	var text bytes.Buffer
	first.Stdout, first.Stderr = &text, &text
	if err := first.Start(); err != nil {
		return result{failure: err}
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Wait() }()
	select {
	case <-w.working:
		got = w.run(ctx, p, r)
		got.failure = errors.Join(got.failure, first.Process.Signal(os.Interrupt))
		if <-ended == nil {
			got.failure = errors.Join(got.failure, errors.New("the first command was interrupted, and its exit code is 0"))
		}
	case err := <-ended:
		got.failure = fmt.Errorf("the first command ended (%w):\n%s", err, text.String())
	}
	return got
}

// stable replaces what differs from run to run.
func (w *world) stable(text string, others ...*world) string {
	for _, o := range others {
		text = strings.ReplaceAll(text, strings.TrimPrefix(o.arm.URL, "https://"), "127.0.0.1:AZURE")
	}
	text = strings.NewReplacer(
		w.dir, "DIR",
		strings.TrimPrefix(w.arm.URL, "https://"), "127.0.0.1:AZURE",
		strings.TrimPrefix(w.api.URL, "https://"), "127.0.0.1:KUBE",
	).Replace(text)
	for _, r := range replaced {
		text = r.pattern.ReplaceAllString(text, r.by)
	}
	return text
}

var replaced = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`[^\s/]+/\d+/[A-Z2-7]{8}/\d+`), "HOLDER"}, // host, process, random, number
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d{8}-\d{6}\b`), "NAME"},
	{regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d `), "TIME "},
	{regexp.MustCompile(`failed( after \S+s)?: `), "failed after SECONDS: "},
	{regexp.MustCompile(`(?m)(waiting for .*), \S+s$`), "$1, SECONDS"},
}

// written is a row in the golden file. The line of times is not compared.
func (w *world) written(name string, got result, others ...*world) string {
	var b strings.Builder
	fmt.Fprintf(&b, "== %s\n$ %s\n", name, w.stable(got.command))
	for _, s := range []struct{ mark, text string }{{"out", got.out}, {"err", got.err}} {
		for l := range strings.Lines(w.stable(s.text, others...)) {
			fmt.Fprintf(&b, "%s| %s\n", s.mark, strings.TrimRight(l, "\n"))
		}
	}
	if got.hung {
		fmt.Fprintf(&b, "hung: killed after %s\n", *limit)
	} else {
		fmt.Fprintf(&b, "exit code %d\n", got.exit)
	}
	fmt.Fprintf(&b, "time %s, first line after %s\n", class(got.took), class(got.first))
	return b.String()
}

// class is a duration as far as it is of interest.
func class(d time.Duration) string {
	if d < time.Second {
		return "<1 s"
	}
	return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
}

var times = regexp.MustCompile(`(?m)^time .*\n`)

// rowsOf reads a golden file: its rows by name, without times.
func rowsOf(t *testing.T, file string) (names []string, rows map[string]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	rows = map[string]string{}
	for _, part := range strings.Split(times.ReplaceAllString(string(text), ""), "\n== ")[1:] {
		name, _, _ := strings.Cut(part, "\n")
		names = append(names, name)
		rows[name] = "== " + strings.TrimRight(part, "\n") + "\n"
	}
	return names, rows
}
