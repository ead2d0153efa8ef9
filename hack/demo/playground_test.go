//go:build e2e

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/syncbuffer"
)

// A user's kubectl looks around in the playground, drains a node and reads logs; what
// is not served says so. It needs the programs in bin/, which make build makes.
func TestPlayground(t *testing.T) {
	t.Chdir("../..")
	binary, err := controlplane.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out syncbuffer.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &out, plot{keep: true}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the playground ended with %v", err)
		}
	})
	for !strings.Contains(out.String(), "kubectl get nodes") {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the playground ended: %v\n%s", err, out.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
	file := regexp.MustCompile(`(?m)^\. (\S+/env)$`).FindStringSubmatch(out.String())
	if file == nil {
		t.Fatalf("no file to read in\n%s", out.String())
	}
	env, err := os.ReadFile(file[1])
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`export KUBECONFIG=(\S+)`).FindStringSubmatch(string(env))
	if found == nil {
		t.Fatalf("no KUBECONFIG in\n%s", env)
	}
	cache := t.TempDir() // another cluster may have had its port
	kubectl := func(args ...string) (string, error) {
		command := exec.CommandContext(ctx, binary, append([]string{"kubectl"}, args...)...)
		command.Env = append(os.Environ(), "KUBECONFIG="+found[1], "KUBECACHEDIR="+cache)
		text, err := command.CombinedOutput()
		return string(text), err
	}
	shell := exec.CommandContext(ctx, "sh", "-c", ". "+file[1]+" && timeout 60 ortet status")
	if text, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(text), pool) {
		t.Errorf("ortet status under timeout: %v\n%s", err, text)
	}
	const node = pool + "000000"
	succeeds := func(want string, args ...string) {
		t.Helper()
		text, err := kubectl(args...)
		if err != nil || !regexp.MustCompile(want).MatchString(text) {
			t.Fatalf("kubectl %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, text)
		}
	}
	succeeds(node+`\s+Ready\s+<none>\s+\S+\s+v1\.`, "get", "nodes")
	succeeds(`(?s)web-\S+\s+1/1\s+Running\s+0.*replicaset.apps/web\s+6\s+6\s+6`, "get", "all")
	succeeds(`(?s)Name:\s+`+node+`.*KubeletReady.*Non-terminated Pods:\s+\(2 in total\)`, "describe", "node", node)
	succeeds("cordoned", "cordon", node)
	succeeds("Ready,SchedulingDisabled", "get", "node", node)
	succeeds("drained", "drain", node, "--ignore-daemonsets", "--timeout=60s")
	succeeds("condition met", "wait", "--for=jsonpath={.status.readyReplicas}=6", "rs/web", "--timeout=60s")
	succeeds("^$", "get", "pods", "--field-selector=spec.nodeName="+node, "-o", "name")
	succeeds("uncordoned", "uncordon", node)
	// The agent's program really runs in a pod, and its kubelet has the log.
	succeeds("created", "run", "agent", "--image=example.invalid/agent:1", "--restart=Never", "--command", "--", "ortet-node", "--help")
	succeeds("condition met", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/agent", "--timeout=60s")
	succeeds("(?i)usage", "logs", "agent")
	succeeds("(?s)Name:\\s+agent.*Completed", "describe", "pod", "agent")
	succeeds("deleted", "delete", "pod", "agent")

	for _, args := range [][]string{
		{"exec", "pod/agent", "--", "true"},
		{"create", "deployment", "x", "--image=y"},
		{"scale", "rs/web", "--replicas=7"},
	} {
		if text, err := kubectl(args...); err == nil || !strings.Contains(text, "does not serve") && !strings.Contains(text, "not found") {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, text)
		}
	}
}

// A connection that its peer resets raises SIGPIPE, which ended the demo; an output
// that is cut off ends it, with all that it made.
func TestBrokenPipe(t *testing.T) {
	t.Chdir("../..")
	dir, program := t.TempDir(), filepath.Join(t.TempDir(), "demo")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./hack/demo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	demo := exec.CommandContext(ctx, program, "-keep")
	demo.Env = append(os.Environ(), "TMPDIR="+dir, "CONTROLPLANE=")
	demo.Stdout, demo.Stderr = input, os.Stderr
	err = demo.Start()
	input.Close()
	if err != nil {
		t.Fatal(err)
	}
	invited := false
	for lines := bufio.NewScanner(output); !invited && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "== ") {
			if err := demo.Process.Signal(syscall.SIGPIPE); err != nil {
				t.Fatal(err)
			}
		}
		invited = strings.HasPrefix(lines.Text(), "kubectl get nodes")
	}
	if !invited {
		t.Error("the demo ended while its output was read")
	}
	output.Close()
	_ = demo.Process.Signal(syscall.SIGPIPE)
	if err := demo.Wait(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, left: %v", err, left)
	}
}
