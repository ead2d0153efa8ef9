package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// A State is where an instance stands: the outcome of its boot, or why it has
// none.
type State string

// The states.
const (
	Succeeded = State(wire.Succeeded)
	Failed    = State(wire.Failed)
	Degraded  = State(wire.Degraded)
	TimedOut  = State(wire.TimedOut)

	Booting  State = "Booting"  // it runs, and its time is not up
	Stopped  State = "Stopped"  // it does not run, so it cannot come up
	Deleting State = "Deleting" // it goes
	// Unclear is a Node that is not Ready after its time, and may have been before it
	// was first looked at: whether its boot went well is not known, and not told.
	Unclear State = "Unclear"
)

// Final reports a state that is the outcome of a boot.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Degraded, TimedOut:
		return true
	}
	return false
}

// Bad reports a boot that did not bring a node.
func (s State) Bad() bool { return s == Failed || s == TimedOut }

// A Source is where a verdict comes from.
type Source string

// The sources. What a node says goes before what is judged from outside.
const (
	FromExtension Source = "extension" // the node's own, in what an extension reported
	FromConsole   Source = "console"   // the node's own, on its serial console
	FromAdmission Source = "admission" // the node's own, told to the admission server
	FromNode      Source = "node"      // the Node is Ready, or never came
	FromPlatform  Source = "platform"  // Azure, or an extension, says that it failed
	FromLog       Source = "log"       // judged by the serial log
)

// own reports a verdict that the node gave itself.
func (s Source) own() bool { return s == FromExtension || s == FromConsole || s == FromAdmission }

// A NodeView is as much of a Node as is looked at. Times are zero where unknown.
type NodeView struct {
	Name       string
	UID        string
	ProviderID string
	BootID     string // the kernel's, of the boot that the kubelet last reported
	Created    time.Time
	Ready      bool
	ReadySince time.Time // when Ready last changed
	Why        string    // reason and message where it is not Ready
	Captured   bool      // a capture is under way, which stops and starts it
	// CameUp tells that our condition on it says that its boot succeeded, since when,
	// for which reason, and when that was written last.
	CameUp                  bool
	CameUpSince, CameUpTold time.Time
	CameUpReason            string
	// Configuration is the reason and message of the condition ConfigurationApplied
	// where it is not True; "" otherwise.
	Configuration string
}

// DefaultBootDeadline is Deadlines.Boot where it is not set.
const DefaultBootDeadline = 12 * time.Minute

// Deadlines bound waiting.
type Deadlines struct {
	// Boot is how long an instance may take, from its creation, to become a Ready node
	// or to report. 0 means 12 minutes: cluster-autoscaler deletes an instance that is
	// no Node after 15, and its serial log with it.
	Boot time.Duration
	// Settle is how long a node that says it failed must stay Ready to be held as
	// one that came up in spite of it: longer than a dead kubelet's node stays
	// Ready; 0 means 2 minutes.
	Settle time.Duration
}

func (d Deadlines) withDefaults() Deadlines {
	if d.Boot <= 0 {
		d.Boot = DefaultBootDeadline
	}
	if d.Settle <= 0 {
		d.Settle = 2 * time.Minute
	}
	return d
}

// An Assessment is what is held of one instance's boot.
type Assessment struct {
	Instance fleet.ResourceID `json:"instance"`
	Pool     fleet.ResourceID `json:"pool"`
	Name     string           `json:"name"`           // of the instance, "pool1_3"
	HostName string           `json:"hostName"`       // in lower case; the Node's name where it has one
	Node     string           `json:"node,omitempty"` // "" where there is none
	VMID     string           `json:"vmId,omitempty"`
	Created  time.Time        `json:"created,omitzero"` // the instance
	State    State            `json:"state"`
	Source   Source           `json:"source,omitempty"`
	// Verdict is nil where State is not final.
	Verdict *wire.Verdict `json:"verdict,omitempty"`
	// Note says in words what led to the state where the verdict alone does not.
	Note string `json:"note,omitempty"`
	// Since is when it came into the state: the node's time where it is credible.
	Since time.Time `json:"since,omitzero"`
	// Next is when to assess it again though nothing changes; zero is never.
	Next time.Time `json:"-"`

	Began time.Time `json:"began,omitzero"`  // of this start, as far as it is known
	Basis string    `json:"basis,omitempty"` // what a verdict from outside is based on
	Seen  time.Time `json:"seen,omitzero"`   // when the node's own verdict was first read
	// Told is the outcome that the node gave, where another is held.
	Told wire.Outcome `json:"told,omitempty"`

	watched time.Time // when it was first assessed by this process
	missed  bool      // its Node may have been Ready in this start before that
	heard   *heard    // what the admission server was told since it was assessed last
}

// Reason is the catalogue's name for why, "" where there is none.
func (a Assessment) Reason() string {
	if a.Verdict == nil {
		return ""
	}
	return a.Verdict.Reason
}

// Owner says who can mend it, "" where nobody knows.
func (a Assessment) Owner() wire.Owner {
	if a.Verdict == nil {
		return ""
	}
	return a.Verdict.Owner
}

// Message says what happened, for a person.
func (a Assessment) Message() string {
	switch {
	case a.Verdict == nil || a.Verdict.Message == "":
		return a.Note
	case a.Note == "":
		return a.Verdict.Message
	}
	return a.Note + "; " + a.Verdict.Message
}

// Same reports whether two assessments would be told alike.
func (a Assessment) Same(b Assessment) bool {
	return a.State == b.State && a.Source == b.Source && a.Node == b.Node && a.Reason() == b.Reason() && a.Message() == b.Message()
}

// Assess decides what became of an instance. The node is nil where it has none,
// serial is nil where the log was not read this time, and previous is what was
// decided last of the same instance, zero if nothing was. It is pure.
//
//   - The node's own verdict of this boot counts first, the latest of those that
//     are found. Verdicts of another machine or an earlier boot count for nothing.
//     One that failed and came up all the same is Degraded, as previous or our
//     condition on the Node tells, whatever the Node is now.
//   - A node that is Ready without having said anything succeeded by being Ready,
//     and has once and for all: what goes wrong later is no failure of its boot.
//   - That it succeeded is known from previous, of the same boot as far as boots are
//     known, whatever became of the Node; from our condition on the Node; and, when
//     it is first looked at while it is not Ready, from the Node itself: its Ready
//     condition changed last after the time for the boot was up, and not as the Node
//     was registered. A kubelet registers a Node that is not Ready, and the
//     condition's lastTransitionTime stays until the status changes: to True, or to
//     Unknown when the kubelet falls silent. So one that was never Ready, and whose
//     kubelet fell silent only after its time, cannot be told from one that worked;
//     it is spared, unless it was told before to have failed. Where the condition
//     never changed since the Node was registered, or no kubelet ever reported
//     (NodeStatusNeverUpdated), it did not come up, and the deadline counts.
//   - Where the condition changed in time, but before it was first looked at, it may
//     have been Ready, or have failed and fallen silent: nothing contradicts either.
//     A boot that is watched is known in any case, since becoming Ready would have
//     been seen. So at the deadline it is Unclear, and nothing is published, until the
//     node is Ready, or its own word is found (the serial log is read for it), or
//     Azure or an extension says that it failed.
//   - A Node that is older than its machine tells of an earlier one that had its name
//     or its provider id, as in a pool that was deleted and made again. What was told
//     on it before the machine was made does not count, nor that it is still Ready
//     until the cluster would have missed the earlier kubelet.
//   - The deadline counts from the instance's creation or start, or from when its
//     Node was registered, if that is so late that it must have been another start.
//   - One that is being deleted after it was seen to boot, and whose Node cannot have
//     been Ready, has failed: see deleting.
//   - Then what Azure and extensions say, what the serial log shows beyond doubt,
//     and at the deadline all that there is. Such a judgement is made anew each
//     time: Azure takes back what it said.
func Assess(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time, deadlines Deadlines) Assessment {
	d := deadlines.withDefaults()
	if !strings.EqualFold(previous.VMID, boot.VMID) || !previous.Instance.Equal(boot.Instance) {
		previous = Assessment{heard: previous.heard}
	}
	node, stale := node.of(boot.Created, now)
	a := Assessment{
		Instance: boot.Instance, Pool: boot.Pool, Name: boot.Name, HostName: strings.ToLower(boot.HostName), VMID: strings.ToLower(boot.VMID),
		Created: boot.Created, Began: previous.Began, watched: previous.watched,
	}
	if a.watched.IsZero() {
		a.watched = now
	}
	if node != nil {
		a.Node = node.Name
	}
	if a.Began.IsZero() {
		a.Began = boot.Created
	}
	if a.Began.IsZero() || previous.State == Stopped && running(boot) {
		a.Began = now
	}
	// A Node that registered long after the start of its instance tells of another
	// start, unless it is only the late end of one that was told to have failed.
	if node != nil && !previous.State.Bad() && !held(node, previous) && node.Created.After(a.Began.Add(d.Boot)) && !node.Created.After(now) {
		a.Began = node.Created
	}
	a.missed = previous.missed && a.Began.Equal(previous.Began) || node != nil && node.changedSince(a.Began) && !node.ReadySince.After(a.watched)
	if strings.EqualFold(boot.ProvisioningState, "Deleting") {
		a.deleting(boot, node, serial, previous, now, d)
		return a.since(previous, now)
	}
	switch t := newest(boot, node, serial, previous, now); {
	case t.verdict != nil:
		a.told(t, node, previous, now, d)
	case node != nil && (node.Ready || node.CameUp || wasReady(node, a.Began, previous, d)), held(node, previous):
		a.cameUp(boot, node, previous)
	case !running(boot):
		a.State, a.Note = Stopped, "the instance does not run ("+string(boot.Power)+")"
	case node != nil && node.Captured && !previous.State.Bad():
		a.State, a.Note = Unclear, "a capture restarts it"
	default:
		a.outside(boot, node, serial, previous, now, d)
	}
	if stale && a.State == Booting {
		a.Next = earliest(a.Next, boot.Created.Add(registering))
	}
	return a.since(previous, now)
}

// of leaves out what a Node tells of an earlier machine than the one that was made
// then; stale is that it is called Ready for that alone. Both times are the API
// server's and Azure's, since a node's own clock may be wrong as it boots.
func (n *NodeView) of(made, now time.Time) (_ *NodeView, stale bool) {
	if n == nil || made.IsZero() || n.Created.IsZero() || !n.Created.Before(made.Add(-clocks)) {
		return n, false
	}
	v := *n
	if v.CameUp && !v.CameUpTold.IsZero() && v.CameUpTold.Before(made.Add(-clocks)) {
		v.CameUp = false
	}
	if v.Ready && v.ReadySince.Before(made) && now.Before(made.Add(registering)) {
		v.Ready, v.Why, stale = false, "its kubelet has not reported yet", true
	}
	return &v, stale
}

// clocks is how far Azure's and the API server's are apart at most.
const clocks = 2 * time.Minute

// held tells whether the node is known to have come up in the boot that it is in,
// whatever its Node is now: it may have been deleted, and be registered anew.
func held(node *NodeView, previous Assessment) bool {
	if previous.State != Succeeded && previous.State != Degraded {
		return false
	}
	if node == nil || previous.Verdict == nil {
		return true
	}
	was := previous.Verdict.BootID
	if was == "" || node.BootID == "" || strings.EqualFold(was, node.BootID) {
		return true
	}
	// Another boot of the Node that came up is no failure of its boot. A Node that
	// another boot registered has yet to come up.
	return !node.Created.After(previous.Since)
}

// registering is how long after its Node's creation a kubelet that stops at once is
// missed: the node controller's grace period, and some for clocks that differ.
const registering = 2 * time.Minute

// wasReady tells whether a Node that is not Ready shows that it was, when nothing
// was told of it before: see Assess.
func wasReady(node *NodeView, began time.Time, previous Assessment, d Deadlines) bool {
	return !previous.State.Bad() && previous.State != Unclear && node.changedSince(began.Add(d.Boot))
}

// changedSince tells whether the Ready condition of a Node that is not Ready changed
// after that time, and not as the Node was registered.
func (n *NodeView) changedSince(t time.Time) bool {
	return !n.Ready && !n.Created.IsZero() && !strings.HasPrefix(n.Why, "NodeStatusNeverUpdated") &&
		n.ReadySince.After(t) && n.ReadySince.After(n.Created.Add(registering))
}

// since keeps the time of a state that goes on.
func (a Assessment) since(previous Assessment, now time.Time) Assessment {
	switch {
	case previous.State == a.State && !previous.Since.IsZero():
		a.Since = previous.Since
	case a.Since.IsZero():
		a.Since = now
	}
	return a
}

// running is what an instance is held to be until the cloud says otherwise.
func running(boot fleet.Boot) bool {
	switch boot.Power {
	case fleet.PowerStopped, fleet.PowerDeallocated, fleet.PowerDeallocating, fleet.PowerStopping:
		return false
	}
	return true
}

// told takes the node's word, unless the node is Ready all the same.
func (a *Assessment) told(t word, node *NodeView, previous Assessment, now time.Time, d Deadlines) {
	v := *t.verdict
	a.State, a.Source, a.Verdict, a.Seen = State(v.Outcome), t.source, &v, t.seen
	at := t.seen
	// The node's clock may be wrong; within the machine's life it is believed.
	if !v.At.Before(a.Created) && !v.At.After(now) {
		at = v.At
	}
	a.Since = at
	if !a.State.Bad() {
		return
	}
	// What came up in spite of it has come up, whatever becomes of it later.
	if p := previous.Verdict; previous.Told == v.Outcome && p != nil && p.BootID == v.BootID && p.Uptime == v.Uptime && p.At.Equal(v.At) {
		a.State, a.Note = Degraded, previous.Note
		a.Told, v.Outcome = v.Outcome, wire.Degraded
		return
	}
	if node == nil || !node.Ready {
		if node != nil && node.spite(v, at, d) {
			a.State, a.Note = Degraded, "the node came up in spite of what it said"
			a.Told, v.Outcome = v.Outcome, wire.Degraded
		}
		return
	}
	switch settled := latest(at, node.ReadySince).Add(d.Settle); {
	case node.ReadySince.After(at):
		a.State, a.Note = Degraded, "the node is Ready since, in spite of what it said"
	case !now.Before(settled):
		a.State, a.Note = Degraded, "the node stays Ready, in spite of what it said"
	default:
		a.Next = settled
		return
	}
	a.Told, v.Outcome = v.Outcome, wire.Degraded
}

// spite tells whether our condition on the Node says that it came up in spite of a
// verdict, given when: it was written after that with the verdict's own reason, as
// for one that is Degraded, or so long after that it was no race with a node that
// was Ready for a moment.
func (n *NodeView) spite(v wire.Verdict, at time.Time, d Deadlines) bool {
	if !n.CameUp {
		return false
	}
	if n.CameUpReason == v.Reason {
		return n.CameUpTold.After(at)
	}
	return n.CameUpTold.After(at.Add(d.Settle))
}

// cameUp is for a node that is Ready, or was.
func (a *Assessment) cameUp(boot fleet.Boot, node *NodeView, previous Assessment) {
	a.State, a.Source = Succeeded, FromNode
	v := wire.Verdict{Outcome: wire.Succeeded, Message: "the node became Ready", Node: a.HostName, VMID: a.VMID}
	if previous.State == Succeeded && previous.Verdict != nil {
		v.At, v.BootID = previous.Verdict.At, previous.Verdict.BootID
	}
	if node != nil {
		at := node.ReadySince
		if !node.Ready { // that is when it ceased to be
			at = earliest(node.CameUpSince, node.Created)
		}
		a.Since = at
		if v.At.IsZero() {
			v.At = at
		}
		if v.BootID == "" || node.Ready && node.BootID != "" {
			v.BootID = node.BootID
		}
	}
	if v.At.IsZero() {
		v.At = boot.Created
	}
	a.Verdict = &v
	// An error of an extension did not keep the node from coming up. It is told,
	// but not as the node's failure: many do not belong to the boot.
	var bad []string
	for _, e := range boot.Extensions {
		if slices.ContainsFunc(e.Statuses, fleet.BootStatus.Failed) {
			bad = append(bad, e.Name)
		}
	}
	if len(bad) > 0 {
		a.Note = "failed extensions: " + strings.Join(bad, ", ")
	}
}

// outside judges an instance that has said nothing, and whose node never was
// Ready.
func (a *Assessment) outside(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time, d Deadlines) {
	deadline := a.Began.Add(d.Boot)
	sign, why := broken(boot)
	source := FromPlatform
	facts := verdict.Facts{Outside: true, Why: why}
	if sign != "" && strings.EqualFold(boot.Provisioning.Reason, provisioningTimedOut) {
		facts.Sign = provisioningTimedOut
	}
	if sign == "" && len(serial) > 0 && stuck(serial) {
		sign, source = "console", FromLog
	}
	if sign == "" && previous.Basis == "console" {
		sign, source = previous.Basis, FromLog // a kernel that stopped stays so
	}
	if sign == "" && a.State == Deleting {
		sign, facts.Sign = basisDeleted, "DeletedBeforeReady"
	}
	if sign == "" && !now.Before(deadline) {
		sign, source = "deadline", FromNode
		facts.Deadline = true
		if node != nil {
			facts.Sign = verdict.NotReadyReason(node.Why) // as the node itself would report
		}
	}
	if sign == "" {
		a.State, a.Next = Booting, deadline
		return
	}
	a.Basis = sign
	if sign == "deadline" && a.missed && previous.State != TimedOut {
		a.State, a.Note = Unclear, "the Node is not Ready; whether it was before it was first looked at is not known"
		if node != nil && node.Why != "" {
			a.Note += " (" + verdict.RedactText(node.Why) + ")"
		}
		return
	}
	// Without a log a judgement by one is not made worse.
	if serial == nil && previous.Basis == sign && previous.Verdict != nil {
		a.State, a.Source, a.Verdict, a.Note = previous.State, previous.Source, previous.Verdict, previous.Note
		return
	}
	facts.Logs = logsOf(boot, serial)
	facts.Provision = provisionOf(boot)
	j := verdict.Judge(facts)
	v := j.Verdict()
	v.Node, v.VMID, v.At = a.HostName, a.VMID, now
	switch sign {
	case "deadline":
		v.Outcome = wire.TimedOut
		a.Note = fmt.Sprintf("no Node %s after it was started", d.Boot)
		if node != nil {
			a.Note = fmt.Sprintf("the Node was not Ready %s after it was started", d.Boot)
			if node.Why != "" {
				a.Note += " (" + verdict.RedactText(node.Why) + ")"
			}
		}
	case basisDeleted:
		a.Note = fmt.Sprintf("it was being deleted %s after it was started", now.Sub(a.Began).Round(time.Second))
	default:
		a.Note = clip(verdict.RedactText(why), maxNote)
	}
	if v.Reason != wire.ReasonUnknown && v.Reason != facts.Sign && len(serial) > 0 && source != FromPlatform {
		source = FromLog
	}
	a.State, a.Source, a.Verdict = State(v.Outcome), source, &v
}
