package simulate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// donorOf is the node that an ask captures: the one that was raised last, if it raises one.
func (w *world) donorOf(ask Ask) (name string) {
	name = w.nodeName(ask.Node)
	w.locked(func() {
		if ask.Fresh && len(w.fresh) > 0 {
			name = w.fresh[len(w.fresh)-1]
		} else if ask.Fresh {
			name = "no fresh donor yet"
		}
	})
	return name
}

func freshStory() Story {
	return Story{Name: "fresh donor", Seed: 1, Pool: with(func(p *Pool) { p.Machines = false }), Asks: []Ask{{Do: "capture", Fresh: true}}}
}

var showRequests = flag.Bool("fresh-requests", false, "TestFresh lists all requests")

// A fresh donor costs no more than the issue of a capture allows, on both kinds of scale sets.
func TestFresh(t *testing.T) {
	for _, s := range []Story{freshStory(), onFlexible(freshStory())} {
		t.Run(s.Name, func(t *testing.T) {
			r := play(t, s)
			if len(r.violations) > 0 {
				t.Fatal(explain(s, r))
			}
			plain := s
			plain.Asks = []Ask{{Do: "capture"}}
			with, without := costOf(t, r), costOf(t, play(t, plain))
			t.Logf("fresh: %.0f requests to Azure, %.0f to the API server, %.0f s; of a named node: %.0f, %.0f, %.0f", with[0], with[1], with[2], without[0], without[1], without[2])
			for i, limit := range []float64{60, 60, 270} {
				if more := with[i] - without[i]; more > limit {
					t.Errorf("a fresh donor adds %.0f of %s, want at most %.0f", more, []string{"requests to Azure", "requests to the API server", "seconds"}[i], limit)
				}
			}
			for _, l := range r.trace {
				for _, what := range []string{"PATCH virtualMachineScaleSets/pool1 ", "POST virtualMachineScaleSets/pool1/delete", "powerOff", "PUT snapshots/snapshot_pool1 ", "ends:"} {
					if *showRequests || strings.Contains(l, what) {
						t.Log(l)
						break
					}
				}
			}
		})
	}
}

// TestFreshKilled kills the process before and after each write, and at each a neighbour acts.
func TestFreshKilled(t *testing.T) {
	for _, s := range []Story{freshStory(), onFlexible(freshStory())} {
		t.Run(s.Name, func(t *testing.T) {
			plain := play(t, s)
			if len(plain.violations) > 0 {
				t.Fatal(explain(s, plain))
			}
			var all []Story
			for i, e := range cases(plain.requests) {
				if *sweepAll || i%13 == 0 || strings.HasPrefix(e.What, "kill") && i%3 == 0 || strings.HasPrefix(e.What, "autoscaler") && e.N%5 == 1 || e.What == "interrupt" && i%3 == 0 {
					one := s
					one.Happen = []Event{e}
					if e.What == "version deleted" && cannotRaise(play(t, one)) {
						continue
					}
					all = append(all, one)
				}
			}
			t.Logf("%d plays", len(all))
			playAll(t, all)
		})
	}
}

// TestFreshSeeds plays captures that raise their donor with two to four events, on both kinds of scale sets.
func TestFreshSeeds(t *testing.T) {
	from := []Story{freshStory(), onFlexible(freshStory())}
	for _, change := range []func(*Story){
		func(s *Story) { s.Name, s.Asks[0].Prepare = "prepared", "restart" },
		func(s *Story) { s.Name, s.Asks[0].Prepare, s.Pool.Spot = "patched, Spot", "patch", true },
		func(s *Story) { s.Name, s.Asks[0].Canary, s.Asks[0].Grow = "canary", 2, 1 },
		func(s *Story) { s.Name, s.Pool.Instances, s.Pool.Neighbour = "pool at zero", 0, 2 },
		func(s *Story) { s.Name, s.Pool.Spelling, s.Pool.Zones, s.Pool.Instances = "k3s, zones", "k3s", 2, 4 },
		func(s *Story) { s.Name, s.Asks[0].Deallocate = "deallocated", true },
		func(s *Story) { s.Name, s.Asks = "rollback", append(s.Asks, Ask{Do: "rollback"}) },
	} {
		s := freshStory()
		change(&s)
		from = append(from, s, onFlexible(s))
	}
	events := make([][]Event, len(from))
	var all []Story
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		random := rand.New(rand.NewPCG(seed, 2)) // #nosec G404 -- the same at every run
		i := random.IntN(len(from))
		if events[i] == nil {
			events[i] = cases(plainly(t, from[i]).requests)
		}
		s := from[i]
		s.Seed = seed
		for range 2 + random.IntN(3) {
			s.Happen = append(s.Happen, events[i][random.IntN(len(events[i]))])
		}
		s.Pool.Surplus = !s.Pool.Flexible && random.IntN(3) == 0
		if !slices.ContainsFunc(s.Happen, func(e Event) bool { return e.What == "version deleted" }) || !cannotRaise(play(t, s)) {
			all = append(all, s)
		}
	}
	playAll(t, all)
}

// cannotRaise reports whether others deleted the version that the model names: no machine is made of it,
// and only the capture of a named node helps.
func cannotRaise(r result) bool {
	return slices.ContainsFunc(r.trace, func(l string) bool {
		return strings.Contains(l, "ends: 1 step raise: set capacity") && strings.Contains(l, "404 GalleryImageNotFound")
	})
}

// The record names the donor before its Node shows it: whoever finds that is told the command that undoes all.
func TestFreshChoice(t *testing.T) {
	for _, s := range []Story{freshStory(), onFlexible(freshStory())} {
		synctest.Test(t, func(t *testing.T) {
			s.Happen = at("kube PATCH nodes/pool1000004", 1, "kill after")
			w := newWorld(s)
			defer w.close()
			config, _ := w.of(t, namespace)
			w.pursue(0, Ask{Do: "capture", Fresh: true, Once: true})
			time.Sleep(2 * leaseFor)
			all, err := capture.New(config).Status(t.Context(), []fleet.ResourceID{w.pool})
			if err != nil || len(all[0].Fresh) != 1 || !strings.HasPrefix(all[0].Fresh[0].Delete, "ortet capture --abandon ") {
				t.Errorf("%+v: %v", all[0].Fresh, err)
			}
		})
	}
}

// TestFreshPools captures fresh donors of other pools, and beside other commands.
func TestFreshPools(t *testing.T) {
	without := func(change func(*Pool)) Pool { return with(func(p *Pool) { p.Machines = false; change(p) }) }
	ask := Ask{Do: "capture", Fresh: true}
	for _, s := range []Story{
		{Name: "overprovisioned", Seed: 3, Pool: without(func(p *Pool) { p.Surplus = true }), Asks: []Ask{ask}},
		{Name: "surplus deleted late", Seed: 19, Pool: without(func(p *Pool) { p.Surplus = true }), Asks: []Ask{ask}},
		{Name: "surplus deleted as it is judged", Seed: 0xe8, Pool: without(func(p *Pool) { p.Surplus = true }), Asks: []Ask{ask}},
		{Name: "k3s", Seed: 4, Pool: without(func(p *Pool) { p.Spelling = "k3s" }), Asks: []Ask{ask}},
		{Name: "zones", Seed: 5, Pool: without(func(p *Pool) { p.Zones, p.Instances = 3, 6 }), Asks: []Ask{ask}},
		{Name: "twice", Seed: 6, Pool: without(func(*Pool) {}), Asks: []Ask{ask, ask}, Single: "azure POST virtualMachineScaleSets/pool1/delete"},
		{Name: "canary", Seed: 7, Pool: without(func(*Pool) {}), Asks: []Ask{{Do: "capture", Fresh: true, Canary: 2}}},
		{Name: "publish only", Seed: 8, Pool: without(func(*Pool) {}), Asks: []Ask{{Do: "capture", Fresh: true, PublishOnly: true}}},
		{Name: "rollback", Seed: 9, Pool: without(func(*Pool) {}), Asks: []Ask{ask, {Do: "rollback"}}},
		{Name: "first", Seed: 10, Pool: without(func(p *Pool) { p.Versions = 0 }), Asks: []Ask{ask}},
		{Name: "again", Seed: 11, Pool: without(func(*Pool) {}), Asks: []Ask{ask, {Do: "capture", Fresh: true, Again: true}}},
		{Name: "grow", Seed: 12, Pool: without(func(*Pool) {}), Asks: []Ask{{Do: "capture", Fresh: true, Canary: 2, Grow: 2}}},
		{Name: "after a version that was only published", Seed: 13, Pool: without(func(*Pool) {}), Asks: []Ask{{Do: "capture", Fresh: true, PublishOnly: true}, ask},
			Single: "azure POST virtualMachineScaleSets/pool1/delete"},
	} {
		t.Run(s.Name, func(t *testing.T) {
			if r := play(t, s); len(r.violations) > 0 {
				t.Error(explain(s, r))
			}
		})
	}
}

// TestFreshEnds has a donor that cannot be raised or kept: all is undone, and the same command ends well once it can.
func TestFreshEnds(t *testing.T) {
	without := func(change func(*Pool)) Pool { return with(func(p *Pool) { p.Machines = false; change(p) }) }
	ask := Ask{Do: "capture", Fresh: true}
	ends := func(exit int) []Ask { return []Ask{{Do: "capture", Fresh: true, Exit: exit, Once: true}} }
	poll, deletion := "azure GET operation-of-PATCH-virtualMachineScaleSets/pool1", "azure POST virtualMachineScaleSets/pool1/delete"
	for _, s := range []Story{
		{Name: "pool at zero", Seed: 1, Pool: Pool{Neighbour: 2, Versions: 3}, Asks: []Ask{ask}},
		{Name: "pool at zero, never captured", Seed: 2, Pool: Pool{Neighbour: 2}, Asks: []Ask{ask}},
		{Name: "pool at zero without a workbench", Seed: 3, Pool: Pool{Versions: 3}, Asks: ends(3), Cannot: "NoWorkbench"},
		{Name: "no zone with a workbench", Seed: 4, Pool: Pool{Instances: 2, Zones: 2, Others: "cordoned", Cordoned: true}, Asks: ends(3), Cannot: "NoWorkbench"},
		{Name: "one zone without a workbench", Seed: 5, Pool: Pool{Instances: 1, Zones: 2}, Asks: ends(1), Cannot: "no other node can work on a copy of its disk"},
		{Name: "Cluster API", Seed: 6, Pool: without(func(p *Pool) { p.Owned = true }), Asks: ends(3), Cannot: "OwnedByClusterAPI"},
		{Name: "online", Seed: 7, Pool: without(func(*Pool) {}), Asks: []Ask{{Do: "capture", Fresh: true, Online: true, Exit: 3, Once: true}}, Cannot: "FreshAndOnline"},
		{Name: "deallocated Spot", Seed: 8, Pool: without(func(p *Pool) { p.Spot = true }), Asks: []Ask{{Do: "capture", Fresh: true, Deallocate: true, Exit: 3, Once: true}}, Cannot: "SpotDeallocate"},
		{Name: "evicted while it is judged", Seed: 9, Pool: without(func(p *Pool) { p.Spot = true }), Asks: []Ask{ask}, Happen: []Event{{At: poll, N: 3, What: "instance deleted", Target: "donor"}}},
		{Name: "evicted while its copy is made", Seed: 10, Pool: without(func(p *Pool) { p.Spot = true }), Asks: []Ask{ask}, Happen: []Event{{At: "azure PUT snapshots/snapshot_pool1", N: 1, What: "instance deleted", Target: "donor"}}},
		{Name: "uncordoned while it is judged", Seed: 11, Pool: without(func(*Pool) {}), Asks: []Ask{ask}, Happen: []Event{{At: poll, N: 3, What: "uncordoned", Target: "donor"}}},
		{Name: "killed once it is up, two days later", Seed: 14, Pool: without(func(*Pool) {}), Asks: []Ask{{Do: "capture", Fresh: true, Once: true}, {Do: "wait", For: 2 * day}, ask}, Happen: []Event{{At: "kube POST ortet-system/pods", N: 1, What: "kill after"}}},
		{Name: "autoscaler adds a node at the PATCH", Seed: 16, Pool: without(func(*Pool) {}), Asks: []Ask{ask}, Happen: at("azure PATCH virtualMachineScaleSets/pool1", 1, "autoscaler adds a node")},
		{Name: "a read fails as the donor is up", Seed: 17, Pool: without(func(*Pool) {}), Asks: []Ask{ask}, Single: deletion, Happen: []Event{{At: "azure GET galleries/SIG_azsim", N: 2, What: "away for 20 minutes", For: 4 * time.Minute}}},
		{Name: "two workbenches are lost", Seed: 19, Pool: without(func(p *Pool) { p.Instances = 6 }), Asks: []Ask{ask}, Single: deletion, Happen: []Event{
			{At: getPod, N: 2, What: "instance stopped", Target: "workbench"}, {At: "kube POST ortet-system/pods", N: 3, What: "instance stopped", Target: "workbench"}}},
		{Name: "preserve_hostname on its disk", Seed: 20, Pool: without(func(p *Pool) { p.Disk = "preserve" }), Asks: ends(1), Cannot: "mend it with --prepare"},
		{Name: "stopped by others, and interrupted", Seed: 0x29a, Pool: without(func(*Pool) {}), Asks: []Ask{ask}, Happen: []Event{{At: putJournal, N: 8, What: "instance stopped", Target: "donor"}, {At: putJournal, N: 28, What: "interrupt"}}},
		{Name: "secrets on its disk", Seed: 18, Pool: without(func(p *Pool) { p.Disk = "secrets" }), Asks: ends(1), Cannot: "remove them with --prepare"},
		{Name: "nodes that do not boot", Seed: 15, Pool: without(func(p *Pool) { p.Bad = "no boot" }), Asks: []Ask{{Do: "capture"}, {Do: "capture", Fresh: true, Again: true, Exit: 1, Once: true}}, Cannot: "the fresh donor did not come up: gate boot"},
	} {
		for _, s := range []Story{s, onFlexible(s)} {
			t.Run(s.Name, func(t *testing.T) {
				r := play(t, s)
				if len(r.violations) > 0 || len(r.missed) > 0 {
					t.Error(explain(s, r), r.missed)
				}
			})
		}
	}
}

// TestFreshKilledThen kills a capture with a fresh donor, and runs another command: no donor is left, and
// the version is live that the command says.
func TestFreshKilledThen(t *testing.T) {
	pool := with(func(p *Pool) { p.Machines = false })
	poll := "azure GET operation-of-PATCH-virtualMachineScaleSets/pool1"
	for when, at := range map[string]Event{"it boots": {At: poll, N: 2}, "it is judged": {At: poll, N: 4}, "it is stopped": {At: "azure PUT snapshots/snapshot_pool1", N: 1}} {
		at.What = "kill after"
		for _, then := range []Ask{{Do: "capture", Fresh: true}, {Do: "capture"}, {Do: "rollback"}} {
			s := Story{Name: fmt.Sprintf("killed while %s, then %+v", when, then), Seed: 12, Pool: pool, Asks: []Ask{{Do: "capture", Fresh: true, Once: true}, then}, Happen: []Event{at}}
			for _, s := range []Story{s, onFlexible(s)} {
				r := play(t, s)
				if len(r.violations) > 0 || len(r.missed) > 0 {
					t.Error(explain(s, r), r.missed)
				}
			}
		}
	}
}

// A Ctrl-C once the donor is up says that it stays, and how it is deleted.
func TestFreshInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Machines = false })})
		defer w.close()
		p, err := w.start(Ask{Do: "capture", Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(270 * time.Second)
		p.interrupt()
		<-p.done
		want := "the fresh donor pool1000004 stays, cordoned (ortet capture --abandon " + string(w.pool) + " deletes it)"
		if p.code() != workflow.ExitInterrupted || !strings.Contains(fmt.Sprint(p.err), want) {
			t.Errorf("exit %d, %v; want %q", p.code(), p.err, want)
		}
	})
}

// A capture whose donor others deleted says so: auto mode raises another then.
func TestFreshDonorLost(t *testing.T) {
	for at, want := range map[string]bool{"azure GET operation-of-PATCH-virtualMachineScaleSets/pool1": true, "azure PUT snapshots/snapshot_pool1": true, "": false} {
		synctest.Test(t, func(t *testing.T) {
			s := Story{Seed: 9, Pool: with(func(p *Pool) { p.Machines, p.Spot = false, true })}
			if n := 1 + 2*strings.Count(at, "PATCH"); at != "" {
				s.Happen = []Event{{At: at, N: n, What: "instance deleted", Target: "donor"}}
			}
			w := newWorld(s)
			defer w.close()
			p, err := w.start(Ask{Do: "capture", Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			if <-p.done; p.capture.DonorLost != want || p.code() == workflow.ExitDone == want {
				t.Errorf("%s: lost %t, %v", at, p.capture.DonorLost, p.err)
			}
		})
	}
}

// A donor that has no room in the quota is not raised. A canary that a pool's capture adds by itself is left out instead.
func TestFreshQuota(t *testing.T) {
	for name, c := range map[string]struct {
		cores  int
		ask    Ask
		canary bool // is made
		exit   int
	}{
		"none left":                     {8, Ask{Do: "capture", Fresh: true}, false, workflow.ExitRefused},
		"room for the donor":            {10, Ask{Do: "capture", Fresh: true}, false, workflow.ExitDone},
		"a canary that is asked for":    {12, Ask{Do: "capture", Fresh: true, Canary: 2}, false, workflow.ExitRefused},
		"a canary where it is possible": {12, Ask{Do: "capture", Fresh: true, Canary: 2, Auto: true}, false, workflow.ExitDone},
		"room for all":                  {14, Ask{Do: "capture", Fresh: true, Canary: 2}, true, workflow.ExitDone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Machines = false })}) // four machines of two cores
				defer w.close()
				w.azure.Quota = map[string]int{"cores": c.cores}
				p, err := w.start(c.ask)
				if err != nil {
					t.Fatal(err)
				}
				<-p.done
				made := strings.Contains(strings.Join(w.lines, "\n"), putCanary)
				if p.code() != c.exit || made != c.canary || c.exit == workflow.ExitRefused && (!workflow.RefusedFor(p.err, "FreshQuota") || p.changes.Load() > 0) {
					t.Errorf("exit %d, want %d; a canary is made: %t: %v", p.code(), c.exit, made, p.err)
				}
			})
		})
	}
}

// The donor is none of the nodes that a capture adds, and the capacity is what there was and those.
func TestFreshGrows(t *testing.T) {
	for _, flexible := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Machines, p.Flexible = false, flexible })})
			defer w.close()
			show := func(when string) {
				var ids []string
				for _, i := range w.instancesOf("") {
					ids = append(ids, i.name)
				}
				t.Logf("%s: capacity %d, instances %s", when, w.modelNow().capacity, strings.Join(ids, ", "))
			}
			show("before")
			p, err := w.start(Ask{Do: "capture", Fresh: true, Canary: 2, Grow: 2})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Minute)
			show("while the donor is up")
			<-p.done
			show("after")
			for _, n := range p.capture.NewNodes {
				t.Logf("new node %s, Ready: %t", n.Node, n.Ready)
				if n.Node == p.capture.Donor || !n.Ready {
					t.Errorf("%+v is no new node", n)
				}
			}
			if now := w.modelNow().capacity; p.err != nil || now != 6 || len(p.capture.NewNodes) != 2 || len(w.instancesOf("")) != 6 {
				t.Errorf("capacity %d, want 6; %d new nodes; %v", now, len(p.capture.NewNodes), p.err)
			}
		})
	}
}
