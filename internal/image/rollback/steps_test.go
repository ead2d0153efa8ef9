package rollback_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow/workflowtest"
)

var walks = flag.Uint64("walks", 20_000, "random walks of the table")

// TestTable plays the table with failures, deaths and interruptions at any action: a
// rollback that ends well has changed the model.
func TestTable(t *testing.T) {
	ends, err := workflowtest.PlayAll(rollback.Table, *walks, func(seed uint64) workflowtest.Random { return rand.New(rand.NewPCG(seed, 1)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", ends)
}
