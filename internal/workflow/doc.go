// Package workflow runs a table of steps on a pool, and undoes them.
//
// Each row of a [Table] is a [Step]: its Do and, if the effect of Do must not stay, the
// Undo that reverts it. [Next] decides from the table and the record alone which actions
// may begin; [Ended] returns the record after an action has ended. Neither waits nor reads
// a clock, so a test plays a table 100,000 times with failures and crashes at any action.
//
// # States of a row
//
//	pending ─▶ running ─▶ done ─▶ undoing ─▶ undone
//	              └─▶ failed ───────┘  └─▶ left (needs a person)
//
// In running, done, failed and undoing the effect of Do may exist. A row that the plan
// does not need is skipped.
//
// # Phases of a run
//
//   - forward: a Do begins once all steps of its After succeeded, an Undo once all of its When.
//   - undo, after a failed step: every Undo runs whose Do may have had an effect.
//   - suspend, after Ctrl-C or a crash: the same, except for rows that Keep leaves to the next run.
//
// In each phase an Undo waits until the undos of its After have ended and those of its
// Needs have succeeded. While an action of a row is in flight, the row is offered neither
// Do nor Undo. If an act returns an [Again], the run is suspended, planned from the world
// and goes on in the same process.
//
// # Acts
//
// An [Act] is one pass: it observes, and if the world is not as wanted it asks for the
// change. [Pass.Ensure] does that for a change of the cloud: a lost answer, an operation
// that ended without effect, and one that another preempted are its concern. The
// function retry is the only policy that repeats a pass.
//
// # A crash
//
// No code resumes a step. [Runner.Run] takes the lock; if a record is open, it undoes
// what may not be left (suspend, or undo if the run is not resumable), so that the donor
// is back first. Then the workflow plans from the world as if it were new: what exists
// is skipped. While the lock cannot be renewed the run waits and changes nothing; only
// another holder ends it. With [Runner.Pass] a controller can drive the same table.
package workflow
