package capture

import (
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// Table returns a capture's rows, none of them skipped.
func Table() workflow.Table {
	return NoneSkipped((&Service{}).capture(Request{Node: "n"}).table(view{}))
}

// FreshTable returns the rows of a capture that raises its donor, none of them skipped.
func FreshTable() workflow.Table {
	return NoneSkipped((&Service{}).capture(Request{Fresh: "p"}).table(view{}))
}

// NoneSkipped returns the rows of a plan that needs all of them.
func NoneSkipped(rows workflow.Table) workflow.Table {
	for i := range rows {
		rows[i].Skip = ""
	}
	return rows
}

// OnlineTable returns the rows of a capture of a node that stays in service, but for those
// that it skips.
func OnlineTable() workflow.Table {
	return (&Service{}).capture(Request{Node: "n", Online: true}).table(view{})
}

// Planned returns the steps of a plan in which nothing is skipped.
func Planned() []plan.Step { return Steps(Table(), nil) }
