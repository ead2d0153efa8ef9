package simulate

import (
	"cmp"
	"regexp"
	"strings"
	"testing"
)

// watched is a capture that adds two nodes, and the watch of what it made.
func watched(bad, nodes string) Story {
	return Story{Name: "watch of nodes that are " + cmp.Or(bad, "good"), Seed: 7, Pool: with(func(p *Pool) { p.Daemons, p.Bad = 1, bad }),
		Asks: []Ask{{Do: "capture", Grow: 2}, {Do: "watch", Bad: nodes}}}
}

// TestWatch watches versions whose nodes come up, and do not. The judge sees to the outcome.
func TestWatch(t *testing.T) {
	for _, bad := range []string{"", "no boot", "slow", "no join", "twin", "daemon"} {
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
			before := s
			before.Asks = s.Asks[:1]
			events := cases(plain.requests[len(play(t, before).requests):])
			if !*sweepAll {
				events = sample(events)
			}
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
