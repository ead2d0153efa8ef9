package operator

import (
	"time"

	"github.com/ortet/ortet/internal/workflow"
)

// A Do is what the operator does for a pool.
type Do string

// What it does. Each but Nothing is a run, as the command line has it.
const (
	Nothing      Do = ""
	Resume       Do = "resume" // ends an open record: a capture goes on with its donor, a rollback to its version
	DeleteCanary Do = "delete-canary"
	Watch        Do = "watch" // proves the model's version, or takes it back
	Capture      Do = "capture"
	Rollout      Do = "rollout"
)

// How long until the pool is read again.
const (
	// Idle is the time between two reads of a pool with nothing to do: each asks Azure five times, and
	// once more for each further page of its instances.
	Idle = 10 * time.Minute
	// Running is the time between two reads of the journal while a run is open, or waits for its turn.
	Running = 15 * time.Second
	// Unread is the time until a pool that could not be read is read again.
	Unread = time.Minute
	// Retry is the time from the end of a run to the next of the same kind: what it left is still so.
	Retry = 15 * time.Minute
)

// A Window is when something may begin; schedule.Window is one.
type Window interface {
	Open(now time.Time) (until time.Time, open bool)
	Next(now time.Time) time.Time
}

// A Want is what a valid spec wants, as far as Decide goes by it.
type Want struct {
	Observes bool     // neither captures, watches nor rolls out: nothing is ever begun, nor ended for others
	Suspend  bool     // begins nothing
	Watches  bool     // an image is proven by its first nodes, or taken back
	Capture  Window   // nil: not by itself
	Rollout  []Window // in which nodes may be renewed; nil: never
}

// A Seen is what was seen of a pool. Until Held and Open are "" the rest may be missing.
type Seen struct {
	Held     string    // other process that has the pool's Lease; "" for none
	Open     string    // kind of the open record; "" for none
	Last     Run       // newest run of the operator that ended
	Tried    time.Time // when a capture was begun, or refused, last
	Canary   bool      // one is past its expiry, and no open capture will delete it
	Unproven bool      // the model's version is of the pool and its nodes are not judged, or a take-back is unfinished
	Due      bool      // an image, by the donors' rules
	Outdated int       // nodes of another image than that of the model, if it is a version of the pool
	Begun    bool      // a rollout has begun with a node, which is out of service: windows are for other nodes
}

// A Run is one that ended.
type Run struct {
	Do    Do
	Ended time.Time
	Exit  int
}

// Decide returns what to do now, and if that is Nothing when to look again. The first row that holds
// decides; a run that has just ended, and left things as they are, is passed over for Retry.
func Decide(want Want, seen Seen, now time.Time) (do Do, next time.Time) {
	next = now.Add(Idle)
	at := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	again := func(d Do) bool {
		retry := seen.Last.Ended.Add(Retry)
		may := seen.Last.Do != d || seen.Last.Exit == workflow.ExitInterrupted || !now.Before(retry)
		if !may {
			at(retry)
		}
		return may
	}
	canCapture, canRoll := false, false
	if w := want.Capture; w != nil {
		_, open := w.Open(now)
		canCapture = open && !w.Next(seen.Tried).After(now) // it has opened since
		at(w.Next(now))
	}
	for _, w := range want.Rollout {
		_, open := w.Open(now)
		canRoll = canRoll || open
		at(w.Next(now))
	}
	switch {
	case want.Observes:
		return Nothing, now.Add(Idle)
	case seen.Held != "":
		return Nothing, now.Add(Running)
	case seen.Open != "":
		if retry := seen.Last.Ended.Add(Retry); seen.Last.Exit != workflow.ExitInterrupted && now.Before(retry) { // it could not be ended
			at(retry)
			return Nothing, next
		}
		return Resume, now
	case want.Suspend:
	case seen.Canary && again(DeleteCanary):
		return DeleteCanary, now
	case want.Watches && seen.Unproven && again(Watch):
		return Watch, now
	case canCapture && seen.Due && again(Capture):
		return Capture, now
	case (canRoll && seen.Outdated > 0 || len(want.Rollout) > 0 && seen.Begun) && !seen.Unproven && again(Rollout):
		return Rollout, now
	}
	return Nothing, next
}
