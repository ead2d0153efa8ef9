package prototype

import (
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Step is one line of the table of contents of a capture or rollback.
type Step struct {
	// ID is stable: journals, reports and tests name a step by it.
	ID string `json:"id"`
	// Title is for people, in the imperative: "Take a snapshot of the donor's disk".
	Title string `json:"title"`
	// After names the steps that have to be done, or skipped, before.
	After []string `json:"after,omitempty"`
	// Usual is how long it usually takes; 0 means a moment.
	Usual time.Duration `json:"usual,omitempty"`
	// Deadline is when it is given up, from when it began.
	Deadline time.Duration `json:"deadline"`
	// Skip says why the step will not run; "" means that it will.
	Skip string `json:"skip,omitempty"`
	// Irreversible names what cannot be had back once the step is done.
	Irreversible []string `json:"irreversible,omitempty"`
}

// The kinds of plan.
const (
	KindCapture  = "capture"
	KindRollback = "rollback"
)

// A Plan is what a capture or rollback would do, and why it may not.
type Plan struct {
	Kind      string           `json:"kind"` // KindCapture or KindRollback
	Capture   string           `json:"capture,omitempty"`
	Pool      fleet.ResourceID `json:"pool"`
	Donor     string           `json:"donor,omitempty"`     // node name
	Workbench string           `json:"workbench,omitempty"` // node name
	Version   fleet.ResourceID `json:"version,omitempty"`   // what the model will use
	// Steps in an order in which they could run one after another.
	Steps []Step `json:"steps"`
	// Problems are all reasons to refuse; none means that it can be done.
	Problems []fleet.Problem `json:"problems,omitempty"`
	// Notes are worth knowing and no reason to refuse.
	Notes []string `json:"notes,omitempty"`
	// Resumes is true where an earlier run was interrupted and this one goes on.
	Resumes bool `json:"resumes,omitempty"`
	// NothingToDo is true where every step that changes anything is skipped.
	NothingToDo bool `json:"nothingToDo,omitempty"`
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
