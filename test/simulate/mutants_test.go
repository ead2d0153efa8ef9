package simulate

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var plant = flag.Bool("mutants", false, "plant each bug of mutants, and expect that its story breaks its invariant")

// mutants are bugs that break a promise of docs/capture.md, each with the story that shows it.
var mutants = []struct {
	promise, story, invariant string
	file, old, now            string
}{
	{"the donor is kept from autoscalers", "autoscaler while the donor is empty", "12", "internal/engine/donor.go",
		"fleet.AnnotationCapture: &capture, fleet.AnnotationScaleDownDisabled: &yes})", "fleet.AnnotationCapture: &capture, \"none\": &yes})"},
	{"the same command finishes a capture that was killed", "Node of the stopped donor deleted, and killed", "10", "internal/engine/capture.go", "", ""},
}

// TestMutants checks that the bugs still apply to the code; with -mutants it plants them.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.promise, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				t.Fatalf("the text to replace stands %d times in %s, not once; carry the bug over to today's code:\n%s", n, m.file, m.old)
			}
			if !*plant {
				return
			}
			folder := t.TempDir()
			changed, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{changed: strings.Replace(string(text), m.old, m.now, 1), overlay: string(replace)} {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			name := regexp.QuoteMeta(strings.ReplaceAll(m.story, " ", "_"))
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=2m", "-run", "^TestStories$/^"+name+"$", ".")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "invariant "+m.invariant+": ") {
				t.Errorf("story %q does not break invariant %s: %v\n%s", m.story, m.invariant, err, out)
			}
		})
	}
}
