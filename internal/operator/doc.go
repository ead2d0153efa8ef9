// Package operator keeps pools as their ScaleSetPools want them: it starts, without a person, the
// runs that the command line starts, and reports in the objects' status what it sees.
//
// Decide is pure: what an object wants and what is seen of its pool go in, one thing to do comes out.
// The Reconciler observes, decides, and starts that as a run in a goroutine. Runs, not passes: a run
// keeps its memory, and its end returns the donor first.
//
//   - A pool's Lease stays the arbiter. What a Job or a person runs is mirrored, never disturbed.
//   - A run acts on the spec as it was when it began. Suspend begins nothing; what is open is ended.
//   - An object without capture, watch and rollout changes nothing: it observes.
//   - Runs end with leadership: Wait returns once they have, and their donors are back.
//   - Objects have no finalizer: an operator that is gone must not keep one from being deleted, and
//     what is open is in the journal, not in the object. The run of a deleted object ends, its donor
//     first, and the capture is abandoned: what it made in Azure is deleted.
//   - Nothing is decided by memory alone. A restart loses no more than when a capture was refused.
package operator
