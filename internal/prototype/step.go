package prototype

import (
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Step is one line of a plan: a step, or an undo of the good case.
type Step struct {
	ID           string        `json:"id"`
	Title        string        `json:"title"`
	After        []string      `json:"after,omitempty"`        // ids that have to be done, or skipped, before
	Usual        time.Duration `json:"usual,omitempty"`        // 0: a moment
	Deadline     time.Duration `json:"deadline"`               // counts from its begin
	Skip         string        `json:"skip,omitempty"`         // why it will not run; "" runs it
	Irreversible []string      `json:"irreversible,omitempty"` // what cannot be recovered once it is done
}

// A Plan is what a capture or rollback would do, and why it may not.
type Plan struct {
	Kind        string           `json:"kind"` // "capture" or "rollback"
	Capture     string           `json:"capture,omitempty"`
	Pool        fleet.ResourceID `json:"pool"`
	Donor       string           `json:"donor,omitempty"`     // node name
	Workbench   string           `json:"workbench,omitempty"` // node name
	Version     fleet.ResourceID `json:"version,omitempty"`   // what the model will use
	Steps       []Step           `json:"steps"`               // in an order in which they could run one after another
	Problems    []fleet.Problem  `json:"problems,omitempty"`  // all reasons to refuse
	Notes       []string         `json:"notes,omitempty"`     // no reasons to refuse
	Resumes     bool             `json:"resumes,omitempty"`   // an earlier run was interrupted and this one goes on
	NothingToDo bool             `json:"nothingToDo,omitempty"`
}

// Irreversible collects what the plan cannot take back, in the order of its steps.
func (p Plan) Irreversible() []string {
	var all []string
	for _, s := range p.Steps {
		if s.Skip == "" {
			all = append(all, s.Irreversible...)
		}
	}
	return all
}
