package simulate

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// asked plays asks in a bubble, and then shows the world. Each capacity is beside that of others.
func asked(t *testing.T, s Story, show func(w *world, ps []*process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s)
		defer w.finish()
		for i, ask := range s.Asks {
			w.pursue(i, ask)
		}
		if len(w.violations) == 0 {
			show(w, w.processes)
		}
		if t.Failed() || len(w.violations) > 0 {
			t.Errorf("%s\n%s", strings.Join(w.violations, "\n"), strings.Join(w.lines[max(0, len(w.lines)-30):], "\n"))
		}
	})
}

// finish stops the world and what still runs in it.
func (w *world) finish() {
	w.close()
	for _, p := range w.processes {
		p.cancel()
		<-p.done
	}
}

// newNodes are the new nodes of a capture, "pool1_4 true".
func (p *process) newNodes() string {
	var all []string
	for _, n := range p.capture.NewNodes {
		all = append(all, fmt.Sprint(n.Instance, " ", n.Ready))
	}
	return strings.Join(all, ", ")
}

// A new instance that others delete while the scale set grows is added again; the other one counts, and
// a note says that others may have added it. Where both go it is said who may have taken them.
func TestOutcomeNewNodesDeletedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		deleted  []string
		exit     int
		capacity int64
		nodes    string
		says     string
	}{
		{[]string{"4"}, workflow.ExitDone, 6, "pool1_5 true, pool1_6 true", "others changed scale set pool1 while it grew: pool1_5 counts as new, though others may have added it"},
		{[]string{"3"}, workflow.ExitDone, 5, "pool1_4 true, pool1_5 true", ""},
		{[]string{"4", "5"}, workflow.ExitNeedsPerson, 4, "pool1_5 true", "Azure did not add 1 new node (or others deleted what came); the same command adds what is missing"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Story{Seed: 1, Pool: usual})
			defer w.finish()
			p := w.beginCommand(t, Ask{Do: "capture", Grow: 2, Once: true})
			w.until(t, "new instances", func() bool {
				all := slices.DeleteFunc(w.instancesOf(""), func(i instance) bool { return len(c.deleted) > 1 && i.state != plan.Succeeded })
				return len(all) == 6
			})
			w.deleteInstances(w.pool, c.deleted...)
			w.await(p)
			notes := strings.Join(p.capture.Notes, "\n")
			if now := w.modelNow().capacity; p.code() != c.exit || now != c.capacity || p.newNodes() != c.nodes || !strings.Contains(fmt.Sprint(notes, p.err), c.says) || c.says == "" && strings.Contains(notes, "counts as new") {
				t.Errorf("%s deleted: exit %d, capacity %d, new nodes %q: %v; %s", c.deleted, p.code(), now, p.newNodes(), p.err, notes)
			}
		})
	}
}

// The same command adds another node for one that was not Ready and was deleted, and none for one that is
// Ready by then, as it said.
func TestOutcomeSameCommandMendsNewNodes(t *testing.T) {
	for what, c := range map[string]struct {
		pool     Pool
		capacity int64
		nodes    string
	}{
		"deleted":             {badPool("no join", nil), 5, "pool1_5 true"},
		"Ready by then":       {with(func(p *Pool) { p.SlowBoot = 20 * time.Minute }), 5, "pool1_4 true"},
		"Failed, and deleted": {badPool("no boot", nil), 5, "pool1_5 true"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Story{Seed: 1, Pool: c.pool})
			defer w.finish()
			if p := w.do(t, Ask{Do: "capture", Grow: 1, Once: true}); p.code() != workflow.ExitNeedsPerson || p.newNodes() != "pool1_4 false" {
				t.Fatalf("%s: exit %d, new nodes %q: %v", what, p.code(), p.newNodes(), p.err)
			}
			w.mend(0)
			time.Sleep(time.Hour)
			if strings.HasSuffix(what, "deleted") {
				w.deleteInstances(w.pool, "4")
				w.until(t, "deleted", func() bool { return len(w.instancesOf("")) == 4 })
			}
			p := w.do(t, Ask{Do: "capture", Grow: 1, Once: true})
			if now := w.modelNow().capacity; p.code() != workflow.ExitDone || now != c.capacity || p.newNodes() != c.nodes {
				t.Errorf("%s: exit %d, capacity %d, new nodes %q: %v", what, p.code(), now, p.newNodes(), p.err)
			}
		})
	}
}

// A new instance that does not come up is named, and the exit code is 4.
func TestOutcomeNewNodeFails(t *testing.T) {
	for bad, why := range map[string]string{"no boot": "the instance is Failed in Azure; delete it, then the same command adds another",
		"no join": "it has no Node; its provisioning state is Succeeded; ortet nodes --pool pool1 shows why"} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			s := Story{Seed: 1, Pool: with(func(p *Pool) { p.Bad = bad }), Asks: []Ask{{Do: "capture", Grow: 1, Once: true}}}
			asked(t, s, func(w *world, ps []*process) {
				if p := ps[0]; p.code() != workflow.ExitNeedsPerson || !strings.Contains(fmt.Sprint(p.err), "new node pool1_4: "+why) || p.newNodes() != "pool1_4 false" {
					t.Errorf("exit %d, new nodes %q: %v", p.code(), p.newNodes(), p.err)
				}
			})
		})
	}
}

// An autoscaler's node beside a refused request is not taken for a new one of the capture.
func TestOutcomeAutoscalersNodeIsNotOurs(t *testing.T) {
	for _, refusal := range []string{"conflict", "precondition failed"} {
		for _, s := range []Story{
			{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Grow: 1}}},
			onFlexible(Story{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Grow: 1}}}),
		} {
			t.Run(fmt.Sprint(refusal, " ", s.Pool.Flexible), func(t *testing.T) {
				t.Parallel()
				s.Happen = append(at(patchModel, 2, refusal), at(patchModel, 2, "autoscaler adds a node")...)
				before := int64(s.Pool.Instances)
				asked(t, s, func(w *world, ps []*process) {
					if now := w.modelNow().capacity; len(w.pending) > 0 || now != before+2 || strings.Count(ps[0].newNodes(), "true") != 1 {
						t.Errorf("exit %d and capacity %d after %d, an autoscaler's and --grow 1; new nodes: %s", ps[0].code(), now, before, ps[0].newNodes())
					}
				})
			})
		}
	}
}

// After a quota that was refused and raised, the same command adds what is missing.
func TestOutcomeRefusedNodesAreAddedLater(t *testing.T) {
	s := Story{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Grow: 2, Once: true}}}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s)
		defer w.finish()
		before := w.modelNow().capacity
		w.azure.Quota = map[string]int{"cores": 2*int(before) + 1}
		w.pursue(0, s.Asks[0])
		w.azure.Quota = nil
		if p := w.processes[0]; p.code() != workflow.ExitNeedsPerson || !strings.Contains(fmt.Sprint(p.err), "Azure did not add 2 new nodes") {
			t.Errorf("exit %d: %v", p.code(), p.err)
		}
		w.pursue(0, s.Asks[0])
		p, now := w.processes[1], w.modelNow().capacity
		if p.code() != workflow.ExitDone || now != before+2 || strings.Count(p.newNodes(), "true") != 2 || p.capture.NothingToDo {
			t.Errorf("the same command ends with exit %d and capacity %d after %d, new nodes %q, nothing to do: %t; %v",
				p.code(), now, before, p.newNodes(), p.capture.NothingToDo, w.violations)
		}
	})
}

// The same command twice a day adds new nodes once, also where an old version is left to prune.
func TestOutcomeNewNodesAreAddedOnce(t *testing.T) {
	ask := Ask{Do: "capture", Grow: 2, History: 2}
	s := Story{Seed: 1, Pool: with(func(p *Pool) { p.Versions = 4 }), Asks: []Ask{ask, ask},
		Happen: at("azure DELETE galleries/SIG_azsim/images/kamino-pool1-prototype/versions/1999.12.11", 1, "refused")}
	asked(t, s, func(w *world, ps []*process) {
		before := int64(s.Pool.Instances)
		if now := w.modelNow().capacity; len(w.pending) > 0 || now != before+2 || ps[1].code() != 0 || ps[1].newNodes() != "" ||
			!strings.Contains(strings.Join(ps[1].capture.Notes, "\n"), "no nodes are added: an earlier capture added pool1_4, pool1_5") {
			t.Errorf("capacity %d after %d and --grow 2 twice; the second: exit %d, %s, %q", now, before, ps[1].code(), ps[1].newNodes(), ps[1].capture.Notes)
		}
	})
}

// A seed found that a capture after another process's adds the nodes again.
func TestOutcomeSeedAD964(t *testing.T) {
	s := Story{Seed: 0xad964, Pool: with(func(p *Pool) { p.NVMe = true }), Asks: []Ask{{Do: "capture", Grow: 2}}, Happen: []Event{
		{At: "azure DELETE galleries/SIG_azsim/images/kamino-pool1-prototype/versions/1999.12.11", N: 1, What: "refused"},
		{At: putJournal, N: 1, What: "laptop sleeps and another ortet begins", For: 303e9}}}
	if r := play(t, s); len(r.violations) > 0 {
		t.Error(explain(s, r))
	}
}

// A capacity that is there is not raised again because others keep the scale set updating.
func TestOutcomeCapacityOfABusySetIsAskedForOnce(t *testing.T) {
	s := Story{Seed: 0x7a3cd, Pool: Pool{Instances: 4, Versions: 3, Extensions: []string{"monitor", "cse"}, Pods: 1, Budgeted: 1, Daemons: 1, Bad: "no boot"},
		Asks: []Ask{{Do: "capture", Grow: 3, History: 2}, {Do: "watch", Bad: "delete"}}, Happen: []Event{
			{At: putJournal, N: 56, What: "laptop sleeps and another ortet begins", For: 303e9},
			{At: "azure GET virtualMachineScaleSets/pool1", N: 25, What: "autoscaler adds a node"}}}
	if r := play(t, s); len(r.violations) > 0 {
		t.Error(explain(s, r))
	}
}

// A capture that is resumed with another --grow adds and reports what its own was.
func TestOutcomeResumedWithAnotherGrow(t *testing.T) {
	s := Story{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Grow: 3, Once: true}}, Happen: at(patchModel, 1, "kill after")}
	asked(t, s, func(w *world, ps []*process) {
		if p, now := ps[1], w.modelNow().capacity; p.code() != 0 || !p.capture.Resumed || now != int64(s.Pool.Instances) || p.newNodes() != "" {
			t.Errorf("exit %d, resumed %t, capacity %d, new nodes %q", p.code(), p.capture.Resumed, now, p.newNodes())
		}
	})
}

// Where others chose another image before the capacity, no node is added: those would be of that
// image, and the same command would add as many again.
func TestOutcomeNoNewNodesOfAnotherImage(t *testing.T) {
	for _, s := range []Story{
		{Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 2}}, Happen: at(patchModel, 2, "model changed by others")},
		{Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 2, Once: true}}, Happen: at(patchModel, 2, "model changed by others")},
	} {
		asked(t, s, func(w *world, ps []*process) {
			wants := "the model names Canonical:ubuntu-24_04-lts:server:" // and its version
			if text := fmt.Sprint(ps[0].err); ps[0].code() != workflow.ExitNeedsPerson || !strings.Contains(text, wants) || !strings.Contains(text, "no node was added") ||
				!strings.Contains(text, "new nodes of pool1 come from Canonical:") || ps[0].newNodes() != "" {
				t.Errorf("exit %d, new nodes %q: %v", ps[0].code(), ps[0].newNodes(), text)
			}
			before, now, last := int64(s.Pool.Instances), w.modelNow().capacity, ps[len(ps)-1]
			switch {
			case s.Asks[0].Once && now != before:
				t.Errorf("capacity %d after %d", now, before)
			case !s.Asks[0].Once && (now != before+2 || last.code() != 0 || strings.Count(last.newNodes(), "true") != 2):
				t.Errorf("the same command: exit %d, capacity %d after %d, new nodes %q: %v", last.code(), now, before, last.newNodes(), last.err)
			}
		})
	}
}

// Nodes of a version that was deleted are not those of the next capture on the same day: it adds its
// own, and a watch judges these.
func TestOutcomeNodesOfADeletedVersion(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		inCaptured(t, badPool("no join", nil), 2, nil, func(t *testing.T, w *world) {
			w.deleted(w.names.Definition.Child("versions", badVersion), galleryAPI)
			w.until(t, "deleted", func() bool { return w.versions()[low(w.names.Definition.Child("versions", badVersion))] == nil })
			w.mend(0)
			before := w.modelNow().capacity
			p := w.do(t, Ask{Do: "capture", Grow: 2})
			if now := w.modelNow().capacity; p.code() != workflow.ExitDone || now != before+2 || len(p.capture.NewNodes) != 2 || p.capture.Version.Name() == badVersion {
				t.Errorf("exit %d: version %s with new nodes %q, capacity %d after %d and --grow 2; %v", p.code(), p.capture.Version.Name(), p.newNodes(), now, before, p.err)
			}
			w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitDone, watch.Proven)
		})
	})
	t.Run("not in use", func(t *testing.T) {
		inCaptured(t, usual, 2, nil, func(t *testing.T, w *world) {
			first := w.names.Definition.Child("versions", badVersion)
			if err := w.setImage("1999.12.25", "others"); err != nil {
				t.Fatal(err)
			}
			for _, i := range w.instancesOf(first) {
				w.deleteInstances(w.pool, path.Base(i.id))
			}
			w.until(t, "not in use", func() bool { return len(w.instancesOf(first)) == 0 })
			w.deleted(first, galleryAPI)
			w.until(t, "deleted", func() bool { return w.versions()[low(first)] == nil })
			before := w.modelNow().capacity
			p := w.do(t, Ask{Do: "capture", Grow: 2})
			if now := w.modelNow().capacity; p.code() != workflow.ExitDone || now != before+2 || len(p.capture.NewNodes) != 2 {
				t.Errorf("exit %d: new nodes %q, capacity %d after %d and --grow 2; %v, %q", p.code(), p.newNodes(), now, before, p.err, p.capture.Notes)
			}
		})
	})
}
