package assess

import (
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// nodeReady takes a Node that is Ready, and never reported, for a boot that succeeded,
// once and for all: what fails later is no failure of its boot.
var nodeReady = bootRule{
	name:   "the Node is Ready",
	when:   (*observed).ready,
	decide: (*observed).succeed,
}

func (o *observed) ready() bool { return o.node != nil && o.node.Ready }

var nodeCondition = bootRule{
	name:   "our condition on the Node says that it succeeded",
	when:   (*observed).conditionTrue,
	decide: (*observed).succeed,
}

func (o *observed) conditionTrue() bool { return o.node != nil && o.node.CameUp }

// A Node that is not Ready at first sight was, if its Ready condition changed last after
// the deadline, and not as the Node was registered. The condition's lastTransitionTime
// stays until its status changes: to True, or to Unknown when the kubelet falls silent.
// So a Node that was never Ready, and whose kubelet fell silent only after the deadline,
// counts as Ready then, unless it was published as failed before.
var nodeChangedAfterDeadline = bootRule{
	name:   "the Node's Ready condition changed after the deadline",
	when:   (*observed).changedAfterDeadline,
	decide: (*observed).succeed,
}

func (o *observed) changedAfterDeadline() bool {
	return o.node != nil && !o.previous.State.Bad() && o.previous.State != Unclear && o.node.changedSince(o.deadline())
}

// changedSince reports whether the Ready condition of a Node that is not Ready changed
// after that time, and not as the Node was registered, or as no kubelet ever reported.
func (n *NodeView) changedSince(t time.Time) bool {
	return !n.Ready && !n.Created.IsZero() && !strings.HasPrefix(n.Why, "NodeStatusNeverUpdated") &&
		n.ReadySince.After(t) && n.ReadySince.After(n.Created.Add(registering))
}

// registering is how long after its Node's creation a kubelet that stops at once is
// missed: the node controller's grace period, and some for clocks that differ.
const registering = 2 * time.Minute

// A boot that succeeded stays so, whatever becomes of its Node: it may have been deleted,
// and be registered again.
var nodeCameUpBefore = bootRule{
	name:   "the node came up in this boot before",
	when:   (*observed).cameUpBefore,
	decide: (*observed).succeed,
}

// cameUpBefore reports success in the present boot, as far as boots are known. Another boot
// of the Node that came up is no failure of its boot; a Node that another boot registered
// has yet to come up.
func (o *observed) cameUpBefore() bool {
	if o.previous.State != Succeeded && o.previous.State != Degraded {
		return false
	}
	if o.node == nil || o.previous.Verdict == nil {
		return true
	}
	was := o.previous.Verdict.BootID
	return was == "" || o.node.BootID == "" || strings.EqualFold(was, o.node.BootID) || !o.node.Created.After(o.previous.Since)
}

// isOrWasReady reports whether one of the rules above applies.
func (o *observed) isOrWasReady() bool {
	return o.ready() || o.conditionTrue() || o.changedAfterDeadline() || o.cameUpBefore()
}

func (o *observed) succeed(a *Assessment) {
	a.State, a.Source = Succeeded, FromNode
	v := wire.Verdict{Outcome: wire.Succeeded, Message: "the node became Ready", Node: a.HostName, VMID: a.VMID}
	if o.previous.State == Succeeded && o.previous.Verdict != nil {
		v.At, v.BootID = o.previous.Verdict.At, o.previous.Verdict.BootID
	}
	if node := o.node; node != nil {
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
		v.At = o.boot.Created
	}
	a.Verdict = &v
	// An error of an extension did not keep the node from coming up. It is in the note,
	// but is not the node's failure: many do not belong to the boot.
	var bad []string
	for _, e := range o.boot.Extensions {
		if slices.ContainsFunc(e.Statuses, fleet.BootStatus.Failed) {
			bad = append(bad, e.Name)
		}
	}
	if len(bad) > 0 {
		a.Note = "failed extensions: " + strings.Join(bad, ", ")
	}
}

// of returns the Node without what is of an earlier machine than the one created then,
// which had its name or provider id, as in a pool that was deleted and created again.
// stale is that the earlier machine's kubelet would not be missed yet, so that Ready is no
// evidence. Both times are the API server's and Azure's: a booting node's clock may be wrong.
func (n *NodeView) of(created, now time.Time) (_ *NodeView, stale bool) {
	if n == nil || created.IsZero() || n.Created.IsZero() || !n.Created.Before(created.Add(-Clocks)) {
		return n, false
	}
	v := *n
	if v.CameUp && !v.CameUpWritten.IsZero() && v.CameUpWritten.Before(created.Add(-Clocks)) {
		v.CameUp = false
	}
	if v.Ready && v.ReadySince.Before(created) && now.Before(created.Add(registering)) {
		v.Ready, v.Why, stale = false, "its kubelet has not reported yet", true
	}
	return &v, stale
}

// Clocks is how far Azure's and the API server's are apart at most.
const Clocks = 2 * time.Minute

// maxBoot is the longest first boot: that a Node became Ready again later is no evidence
// of it.
const maxBoot = 2 * time.Hour

// FirstBoot returns how long a machine took from its creation until its Node was Ready, where
// the Node shows that, and nothing was published of it before.
func (a Assessment) FirstBoot(node *NodeView, now time.Time) (time.Duration, bool) {
	v, _ := node.of(a.Created, now)
	d := v.ReadySince.Sub(a.Created)
	return d, v.Ready && !v.CameUp && !a.Created.IsZero() && d > 0 && d < maxBoot
}
