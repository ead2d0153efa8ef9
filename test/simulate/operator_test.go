package simulate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// A result is what came of a story.
type result struct {
	violations []string
	trace      []string
	requests   []request
	missed     []Event // whose request was not sent
	processes  int
}

func play(t *testing.T, s Story) (r result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = playIn(s) })
	return r
}

// playIn plays a story in a bubble of testing/synctest.
func playIn(s Story) (r result) {
	w, err := newWorld(s)
	if err != nil {
		return result{violations: []string{"cannot set up the world: " + err.Error()}}
	}
	for i, ask := range s.Asks {
		switch ask.Do {
		case "wait":
			time.Sleep(ask.For)
		case "scale out":
			w.scaleOut(ask.N)
			time.Sleep(10 * time.Minute)
		case "set image":
			w.setImage(ask.To)
		default:
			w.pursue(i, ask)
		}
		if len(w.violations) > 0 {
			break
		}
	}
	if len(w.violations) == 0 {
		time.Sleep(time.Hour) // what is under way ends
		w.checkOver()
		w.checkOthers()
	}
	w.close()
	for _, p := range w.processes {
		p.cancel()
		<-p.done
	}
	return result{w.violations, w.lines, w.requests, w.pending, len(w.processes)}
}

// pursue is an operator who repeats a command until it ends with 0, or as Cannot expects.
func (w *world) pursue(i int, ask Ask) {
	w.beginAsk()
	w.mu.Lock()
	w.open = slices.ContainsFunc(w.story.Asks[:i], func(a Ask) bool { return a.Once })
	w.lastEvent = time.Now()
	w.mu.Unlock()
	for try := 1; ; try++ {
		p, err := w.start(ask)
		if err != nil {
			w.broken(0, "cannot start a process: %v", err)
			return
		}
		ended := w.await(p)
		if alone := !w.awaitRivals(); ended && alone {
			w.checkEnd(p)
		} else if ended { // what is there now may be the other's
			time.Sleep(time.Minute)
			continue
		}
		w.mu.Lock()
		quiet := w.lastEvent.Before(p.began) || w.lastEvent.Equal(p.began)
		calm, happened, violations := time.Since(w.lastEvent), w.happened, len(w.violations)
		w.mu.Unlock()
		code := p.code()
		cannot := w.story.Cannot != "" && i == len(w.story.Asks)-1
		switch {
		case violations > 0, ask.Once, ended && code == workflow.ExitDone, ended && cannot && quiet && code == ask.Exit, ended && w.lost(p.err):
			return
		case ended && happened == 0, calm > day:
			w.broken(10, "%s ends with exit %d, %s after the last event: %v", ask.Do, code, calm, p.err)
			return
		}
		if ended && w.putRight(ask, p.err) {
			return
		}
		time.Sleep(min(time.Minute<<try, 2*time.Hour) + w.between(0, time.Minute, "try", i, try))
	}
}

// putRight is a person who does what a message asks for: starts instances, uncordons and
// adds nodes. It reports whether nothing helps: the donor was deleted.
func (w *world) putRight(ask Ask, err error) (hopeless bool) {
	donor := w.computerOf(nodeName(ask.Node))
	if ask.Do == "capture" && donor == nil {
		return true
	}
	if r := new(workflow.Refused); errors.As(err, &r) && slices.ContainsFunc(r.Problems, func(p fleet.Problem) bool { return p.Code == "NoWorkbench" }) {
		w.scaleOut(int64(max(1, w.story.Pool.Zones)))
	}
	for _, name := range w.nodeNames() {
		c := w.computerOf(name)
		if c == nil || !w.isTouched(name) {
			continue
		}
		if !w.isOn(c, 0) && w.isTouched("stopped "+name) {
			_ = w.request(http.MethodPost, fleet.ResourceID(c.ResourceID)+"/start", computeAPI, nil)
		}
		if n := w.kube.Node(name); n != nil && n.Annotations[fleet.AnnotationCapture] == "" {
			w.kube.Change("nodes", "", name, func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = false })
		}
	}
	return false
}

// await waits until a process has ended by itself; false where it was killed.
func (w *world) await(p *process) bool {
	timer := time.NewTimer(36 * time.Hour)
	defer timer.Stop()
	select {
	case <-p.done:
		return !p.isDead()
	case <-p.dead:
		w.mu.Lock()
		w.open = true
		w.mu.Unlock()
		return false
	case <-timer.C:
		w.broken(10, "%s does not end within 36 hours", p.name)
		p.die()
		return false
	}
}

// awaitRivals waits until all others have ended, and reports whether there were any.
func (w *world) awaitRivals() (came bool) {
	for ; ; came = true {
		w.mu.Lock()
		if len(w.rivals) == 0 {
			w.mu.Unlock()
			return came
		}
		r := w.rivals[0]
		w.rivals = w.rivals[1:]
		w.mu.Unlock()
		w.await(r)
	}
}

// scaleOut has others add nodes.
func (w *world) scaleOut(n int64) {
	w.mu.Lock()
	w.capacity += n
	w.mu.Unlock()
	now := w.modelNow().capacity
	_ = w.request(http.MethodPatch, w.pool, computeAPI, object{"sku": object{"name": w.size(), "tier": "Standard", "capacity": now + n}})
	w.observeRest()
}

func (w *world) size() string {
	if w.story.Pool.NVMe {
		return "Standard_D2s_v6"
	}
	return "Standard_D2s_v5"
}

// explain is what a test prints of a story that broke an invariant.
func explain(s Story, r result) string {
	lines := r.trace
	if !*verbose && len(lines) > 40 {
		lines = lines[len(lines)-40:]
	}
	return fmt.Sprintf("%s\n%#v\n%s", strings.Join(r.violations, "\n"), s, strings.Join(lines, "\n"))
}
