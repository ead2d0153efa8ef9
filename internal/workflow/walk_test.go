package workflow_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/workflowtest"
)

var walksFlag = flag.Uint64("walks", 20_000, "random walks of each table")

func TestRandomWalk(t *testing.T) {
	for name, rows := range map[string]func(map[string]bool) workflow.Table{
		"capture":  workflowtest.Skipping(captureTable),
		"rollback": func(map[string]bool) workflow.Table { return rollbackTable() },
	} {
		t.Run(name, func(t *testing.T) {
			begun, ends := time.Now(), map[string]int{}
			for seed := range *walksFlag {
				end, err := workflowtest.Walk{Rows: rows}.Play(rand.New(rand.NewPCG(seed, 1)))
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				ends[end]++
			}
			t.Logf("%d walks in %s: %v", *walksFlag, time.Since(begun).Round(time.Millisecond), ends)
		})
	}
}

// The walk has to find the defect that Next guards against.
func TestRandomWalkFindsUndoInFlight(t *testing.T) {
	const walks = 5_000
	found := 0
	for seed := range uint64(walks) {
		if _, err := (workflowtest.Walk{Rows: workflowtest.Skipping(captureTable), InFlight: true}).Play(rand.New(rand.NewPCG(seed, 1))); err != nil {
			found++
		}
	}
	if found == 0 {
		t.Error("no walk is broken although the undo of a step in flight is offered")
	}
	t.Logf("%d of %d walks", found, walks)
}
