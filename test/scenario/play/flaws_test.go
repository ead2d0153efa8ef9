package play_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFlaws builds the engine with one deliberate flaw after the other, and has
// the simulation find each: what it never finds, it cannot vouch for.
func TestFlaws(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the play three times")
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, flaw := range []string{"flaw_cordon", "flaw_prune", "flaw_extension"} {
		t.Run(flaw, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "play.test")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", flaw, "-o", binary, ".")
			build.Dir = dir
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build with %s: %v\n%s", flaw, err, out)
			}
			run := exec.CommandContext(t.Context(), binary, "-test.run", "^TestFlawIsFound$", "-test.v", "-test.timeout", "10m")
			run.Dir, run.Env = dir, os.Environ()
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
