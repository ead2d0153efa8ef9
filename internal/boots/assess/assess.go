package assess

import (
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
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
	// Unclear is a Node that is not Ready after its deadline, and may have been before it
	// was first observed: whether its boot succeeded is not known, and not published.
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

// The sources. What a node reports itself goes before what is judged from outside.
const (
	FromExtension Source = "extension" // the node's own, in what an extension reported
	FromConsole   Source = "console"   // the node's own, on its serial console
	FromAdmission Source = "admission" // the node's own, relayed by the admission server
	FromNode      Source = "node"      // the Node is Ready, or never came
	FromPlatform  Source = "platform"  // Azure, or an extension, reports that it failed
	FromLog       Source = "log"       // judged by the serial log
)

// Sources returns the sources in that order, for docs/img/verdict.svg.
func Sources() []Source {
	return []Source{FromExtension, FromConsole, FromAdmission, FromNode, FromPlatform, FromLog}
}

// Own reports a verdict that is the node's own.
func (s Source) Own() bool { return s == FromExtension || s == FromConsole || s == FromAdmission }

// A NodeView is as much of a Node as is used. Times are zero where unknown.
type NodeView struct {
	Name       string
	UID        string
	ProviderID string
	SystemUUID string
	BootID     string // the kernel's, of the boot that the kubelet last reported
	Created    time.Time
	Ready      bool
	ReadySince time.Time // when Ready last changed
	Why        string    // reason and message where it is not Ready
	Captured   bool      // a capture is under way, which stops and starts it
	// CameUp is whether our condition on it says that its boot succeeded, since when, for
	// which reason, and when that was written last.
	CameUp                     bool
	CameUpSince, CameUpWritten time.Time
	CameUpReason               string
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
	// Settle is how long a node that reported a failure must stay Ready to count as one
	// that came up all the same: longer than a dead kubelet's node stays Ready; 0 means 2
	// minutes.
	Settle time.Duration
}

// WithDefaults returns them with those that are not set.
func (d Deadlines) WithDefaults() Deadlines {
	if d.Boot <= 0 {
		d.Boot = DefaultBootDeadline
	}
	if d.Settle <= 0 {
		d.Settle = 2 * time.Minute
	}
	return d
}

// An Assessment is what was decided of one instance's boot.
type Assessment struct {
	Instance fleet.ResourceID `json:"instance"`
	Pool     fleet.ResourceID `json:"pool"`
	Name     string           `json:"name"`           // of the instance, "pool1_3"
	HostName string           `json:"hostName"`       // in lower case; the Node's name where it has one
	Node     string           `json:"node,omitempty"` // "" if it has no Node
	VMID     string           `json:"vmId,omitempty"`
	Created  time.Time        `json:"created,omitzero"` // the instance
	State    State            `json:"state"`
	Source   Source           `json:"source,omitempty"`
	// Verdict is nil where State is not final.
	Verdict *wire.Verdict `json:"verdict,omitempty"`
	// Note is what led to the state, if that is not in the verdict.
	Note string `json:"note,omitempty"`
	// Since is when it came into the state: the node's time where it is credible.
	Since time.Time `json:"since,omitzero"`
	// Next is when to assess it again though nothing changes; zero is never.
	Next time.Time `json:"-"`

	Began time.Time `json:"began,omitzero"`  // of this start, as far as it is known
	Basis string    `json:"basis,omitempty"` // what a verdict from outside is based on
	Seen  time.Time `json:"seen,omitzero"`   // when the node's own verdict was first read
	// Reported is the outcome that the node reported, if State is another.
	Reported wire.Outcome `json:"told,omitempty"` // stored under this name

	rule    string          // that decided
	watched time.Time       // when it was first assessed by this process
	missed  bool            // its Node may have been Ready in this start before that
	relayed *relayedVerdict // what the admission server kept for the node since it was assessed last
}

// Rule names the rule that decided.
func (a Assessment) Rule() string { return a.rule }

// WithRelayed returns a previous assessment with the verdict that the admission server keeps for
// the node since, and when that was read.
func (a Assessment) WithRelayed(v wire.Verdict, at time.Time) Assessment {
	a.relayed = &relayedVerdict{v, at}
	return a
}

// Reason returns the catalogue's name for why, "" if none is known.
func (a Assessment) Reason() string {
	if a.Verdict == nil {
		return ""
	}
	return a.Verdict.Reason
}

// Owner returns who can mend it, "" where that is unknown.
func (a Assessment) Owner() wire.Owner {
	if a.Verdict == nil {
		return ""
	}
	return a.Verdict.Owner
}

// Confidence returns how sure the reason is, "" if there is none.
func (a Assessment) Confidence() verdict.Confidence { return verdict.ConfidenceOf(a.Reason()) }

// Message returns what happened, for a person.
func (a Assessment) Message() string {
	switch {
	case a.Verdict == nil || a.Verdict.Message == "":
		return a.Note
	case a.Note == "":
		return a.Verdict.Message
	}
	return a.Note + "; " + a.Verdict.Message
}

// MaxMessage bounds a condition's message; an Event's may have as much.
const MaxMessage = 1 << 10

// ConditionMessage is what happened, how sure that is, who can mend it and how.
func (a Assessment) ConditionMessage() string {
	text := a.Message()
	if v := a.Verdict; v != nil && v.Reason != "" {
		text += " [" + strings.Trim(string(v.Owner)+", "+string(a.Confidence()), ", ") + "]"
		if v.Remedy != "" && len(text)+len(v.Remedy) < MaxMessage-2 {
			text += " " + v.Remedy
		}
	}
	return verdict.Plain(text, MaxMessage)
}

// Same reports whether two assessments would be published alike.
func (a Assessment) Same(b Assessment) bool {
	return a.State == b.State && a.Source == b.Source && a.Node == b.Node && a.Reason() == b.Reason() && a.Message() == b.Message()
}

// Assess decides what became of an instance: the first of bootRules that applies does.
// node is nil where it has none, serial is nil where the log was not read this time, and
// previous is what was decided last of the same instance, zero if nothing was. It is pure.
func Assess(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time, deadlines Deadlines) Assessment {
	o := observe(boot, node, serial, previous, now, deadlines)
	a := Assessment{
		Instance: boot.Instance,
		Pool:     boot.Pool,
		Name:     boot.Name,
		HostName: strings.ToLower(boot.HostName),
		VMID:     strings.ToLower(boot.VMID),
		Created:  boot.Created,
		Began:    o.began,
		watched:  o.watched,
		missed:   o.missed,
	}
	if o.node != nil {
		a.Node = o.node.Name
	}
	for _, r := range bootRules {
		if r.when(o) {
			r.decide(o, &a)
			a.rule = r.name
			break
		}
	}
	return a.since(o.previous, now)
}

// A bootRule decides what became of a boot, if what was observed meets its condition.
type bootRule struct {
	name   string
	when   func(*observed) bool
	decide func(*observed, *Assessment)
}

// bootRules are tried in this order. What the node reported itself goes before its Node, and that
// before what is judged from outside. A machine that is being deleted passes the first three only
// if it was watched while it booted.
var bootRules = []bootRule{
	deletedMaybeReady,
	deletedAfterFailure,
	deletedUnwatched,
	deletedAfterReport,

	reportedSuccess,
	reportedFailureBeforeItCameUp,
	reportedFailureBeforeCondition,
	reportedFailureBeforeReady,
	reportedFailureStaysReady,
	reportedFailureStillReady,
	reportedFailure,

	nodeReady,
	nodeCondition,
	nodeChangedAfterDeadline,
	nodeCameUpBefore,

	notRunning,
	underCapture,

	platformFailed,
	consoleStuck,
	consoleStuckBefore,
	deletedSurplus,
	deletedBeforeReady,
	deadlineUnclear,
	deadlineMissed,
	stillBooting,
}

// observed is what a rule may decide on: what was observed of an instance, and what
// follows from it.
type observed struct {
	boot      fleet.Boot
	node      *NodeView // without what is of an earlier machine
	serial    []byte
	previous  Assessment // zero where it is of another machine
	now       time.Time
	deadlines Deadlines

	stale    bool      // the Node is Ready only as an earlier machine left it
	began    time.Time // this start
	watched  time.Time // since then by this process
	missed   bool      // the Node may have been Ready in this start before that
	deleting bool
	report   selfReport // the latest of this boot
}

func observe(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time, deadlines Deadlines) *observed {
	if !strings.EqualFold(previous.VMID, boot.VMID) || !previous.Instance.Equal(boot.Instance) {
		previous = Assessment{relayed: previous.relayed}
	}
	node, stale := node.of(boot.Created, now)
	o := &observed{
		boot:      boot,
		node:      node,
		serial:    serial,
		previous:  previous,
		now:       now,
		deadlines: deadlines.WithDefaults(),
		stale:     stale,
		began:     previous.Began,
		watched:   previous.watched,
		deleting:  strings.EqualFold(boot.ProvisioningState, "Deleting"),
		report:    newestReport(boot, node, serial, previous, now),
	}
	if o.watched.IsZero() {
		o.watched = now
	}
	if o.began.IsZero() {
		o.began = boot.Created
	}
	if o.began.IsZero() || previous.State == Stopped && running(boot) {
		o.began = now
	}
	// A Node that registered long after the start of its instance is of another start,
	// unless it is only the late end of a boot that failed.
	if node != nil && !previous.State.Bad() && !o.cameUpBefore() && node.Created.After(o.deadline()) && !node.Created.After(now) {
		o.began = node.Created
	}
	o.missed = previous.missed && o.began.Equal(previous.Began) ||
		node != nil && node.changedSince(o.began) && !node.ReadySince.After(o.watched)
	return o
}

// deadline counts from the instance's creation or start, or from when its Node was
// registered, if that is so late that it must have been another start.
func (o *observed) deadline() time.Time { return o.began.Add(o.deadlines.Boot) }

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

var notRunning = bootRule{
	name:   "the instance does not run",
	when:   func(o *observed) bool { return !o.deleting && !running(o.boot) },
	decide: (*observed).stop,
}

func (o *observed) stop(a *Assessment) {
	a.State, a.Note = Stopped, "the instance does not run ("+string(o.boot.Power)+")"
}

// running is assumed of an instance until the cloud reports otherwise.
func running(boot fleet.Boot) bool {
	switch boot.Power {
	case fleet.PowerStopped, fleet.PowerDeallocated, fleet.PowerDeallocating, fleet.PowerStopping:
		return false
	}
	return true
}

var underCapture = bootRule{
	name: "a capture restarts it",
	when: func(o *observed) bool {
		return !o.deleting && o.node != nil && o.node.Captured && !o.previous.State.Bad()
	},
	decide: func(_ *observed, a *Assessment) { a.State, a.Note = Unclear, "a capture restarts it" },
}

var stillBooting = bootRule{
	name:   "it boots, and its time is not up",
	when:   func(*observed) bool { return true },
	decide: (*observed).wait,
}

func (o *observed) wait(a *Assessment) {
	a.State, a.Next = Booting, o.deadline()
	if o.stale {
		a.Next = earliest(a.Next, o.boot.Created.Add(registering))
	}
}

// FirstRead is how long after the start the serial log is first read, where nothing is wrong.
const FirstRead = 4 * time.Minute

// LogWanted reports whether an instance's serial log could have more than what was
// assessed without it.
func LogWanted(a Assessment, now time.Time) bool {
	if a.Source.Own() {
		return false
	}
	return a.State.Bad() || a.State == Unclear || a.State == Booting && !now.Before(a.Began.Add(FirstRead))
}
