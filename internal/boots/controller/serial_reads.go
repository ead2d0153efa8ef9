package controller

import (
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// When an instance's serial log is read. That of a boot that succeeded is read once, when
// nothing else is to be done: how long it took, or that it did not last, only the node
// itself reports.
const (
	readyRead    = 2 * time.Minute                          // after the node became Ready
	newFor       = assess.DefaultBootDeadline + 2*readyRead // after the start, what a node became Ready from is news
	backOff      = time.Minute                              // between the first two of one situation; then twice as long
	tryAgain     = 15 * time.Second                         // after the first that Azure did not answer; then twice as long
	slowestRead  = 10 * time.Minute                         // the longest that it gets
	maxReads     = 8                                        // in one situation
	deletedReads = 3                                        // tries of the one read of a machine that is being deleted
)

// serialReads is what is known of the reads of one instance's serial log.
type serialReads struct {
	situation string // when it changes, there may be more to read
	begun     time.Time
	n         int
	failed    int // how often Azure did not answer since, as when it asked to wait
	last      time.Time
	never     bool // there is no log that could be read
	busy      bool
}

// situationOf returns what may have led to more in the log.
func situationOf(b fleet.Boot, a assess.Assessment) string {
	if a.Basis == assess.BasisDeleted {
		return b.VMID + "|" + assess.BasisDeleted
	}
	return strings.Join([]string{
		b.VMID, b.ProvisioningState, b.Provisioning.Reason, string(b.Power), a.Basis, a.Node, yesNo(a.State == assess.Succeeded),
	}, "|")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// wants reports whether an instance's serial log could have more than is known.
func (r *serialReads) wants(b fleet.Boot, a assess.Assessment, now time.Time) bool {
	switch {
	case r.never || r.busy || !b.Console || a.State == "":
		return false
	case a.Source.Own(): // the node has reported it
		return false
	case a.State == assess.Succeeded:
		// By being Ready: it has reported nothing itself, as far as is known.
		return now.Sub(a.Began) < newFor && (r.n == 0 || r.situation != situationOf(b, a))
	case a.State == assess.Deleting, a.State == assess.Stopped, a.State == assess.Degraded:
		return false
	case a.Basis == assess.BasisDeleted:
		return r.situation != situationOf(b, a) || r.n == 0 && r.failed < deletedReads
	}
	return r.n < maxReads && r.failed < maxReads
}

// due returns when to read next. It is for instances that want it, and notes a new
// situation.
func (r *serialReads) due(b fleet.Boot, a assess.Assessment, now time.Time) time.Time {
	if s := situationOf(b, a); s != r.situation {
		r.situation, r.begun, r.n, r.failed = s, now, 0, 0
	}
	switch {
	case r.failed > 0:
		return r.last.Add(min(tryAgain<<min(r.failed-1, 10), slowestRead))
	case r.n == 0 && a.State.Bad():
		return r.begun
	case a.State == assess.Succeeded:
		return a.Since.Add(readyRead)
	case r.n == 0:
		return a.Began.Add(assess.FirstRead)
	}
	wait := backOff << min(r.n-1, 10)
	next := r.last.Add(min(wait, slowestRead))
	// What there is at the deadline is in the verdict.
	if deadline := a.Next; !deadline.IsZero() && deadline.After(r.last) && deadline.Before(next) {
		next = deadline
	}
	return next
}

// serialPatience bounds how long the publishing of a failure waits for its serial log.
const serialPatience = 2 * time.Minute

// serialPending reports whether an instance was judged to have failed from outside, and
// its serial log will be read soon and may have more.
func (f *Fleet) serialPending(key fleet.Key, a assess.Assessment, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.all[key]
	if s == nil || !a.State.Bad() || len(s.serial) > 0 || now.Sub(a.Since) >= serialPatience {
		return false
	}
	busy := s.reads.busy
	s.reads.busy = false
	wants := s.reads.wants(s.boot, a, now)
	s.reads.busy = busy
	return wants && (s.reads.n == 0 || s.reads.situation != situationOf(s.boot, a))
}
