package simulate

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
)

// operators are stories of an operator that captures, watches what came of it, and rolls it out or
// takes it back.
var operators = []Story{
	{Name: "operator captures with a canary, watches and rolls out", Seed: 3, Pool: Pool{Instances: 3, Daemons: 1}, Asks: []Ask{{Do: "operator", Canary: 1}}},
	{Name: "operator takes back", Seed: 3, Pool: Pool{Instances: 3, Bad: "no join"}, Asks: []Ask{{Do: "operator"}}},
}

// replica begins to lead as a process.
func (w *operating) replica() *process {
	p := &process{w: w.world, ask: w.story.Asks[0], done: make(chan struct{}), dead: make(chan struct{}), began: time.Now(), beginning: w.beginningNow()}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	w.locked(func() {
		w.processes = append(w.processes, p)
		p.name = fmt.Sprintf("p%d", len(w.processes))
	})
	config, err := w.config(p.name, azureWire{p}, kubeWire{p}, p)
	if err != nil {
		w.broken(0, "cannot start an operator: %v", err)
	}
	w.trace("%s leads", p.name)
	go func() {
		defer close(p.done)
		defer w.recovered(p.name)
		w.leadAs(p.ctx, config)
	}()
	return p
}

// playOperator plays a story of an operator. Once one has died or lost its Lease another leads.
func playOperator(t *testing.T, s Story) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &operating{ledger: ledger{newWorld(s), t}, objects: &objects{all: map[string]v1alpha1.ScaleSetPool{}}, tick: 2 * time.Second}
		defer w.recovered("the story")
		w.operated()
		w.close()
		for _, p := range w.processes {
			p.cancel()
			<-p.done
		}
		r = result{w.violations, w.lines, w.requests, w.asked, w.pending}
	})
	return r
}

func (w *operating) operated() {
	s, was := w.story, w.imageNow()
	w.objects.put(w.spec(func(o *v1alpha1.ScaleSetPoolSpec) {
		o.Canary.Clones = int32(s.Asks[0].Canary)
		o.Rollout = v1alpha1.RolloutSpec{Mode: v1alpha1.RolloutProven, MaxUnavailable: intstr.FromInt32(1)}
	}))
	p, added, calm := w.replica(), "", time.Time{}
	for end := time.Now().Add(2 * day); time.Now().Before(end) && len(w.violations) == 0; {
		select {
		case <-p.done:
			if now := w.served(); w.happened < 2 && !w.isDown("kube") && !w.isDown("azure") && now != "" {
				w.broken(1, "%s leads no more, and %s", p.name, now)
			}
			p = w.replica()
		case <-p.dead:
			time.Sleep(20 * time.Second)
			p = w.replica()
		case <-time.After(10 * time.Second):
		}
		if live := w.imageNow(); live != was && live != added && !w.othersChose() { // an autoscaler finds pods that wait
			added = live
			w.scaleOut(2)
		}
		if calm = cmp.Or(calm, time.Now()); w.unsettled(was) != "" || len(w.pending) > 0 && time.Since(w.begin) < 6*time.Hour {
			calm = time.Time{}
		} else if time.Since(calm) > time.Hour {
			break
		}
	}
	if why := w.unsettled(was); why != "" {
		w.broken(10, "two days later %s: %+v; %q", why, w.objects.get(poolName).Status, w.objects.events)
	}
	p.ask.Do = "capture"
	for _, l := range append(w.nodeLacks(p), w.leftovers(p)...) {
		if l.invariant != 7 || !strings.Contains(l.what, "Lease") {
			w.broken(l.invariant, "at the end %s %s", l.name, l.what)
		}
	}
}

// served says which node is a donor or off; "" for none.
func (w *operating) served() string {
	for _, name := range w.nodesOf(w.pool) {
		n, c := w.kube.Node(name), w.computerOf(name)
		if w.isTouched(name) || n == nil || c == nil {
			continue
		}
		if n.Annotations[fleet.AnnotationCapture] != "" || !w.isOn(c, 0) {
			return fmt.Sprintf("node %s is a donor, or off: %v", name, n.Annotations)
		}
	}
	return ""
}

// unsettled says what has still to come; "" at the end.
func (w *operating) unsettled(was string) string {
	s, bad := w.objects.get(poolName).Status, w.story.Pool.Bad != ""
	quarantined := slices.ContainsFunc(s.Versions, func(v v1alpha1.VersionStatus) bool { return v.State == v1alpha1.VersionQuarantined })
	open := ""
	if j := s.LastRun; j == nil || s.Run != nil {
		open = "something runs"
	}
	switch touched := w.isTouched("model") || w.isTouched("versions"); {
	case open != "":
		return open
	case touched:
		return ""
	case bad && (!quarantined || w.imageNow() != was):
		return "the bad version is not taken back"
	case !bad && !is(v1alpha1.ConditionProven, v1alpha1.ReasonProven)(s):
		return "no version is proven"
	case !bad && s.Nodes.Old > 0:
		return "nodes are old"
	}
	return ""
}

// A rollout that was killed once its last node had the image is ended: that node is in service again.
func TestOperatorEndsRolloutOfLastNode(t *testing.T) {
	s := operators[0]
	s.Happen = at("azure POST virtualMachineScaleSets/"+poolName+"/manualupgrade", 3, "kill after")
	if r := playOperator(t, s); len(r.violations)+len(r.missed) > 0 {
		t.Error(explain(s, r))
	}
}

// besideOperator are neighbours of an operator.
var besideOperator = []string{"autoscaler adds a node", "kured reboots", "instance deleted", "instance stopped", "cordoned", "another ortet", "laptop sleeps"}

// TestSweepOperator kills an operator at each request, and has another one lead; and plays faults and
// neighbours.
func TestSweepOperator(t *testing.T) {
	match := regexp.MustCompile(*only)
	for _, s := range operators {
		t.Run(s.Name, func(t *testing.T) {
			plain := playOperator(t, s)
			if len(plain.violations) > 0 {
				t.Fatal(explain(s, plain))
			}
			events := slices.DeleteFunc(cases(plain.requests), func(e Event) bool {
				deed := slices.ContainsFunc(deeds, func(d Event) bool { return d.What == e.What })
				return deed && !slices.Contains(besideOperator, e.What) || e.What == "laptop sleeps and another ortet begins" || !match.MatchString(fmt.Sprintf("%+v", e))
			})
			if !*sweepAll {
				events = slices.DeleteFunc(events, func(e Event) bool { return !strings.HasPrefix(e.What, "kill") && e.What != "interrupt" })
				events = sample(events, 2)
			}
			var all []Story
			for _, e := range events {
				one := s
				one.Happen = []Event{e}
				all = append(all, one)
			}
			playAllBy(t, all, playOperator)
		})
	}
}
