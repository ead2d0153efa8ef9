package capture_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/workflow/workflowtest"
)

var walks = flag.Uint64("walks", 20_000, "random walks of the table")

// TestTable plays the table with failures, deaths and interruptions at any action: the
// donor is never stranded.
func TestTable(t *testing.T) {
	if err := workflowtest.Check(capture.Table()); err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for seed := range *walks {
		end, err := workflowtest.Walk{Rows: workflowtest.Skipping(capture.Table)}.Play(rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		ends[end]++
	}
	t.Logf("%v", ends)
}
