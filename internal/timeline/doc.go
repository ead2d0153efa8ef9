// Package timeline says where a node's boot time went: from the request for a
// machine to the Ready node, on one axis, with what was waited for.
//
// It is pure: a wire.BootReport (what the node, or its files, tell) and a Cloud
// (what Azure and the cluster tell) go in, a Timeline comes out.
//
// # One axis
//
// The axis is the node's CLOCK_MONOTONIC: durations since the kernel's start,
// negative before it. Each other clock is brought to it, and what is lost on the
// way is told as the uncertainty of each time:
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
// From the end backwards: what a span had to wait for is what it was ordered
// after (systemd's After, a stage's place in its program, what started it), of
// those the one that ended last before it began. The time between that end and
// the beginning belongs to neither: it is a wait, a step of the path of its own,
// which `systemd-analyze critical-chain` does not show. Its cause is told where
// something in the evidence covers it, else it is said that nothing does. A span
// with parts, as a cloud-init stage with its modules, is replaced by the path
// through them.
//
// Waits and spans together cover the time from the origin to the end without a
// gap or an overlap: their durations add up to the total.
//
// # Zero
//
// The origin is the request for the machine, where the cloud tells it, else the
// kernel's start. A preprovisioned machine booted before anybody asked for it,
// and waits in cloud-init-local until it is handed over: that moment is its
// origin, and the time before is shown apart, as the pool's (Idle).
//
// # Advice
//
// Each step is classed: base (belongs in the image), node (has to be done on each
// node), platform (Azure's), wait. What moving a step would save is not its
// length, since something else may have been nearly as late: the graph is
// replayed without it, and the end of the replay is compared with the end of a
// replay with everything in its place.
package timeline
