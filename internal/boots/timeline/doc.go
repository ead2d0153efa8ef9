// Package timeline shows where a node's boot time went: from the request for a machine to
// the Ready node, on one axis, with what was waited for.
//
// It is pure: a wire.BootReport (of the node, or its files) and a Cloud (of Azure and the
// cluster) go in, a Timeline comes out.
//
// # One axis
//
// The axis is the node's CLOCK_MONOTONIC: durations since the kernel's start, negative
// before it. Each other clock is brought to it, and the loss of precision is the
// uncertainty of each time:
//
//   - wall: by the readings of both clocks that systemd and the journal take at
//     each event. Between two readings whose offsets differ by more than a little
//     the clock was set; a wall time that falls into the gap or the overlap has two
//     meanings, and the width of the step is its uncertainty.
//   - cloud and cluster: by the node's synchronised clock, on the assumption that
//     all three are synchronised to within a second or so; events that are known
//     to be ordered (a Node is not created before its kubelet started) narrow it.
//
// # The critical path
//
// From the end backwards: what a span had to wait for is what it was ordered after
// (systemd's After, a stage's place in its program, what started it), of those the one that
// ended last before it began. The time between that end and the beginning belongs to
// neither: it is a wait, a step of the path of its own, which `systemd-analyze
// critical-chain` does not show. Its cause is named where evidence covers it, else called
// unknown. A span with parts, as a cloud-init stage with its modules, is replaced by the
// path through them; a part that was itself waiting, as for a lock of dpkg, is a wait.
//
// A service that began long after all that it is ordered after, while a program ran that
// starts others (a script extension, a module of cloud-init's that runs scripts), counts as
// started by it. That is a conclusion, and marked so in the service's Detail.
//
// systemd counts a unit of Type=simple as started at once, and so does the path;
// of a unit that was restarted only the last start is known.
//
// Waits and spans together cover the time from the origin to the end without a
// gap or an overlap: their durations add up to the total.
//
// # Zero
//
// The origin is the request for the machine, where the cloud has it, else the start of its
// first boot (Restart) or of the machine's firmware, where that is known, else the kernel's start. A preprovisioned
// machine booted before it was requested, and waits in cloud-init-local until it is handed
// over: that moment is its origin, and the time before is shown apart, as the pool's
// (Idle). Where cloud-init does not log it, and its first stage took minutes on a machine
// that Azure does not call created for this boot, the stage's end is taken for it, which
// Missing notes.
//
// # Advice
//
// Each step is classed: base (belongs in the image), node (has to be done on each node),
// platform (Azure's), wait. What moving a step would save is not its length, since
// something else may have been nearly as late: the graph is replayed without it, and the
// end of the replay is compared with the end of a replay with everything in its place.
// Waits are kept as they were, also the one before what is left out, since no evidence
// shows that it would end, too.
//
// # Many boots
//
// Stats counts boots in memory that does not grow with their number; Diff compares two sets
// of boots, and marks which differences may be random.
package timeline
