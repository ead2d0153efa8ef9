package azclient

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to end.
const patience = 30 * time.Second

// Serve starts azsim with a spec and flags, and connects the client to it. A test
// binary can have one: a process reads SSL_CERT_FILE once.
func Serve(t *testing.T, spec string, flags ...string) *Cloud {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "spec.yaml")
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	Start(t, "azsim: ready", filepath.Join(Build(t, Root(t), "./cmd/azsim"), "azsim"), append([]string{"serve", "--dir", dir, "--spec", file}, flags...)...)
	t.Setenv("SSL_CERT_FILE", filepath.Join(dir, "ca.pem"))
	c, err := Connect(filepath.Join(dir, "azure.json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Build builds programs of the module in a folder, and gives the folder that they are in.
func Build(t *testing.T, module string, packages ...string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)...)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", packages, err, out)
	}
	return dir
}

// Root is the folder of the module around this one.
func Root(t *testing.T) string {
	t.Helper()
	return filepath.Join(Own(t), "..", "..")
}

// Own is the folder of this module.
func Own(t *testing.T) string {
	t.Helper()
	own, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(own)))
}

// Start starts a server that ends with the test, waits for the line by which it
// reports that it is ready, and gives the rest of that line.
func Start(t *testing.T, ready, program string, args ...string) string {
	t.Helper()
	run := exec.Command(program, args...)
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	run.Stderr = t.Output()
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = run.Process.Kill() })
		_ = run.Wait() // it ends by the signal
		late.Stop()
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if rest, is := strings.CutPrefix(lines.Text(), ready); is {
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("%s ended before it was ready", program)
	return ""
}
