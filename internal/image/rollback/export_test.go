package rollback

import (
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/workflowtest"
)

// Table returns a rollback's rows, none of them skipped.
func Table() workflow.Table {
	return workflowtest.NoneSkipped(New(capture.Config{}).rollback(Request{}).table(false))
}

// Restorable decides what becomes of the original's extensions.
var Restorable = restorable
