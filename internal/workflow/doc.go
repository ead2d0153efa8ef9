// Package workflow runs a table of steps on a pool, and undoes them.
//
// A row of a [Table] is a [Step] with its Do and, if Do takes something, the Undo that
// returns it. [Next] decides from the table and the record alone which actions may
// begin; [Ended] gives the record after one. Neither waits nor reads a clock, so a test
// plays a table 100,000 times with failures and deaths at any action.
//
// # States of a row
//
//	pending ─▶ running ─▶ done ─▶ undoing ─▶ undone
//	              └─▶ failed ───────┘  └─▶ left (needs a person)
//
// What Do took may be there in running, done, failed and undoing. A row that the plan
// does not need is skipped.
//
// # Phases of a run
//
//   - forward: a Do begins once all After succeeded, an Undo once all When succeeded.
//   - undo, after a failed step: every Undo is due.
//   - suspend, after Ctrl-C or a crash: every Undo is due but of rows that Keep names.
//
// In each phase an Undo waits for its After (ended) and Needs (succeeded). Actions in
// flight are offered neither Do nor Undo. If an act reports [Redo], its rows are undone
// and done again within the phase forward.
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
