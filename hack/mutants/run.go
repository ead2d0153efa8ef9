package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// result is what found a planted bug; empty texts: it was not found that way.
type result struct {
	Seeds string `json:"seeds"` // "seed 17", or what else a run of seeds found
	Test  string `json:"test"`  // the first test that failed
	Tried bool   `json:"tried"` // the tests were run
}

// tester plays and tests mutants of the project at root.
type tester struct {
	root  string
	cache string // folder for results
	base  string // hash of all sources
	seeds int
	tests bool
	// patience bounds one run of seeds or of a suite, which a bug may make hang; 0: none.
	patience time.Duration
}

// The packages whose tests may find a bug that no seed finds, in the order in
// which they are asked: those nearest to the decisions first.
var suites = []string{
	"./internal/prototype/...", "./internal/engine/...", "./internal/journal/...",
	"./internal/azure/...", "./internal/cluster/kube/...", "./internal/cli/...",
	"./test/scenario/...", "./internal/fleet/...", "./internal/node/generalize/...",
}

// sources hashes what a result depends on: all Go files and scenarios.
func sources(root string) (string, error) {
	h := sha256.New()
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "hack"}, path):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".txt", ".mod", ".sum"}, filepath.Ext(path)):
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, len(text))
		h.Write(text)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the sources in %s: %w", root, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// key is the name of a mutant's result in the cache.
func (t tester) key(m mutant) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %q", t.base, t.seeds, m.changes)
	return m.set + "-" + m.name + "-" + hex.EncodeToString(h.Sum(nil))[:16] + ".json"
}

// try gives what finds a mutant, from the cache where it is known.
func (t tester) try(ctx context.Context, m mutant) (result, error) {
	path := filepath.Join(t.cache, t.key(m))
	var r result
	text, err := os.ReadFile(path)
	known := err == nil && json.Unmarshal(text, &r) == nil
	if known && (r.Seeds != "" || r.Tried || !t.tests) {
		return r, nil
	}
	folder, err := os.MkdirTemp("", "ortet-mutant-")
	if err != nil {
		return result{}, fmt.Errorf("plant %s: %w", m.name, err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	overlay, err := m.overlay(t.root, folder)
	if err != nil {
		return result{}, err
	}
	if !known {
		if r.Seeds, err = t.play(ctx, overlay); err != nil {
			return result{}, fmt.Errorf("play %s: %w", m.name, err)
		}
	}
	if r.Seeds == "" && t.tests {
		if r.Test, err = t.test(ctx, overlay); err != nil {
			return result{}, fmt.Errorf("test %s: %w", m.name, err)
		}
		r.Tried = true
	}
	if text, err = json.Marshal(r); err != nil {
		return result{}, fmt.Errorf("keep the result of %s: %w", m.name, err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return result{}, fmt.Errorf("keep the result of %s: %w", m.name, err)
	}
	return r, nil
}

var (
	seedLine = regexp.MustCompile(`seed (\d+) breaks an invariant: (.*)`)
	failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	hangLine = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*`)
)

// play plays seeds with a mutant, and gives what the first of them found.
func (t tester) play(ctx context.Context, overlay string) (string, error) {
	out, failed, err := t.run(ctx, "test", "-overlay", overlay, "-count=1", "-timeout", t.patience.String(),
		"-vet=off", "-run", "^TestSimulate$", "./test/scenario/play", fmt.Sprintf("-seeds=%d", t.seeds), "-shrink=false")
	switch {
	case err != nil || !failed:
		return "", err
	case seedLine.MatchString(out):
		found := seedLine.FindStringSubmatch(out)
		return fmt.Sprintf("seed %s: %s", found[1], found[2]), nil
	case hangLine.MatchString(out):
		return hangLine.FindString(out), nil
	case failLine.MatchString(out):
		return "the whole run: " + lastLine(out), nil
	}
	return "", fmt.Errorf("the seeds were not played:\n%s", out)
}

// test runs the suites with a mutant until a test fails, and names it.
func (t tester) test(ctx context.Context, overlay string) (string, error) {
	for _, suite := range suites {
		out, failed, err := t.run(ctx, "test", "-tags", "e2e", "-overlay", overlay, "-count=1", "-failfast", "-timeout", t.patience.String(), suite)
		switch {
		case err != nil:
			return "", err
		case !failed:
		case failLine.MatchString(out):
			return failLine.FindStringSubmatch(out)[1], nil
		case hangLine.MatchString(out):
			return suite + ": " + hangLine.FindString(out), nil
		default:
			return "", fmt.Errorf("%s was not tested:\n%s", suite, out)
		}
	}
	return "", nil
}

// run runs the go command in root; failed: it ran, and ended with a failure.
func (t tester) run(ctx context.Context, args ...string) (out string, failed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	cmd.WaitDelay = time.Minute
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case errors.As(err, &exit):
		return string(text), true, nil
	}
	return string(text), false, err
}

// lastLine is the last line of a test's output that says why it failed.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "_test.go:") {
			return strings.TrimSpace(lines[i])
		}
	}
	return lines[len(lines)-1]
}
