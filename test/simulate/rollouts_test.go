package simulate

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/workflow"
)

// rolloutDeeds are what neighbours of a rollout do.
var rolloutDeeds = []Event{
	{What: "autoscaler adds a node"},
	{What: "autoscaler deletes empty nodes"},
	{What: "kured reboots", For: 5 * time.Minute},
	{What: "kured waits", Target: "last"},
	{What: "instance deleted", Target: "donor"},
	{What: "instance deleted", Target: "last"},
	{What: "instance stopped", Target: "donor"},
	{What: "instance stopped", Target: "last"},
	{What: "instance restarted", Target: "donor"},
	{What: "instance upgraded", Target: "donor"},
	{What: "instance upgraded", Target: "last"},
	{What: "cordoned", Target: "donor"},
	{What: "cordoned", Target: "last"},
	{What: "uncordoned", Target: "donor"},
	{What: "node deleted", Target: "donor"},
	{What: "node deleted", Target: "last"},
	{What: "does not come back", Target: "donor"},
	{What: "does not come back", Target: "last"},
	{What: "model changed by others"},
	{What: "person rolls back"},
	{What: "capture begins"},
	{What: "another ortet"},
	{What: "laptop sleeps", For: 303 * time.Second},
	{What: "laptop sleeps", For: 2 * time.Hour},
	{What: "laptop sleeps and another ortet begins", For: 303 * time.Second},
}

// aging is a pool whose nodes are of the oldest version, and whose model names the newest.
func aging(change func(*Pool)) Pool {
	p := Pool{Instances: 3, Versions: 3, Old: 3, Kured: true, Pods: 1, Budgeted: 1, Daemons: 1}
	if change != nil {
		change(&p)
	}
	return p
}

var aRollout = []Ask{{Do: "rollout"}}

// rolledOut are the stories of the sweep over rollouts.
var rolledOut = []Story{
	{Name: "rollout", Seed: 1, Pool: aging(nil), Asks: aRollout},
	{Name: "rollout, two at a time", Seed: 2, Pool: aging(func(p *Pool) { p.Instances, p.Old = 4, 4 }), Asks: []Ask{{Do: "rollout", Budget: "2"}}},
	{Name: "rollout on k3s, half at a time", Seed: 3, Pool: aging(func(p *Pool) { p.Spelling = "k3s" }), Asks: []Ask{{Do: "rollout", Budget: "50%"}}},
	{Name: "Flexible: rollout", Seed: 4, Pool: aging(func(p *Pool) { p.Flexible = true }), Asks: aRollout},
}

const (
	upgrade    = "azure POST virtualMachineScaleSets/pool1/manualupgrade"
	patchNode0 = "kube PATCH nodes/pool1000000"
)

// TestRollouts plays rollouts of other pools, and what happens between commands.
func TestRollouts(t *testing.T) {
	for _, s := range slices.Concat(rolledOut, []Story{
		{Name: "latest of a gallery", Seed: 11, Pool: aging(func(p *Pool) { p.Latest = true }), Asks: aRollout},
		{Name: "model A, B, A", Seed: 12, Pool: aging(func(p *Pool) { p.Old = 0 }), Asks: []Ask{{Do: "set image", To: "1999.12.18"}, {Do: "set image", To: "1999.12.25"}, {Do: "rollout"}}},
		{Name: "budget of pods that allows none", Seed: 13, Pool: aging(func(p *Pool) { p.Blocked = true }), Asks: aRollout},
		{Name: "pods that take longer than the drain may", Seed: 14, Pool: aging(func(p *Pool) { p.PodsTake = 20 * time.Minute }), Asks: aRollout},
		{Name: "budget of pods that allows one later", Seed: 15, Pool: aging(func(p *Pool) { p.Tight = 5 * time.Minute }), Asks: aRollout},
		{Name: "pod without a controller", Seed: 16, Pool: aging(func(p *Pool) { p.Unmanaged = true }), Asks: aRollout},
		{Name: "first node cordoned by its owners", Seed: 17, Pool: aging(func(p *Pool) { p.Cordoned = true }), Asks: []Ask{{Do: "rollout", Budget: "2"}}},
		{Name: "first node protected by its owners", Seed: 18, Pool: aging(func(p *Pool) { p.Protected = true }), Asks: aRollout},
		{Name: "another pool", Seed: 19, Pool: aging(func(p *Pool) { p.Neighbour = 2 }), Asks: aRollout},
		{Name: "kured reboots another node", Seed: 20, Pool: aging(func(p *Pool) { p.Rebooting = 10 * time.Minute }), Asks: aRollout},
		{Name: "slow boots and a node controller that waits for five minutes", Seed: 22, Pool: aging(func(p *Pool) { p.SlowBoot = 3 * time.Minute }), Asks: aRollout},
		{Name: "DaemonSets that are slow", Seed: 23, Pool: aging(func(p *Pool) { p.SlowDaemons = 3 * time.Minute }), Asks: aRollout},
		{Name: "pages of two", Seed: 25, Pool: aging(func(p *Pool) { p.PageSize = 2 }), Asks: aRollout},
		{Name: "Azure limits requests", Seed: 26, Pool: aging(func(p *Pool) { p.Budgets, p.Instances, p.Old = true, 6, 6 }), Asks: []Ask{{Do: "rollout", Budget: "50%"}}},
		{Name: "a node does not come back", Seed: 27, Pool: aging(nil), Asks: aRollout, Happen: []Event{{At: upgrade, N: 2, What: "does not come back", Target: "last"}}},
		{Name: "two nodes do not come back", Seed: 28, Pool: aging(func(p *Pool) { p.Instances, p.Old = 5, 5 }), Asks: []Ask{{Do: "rollout", Budget: "50%"}},
			Happen: []Event{{At: upgrade, N: 2, What: "does not come back", Target: "last"}, {At: upgrade, N: 2, What: "does not come back", Target: "before last"}}},
		{Name: "killed twice", Seed: 29, Pool: aging(nil), Asks: aRollout, Happen: append(at(upgrade, 1, "kill after"), at(upgrade, 2, "kill before")...)},
		{Name: "killed, and a model that was changed", Seed: 30, Pool: aging(nil), Asks: []Ask{{Do: "rollout", Once: true}, {Do: "set image", To: "1999.12.18"}, {Do: "rollout"}}, Happen: at(upgrade, 2, "kill after")},
		{Name: "killed, and its node is upgraded by a person", Seed: 31, Pool: aging(nil), Asks: aRollout, Happen: append(at(upgrade, 1, "kill before"), Event{At: "kube GET nodes", N: 5, What: "instance upgraded", Target: "donor"})},
		{Name: "the API server away for 90 minutes", Seed: 32, Pool: aging(nil), Asks: aRollout, Happen: []Event{{At: patchNode0, N: 2, What: "away for 20 minutes", For: 90 * time.Minute}}},
		{Name: "Azure away for 90 minutes", Seed: 33, Pool: aging(nil), Asks: aRollout, Happen: []Event{{At: upgrade, N: 1, What: "away for 20 minutes", For: 90 * time.Minute}}},
		{Name: "the API server away before the first node is begun, for 90 minutes", Seed: 34, Pool: aging(nil), Asks: aRollout, Happen: []Event{{At: patchNode0, N: 1, What: "away for 20 minutes", For: 90 * time.Minute}}},
		{Name: "another node goes down while the API server is away", Seed: 35, Pool: aging(nil), Asks: aRollout,
			Happen: []Event{{At: patchNode0, N: 1, What: "instance stopped", Target: "last"}, {At: patchNode0, N: 1, What: "away for 20 minutes"}}},
		{Name: "a capture, then a rollout", Seed: 36, Pool: aging(nil), Asks: []Ask{{Do: "capture", Node: 2}, {Do: "rollout"}, {Do: "rollback"}, {Do: "rollout"}}},
		{Name: "interrupted while a node waits for another's upgrade", Seed: 2, Pool: aging(func(p *Pool) { p.Instances, p.Old = 4, 4 }), Asks: []Ask{{Do: "rollout", Budget: "2"}},
			Happen: at("azure GET operation-of-POST-virtualMachineScaleSets/pool1/manualupgrade", 12, "interrupt")},
		{Name: "killed, with a budget of two", Seed: 38, Pool: aging(func(p *Pool) { p.Instances, p.Old = 4, 4 }), Asks: []Ask{{Do: "rollout", Budget: "2"}}, Happen: at(upgrade, 2, "kill after")},
		{Name: "conflict at the cordon", Seed: 39, Pool: aging(nil), Asks: aRollout, Happen: at(patchNode0, 1, "conflict")},
		{Name: "conflict at the return", Seed: 40, Pool: aging(nil), Asks: aRollout, Happen: append(at(patchNode0, 2, "conflict"), at(patchNode0, 3, "conflict")...)},
		{Name: "a Node says that it is another machine", Seed: 41, Pool: aging(nil), Asks: aRollout, Happen: at("kube GET nodes/pool1000000", 1, "donor says that it is another machine")},
		{Name: "protected once it is begun", Seed: 42, Pool: aging(nil), Asks: aRollout, Happen: append(at(upgrade, 1, "kill after"), Event{At: "kube GET nodes", N: 4, What: "owners protect the instance", Target: "donor"})},
		{Name: "a person cordons the next node", Seed: 43, Pool: aging(nil), Asks: aRollout, Happen: []Event{{At: upgrade, N: 1, What: "cordoned", Target: "last"}}},
		{Name: "a person cordons the node that is begun", Seed: 44, Pool: aging(nil), Asks: aRollout, Happen: []Event{{At: patchNode0, N: 1, What: "cordoned", Target: "donor"}}},
		{Name: "forbidden to mark", Seed: 37, Pool: aging(nil), Asks: aRollout, Happen: at(patchNode0, 1, "forbidden")},
	}) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := play(t, s)
			if len(r.violations) > 0 || len(r.missed) > 0 {
				t.Errorf("missed %+v\n%s", r.missed, explain(s, r))
			}
			for _, l := range r.trace {
				if *verbose || strings.Contains(l, "ends:") || strings.Contains(l, "begins:") {
					t.Log(l)
				}
			}
		})
	}
}

// TestSweepRollout plays rollouts with one event at each of their requests.
func TestSweepRollout(t *testing.T) {
	begun, plays := time.Now(), 0
	for _, s := range rolledOut {
		t.Run(s.Name, func(t *testing.T) {
			plain := play(t, s)
			if len(plain.violations) > 0 {
				t.Fatal(explain(s, plain))
			}
			var all []Story
			for i, e := range casesOf(plain.requests, rolloutDeeds) {
				if !*sweepAll && (i+int(s.Seed))%131 != 0 || !strings.Contains(e.At+" "+e.What, *only) {
					continue
				}
				one := s
				one.Happen = []Event{e}
				all = append(all, one)
			}
			plays += len(all)
			playAll(t, all)
		})
	}
	if !t.Failed() {
		t.Logf("sweep over rollouts: %d plays in %.1f s, 0 with violations", plays, time.Since(begun).Seconds())
	}
}

// Nodes are begun while the window is open: two fit into ten minutes, the third waits for the next day.
func TestRolloutWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := Ask{Do: "rollout", Window: "0 1 * * *", For: 6 * time.Minute}
		w := newWorld(Story{Seed: 1, Pool: aging(nil), Asks: []Ask{ask}})
		defer w.close()
		renewed := []int{}
		for range 4 {
			p, err := w.start(ask)
			if err != nil {
				t.Fatal(err)
			}
			<-p.done
			w.checkEnd(p)
			if p.code() != workflow.ExitDone || len(renewed) < 2 && !strings.Contains(p.renew.Waiting, "when the window opens, at ") {
				t.Errorf("exit %d: %+v, %v", p.code(), p.renew, p.err)
			}
			renewed = append(renewed, len(p.renew.Renewed))
			at := time.Now().Truncate(24 * time.Hour).Add(time.Hour)
			if !at.After(time.Now()) {
				at = at.Add(24 * time.Hour)
			}
			time.Sleep(time.Until(at))
		}
		if !slices.Equal(renewed, []int{0, 2, 1, 0}) || len(w.violations) > 0 {
			t.Errorf("renewed %v; %v", renewed, w.violations)
		}
	})
}
