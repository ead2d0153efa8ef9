// Package engine is the only loop that changes a pool: observe, decide, record,
// act. CLI, Job and controller are doors to it, so that crash safety is written
// and tested once.
//
// A capture is the list of prototype.CaptureSteps. Each step looks at the world
// before it acts, writes to the journal what it is about to do, begins it,
// writes down how to ask for it, and asks until it is over; then it looks
// again, since answers lie. So a process may die anywhere, and the next one
// goes on from what the world shows. What was done to the donor is on the
// journal's undo list from before it was done until it is put back.
//
// The engine sleeps in one place only (wait.go), for as long as the cloud's
// Retry-After asks; what it waits of its own accord is counted apart.
package engine
