package engine

import (
	"time"
)

// State is what became of a step.
type State string

// The states of a step.
const (
	StepStarted  State = "started"
	StepProgress State = "progress"
	StepDone     State = "done"
	StepSkipped  State = "skipped" // Message says why
	StepFailed   State = "failed"
	StepUndone   State = "undone" // what the step had done was put back
)

// An Event is something that a person who watches wants to see.
type Event struct {
	At    time.Time `json:"at"`
	Step  string    `json:"step"`  // prototype.Step's ID
	Title string    `json:"title"` // prototype.Step's Title
	State State     `json:"state"`
	// Message is what the cloud or the cluster is doing, or what went wrong.
	Message string `json:"message,omitempty"`
	// Percent is how far it is, 0–100; -1 where nobody knows.
	Percent int32 `json:"percent"`
	// Elapsed since the step was started, and what is usual.
	Elapsed time.Duration `json:"elapsed"`
	Usual   time.Duration `json:"usual,omitempty"`
}

// A Reporter is told events as they happen, from several goroutines at once. It
// must not block.
type Reporter interface {
	Report(event Event)
}

// ReporterFunc makes a function a Reporter.
type ReporterFunc func(Event)

// Report calls the function.
func (f ReporterFunc) Report(event Event) { f(event) }

// Timing says where the time went.
type Timing struct {
	Begin time.Time    `json:"begin"`
	End   time.Time    `json:"end"`
	Steps []StepTiming `json:"steps,omitempty"`
}

// StepTiming says where one step's time went. What is neither Cloud, World nor
// Own is spent in requests and in Ortet itself.
type StepTiming struct {
	Step  string    `json:"step"`
	After []string  `json:"after,omitempty"` // for the critical path
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// Cloud is what the cloud's Retry-After asked to wait.
	Cloud time.Duration `json:"cloud"`
	// World is time in which the world worked and Ortet looked on: pods being
	// evicted, a node booting, a pod working on a disk.
	World time.Duration `json:"world"`
	// Own is what Ortet waited of its own accord: before it repeated something
	// that failed or lied, or where the cloud did not say how long to wait.
	Own time.Duration `json:"own"`
}
