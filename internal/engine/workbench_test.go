package engine

import (
	"strings"
	"testing"
)

// A pod that nobody ends goes by force alone, and not before its node is off.
func TestPodByHand(t *testing.T) {
	f := facts{Bench: benchFacts{Node: "node-7"}}
	f.Names.Job = "ortet-generalize-pool1"
	for _, p := range putters() {
		if p.undo != undoJob {
			continue
		}
		for _, want := range []string{"node-7 is known to be off", "-n our-own", "ortet-generalize-pool1", "--force", "--grace-period=0"} {
			if got := p.byHand(f, "our-own"); !strings.Contains(got, want) {
				t.Errorf("%q does not say %q", got, want)
			}
		}
	}
}
