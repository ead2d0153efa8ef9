package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Each action is named by its commit: tags can be moved, as those of tj-actions/changed-files
// were in March 2025 (CVE-2025-30066), and a release signs what they do. Each make target exists.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var (
		uses    = regexp.MustCompile(`(?m)uses: (.*)$`)
		pinned  = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
		targets = regexp.MustCompile(`(?m)(?:^ *| run: )make ([a-z0-9]+)|target: \[(.*)\]`)
		word    = regexp.MustCompile(`[a-z0-9]+`)
		actions int
		made    int
	)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if actions++; !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s: name the commit, and its version in a comment", path, m[1])
			}
		}
		for _, m := range targets.FindAllStringSubmatch(string(text), -1) {
			for _, target := range word.FindAllString(m[1]+m[2], -1) {
				if made++; !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
					t.Errorf("%s runs make %s, which the Makefile does not have", path, target)
				}
			}
		}
	}
	if actions < 5 || made < 5 {
		t.Errorf("%d actions and %d targets were read", actions, made)
	}
}
