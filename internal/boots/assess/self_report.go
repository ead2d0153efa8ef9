package assess

import (
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A selfReport is a verdict that a node gave of its own boot, and where it was found.
type selfReport struct {
	verdict *wire.Verdict // nil where none was found
	source  Source
	seen    time.Time
}

// A relayedVerdict is a verdict that the admission server keeps for a node.
type relayedVerdict struct {
	verdict wire.Verdict
	at      time.Time // when it was read
}

var reportedSuccess = bootRule{
	name:   "the node reported that it came up",
	when:   func(o *observed) bool { return o.report.verdict != nil && !o.reportedBad() },
	decide: (*observed).takeReport,
}

// A node that came up after its report did so once and for all.
var reportedFailureBeforeItCameUp = bootRule{
	name:   "the node reported a failure, and came up all the same before",
	when:   (*observed).degradedBefore,
	decide: func(o *observed, a *Assessment) { o.degrade(a, o.previous.Note) },
}

// Our condition outlives the memory of this process, also while the Node is not Ready.
var reportedFailureBeforeCondition = bootRule{
	name: "the node reported a failure, and our condition on it says that it came up since",
	when: func(o *observed) bool {
		return o.reportedBad() && o.node != nil && !o.node.Ready && o.node.conditionSince(*o.report.verdict, o.reportedAt(), o.deadlines.Settle)
	},
	decide: func(o *observed, a *Assessment) { o.degrade(a, "the node came up in spite of what it said") },
}

var reportedFailureBeforeReady = bootRule{
	name:   "the node reported a failure, and became Ready after that",
	when:   func(o *observed) bool { return o.reportedBad() && o.ready() && o.node.ReadySince.After(o.reportedAt()) },
	decide: func(o *observed, a *Assessment) { o.degrade(a, "the node is Ready since, in spite of what it said") },
}

var reportedFailureStaysReady = bootRule{
	name:   "the node reported a failure, and stays Ready",
	when:   func(o *observed) bool { return o.reportedBad() && o.ready() && !o.now.Before(o.settled()) },
	decide: func(o *observed, a *Assessment) { o.degrade(a, "the node stays Ready, in spite of what it said") },
}

// A dead kubelet's Node stays Ready for a moment, so being Ready is no evidence yet.
var reportedFailureStillReady = bootRule{
	name: "the node reported a failure, and may not stay Ready",
	when: func(o *observed) bool { return o.reportedBad() && o.ready() },
	decide: func(o *observed, a *Assessment) {
		o.takeReport(a)
		a.Next = o.settled()
	},
}

var reportedFailure = bootRule{
	name:   "the node reported a failure",
	when:   (*observed).reportedBad,
	decide: (*observed).takeReport,
}

func (o *observed) reportedBad() bool {
	return o.report.verdict != nil && State(o.report.verdict.Outcome).Bad()
}

// reportedAt is when the node made its report. Its clock may be wrong; within the machine's
// life it is believed.
func (o *observed) reportedAt() time.Time {
	if at := o.report.verdict.At; !at.Before(o.boot.Created) && !at.After(o.now) {
		return at
	}
	return o.report.seen
}

// settled is when a Node that stays Ready contradicts the report.
func (o *observed) settled() time.Time {
	return latest(o.reportedAt(), o.node.ReadySince).Add(o.deadlines.Settle)
}

// degradedBefore reports whether the same report was found before to be of a node that
// came up.
func (o *observed) degradedBefore() bool {
	if !o.reportedBad() {
		return false
	}
	v, p := o.report.verdict, o.previous.Verdict
	return o.previous.Reported == v.Outcome && p != nil && p.BootID == v.BootID && p.Uptime == v.Uptime && p.At.Equal(v.At)
}

// conditionSince reports whether our condition contradicts a verdict of that time: it was
// written after that with the verdict's own reason, as for a Degraded node, or so long
// after that it was no race with a Node that was Ready for a moment.
func (n *NodeView) conditionSince(v wire.Verdict, at time.Time, settle time.Duration) bool {
	if !n.CameUp {
		return false
	}
	if n.CameUpReason == v.Reason {
		return n.CameUpWritten.After(at)
	}
	return n.CameUpWritten.After(at.Add(settle))
}

func (o *observed) takeReport(a *Assessment) {
	v := *o.report.verdict
	a.State, a.Source, a.Verdict, a.Seen, a.Since = State(v.Outcome), o.report.source, &v, o.report.seen, o.reportedAt()
}

// degrade takes a report of a failure for one of a node that came up all the same.
func (o *observed) degrade(a *Assessment, note string) {
	o.takeReport(a)
	a.State, a.Note, a.Reported, a.Verdict.Outcome = Degraded, note, a.Verdict.Outcome, wire.Degraded
}

// newestReport returns the node's own last report of this boot. Those of another machine or
// an earlier boot count for nothing.
func newestReport(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time) selfReport {
	var best selfReport
	consider := func(v wire.Verdict, source Source, seen time.Time) {
		if !concerns(v, boot, node) {
			return
		}
		if best.verdict != nil && !later(v, *best.verdict) {
			return
		}
		best = selfReport{&v, source, seen}
	}
	if previous.Source.Own() && previous.Verdict != nil {
		v := *previous.Verdict
		if previous.Reported != "" {
			v.Outcome = previous.Reported
		}
		consider(v, previous.Source, previous.Seen)
	}
	if r := previous.relayed; r != nil {
		consider(r.verdict, FromAdmission, r.at)
	}
	eachMessage(boot, func(st fleet.BootStatus) {
		if v, ok := wire.FindVerdict([]byte(st.Message)); ok {
			seen := st.Time
			if seen.IsZero() || seen.After(now) {
				seen = now
			}
			if len(v.Stages) == 0 { // they do not fit the line
				v.Stages = stagesOf(boot)
			}
			consider(v, FromExtension, seen)
		}
	})
	if v, ok := wire.FindVerdict(serial); ok {
		consider(v, FromConsole, now)
	}
	return best
}

// eachMessage goes through all that extensions reported.
func eachMessage(boot fleet.Boot, do func(fleet.BootStatus)) {
	for _, e := range boot.Extensions {
		for _, st := range e.Statuses {
			do(st)
		}
		for _, st := range e.Substatuses {
			do(st)
		}
	}
}

// concerns reports whether a verdict is of this machine and, as far as it is known,
// of its present boot. A disk that was captured brings its donor's along.
func concerns(v wire.Verdict, boot fleet.Boot, node *NodeView) bool {
	switch {
	case v.VMID != "" && boot.VMID != "":
		if !strings.EqualFold(v.VMID, boot.VMID) {
			return false
		}
	case v.Node != "" && boot.HostName != "":
		if !strings.EqualFold(v.Node, boot.HostName) {
			return false
		}
	}
	if node == nil || node.BootID == "" || v.BootID == "" || strings.EqualFold(node.BootID, v.BootID) {
		return true
	}
	// The kubelet reports its boot as soon as it runs, so a Ready node's is the present
	// one. One that is not Ready may have rebooted since; then the verdict is about as
	// new as that, or newer.
	return !node.Ready && v.At.After(node.ReadySince.Add(-rebootSlack))
}

// rebootSlack is how much earlier than the cluster misses a node its next boot may
// have ended.
const rebootSlack = 2 * time.Minute

// later orders two verdicts of one machine: within a boot by its uptime, which no
// clock disturbs.
func later(v, than wire.Verdict) bool {
	if v.BootID != "" && v.BootID == than.BootID {
		return v.Uptime > than.Uptime
	}
	return v.At.After(than.At)
}
