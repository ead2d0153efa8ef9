// Package notify posts what happened to pools to one URL. Find is pure: it compares the status that was
// saved last with the one that is saved now, so that each transition is found once, also over a restart.
// A Sender posts from a queue and never blocks its caller.
package notify

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	api "github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/workflow"
)

// What happens.
const (
	VersionQuarantined = "VersionQuarantined" // it failed a gate, or was rolled back
	VersionTakenBack   = "VersionTakenBack"   // new nodes do not come from it any more
	RolloutStopped     = "RolloutStopped"     // at a node, which stays cordoned
	CaptureFailed      = "CaptureFailed"      // or was refused
)

// An Event is the body of a request, as JSON. It has names and reasons, and no secrets.
type Event struct {
	Schema   int       `json:"schema"` // 1
	Event    string    `json:"event"`
	Pool     string    `json:"pool"`     // the ScaleSetPool's name
	ScaleSet string    `json:"scaleSet"` // name
	Version  string    `json:"version,omitempty"`
	Reason   string    `json:"reason,omitempty"`  // of the condition Stalled
	Message  string    `json:"message,omitempty"` // redacted, at most 1 KiB
	Time     time.Time `json:"time"`
}

const maxVersions = 10 // of a status

// Find returns what happened to a pool since a status was saved. Of the first status of an object it is
// nothing: what happened before is not news.
func Find(p *api.ScaleSetPool, before api.ScaleSetPoolStatus, now time.Time) (events []Event) {
	if before.ObservedGeneration == 0 {
		return nil
	}
	s := p.Status
	add := func(event, version, reason, message string) {
		events = append(events, Event{
			Schema: 1, Event: event, Pool: p.Name, ScaleSet: fleet.ResourceID(p.Spec.ScaleSet).Name(), Version: version,
			Reason: reason, Message: redact.Text(message), Time: now.UTC().Truncate(time.Second),
		})
	}
	was := func(name string) (v api.VersionStatus, at int) {
		if at = slices.IndexFunc(before.Versions, func(v api.VersionStatus) bool { return v.Name == name }); at >= 0 {
			v = before.Versions[at]
		}
		return v, at
	}
	for i, v := range s.Versions {
		old, at := was(v.Name)
		// Of a full list an older version comes back once a newer one is deleted.
		returns := at < 0 && len(before.Versions) == maxVersions && !slices.ContainsFunc(s.Versions[i:], func(v api.VersionStatus) bool {
			_, at := was(v.Name)
			return at >= 0
		})
		bad := v.State == api.VersionQuarantined
		if bad && old.State != api.VersionQuarantined && !returns {
			add(VersionQuarantined, v.Name, "", cmp.Or(v.Reason, "it was rolled back"))
		}
		if bad && before.Image == v.Name && s.Image != v.Name {
			add(VersionTakenBack, v.Name, "", "new nodes come from "+s.Image+"; "+cmp.Or(v.Reason, "it was rolled back"))
		}
	}
	last := s.LastRun
	if last == nil || alike(before.LastRun, last) {
		return events
	}
	reason := ""
	if c := meta.FindStatusCondition(s.Conditions, api.ConditionStalled); c != nil && c.Status == "True" {
		reason = c.Reason
	}
	switch {
	case last.Kind == api.RunRollout && last.Exit == workflow.ExitNeedsPerson:
		add(RolloutStopped, s.Image, reason, last.Message)
	case last.Kind == api.RunCapture && last.Exit != workflow.ExitDone && last.Exit != workflow.ExitInterrupted:
		add(CaptureFailed, "", reason, last.Message)
	}
	return events
}

// alike reports whether a run ended as the one before it did: a retry that fails in the same way is no news.
func alike(a, b *api.LastRunStatus) bool {
	return a != nil && a.Kind == b.Kind && a.Exit == b.Exit && a.Message == b.Message
}
