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
// Do nor Undo. If an act returns a [Redo], the rows that it names are undone and done
// again within the phase forward.
//
// # Acts
//
// An [Act] is one pass: it observes, and if the world is not as wanted it asks for the
// change. It never waits and never retries; it returns a [Wait] or an error. Before its
// first change it calls [Pass.Before], [Pass.Ensure] or [Pass.Save], which write the
// record first and return once the pool lock is valid. For a change in Azure,
// [Pass.Ensure] does all of this, and handles lost answers, operations that ended without
// effect and operations that were preempted. The function retry is the only policy that
// repeats a pass.
//
// # A crash
//
// No code resumes a step. [Runner.Run] takes the lock; if a record is open, it undoes
// what must not stay (phase suspend, or undo if the run is not resumable), so that the
// donor returns to service first. Then the workflow observes and plans as for a new run:
// steps whose result exists are skipped. While the lock cannot be renewed, the run waits
// and changes nothing; it ends only if another process takes the lock.
//
// [Runner.Pass] drives the same table one pass at a time, as a controller would.
package workflow
