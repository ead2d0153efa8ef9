//go:build e2e && linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// A wine is a Windows of the test's own: an empty one in a temporary folder, run
// by Wine without a display, and the agent as it is shipped. Wine is not Windows:
// what it lacks is said where it matters.
type wine struct {
	drive  string // C:\
	other  string // D:\
	loader string
	env    []string
	agent  string // programs, by their Windows names
	helper string
	broke  int // how often Wine did
}

// wineTime bounds what is run; nothing takes a tenth of it.
const wineTime = time.Minute

// Where Debian has what its wine64 does not put on the path.
func wineProgram(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("NOT RUN: the agent for Windows was not tried, since there is none of %s; on Debian: apt-get install wine64 gcc-mingw-w64-x86-64", strings.Join(names, ", "))
	return ""
}

func newWine(t *testing.T) *wine {
	t.Helper()
	server := wineProgram(t, "/usr/lib/wine/wineserver64", "wineserver64", "wineserver")
	loader := wineProgram(t, "/usr/lib/wine/wine64", "wine64", "wine")
	compiler := wineProgram(t, "x86_64-w64-mingw32-gcc")
	dir := t.TempDir()
	prefix := filepath.Join(dir, "prefix")
	w := &wine{
		drive: filepath.Join(prefix, "drive_c"), other: filepath.Join(dir, "drive_d"), loader: loader,
		agent: `C:\ortet\ortet-node.exe`, helper: `C:\ortet\service.exe`,
		env: []string{
			// HOME, since Wine leads the user's folders there.
			"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "WINEPREFIX=" + prefix, "WINEARCH=win64", "WINEDEBUG=-all",
			// It would ask whether it is to fetch a browser and .NET.
			"WINEDLLOVERRIDES=mscoree,mshtml=",
		},
	}
	// For the prefix alone, whatever became of the rest.
	end := func() {
		_, _ = w.host(server, "--kill") // an error says that there is none
		if said, err := w.host(server, "--wait"); err != nil {
			t.Errorf("Wine did not end: %v: %s", err, said)
		}
	}
	t.Cleanup(end)
	if said, err := w.host(loader, "wineboot", "--init"); err != nil {
		t.Fatalf("making a Windows: %v: %s", err, said)
	}
	end() // with what it began, which would end in the midst of the tests
	for _, folder := range []string{w.path("ortet"), w.other} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(w.other, filepath.Join(prefix, "dosdevices", "d:")); err != nil {
		t.Fatal(err)
	}
	build := func(name string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*wineTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	build("go", "build", "-trimpath", "-ldflags=-s -w", "-o", w.path("ortet/ortet-node.exe"), ".")
	build("go", "build", "-trimpath", "-o", w.path("ortet/service.exe"), "./testdata/wine/service")
	if dll := w.path("windows/system32/bcryptprimitives.dll"); !there(dll) {
		build(compiler, "-shared", "-Os", "-s", "-o", dll, "testdata/wine/bcryptprimitives.c", "-ladvapi32")
	}
	w.hold(t)
	return w
}

// hold keeps Windows up, with its services: Wine would end it after each program.
func (w *wine) hold(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, w.loader, w.helper, "hold")
	cmd.Env, cmd.WaitDelay = w.env, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(wineTime, stop)
	t.Cleanup(func() {
		_ = in.Close()
		late.Reset(wineTime / 6)
		_ = cmd.Wait()
		late.Stop()
		stop()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "holding") {
		t.Fatalf("Windows does not stay up: %q, %v", line, err)
	}
	late.Stop()
}

// host runs a program of Wine's, in bounded time. What it leaves running keeps its
// output open, so that is a file.
func (w *wine) host(name string, args ...string) (said string, err error) {
	out, err := os.CreateTemp(filepath.Dir(w.other), "said-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }() // it was only for reading it here
	ctx, cancel := context.WithTimeout(context.Background(), 3*wineTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, out, out
	err = cmd.Run()
	text, _ := os.ReadFile(out.Name())
	return string(text), err
}

// path is where a path below C:\ lies on the host.
func (w *wine) path(name string) string { return filepath.Join(w.drive, filepath.FromSlash(name)) }

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (w *wine) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fresh takes away what an earlier boot left.
func (w *wine) fresh(t *testing.T) {
	t.Helper()
	for _, name := range []string{"run", "ProgramData/Ortet", "k", "var", "etc", "Program Files/Cloudbase Solutions"} {
		if err := os.RemoveAll(w.path(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// ended is what became of a program.
type ended struct {
	code     int
	out, err string
	// broke says that Wine killed it as it ended, so that its code is not known: of
	// some hundred programs one ends so, whatever it does.
	broke bool
}

// mostBreaks is how many programs may end so.
const mostBreaks = 3

// is says whether it ended with this code.
func (e ended) is(code int) bool { return e.broke || e.code == code }

// run runs a Windows program to its end. Once it says on standard error what it is
// to be met at, meet is called. What it leaves running keeps its output open, so
// that it is not read to its end.
func (w *wine) run(t *testing.T, at string, meet func(), program string, args ...string) ended {
	t.Helper()
	// Not the test's, which is over when it cleans up.
	ctx, cancel := context.WithTimeout(context.Background(), wineTime)
	defer cancel()
	out, err := os.CreateTemp(filepath.Dir(w.other), "out-*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // it was only for reading it here
	r, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cmd := exec.CommandContext(ctx, w.loader, append([]string{program}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, out, stderr
	err = cmd.Start()
	_ = stderr.Close()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	read := make(chan bool)
	go func() {
		met := false
		for lines := bufio.NewScanner(io.TeeReader(r, &said)); lines.Scan(); {
			if meet != nil && !met && strings.Contains(lines.Text(), at) {
				met = true
				meet()
			}
		}
		read <- met
	}()
	err = cmd.Wait()
	_ = r.SetReadDeadline(time.Now().Add(time.Second)) // what it wrote is in the pipe
	met := <-read
	text, readErr := os.ReadFile(out.Name())
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil || readErr != nil {
		t.Fatalf("%s %v: %v: %s%s", program, args, errors.Join(err, readErr), text, said.String())
	}
	if meet != nil && !met {
		t.Errorf("it never said %q: %s", at, said.String())
	}
	e := ended{code: cmd.ProcessState.ExitCode(), out: string(text), err: said.String()}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	// The helper says why it fails, so this was not its end. Of the agent no such end is excused.
	silent := program == w.helper && e.code == 1 && e.err == ""
	if ok && status.Signaled() || silent {
		w.broke++
		t.Logf("Wine ended %s %v by %v, try %d of %d that may", program, args, cmd.ProcessState, w.broke, mostBreaks)
		e.broke = w.broke <= mostBreaks
	}
	return e
}

// wait runs ortet-node wait; while, which may be nil, once it waits.
func (w *wine) wait(t *testing.T, while func(), args ...string) ended {
	t.Helper()
	return w.run(t, "msg=waiting", while, w.agent, append([]string{"wait", "--verbose", "--deadline", "30s"}, args...)...)
}

// verdict is what it left in C:\ProgramData\Ortet.
func (w *wine) verdict(t *testing.T) wire.Verdict {
	t.Helper()
	text, err := os.ReadFile(w.path("ProgramData/Ortet/verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v wire.Verdict
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if err := v.Validate(); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// came checks the exit code and the verdict that was kept.
func (w *wine) came(t *testing.T, e ended, code int, outcome wire.Outcome, reason string) wire.Verdict {
	t.Helper()
	v := w.verdict(t)
	if !e.is(code) || v.Outcome != outcome || v.Reason != reason {
		t.Errorf("exit %d, %s %s; want %d, %s %s\n%s%s", e.code, v.Outcome, v.Reason, code, outcome, reason, e.out, e.err)
	}
	return v
}

// quoted says whether an excerpt of a source that ends so has the text.
func quoted(v wire.Verdict, source, text string) bool {
	for _, e := range v.Evidence {
		if strings.HasSuffix(e.Source, source) && strings.Contains(strings.Join(e.Lines, "\n"), text) {
			return true
		}
	}
	return false
}

const winSentinel = "run/cluster-api/bootstrap-success.complete"

func TestWindowsUnderWine(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: making a Windows takes some seconds and 700 MB")
	}
	w := newWine(t)
	sub := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			w.fresh(t)
			f(t)
		})
	}
	sub("sentinel", w.sentinels)
	sub("deadline", func(t *testing.T) {
		e := w.wait(t, nil, "--deadline", "100ms")
		v := w.came(t, e, exitDeadline, wire.TimedOut, wire.ReasonUnknown)
		if v.BootID != "" || v.Uptime == 0 || v.At.IsZero() {
			t.Errorf("%+v, want the boot's age, since Windows has no ids of boots", v)
		}
		// Such a node may have come up since.
		w.write(t, winSentinel, "")
		w.came(t, w.wait(t, nil), exitOK, wire.Succeeded, "")
	})
	sub("usage", func(t *testing.T) {
		for _, args := range [][]string{{"--no"}, {"--deadline", "0s"}, {"--sentinel", `run\relative`}, {"--unit", `a\b`}, {"x"}} {
			if e := w.wait(t, nil, args...); !e.is(exitUsage) || e.err == "" {
				t.Errorf("%q: exit %d: %s", args, e.code, e.err)
			}
		}
		if there(w.path("ProgramData/Ortet")) {
			t.Error("it left something behind")
		}
	})
	sub("paths", w.paths)
	sub("kubelet", w.kubelets)
	sub("node", w.members)
	sub("services", w.services)
	sub("cloudbase-init", w.cloudbase)
	sub("extension", w.extension)
}

func (w *wine) sentinels(t *testing.T) {
	for _, c := range []struct{ name, folder string }{
		{"there before", ""}, {"its folder is there", "run/cluster-api"}, {"its folder comes with it", "run"}, {"nothing is there", "."},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.fresh(t)
			var while func()
			if c.folder == "" {
				w.write(t, winSentinel, "success\r\n")
			} else {
				if err := os.MkdirAll(w.path(c.folder), 0o755); err != nil {
					t.Fatal(err)
				}
				while = func() { w.write(t, winSentinel, "success\r\n") }
			}
			w.came(t, w.wait(t, while), exitOK, wire.Succeeded, "")
		})
	}
	t.Run("its folder is replaced", func(t *testing.T) {
		w.fresh(t)
		w.write(t, "run/cluster-api/x", "")
		w.came(t, w.wait(t, func() {
			if err := os.RemoveAll(w.path("run")); err != nil {
				t.Error(err)
			}
			w.write(t, winSentinel, "")
		}), exitOK, wire.Succeeded, "")
	})
	t.Run("a directory", func(t *testing.T) {
		w.fresh(t)
		w.write(t, winSentinel+"/x", "")
		v := w.came(t, w.wait(t, nil, "--deadline", "100ms"), exitDeadline, wire.TimedOut, wire.ReasonUnknown)
		if !strings.Contains(v.Message, "a directory") {
			t.Errorf("%s, want to be told of the directory", v.Message)
		}
	})
	t.Run("the same boot", func(t *testing.T) {
		w.fresh(t)
		w.write(t, winSentinel, "")
		w.came(t, w.wait(t, nil), exitOK, wire.Succeeded, "")
		first := w.verdict(t)
		if err := os.RemoveAll(w.path("run")); err != nil {
			t.Fatal(err)
		}
		e := w.wait(t, nil, "-o", "json")
		if v := w.came(t, e, exitOK, wire.Succeeded, ""); !v.At.Equal(first.At) || !strings.Contains(e.out, `"outcome":"Succeeded"`) {
			t.Errorf("%s, want the first verdict again", e.out)
		}
		// One of an earlier boot is not.
		first.At = first.At.Add(-time.Hour)
		text, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, "ProgramData/Ortet/verdict.json", string(text))
		w.came(t, w.wait(t, nil, "--deadline", "100ms"), exitDeadline, wire.TimedOut, wire.ReasonUnknown)
	})
}

func (w *wine) paths(t *testing.T) {
	for _, path := range []string{`C:\here\done`, `c:/here/done`, `/here/done`, `C:\here\.\x\..\done`} {
		w.fresh(t)
		w.write(t, "here/done", "")
		w.came(t, w.wait(t, nil, "--sentinel", path), exitOK, wire.Succeeded, "")
	}
	// Another drive is another.
	w.fresh(t)
	w.came(t, w.wait(t, nil, "--sentinel", `D:\here\done`, "--deadline", "100ms"), exitDeadline, wire.TimedOut, wire.ReasonUnknown)
	e := w.wait(t, func() {
		if err := os.MkdirAll(filepath.Join(w.other, "here"), 0o755); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(w.other, "here", "done"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}, "--sentinel", `D:\here\done`)
	w.came(t, e, exitOK, wire.Succeeded, "")
	for _, path := range []string{`C:\kept\a.json`, `C:/kept/b.json`} {
		w.write(t, winSentinel, "")
		if e := w.wait(t, nil, "--state", path); !e.is(exitOK) || !there(w.path("kept/"+path[len(`C:\kept\`):])) {
			t.Errorf("--state %s: exit %d: %s", path, e.code, e.err)
		}
	}
}
