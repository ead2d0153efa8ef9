package operator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// Limits of the API.
const (
	maxVersions = 10
	maxReason   = 1024 // bytes
	maxMessage  = 4096
	maxText     = 256
)

const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// A view is one look at an object and its pool, as its status reports it.
type view struct {
	object   *api.ScaleSetPool // of which the status is written
	before   api.ScaleSetPoolStatus
	now      time.Time
	want     wanted
	stall    *stall
	run      *run // of this process, under way or queued; nil for none
	queued   bool
	open     open
	last     *api.LastRunStatus // of this process; nil for none
	err      error              // of that
	took     time.Duration      // of that
	failed   error              // what could not be read
	seenPool *observation       // nil if the pool was not read
}

// lastRun is the newest run that ended: of this process, of the one before, or of another by the journal.
func (v *view) lastRun() *api.LastRunStatus {
	newest := v.before.LastRun
	if v.last != nil && (newest == nil || !v.last.Ended.Before(&newest.Ended)) {
		newest = v.last
	}
	rec := v.open.record
	if rec.Ended != nil && (newest == nil || rec.Ended.At.Truncate(time.Second).After(newest.Ended.Time)) {
		newest = &api.LastRunStatus{Kind: rec.Kind, Name: rec.Name, Ended: second(rec.Ended.At), Message: rec.Ended.Message}
		newest.Exit = int32(rec.Ended.Exit)
	}
	if newest != nil {
		newest = newest.DeepCopy()
		newest.Message = cut(forReaders(newest.Message), maxMessage)
	}
	return newest
}

// ofAnother reports whether a run was the watch of another version than that of new nodes now, which says
// nothing of this one.
func (v *view) ofAnother(last *api.LastRunStatus) bool {
	o := v.seenPool
	return last.Kind == api.RunWatch && last.Name != "" && o != nil && o.current != nil && last.Name != o.current.Name
}

// runStatus is what runs, of this process or another.
func (v *view) runStatus() *api.RunStatus {
	rec, x := v.open.record, v.run
	if v.queued || x == nil && !rec.Open() {
		return nil
	}
	s, begun := &api.RunStatus{Holder: v.open.holder}, rec.Begun
	if x != nil {
		s.Kind, s.Step, begun = x.kind, cut(x.text, maxText), x.begun
		s.Summary = s.Kind
	}
	if rec.Open() {
		running := func(id string) bool { return rec.Steps[id].State == journal.Running }
		s.Kind, s.Name, begun = rec.Kind, rec.Name, rec.Begun
		s.Step = strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(rec.Steps)), func(id string) bool { return !running(id) }), ", ")
		if s.Summary = s.Kind; v.open.steps > 0 {
			s.Percent = int32(100 * v.open.done / v.open.steps)
			s.Summary = fmt.Sprintf("%s %d%%", s.Kind, s.Percent)
		}
	}
	s.Begun = new(second(begun))
	return s
}

func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func cut(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}

func (v *view) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.object.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: cut(forReaders(message), maxMessage),
		ObservedGeneration: v.object.Generation, LastTransitionTime: second(v.now),
	})
}

// write writes the status. What could not be read leaves all but the conditions as they were.
func (v *view) write() {
	s := &v.object.Status
	s.ObservedGeneration = v.object.Generation
	if v.failed != nil {
		for _, kind := range []string{
			api.ConditionReady, api.ConditionFresh, api.ConditionProven, api.ConditionProgressing, api.ConditionStalled,
		} {
			v.set(kind, unknown, api.ReasonUnreadable, v.failed.Error())
		}
		return
	}
	s.NextCapture = nil
	idle := "nothing is to be done"
	if v.stall != nil {
		idle = "nothing is begun; Stalled says why"
	} else if v.want.Capture != nil {
		s.NextCapture = new(second(v.want.Capture.Next(v.now)))
		idle += "; the next window for a capture opens at " + s.NextCapture.UTC().Format(time.RFC3339)
	}
	s.Run, s.LastRun = v.runStatus(), v.lastRun()
	if v.seenPool != nil && !v.seenPool.pool.Gone {
		v.writePool(*v.seenPool)
	} else if v.stall != nil {
		v.unseen()
	}
	v.stalled()
	stalled := meta.FindStatusCondition(s.Conditions, api.ConditionStalled)
	switch {
	case stalled.Status == yes:
		v.set(api.ConditionReady, no, api.ReasonNotReady, stalled.Message)
	case v.want.Observes:
		v.set(api.ConditionReady, yes, api.ReasonObserving, "spec has no capture, watch or rollout: nothing is changed")
	case v.want.Suspend:
		v.set(api.ConditionReady, yes, api.ReasonSuspended, "spec.suspend is set: nothing is begun")
	default:
		v.set(api.ConditionReady, yes, api.ReasonOperating, "the pool is kept as the spec asks")
	}
	switch {
	case v.queued:
		v.set(api.ConditionProgressing, yes, api.ReasonQueued, v.run.kind+" waits: as many runs as may (--max-runs) are under way")
	case v.run != nil:
		v.set(api.ConditionProgressing, yes, api.ReasonRunning, cmp.Or(s.Run.Step, s.Run.Kind))
	case v.open.holder != "":
		v.set(api.ConditionProgressing, yes, api.ReasonHeld, v.open.holder+" has the pool's Lease; the operator waits until it has ended")
	case v.want.Suspend:
		v.set(api.ConditionProgressing, no, api.ReasonSuspended, "spec.suspend is set")
	default:
		v.set(api.ConditionProgressing, no, api.ReasonIdle, idle)
	}
}

// stalled sets Stalled: by what forbids any run, or by how the last one ended.
func (v *view) stalled() {
	why, last := v.stall, v.object.Status.LastRun
	over := last != nil && (v.run == nil || v.queued)
	var refused *workflow.Refused
	switch {
	case why != nil || !over || last.Exit == workflow.ExitDone || last.Exit == workflow.ExitInterrupted:
	case last.Exit == workflow.ExitNeedsPerson && last.Kind == api.RunRollout:
		why = &stall{api.ReasonNodeFailed, last.Message}
	case last.Exit == workflow.ExitNeedsPerson:
		why = &stall{api.ReasonNeedsPerson, last.Message}
	case errors.As(v.err, &refused) && len(refused.Problems) > 0 && last.Ended.Equal(&v.last.Ended):
		why = &stall{refused.Problems[0].Code, refused.Problems[0].String()}
	case last.Kind != api.RunWatch: // a watch that took its version back did what it is for
		why = &stall{api.ReasonRunFailed, last.Message}
	}
	if why == nil {
		v.set(api.ConditionStalled, no, api.ReasonGoing, "nothing needs a person")
		return
	}
	v.set(api.ConditionStalled, yes, why.reason, why.message)
}

// unseen writes that nothing is known of the pool.
func (v *view) unseen() {
	s := &v.object.Status
	s.Image, s.ImageBuilt, s.Versions, s.Nodes = "", nil, nil, api.NodesStatus{}
	for _, kind := range []string{api.ConditionFresh, api.ConditionProven} {
		v.set(kind, unknown, api.ReasonNotReady, "the pool was not read; Stalled says why")
	}
}

// writePool writes what was seen of the pool.
func (v *view) writePool(o observation) {
	s, total, current := &v.object.Status, len(o.pool.Instances), 0
	model := o.pool.Pool.Model.Image
	s.Image, s.ImageBuilt, s.Versions = cut(cmp.Or(model.Version, model.ID.Name()), maxText), nil, nil
	if c := o.current; c != nil {
		s.Image, current = c.Name, c.Instances
		if !c.BuiltAt.IsZero() {
			s.ImageBuilt = new(second(c.BuiltAt))
		}
	} else {
		for _, i := range o.pool.Instances {
			if i.Image == model.Text() {
				current++
			}
		}
	}
	count := func(n int) int32 { return int32(n) }
	failed := append(slices.Clone(o.pool.Cordoned), o.pool.Renewing...)
	slices.Sort(failed)
	s.Nodes = api.NodesStatus{Total: count(total), Current: count(current), Old: count(total - current),
		Failed: count(len(slices.Compact(failed))), Summary: fmt.Sprintf("%d/%d", current, total)}
	for _, x := range o.pool.Versions[:min(len(o.pool.Versions), maxVersions)] {
		s.Versions = append(s.Versions, api.VersionStatus{Name: x.Name, State: stateOf(x),
			Reason: cut(x.Tags[fleet.TagQuarantine], maxReason), BuiltFrom: x.BuiltFrom, Nodes: count(x.Instances)})
	}
	v.fresh(o)
	v.proven(o)
}

func stateOf(v capture.VersionStatus) string {
	switch {
	case v.RolledBack || v.Tags[fleet.TagQuarantine] != "":
		return api.VersionQuarantined
	case v.Tags[fleet.TagProven] != "":
		return api.VersionProven
	case v.InModel && v.Tags[fleet.TagWatch] != "":
		return api.VersionWatched
	case v.InModel:
		return api.VersionCurrent
	}
	return api.VersionOld
}

func (v *view) fresh(o observation) {
	limit := time.Duration(v.want.policy.MaxImageAge) * days
	old := o.current == nil || limit > 0 && v.now.Sub(o.current.BuiltAt) > limit+days
	switch {
	case v.object.Spec.Capture == nil:
		v.set(api.ConditionFresh, unknown, api.ReasonNoCapture, "spec has no capture")
	case o.Due:
		message := o.Because + "; a capture begins in the window that is open, or in the next, which status.nextCapture has"
		if v.stall != nil {
			message = o.Because + "; no capture is begun, Stalled says why"
		}
		for _, b := range o.Blockers {
			message += "; it would be refused: " + b.String()
		}
		v.set(api.ConditionFresh, no, api.ReasonDue, message)
	case old:
		v.set(api.ConditionFresh, no, api.ReasonNoDonor, o.Because+"; ortet donors "+v.want.pool.Name()+" shows why")
	default:
		v.set(api.ConditionFresh, yes, api.ReasonFresh, o.Because)
	}
}

func (v *view) proven(o observation) {
	c, last := o.current, v.object.Status.LastRun
	switch {
	case c == nil:
		image := o.pool.Pool.Model.Image.Text()
		v.set(api.ConditionProven, unknown, api.ReasonOriginal, "the model names "+image+", which Ortet did not capture")
	case stateOf(*c) == api.VersionQuarantined:
		v.set(api.ConditionProven, no, api.ReasonQuarantined, cmp.Or(c.Tags[fleet.TagQuarantine], "it was rolled back"))
	case stateOf(*c) == api.VersionProven:
		v.set(api.ConditionProven, yes, api.ReasonProven, "its first nodes came up, as was decided at "+c.Tags[fleet.TagProven])
	case !v.want.Watches:
		v.set(api.ConditionProven, unknown, api.ReasonNotWatched, "spec has no watch")
	case v.run == nil && last != nil && last.Kind == api.RunWatch && !v.ofAnother(last):
		v.set(api.ConditionProven, unknown, api.ReasonUnproven, last.Message)
	default:
		v.set(api.ConditionProven, unknown, api.ReasonWatched, "its first nodes are watched")
	}
}
