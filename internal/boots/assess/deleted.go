package assess

import (
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
)

// BasisDeleted is the basis of a verdict on a machine that was deleted before its
// Node was Ready.
const BasisDeleted = "deleted"

// That a boot failed is published only where the machine was watched as it booted, and its
// Node cannot have been Ready.
var deletedMaybeReady = bootRule{
	name:   "it is being deleted, and its Node was Ready, or may have been",
	when:   func(o *observed) bool { return o.deleting && (o.missed || o.isOrWasReady()) },
	decide: (*observed).markDeleting,
}

var deletedAfterFailure = bootRule{
	name:   "it is being deleted after its boot failed",
	when:   func(o *observed) bool { return o.deleting && !o.watchedUntilDeleted() && o.previous.State.Bad() },
	decide: (*observed).keepFailure,
}

var deletedUnwatched = bootRule{
	name:   "it is being deleted, and was not watched as it booted",
	when:   func(o *observed) bool { return o.deleting && !o.watchedUntilDeleted() },
	decide: (*observed).markDeleting,
}

var deletedAfterReport = bootRule{
	name: "it is being deleted after its node reported that it came up",
	when: func(o *observed) bool {
		return o.deleting && o.report.verdict != nil && (!o.reportedBad() || o.degradedBefore())
	},
	decide: func(o *observed, a *Assessment) {
		o.markDeleting(a)
		a.Seen, a.Since = o.report.seen, o.reportedAt()
	},
}

// Azure deletes the surplus of an overprovisioning scale set in the middle of its boot (CAPZ
// issue 1361). Nothing shows which instances those are, and the log of a boot that was cut
// short misleads.
var deletedSurplus = bootRule{
	name:   "it is being deleted, and may be surplus of its scale set",
	when:   func(o *observed) bool { return o.deleting && o.boot.Overprovisioned && !o.timedOut() },
	decide: (*observed).markDeleting,
}

// timedOut reports whether Azure deletes it because its creation timed out, to make another. A
// surplus is deleted earlier, when the others are provisioned.
func (o *observed) timedOut() bool {
	return o.boot.Recreated && o.now.Sub(o.boot.Created) >= fleet.RecreatedAfter
}

var deletedBeforeReady = bootRule{
	name:   "it is being deleted before its Node was Ready",
	when:   func(o *observed) bool { return o.deleting },
	decide: (*observed).judgeDeleted,
}

// watchedUntilDeleted reports whether it booted when it was last assessed, or has a serial
// log that was read since it is being deleted.
func (o *observed) watchedUntilDeleted() bool {
	return o.previous.State == Booting || o.previous.Basis == BasisDeleted && len(o.serial) > 0
}

func (o *observed) markDeleting(a *Assessment) { a.State = Deleting }

func (o *observed) keepFailure(a *Assessment) {
	p := o.previous
	a.State, a.Source, a.Verdict, a.Note, a.Basis, a.Reported, a.Seen = p.State, p.Source, p.Verdict, p.Note, p.Basis, p.Reported, p.Seen
}

func (o *observed) judgeDeleted(a *Assessment) {
	note := fmt.Sprintf("it was being deleted %s after it was started", o.now.Sub(o.began).Round(time.Second))
	if o.timedOut() {
		note += ", as resilient creation of its pool does with a machine whose creation timed out"
	}
	o.judge(a, judgement{
		basis:  BasisDeleted,
		source: FromPlatform,
		facts:  verdict.Facts{Sign: "DeletedBeforeReady"},
		note:   note,
	})
}
