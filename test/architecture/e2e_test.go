package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var withoutE2E = regexp.MustCompile(`(?m)^//go:build .*!\s*e2e\b`)

// `make test` builds no control plane, and `make e2e` runs what the tag e2e adds:
// a file for builds without the tag would be compiled by one and never by the other.
func TestControlPlaneNeedsTheTagE2E(t *testing.T) {
	for _, p := range list(t, nil, "./...") {
		if slices.Contains(slices.Concat(p.TestImports, p.XTestImports), module+"/test/controlplane") {
			t.Errorf("a test file of %s imports test/controlplane without //go:build e2e", p.ImportPath)
		}
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if withoutE2E.Match(text) {
				t.Errorf("%s is tagged !e2e: split it, so that both builds compile what they share", file)
			}
		}
	}
}
