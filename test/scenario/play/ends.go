package play

import (
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// checkFailureTold: the users of a node can read why its capture failed, and that it did
// not come back, where Events can be made.
func (w *world) checkFailureTold(p *process) {
	rec, ok := w.record()
	if !ok || rec.Kind != prototype.KindCapture || p.ask.Verb != scenario.Capture || w.eventsLacked() {
		return
	}
	failed, person := new(engine.Failed), new(engine.NeedsPerson)
	switch {
	case errors.As(p.err, &failed) && rec.Ended != nil && rec.Ended.Exit == engine.ExitFailed && rec.Ended.Message == failed.Err.Error():
		if !w.hasEvent(rec.Donor, "CaptureFailed", failed.Step) {
			w.broken("%s failed at step %s, and no event CaptureFailed on node %s says so", p.name, failed.Step, rec.Donor)
		}
	case errors.As(p.err, &person) && strings.Contains(p.err.Error(), "node "+rec.Donor+" did not come back"):
		if !w.hasEvent(rec.Donor, "CaptureDonorLost", "did not come back") {
			w.broken("%s says that %s did not come back, and no event CaptureDonorLost on it does", p.name, rec.Donor)
		}
	}
}

// eventsLacked reports whether something kept Events from being made: they are not tried again.
func (w *world) eventsLacked() bool {
	for _, e := range w.chooser.Happened() {
		if strings.Contains(e.Request, "events") {
			return true
		}
	}
	return len(w.happenedTo(scenario.KubeOutage, scenario.Deny)) > 0
}

// hasEvent reports whether a warning with this reason is on a node, whose message has a text.
func (w *world) hasEvent(node, reason, text string) (has bool) {
	w.kube.Each("events", func(o runtime.Object) bool {
		e, ok := o.(*corev1.Event)
		has = ok && e.InvolvedObject.Name == node && e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text)
		return !has
	})
	return has
}

// checkKeyGone: the key that opens what a workbench's pod sealed is in the journal no
// longer than its capture is open.
func (w *world) checkKeyGone(p *process) {
	rec, ok := w.record()
	var kept struct {
		PrivateKey []byte `json:"privateKey"`
	}
	if ok && rec.Ended != nil && json.Unmarshal(rec.Facts, &kept) == nil && len(kept.PrivateKey) > 0 {
		w.broken("%s has ended, %s is closed in the journal, and its private key is still there", p.name, rec.Capture)
	}
}
