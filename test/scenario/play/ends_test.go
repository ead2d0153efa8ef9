package play

import (
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/journal"
)

func TestRulesOfEnds(t *testing.T) {
	why := errors.New("the disk is broken")
	failed := func(w *world) {
		onRecord(w)
		recorded(func(r *journal.Record) {
			r.Ended = &journal.End{Exit: engine.ExitFailed, Message: why.Error()}
		})(w)
	}
	warned := func(reason, message string) func(*world) {
		return func(w *world) {
			events(reason)(w)
			e := w.kube.Get("events", "default", reason).(*corev1.Event)
			e.Type, e.Message = corev1.EventTypeWarning, message
			w.kube.Put(e)
		}
	}
	ends := func(err error) func(*world, *process) {
		return func(w *world, p *process) {
			p.err = err
			w.checkFailureTold(p)
		}
	}
	lost := ends(&engine.NeedsPerson{Step: "ready", Err: why, Left: []string{"node pool1000000 did not come back (why)"}})
	atStep := func(step string) func(*world, *process) { return ends(&engine.Failed{Step: step, Err: why}) }
	key := func(w *world) {
		factual(func(f object) { f["privateKey"] = json.RawMessage(`"a2V5"`) })(w)
	}
	judged(t, []ruling{
		{"a failure is told", pool3, all(failed, warned("CaptureFailed", "step stop: x")), nil, atStep("stop"), atStep("drain"), "no event CaptureFailed"},
		{"a lost donor is told", pool3, all(failed, warned("CaptureDonorLost", "did not come back: x")), func(w *world) { w.kube.Remove("events", "default", "CaptureDonorLost") }, lost, nil, "no event CaptureDonorLost"},
		{"the key goes", pool3, failed, key, func(w *world, p *process) { w.checkKeyGone(p) }, nil, "its private key is still there"},
	})
}
