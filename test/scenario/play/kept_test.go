package play_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/test/scenario"
)

var update = flag.Bool("update", false, "rewrite what the kept scenarios tell")

// Where scenarios are kept: golden are the cases known from the field, kept are
// regressions. Beside each is what a person sees of it (.out).
const (
	golden = "../testdata/golden"
	kept   = "../testdata/kept"
)

func TestGolden(t *testing.T) { playAll(t, golden) }

func TestKept(t *testing.T) { playAll(t, kept) }

func playAll(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playFile(t, file)
		})
	}
}

// playFile plays one scenario: what has to hold holds, what it expects comes, no
// happening is missed, and what is told is what was told before.
func playFile(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(s.Comment) == 0 {
		t.Errorf("%s does not say why it is kept", file)
	}
	if s.Chance != (scenario.Chance{}) {
		t.Errorf("%s holds chance, which changes with the generator: list what happens", file)
	}
	r := played(t, s)
	for _, v := range r.Violations {
		t.Errorf("%s: %s", file, v)
	}
	for _, e := range r.Missed {
		t.Errorf("%s: this never happens, since the request does not come: %s %q %d %s", file, e.Side, e.Request, e.Count, e.What)
	}
	out := strings.TrimSuffix(file, ".txt") + ".out"
	if *update {
		if err := os.WriteFile(out, []byte(r.Told), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v: -update writes it", err)
	}
	if a, b := differ(string(want), r.Told); a != b {
		t.Errorf("%s tells otherwise:\n%s\nthan %s has:\n%s\n(-update rewrites it)", file, b, out, a)
	}
}

// TestNothingStrays: what is beside no scenario is left from one that is gone.
func TestNothingStrays(t *testing.T) {
	for _, dir := range []string{golden, kept} {
		outs, err := filepath.Glob(filepath.Join(dir, "*.out"))
		if err != nil {
			t.Fatal(err)
		}
		for _, out := range outs {
			if _, err := os.Stat(strings.TrimSuffix(out, ".out") + ".txt"); err != nil {
				t.Errorf("%s: %v", out, err)
			}
		}
	}
}
