//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/test/controlplane"
)

// A tutorialShell runs commands as the shell of a user does who reads the playground's
// file.
type tutorialShell struct {
	env  string // the playground's file
	vars []string
}

// run answers yes to what asks for the cluster's name.
func (s tutorialShell) run(t *testing.T, command string) outcome {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", ". "+s.env+"\n"+command)
	cmd.Env, cmd.Stdin = s.vars, strings.NewReader("tidy\n")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	o := outcome{args: []string{command}, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	t.Logf("%5.1f s  exit %d  %s", time.Since(began).Seconds(), o.code, command)
	return o
}

// nodes waits for so many Ready Nodes, and that there are no others.
func (s tutorialShell) nodes(t *testing.T, command string, want int) {
	t.Helper()
	eventually(t, command+": Ready Nodes", func() bool {
		o := s.run(t, command).exits(t, exitDone)
		return strings.Count(o.stdout, " Ready ") == want && strings.Count(o.stdout, "\n") == want+1
	})
}

// commands are those in the shell blocks of a page, in their order.
func commands(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(string(block[1]), "\\\n", " ")) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
	}
	return all
}

// playground starts it, in a folder for temporary files that is empty again at its end.
func (w *world) playground(t *testing.T) tutorialShell {
	t.Helper()
	root, temporary, path := t.TempDir(), t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(root, "demo"), "./hack/demo")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the playground: %v\n%s", err, out)
	}
	kubectl, err := controlplane.Binary(t.Context())
	must(t, err)
	must(t, os.Symlink(w.bin, filepath.Join(root, "bin")))
	must(t, os.WriteFile(filepath.Join(path, "kubectl"), []byte("#!/bin/sh\nexec "+kubectl+" kubectl \"$@\"\n"), 0o755))
	vars := []string{"HOME=" + root, "TERM=dumb", "TMPDIR=" + temporary, "PATH=" + path + ":" + os.Getenv("PATH"), "CLUSTER=1"}
	demo := exec.Command(filepath.Join(root, "demo"), "-keep") //nolint:noctx // ended below, by Ctrl-C
	demo.Dir, demo.Env, demo.Stderr = root, vars, os.Stderr
	out, err := demo.StdoutPipe()
	must(t, err)
	must(t, demo.Start())
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		must(t, demo.Process.Signal(os.Interrupt))
		for lines.Scan() {
		}
		if err := demo.Wait(); err != nil {
			t.Errorf("the playground ended with %v", err)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%v, left: %v", err, left)
		}
	})
	for lines.Scan() {
		if env, found := strings.CutPrefix(lines.Text(), ". "); found {
			go func() {
				for lines.Scan() { // a full pipe would stop it
				}
			}()
			return tutorialShell{env: env, vars: vars}
		}
	}
	t.Fatal("the playground ended before it named a file to read")
	return tutorialShell{}
}

// tutorial runs each command of the tutorial in the playground without Azure, with what
// the page says to do between them.
func tutorial(t *testing.T, w *world) {
	s := w.playground(t)
	work := filepath.Join(filepath.Dir(s.env), "work")
	clusterFile := filepath.Join(work, "cluster.yaml")
	edit := func(pattern, with string) {
		t.Helper()
		text, err := os.ReadFile(clusterFile)
		must(t, err)
		changed := regexp.MustCompile(pattern).ReplaceAllLiteral(text, []byte(with))
		if bytes.Equal(text, changed) {
			t.Fatalf("cluster.yaml has no %s:\n%s", pattern, text)
		}
		must(t, os.WriteFile(clusterFile, changed, 0o600))
	}
	const block = `(?m)^  artifacts:\n(    .*\n)+`
	server := func(k3s string) {
		t.Helper()
		s.run(t, "ortet cluster status").exits(t, exitDone).says(t, "running yes "+k3s)
	}
	var artifacts []string // blocks
	seen := map[string]int{}
	for _, command := range commands(t, filepath.Join("..", "..", "docs", "tutorials", "first-cluster.md")) {
		words := strings.Fields(command)
		name := strings.Join(words[:min(3, len(words))], " ")
		seen[name]++
		switch {
		case name == "kubectl get nodes":
			s.nodes(t, command, 4)
			continue
		case name == "ortet cluster artifacts" && seen[name] > 1:
			must(t, os.WriteFile(filepath.Join(work, "k3s"), []byte("another k3s\n"), 0o600))
		case name == "ortet cluster restore":
			edit(block, artifacts[0])
			backup := regexp.MustCompile(`state-[0-9-]+`)
			newest := backup.FindString(s.run(t, "ortet cluster backup --list").stdout)
			command = backup.ReplaceAllString(command, newest)
		}
		o := s.run(t, command).exits(t, exitDone)
		o.fits(t)
		switch name {
		case "ortet cluster artifacts":
			artifacts = append(artifacts, o.stdout)
			edit(block, o.stdout)
		case "ortet cluster agents":
			o.says(t, "agents000000 running Succeeded", "agents000002 running Succeeded")
		case "ortet cluster scale":
			o.says(t, map[int]string{1: "from 3 to 5", 2: "drain it"}[seen[name]])
			s.nodes(t, "kubectl get nodes", map[int]int{1: 6, 2: 2}[seen[name]])
		case "ortet cluster down":
			if o := s.run(t, "kubectl get nodes"); o.code == exitDone {
				t.Errorf("the API server answers after down:\n%s", o)
			}
		case "ortet cluster up":
			o.says(t, "Cluster tidy is ready.")
			server(map[bool]string{false: "v1.36.3+k3s1", true: "v1.36.4+k3s1"}[len(artifacts) > 1])
		case "ortet cluster reimage":
			s.nodes(t, "kubectl get nodes", 4)
		case "ortet cluster restore", "ortet cluster replace":
			server("v1.36.3+k3s1")
		}
	}
	for name, want := range map[string]int{"ortet cluster init": 1, "ortet cluster up": 3, "ortet cluster kubeconfig": 1, "ortet cluster replace": 1} {
		if seen[name] != want {
			t.Errorf("the tutorial has %s %d times, want %d", name, seen[name], want)
		}
	}
	edit(`(?m)^  pools:\n`, "  pools:\n  - {name: full, count: 1}\n")
	s.run(t, "ortet cluster up --own-address 203.0.113.7").exits(t, exitNeedsPerson).says(t, "scale set full tidy-compute SkuNotAvailable")
}
