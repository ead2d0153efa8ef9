package play

import (
	"fmt"
	"net/http"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// What is judged when it happens, and not by how it ends.

func bootID(node string, life int) string { return fmt.Sprintf("boot-%s-%d", node, life) }

// judgeUncordon: a node that was stopped is uncordoned only once it reported that it
// booted since, and was Ready after that.
func (w *world) judgeUncordon(p *process, node *corev1.Node) {
	c := w.computerOf(node.Name)
	if c == nil {
		return
	}
	w.mu.Lock()
	running, life, ready, theirs := c.running, c.life, c.ready, w.touched[node.Name]
	w.mu.Unlock()
	// It was Ready after a boot, and others had it end and boot once more at that moment.
	theirs = theirs || ready >= life-2 && len(w.happenedTo(scenario.RestartInstance)) > 0
	if theirs {
		return // others' hands may be quicker than any look
	}
	if rec, ok := w.record(); ok && rec.Intents[prototype.StepStop].Tries == 0 && len(w.happenedTo(scenario.RestartInstance)) > 0 {
		return // who did not stop it waits for no boot that others want
	}
	switch {
	case !running:
		w.broken("%s uncordons %s, which is stopped", p.name, node.Name)
	case ready != life || node.Status.NodeInfo.BootID != bootID(node.Name, life):
		w.broken("%s uncordons %s before it reported that it is Ready since it booted", p.name, node.Name)
	default:
		w.judgeSoon(p, node.Name, c)
	}
}

// judgeOutcome: a version is made, and the model pointed at one, only while the donor
// is as it was found.
func (w *world) judgeOutcome(p *process, what fleet.ResourceID) {
	rec, ok := w.record()
	if !ok || rec.Ended != nil {
		w.broken("%s changes %s, and has no open record in the journal", p.name, what.Name())
		return
	}
	if rec.Donor == "" {
		return
	}
	for _, l := range w.hurt() {
		if l.name == rec.Donor {
			w.broken("%s changes %s while its donor %s is %s", p.name, what.Name(), l.name, l.what)
		}
	}
}

// checkCtrlC: who is interrupted before a record is closed never says that it failed.
func (w *world) checkCtrlC(p *process) {
	const moment = time.Second // in which both cross, also where the write that closes it is tried again
	p.mu.Lock()
	at, returned := p.interruptedAt, p.returned
	p.mu.Unlock()
	w.mu.Lock()
	if w.closed.After(p.began) && w.closed.Before(returned) {
		returned = w.closed
	}
	w.mu.Unlock()
	if !at.IsZero() && engine.ExitCode(p.err) == engine.ExitFailed && at.Add(moment).Before(returned) {
		w.broken("%s was interrupted, and ends with exit 1: %v", p.name, p.err)
	}
}

// nodeChange serves a change of a node.
func (p *process) nodeChange(r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	name := path.Base(r.URL.Path)
	before, ok := p.w.kube.Get("nodes", "", name).(*corev1.Node)
	cordoned := ok && before.Spec.Unschedulable
	answer, err := serve(r)
	if after, ok := p.w.kube.Get("nodes", "", name).(*corev1.Node); ok && cordoned && !after.Spec.Unschedulable {
		p.w.judgeUncordon(p, after)
	}
	return answer, err
}
