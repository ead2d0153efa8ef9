//go:build e2e

package main

import (
	"path/filepath"
	"testing"
	"time"
)

// TestSeedsFindPlantedBugs: what seeds never find, they cannot vouch for. All that is
// planted takes an hour (make mutants); these two take a build and a few seeds each.
func TestSeedsFindPlantedBugs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := load("planted")
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{"donor-left-cordoned": true, "versions-pruned-while-in-use": true}
	for _, m := range all {
		if !wanted[m.name] {
			continue
		}
		delete(wanted, m.name)
		t.Run(m.name, func(t *testing.T) {
			r, err := tester{root: root, cache: t.TempDir(), seeds: 300, patience: 10 * time.Minute}.try(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if !seedFound.MatchString(r.Seeds) {
				t.Errorf("300 seeds found %q, want one of them to break an invariant", r.Seeds)
			}
		})
	}
	if len(wanted) > 0 {
		t.Errorf("not planted: %v", wanted)
	}
}
