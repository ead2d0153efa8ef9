package controller

import (
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// word is what a node said, and where.
type word struct {
	verdict *wire.Verdict
	source  Source
	seen    time.Time
}

// heard is a verdict that the admission server was told, and when.
type heard struct {
	verdict wire.Verdict
	at      time.Time
}

// newest gives the node's own last word on this boot.
func newest(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time) word {
	var best word
	consider := func(v wire.Verdict, source Source, seen time.Time) {
		if !concerns(v, boot, node) {
			return
		}
		if best.verdict != nil && !later(v, *best.verdict) {
			return
		}
		best = word{&v, source, seen}
	}
	if previous.Source.own() && previous.Verdict != nil {
		v := *previous.Verdict
		if previous.Told != "" {
			v.Outcome = previous.Told
		}
		consider(v, previous.Source, previous.Seen)
	}
	if h := previous.heard; h != nil {
		consider(h.verdict, FromAdmission, h.at)
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

// concerns tells whether a verdict is of this machine and, as far as it is known,
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
	// The kubelet tells its boot as soon as it runs, so a Ready node's is the present
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
