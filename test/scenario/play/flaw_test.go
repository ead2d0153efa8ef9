//go:build flaw_cordon || flaw_prune || flaw_extension

package play_test

import (
	"testing"

	"github.com/ortet/ortet/test/scenario"
)

// A flaw that is put in on purpose is found within so many seeds, and shrunk to
// as few happenings.
const (
	flawSeeds  = 1000
	flawEvents = 3
)

// TestFlawIsFound runs in builds with a deliberate flaw, which TestFlaws makes.
func TestFlawIsFound(t *testing.T) {
	for seed := uint64(1); seed <= flawSeeds; seed++ {
		r := played(t, scenario.Generate(seed))
		if len(r.Violations) == 0 {
			continue
		}
		small := shrunk(t, r.Listed)
		again := played(t, small)
		if len(again.Violations) == 0 || len(small.Events) > flawEvents {
			t.Errorf("shrunk to %d happenings, %d allowed, with %d violations", len(small.Events), flawEvents, len(again.Violations))
		}
		t.Logf("found at seed %d: %v\n%s", seed, again.Violations, small)
		return
	}
	t.Errorf("not found within %d seeds", flawSeeds)
}
