package simulate

import (
	"cmp"
	"regexp"
	"strings"
	"testing"
	"time"
)

// watched is a capture that adds two nodes, and the watch of what it made.
func watched(bad, nodes string) Story {
	return Story{Name: "watch of nodes that are " + cmp.Or(bad, "good"), Seed: 7, Pool: with(func(p *Pool) { p.Daemons, p.GPUs, p.Bad = 1, true, bad }),
		Asks: []Ask{{Do: "capture", Grow: 2}, {Do: "watch", Bad: nodes}}}
}

// TestWatch watches versions whose nodes come up, and do not. The judge sees to the outcome.
func TestWatch(t *testing.T) {
	for _, bad := range []string{"", "no boot", "slow", "no join", "twin", "daemon", "no GPU"} {
		for _, nodes := range []string{"cordon", "delete"} {
			s := watched(bad, nodes)
			t.Run(s.Name+", "+nodes, func(t *testing.T) {
				t.Parallel()
				r := play(t, s)
				if len(r.violations) > 0 {
					t.Fatal(explain(s, r))
				}
				for _, l := range r.trace {
					if strings.Contains(l, " ends: ") {
						t.Log(l)
					}
				}
			})
		}
	}
	for nodes, bad := range map[string]string{"cordon": "", "delete": "no join"} {
		s := onFlexible(watched(bad, nodes))
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, s); len(r.violations) > 0 {
				t.Fatal(explain(s, r))
			}
		})
	}
}

// TestSweepWatch plays them with one event at each request of the watch.
func TestSweepWatch(t *testing.T) {
	match := regexp.MustCompile(*only)
	for _, s := range []Story{watched("", "cordon"), watched("no join", "delete")} {
		t.Run(s.Name, func(t *testing.T) {
			plain := play(t, s)
			if len(plain.violations) > 0 {
				t.Fatal(explain(s, plain))
			}
			events := cases(plain.requests[plain.asked[1]:])
			if !*sweepAll {
				events = sample(events, 1)
			}
			events = append(events, personsBeside(plain.requests[plain.asked[1]:])...)
			var all []Story
			for _, e := range events {
				if match.MatchString(e.What) {
					one := s
					one.Happen = []Event{e}
					all = append(all, one)
				}
			}
			playAll(t, all)
		})
	}
}

// personsBeside returns deeds of persons at each third of the requests of a watch; with -sweep at each.
func personsBeside(requests []request) (all []Event) {
	for _, what := range []string{"person brings the version back", "version deleted", "cordoned"} {
		for i, r := range requests {
			if *sweepAll || i%3 == len(what)%3 && (r.write() || r.n <= 12) {
				all = append(all, Event{At: r.name, N: r.n, What: what})
			}
		}
	}
	return all
}

// watches are stories of watches that were not finished, or that come late, with how the last
// command ends.
var watches = map[string]Story{
	"<nil>": {Name: "watch of a pool that has grown since", Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }),
		Asks: []Ask{{Do: "capture", Grow: 25}, {Do: "wait", For: 2 * time.Hour}, {Do: "watch", Once: true}}},
	"join: pool1_4 runs and has no Node": {Name: "watch again, a day later", Seed: 7, Pool: with(func(p *Pool) { p.Bad = "no join" }),
		Asks:   []Ask{{Do: "capture"}, {Do: "watch", Once: true}, {Do: "wait", For: day}, {Do: "watch"}},
		Happen: at("azure PATCH galleries/SIG_azsim/images/kamino-pool1-prototype/versions/2000.01.01", 3, "autoscaler adds a node")},
	"new nodes come from 1999.12.25": {Name: "watch killed after its rollback, while bad nodes may still join", Seed: 7,
		Pool:   with(func(p *Pool) { p.Daemons, p.Bad = 1, "slow" }),
		Asks:   []Ask{{Do: "capture", Grow: 2}, {Do: "watch", Once: true}, {Do: "wait", For: 30 * time.Minute}, {Do: "watch"}},
		Happen: at("kube DELETE ortet-system/leases/ortet-pool1-fd34c415d62c", 3, "kill after")}, // the second is of the finding
	"come from 1999.12.25": {Name: "watch killed after its quarantine, while bad nodes may still join", Seed: 7,
		Pool:   with(func(p *Pool) { p.Daemons, p.Bad = 1, "slow" }),
		Asks:   []Ask{{Do: "capture", Grow: 2}, {Do: "watch", Once: true}, {Do: "wait", For: 30 * time.Minute}, {Do: "watch"}},
		Happen: at("azure PATCH galleries/SIG_azsim/images/kamino-pool1-prototype/versions/2000.01.01", 4, "kill after")},
	"new nodes come from 1999.12.18": {Name: "watch killed in its rollback, and another image chosen", Seed: 7,
		Pool:   with(func(p *Pool) { p.Daemons, p.Bad = 1, "no join" }),
		Asks:   []Ask{{Do: "capture", Grow: 2}, {Do: "watch", Once: true}, {Do: "set image", To: "1999.12.18"}, {Do: "watch"}},
		Happen: at(patchModel, 3, "kill before")},
}

func TestWatchesThatDoNotFinish(t *testing.T) {
	for end, s := range watches {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := play(t, s)
			if len(r.violations)+len(r.missed) > 0 {
				t.Fatalf("%d events missed\n%s", len(r.missed), explain(s, r))
			}
			var ends []string
			for _, l := range r.trace {
				if strings.Contains(l, " ends: ") {
					ends = append(ends, l)
				}
			}
			if !strings.Contains(ends[len(ends)-1], end) {
				t.Errorf("want %q:\n%s", end, strings.Join(ends, "\n"))
			}
		})
	}
}
