package simulate

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// A result is what came of a story.
type result struct {
	violations []string
	trace      []string
	requests   []request
	asked      []int   // how many requests were sent before each ask, and before the watch of a capture
	missed     []Event // whose request was not sent
}

func play(t *testing.T, s Story) (r result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = playIn(s) })
	return r
}

// playIn plays a story in a bubble of testing/synctest.
func playIn(s Story) (r result) {
	w := newWorld(s)
	w.act()
	w.close()
	for _, p := range w.processes {
		p.cancel()
		<-p.done
	}
	return result{w.violations, w.lines, w.requests, w.asked, w.pending}
}

// act plays the asks, and looks at the world when all have ended.
func (w *world) act() {
	defer w.recovered("the story")
	s := w.story
	for i, ask := range s.Asks {
		if len(w.violations) > 0 {
			break
		}
		w.locked(func() { w.asked = append(w.asked, len(w.requests)) })
		switch ask.Do {
		case "wait":
			time.Sleep(ask.For)
		case "scale out":
			w.scaleOut(ask.N)
			time.Sleep(10 * time.Minute)
		case "set image":
			if err := w.setImage(ask.To, "owners"); err != nil {
				w.broken(0, "cannot set the model's image: %v", err)
			}
			time.Sleep(10 * time.Minute)
		case "forge":
			w.forge(ask.To)
		case crashes:
			panic(crashes)
		default:
			w.pursue(i, ask)
		}
	}
	if len(w.violations) == 0 {
		time.Sleep(time.Hour) // what is under way ends
		w.checkOver()
		if n := w.counts[s.Single]; s.Single != "" && n != 1 {
			w.broken(10, "%s was sent %d times", s.Single, n)
		}
	}
}

// forge is somebody who may write tags of versions, and claims that a watch failed one.
func (w *world) forge(version string) {
	id := w.names.Definition.Child("versions", version)
	w.touch(low(id))
	now := time.Now().UTC().Format(time.RFC3339)
	w.make(http.MethodPatch, id, galleryAPI, object{"tags": object{fleet.TagWatch: now + " 30m0s 2",
		fleet.TagQuarantine: "join: no Node", fleet.TagRolledBack: now}})
	time.Sleep(10 * time.Minute)
}

// pursue is an operator who repeats a command until it ends with 0, or as Cannot requires.
func (w *world) pursue(i int, ask Ask) {
	w.beginAsk()
	w.locked(func() { w.lastEvent = time.Now() })
	for try := 1; ; try++ {
		p, err := w.start(ask)
		if err != nil {
			w.broken(0, "cannot start a process: %v", err)
			return
		}
		ended := w.await(p)
		if alone := !w.awaitRivals(); ended && alone {
			w.checkEnd(p)
			w.countGrown(p)
		} else if ended { // what is there now may be the other's, and may be open
			w.checkClaims(p, false)
			w.tookBack(p)
			w.locked(func() { w.open = true })
			w.countGrown(p)
			if p.watch.Outcome == watch.TakenBack && p.code() == workflow.ExitFailed { // a repeat makes it again
				return
			}
			time.Sleep(time.Minute)
			continue
		}
		w.mu.Lock()
		quiet := w.lastEvent.Before(p.began) || w.lastEvent.Equal(p.began)
		calm, happened, violations := time.Since(w.lastEvent), w.happened, len(w.violations)
		w.mu.Unlock()
		code := p.code()
		cannot := ended && w.story.Cannot != "" && i == len(w.story.Asks)-1
		as := cannot && code == ask.Exit && (workflow.RefusedFor(p.err, w.story.Cannot) || strings.Contains(fmt.Sprint(p.err), w.story.Cannot))
		if cannot && !as && (ask.Once || code == workflow.ExitDone && w.stillCannot(ask)) {
			w.broken(9, "%s ends with exit %d, expected %d and %q: %v", p.name, code, ask.Exit, w.story.Cannot, p.err)
		}
		switch {
		case violations > 0, ask.Once, ended && code == workflow.ExitDone, p.watch.Outcome == watch.TakenBack && code == workflow.ExitFailed, as && quiet, ended && w.lost(p.err):
			return
		case workflow.RefusedFor(p.err, "NoWorkbench") && w.alone(): // autoscaler and watch deleted the other nodes
			return
		case w.othersChose() && strings.Contains(fmt.Sprint(p.err), "the image that it had before it was captured"):
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
// adds nodes. It reports whether nothing helps: the donor was deleted, or the version of which
// nodes are made. A command that says that it can be resumed is repeated all the same.
func (w *world) putRight(ask Ask, err error) (hopeless bool) {
	donor := w.computerOf(w.donorOf(ask))
	if ask.Do == "capture" && !ask.Fresh && donor == nil && workflow.ExitCode(err) != workflow.ExitInterrupted {
		if w.removed[w.donorOf(ask)] && len(w.story.Happen) == 1 && w.story.Cannot == "" {
			w.broken(10, "the donor was deleted when it was back, and capture ends with %v", err)
		}
		return true
	}
	if workflow.RefusedFor(err, "NoWorkbench") {
		image := low(w.modelNow().image)
		if strings.Contains(image, "/versions/") && w.versions()[image] == nil {
			return true
		}
		w.scaleOut(int64(max(1, w.story.Pool.Zones)))
	}
	var all []*computer // of deleted Nodes, too: a kubelet that starts registers its Node
	w.locked(func() { all = slices.Collect(maps.Values(w.computers)) })
	slices.SortFunc(all, func(a, b *computer) int { return strings.Compare(a.node(), b.node()) })
	for _, c := range all {
		name := c.node()
		if w.heal(c); !w.isTouched(name) {
			continue
		}
		if !w.isOn(c, 0) && w.isTouched("stopped "+name) {
			_ = w.request(http.MethodPost, fleet.ResourceID(c.ResourceID)+"/start", computeAPI, nil)
		}
		if n := w.kube.Node(name); n != nil && n.Annotations[fleet.AnnotationCapture] == "" && n.Annotations[fleet.AnnotationRollout] == "" {
			w.uncordon(name)
		}
	}
	return false
}

// lost reports whether others gave the model another image, or deleted its version: a rollback is
// refused for settings that no donor's disk could show, a watch since there is nothing to watch.
// Where nothing earlier is kept, a rollback is refused, and a watch cannot take a bad version back.
func (w *world) lost(err error) bool {
	noWay := workflow.RefusedFor(err, "NoPrevious") || strings.Contains(fmt.Sprint(err), "since there is no way back")
	return noWay && w.isFirst() || w.isTouched("model") && workflow.RefusedFor(err, "ExtensionLost") ||
		(w.isTouched("model") || w.isTouched(w.imageNow())) && workflow.RefusedFor(err, "NotAPrototype")
}

// isFirst reports whether nothing is kept that was live before what the model uses. What the model
// was before its first capture is kept, where that was seen.
func (w *world) isFirst() bool {
	versions := w.versions()
	used := w.used(versions)
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, v := range versions {
		before := versions[used] == nil || published(v).Before(published(versions[used]))
		if id != used && before && w.wasLive[id] && v.Tags[fleet.TagRolledBack] == nil {
			return false
		}
	}
	return w.story.Pool.Versions > 0 || used == low(firstImage)
}

// stillCannot reports whether no event has removed the reason of Cannot: a donor whose Node or
// instance others changed may have lost its pods, and a node that was added may be the workbench.
func (w *world) stillCannot(ask Ask) bool {
	return !w.isTouched(w.donorOf(ask)) && !w.isTouched("capacity") && w.expected().capacity <= int64(w.story.Pool.Instances)
}

// await waits until a process has ended by itself; false where it was killed.
func (w *world) await(p *process) bool {
	select {
	case <-p.done:
		return !p.isDead()
	case <-p.dead:
		now := w.modelNow().capacity
		w.locked(func() {
			if w.open = true; p.ask.Do == "watch" { // it may have deleted bad nodes
				w.model.capacity = now
			}
		})
		return false
	case <-time.After(36 * time.Hour):
		w.broken(10, "%s does not end within 36 hours", p.name)
		p.die()
		return false
	}
}

// awaitRivals waits until all others have ended, and reports whether there were any.
func (w *world) awaitRivals() (came bool) {
	for ; ; came = true {
		var rival *process
		w.locked(func() {
			if len(w.rivals) > 0 {
				rival, w.rivals = w.rivals[0], w.rivals[1:]
			}
		})
		if rival == nil {
			return came
		}
		ended := w.await(rival)
		if ended {
			w.checkClaims(rival, false)
			w.tookBack(rival)
		}
		if !ended && rival.ask.Do == "rollback" {
			w.locked(func() { w.unfinished = &rival.beginning })
		}
		if ended && rival.ask.Do == "capture" && w.rollsOut() {
			now := w.modelNow()
			w.locked(func() { w.model = now })
		}
		if ended && rival.ask.Do == "rollback" { // a person's, beside another command
			now := w.modelNow()
			w.locked(func() {
				w.model.image, w.model.customData, w.model.extensions = now.image, now.customData, now.extensions
			})
		}
	}
}

// tookBack has the model be as a watch left it that took a version back beside another command.
func (w *world) tookBack(p *process) {
	if p.watch.Outcome != watch.TakenBack {
		return
	}
	now, made := w.modelNow(), map[string]int64{}
	for id := range w.versions() {
		made[id] = int64(len(w.instancesOf(fleet.ResourceID(id))))
	}
	w.locked(func() {
		w.model = now
		for id, n := range made { // the capacity has them
			w.grown[id] = max(n, w.grown[id])
		}
	})
}

// countGrown counts the new nodes of a capture that is not judged, or did not end well, as asked for:
// the next one may be of another version, which has new nodes of its own.
func (w *world) countGrown(p *process) {
	if p.ask.Do != "capture" {
		return
	}
	n, of := int64(0), low(p.capture.Version)
	for _, i := range w.instancesOf("") { // one that Azure could not make is of no image
		if slices.ContainsFunc(p.capture.NewNodes, func(x plan.NewNode) bool { return x.Instance == i.name }) {
			n++
		}
	}
	if !p.capture.Resumed {
		n = min(n, p.ask.Grow)
	}
	w.locked(func() {
		w.model.capacity += max(0, n-w.grown[of])
		w.grown[of] = max(n, w.grown[of])
	})
}

// scaleOut has others add nodes.
func (w *world) scaleOut(n int64) {
	w.locked(func() { w.model.capacity += n })
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

// alone reports whether the donor's Node is the only one.
func (w *world) alone() bool {
	n := 0
	w.kube.Peek("nodes", func(runtime.Object) bool { n++; return true })
	return n == 1
}
