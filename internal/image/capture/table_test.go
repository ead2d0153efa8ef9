package capture_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/workflowtest"
)

var walks = flag.Uint64("walks", 20_000, "random walks of the table")

// TestTable plays the table with failures, deaths and interruptions at any action: the
// donor is never stranded.
func TestTable(t *testing.T) {
	for name, table := range map[string]func() workflow.Table{"out of service": capture.Table, "online": capture.OnlineTable} {
		ends, err := workflowtest.PlayAll(table, *walks, func(seed uint64) workflowtest.Random { return rand.New(rand.NewPCG(seed, 1)) })
		if err != nil {
			t.Fatal(name, err)
		}
		t.Logf("%s: %v", name, ends)
	}
}

// The walk has to find the defect that workflow.Next guards against.
func TestWalkFindsUndoInFlight(t *testing.T) {
	found := 0
	for seed := range uint64(5_000) {
		if _, err := (workflowtest.Walk{Rows: workflowtest.Skipping(capture.Table),
			InFlight: true}).Play(rand.New(rand.NewPCG(seed, 1))); err != nil {
			found++
		}
	}
	if found == 0 {
		t.Error("no walk is broken although the undo of a step in flight is offered")
	}
}
