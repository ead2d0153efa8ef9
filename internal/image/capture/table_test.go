package capture_test

import (
	"flag"
	"testing"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

var walks = flag.Uint64("walks", 20_000, "random walks of the table")

// TestTable plays the table with failures, deaths and interruptions at any action: the
// donor is never stranded, and what ends well has changed the model, by a rollback too.
func TestTable(t *testing.T) {
	for name, table := range map[string]func() workflow.Table{"out of service": capture.Table, "online": capture.OnlineTable, "fresh": capture.FreshTable, "rollback": rollbackTable} {
		if err := workflowtest.Check(table()); err != nil {
			t.Fatal(name, err)
		}
		ends := map[string]int{}
		for seed := range *walks {
			end, err := playWalk(table, false, seed)
			if err != nil {
				t.Fatal(name, err)
			}
			ends[end]++
		}
		t.Logf("%s: %v", name, ends)
	}
}

// rollbackTable returns a rollback's rows, none of them skipped.
func rollbackTable() workflow.Table {
	rows, _, err := rollback.New(capture.Config{}).Workflow().Restore(journal.Record{Pool: "p", State: []byte(`{"pool":"p"}`)})
	if err != nil {
		panic(err)
	}
	return capture.NoneSkipped(rows)
}

// The walk has to find the defect that workflow.Next guards against.
func TestWalkFindsUndoInFlight(t *testing.T) {
	found := 0
	for seed := range uint64(5_000) {
		if _, err := playWalk(capture.Table, true, seed); err != nil {
			found++
		}
	}
	if found == 0 {
		t.Error("no walk is broken although the undo of a step in flight is offered")
	}
}
