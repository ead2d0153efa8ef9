package rollback

import (
	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// Table returns a rollback's rows, none of them skipped.
func Table() workflow.Table { return New(capture.Config{}).rollback(Request{}).table(view{}) }

// Restorable decides what becomes of the original's extensions.
var Restorable = restorable
