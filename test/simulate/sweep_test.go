package simulate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	sweepAll  = flag.Bool("sweep", false, "play every case of the sweep, not a sample")
	otherHalf = flag.Bool("rest", false, "play the half of the sweep's sample that is not played without this flag")
	seeds     = flag.Uint64("seeds", 75, "play so many seeds")
	firstSeed = flag.Uint64("first", 1, "the first of the seeds")
	within    = flag.Duration("within", 0, "play so many seeds again and again, for so long")
	only      = flag.String("only", "", "with -sweep, play only cases whose event matches this regular expression")
)

// swept are the stories of the sweep.
var swept = []Story{
	{Name: "sweep capture", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}},
	{Name: "sweep first capture and original", Seed: 2, Pool: Pool{Instances: 3, Extensions: []string{"cse"}, Pods: 1},
		Asks: []Ask{{Do: "capture", Deallocate: true}, {Do: "rollback", To: "original"}}},
	{Name: "sweep resume", Seed: 3, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: at("azure PUT snapshots/snapshot_pool1_generalized", 1, "kill after")},
	{Name: "sweep online", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Grow: 1, History: 2}}},
	{Name: "sweep publish only", Seed: 5, Pool: with(func(p *Pool) { p.Extensions, p.Kind = []string{"monitor"}, "own keys" }), Asks: []Ask{{Do: "capture", PublishOnly: true, Canary: 1}}},
	{Name: "sweep rollback", Seed: 2, Pool: Pool{Instances: 3, Versions: 3, Extensions: []string{"monitor"}}, Asks: []Ask{{Do: "rollback"}}},
}

// sweptNewer are of what Azure or a capture has newly. TestSeeds does not draw from these: its seeds stay.
var sweptNewer = []Story{
	{Name: "sweep capture with own keys and a test", Seed: 6, Pool: with(func(p *Pool) { p.Daemons, p.Kind = 1, "own keys" }),
		Asks: []Ask{{Do: "capture", Canary: 2, Test: "passes", Grow: 1, History: 2}}},
	{Name: "sweep capture with a test that fails", Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }), Cannot: "RolledBack",
		Asks: []Ask{{Do: "capture", Canary: 2, Test: "fails", Exit: 1, Once: true}, {Do: "capture", Canary: 2, Test: "fails", Exit: 3}}},
	{Name: "sweep capture of a changed kind", Seed: 8, Pool: with(func(p *Pool) { p.Kind = "changed kind" }), Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}},
}

// sweptOnBoth are those, and the first on a Flexible set.
func sweptOnBoth() []Story { return append(slices.Concat(swept, sweptNewer), onFlexible(swept[0])) }

// cases returns what may happen at each request of a story that was played: a crash before and
// after each write, and each fault and each deed that fits.
func cases(requests []request) (all []Event) { return casesOf(requests, deeds) }

func casesOf(requests []request, deeds []Event) (all []Event) {
	last := map[string]request{} // reads by what they are about
	for _, r := range requests {
		if !r.write() {
			last[r.about()] = r
		} else if before := last[r.about()]; before.side() == "kube" {
			// A client that reads, sleeps and writes.
			all = append(all, Event{At: before.name, N: before.n, What: "laptop sleeps and another ortet begins", For: 303 * time.Second})
		}
		// Of polls the first three are enough. Each renewal of the Lease is like the others.
		seen := !r.write() && r.n > 3
		if seen && !r.fresh && !r.unlisted || strings.Contains(r.name, "/leases/") && r.n > 3 {
			continue
		}
		add := func(e Event) {
			e.At, e.N = r.name, r.n
			all = append(all, e)
		}
		if r.write() {
			add(Event{What: "kill before"})
			add(Event{What: "kill after"})
			add(Event{What: "interrupt"})
		}
		for _, d := range deeds {
			if r.write() {
				add(d)
			}
		}
		for _, f := range faults {
			if f.fits(r) && (!seen || f.lasts) {
				add(Event{What: f.name})
			}
		}
	}
	return all
}

// sample takes some of each kind of event, evenly spaced, and more of crashes; of so many, one.
// Of each kind the first, the third… are played, with -rest the others.
func sample(all []Event, of int) (some []Event) {
	var order []Event
	kinds := map[Event][]Event{}
	for _, e := range all {
		kind := Event{What: e.What, Target: e.Target, For: e.For}
		if kinds[kind] == nil {
			order = append(order, kind)
		}
		kinds[kind] = append(kinds[kind], e)
	}
	for _, kind := range order {
		events := kinds[kind]
		n := 6
		if strings.HasPrefix(kind.What, "kill") {
			n = 24
		}
		n = min(n/of, len(events))
		first := 0
		if *otherHalf {
			first = 1
		}
		for i := first; i < n; i += 2 {
			some = append(some, events[(2*i+1)*len(events)/(2*n)])
		}
	}
	return some
}

// TestSweep plays stories with one event at each of their requests.
func TestSweep(t *testing.T) {
	match := regexp.MustCompile(*only)
	for _, s := range sweptOnBoth() {
		t.Run(s.Name, func(t *testing.T) {
			plain := plainly(t, s)
			if len(plain.violations) > 0 {
				t.Fatal(explain(s, plain))
			}
			var all []Story
			from := 0
			if len(s.Happen) > 0 { // what went before, the first story's sweep has
				from = 1 + slices.IndexFunc(plain.requests, func(r request) bool { return r.name == s.Happen[0].At })
			}
			events := cases(plain.requests[from:])
			if !*sweepAll {
				of := 1
				if s.Pool.Flexible || s.Asks[0].Online || s.Asks[0].Test != "" || s.Pool.Kind == "changed kind" { // most is as in the first story
					of = 3
				}
				events = sample(events, of)
			}
			for _, e := range events {
				if match.MatchString(fmt.Sprintf("%+v", e)) {
					one := s
					one.Happen = append(slices.Clone(s.Happen), e)
					all = append(all, one)
				}
			}
			playAll(t, all)
		})
	}
}

// TestSeeds plays stories with two to four events, drawn from what the sweep plays one by one.
func TestSeeds(t *testing.T) {
	from := slices.Concat(stories, extensionStories, swept, []Story{provenFirst(""), provenFirst("no join"), provenFirst("twin")})
	first := len(from)
	from = append(from, operated()...)
	events := make([][]Event, len(from))
	later := make([][]request, len(from)) // of watches
	var all []Story
	for seed, begun := *firstSeed, time.Now(); seed < *firstSeed+*seeds || time.Since(begun) < *within && !t.Failed(); seed++ {
		random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- the same at every run
		i := random.IntN(first)
		if random.IntN(5) == 0 {
			i = first + random.IntN(len(from)-first)
		}
		if events[i] == nil {
			r := plainly(t, from[i])
			if i < first {
				events[i] = cases(r.requests)
			} else { // stories have most of a capture
				begin := r.asked[min(1, len(r.asked)-1)]
				later[i] = r.requests[begin:]
				events[i] = append(sample(cases(r.requests[:begin]), 1), cases(later[i])...)
			}
		}
		s := from[i]
		s.Seed = seed
		for range 2 + random.IntN(3) {
			s.Happen = append(s.Happen, events[i][random.IntN(len(events[i]))])
		}
		if n := len(later[i]); n > 0 && random.IntN(3) > 0 {
			r, what := later[i][random.IntN(n)], persons[random.IntN(len(persons))]
			s.Happen = append(s.Happen, Event{At: r.name, N: r.n, What: what, Target: map[string]string{"cordoned": "donor"}[what]})
		}
		if random.IntN(8) == 0 && s.Cannot != "NoWorkbench" { // the last draw: those before it stay
			s.Pool.Neighbour = 1 + random.IntN(3)
		}
		if random.IntN(6) == 0 {
			s = onFlexible(s)
		}
		s.Pool.Mixed = s.Pool.Neighbour > 0 && random.IntN(2) == 0
		s.Pool.Surplus = !s.Pool.Flexible && !s.Pool.Mixed && random.IntN(3) == 0
		if all = append(all, beside(seed, s)); uint64(len(all)) == *seeds {
			playAll(t, all)
			all = nil
		}
	}
}

// simplest drops the events that did not happen, and others as long as the story still breaks
// an invariant.
func simplest(t *testing.T, s Story, missed []Event, play func(*testing.T, Story) result) Story {
	t.Helper()
	without := func(s Story, missed []Event) Story {
		s.Happen = slices.DeleteFunc(slices.Clone(s.Happen), func(e Event) bool { return slices.Contains(missed, e) })
		return s
	}
	s = without(s, missed)
	for i := 0; i < len(s.Happen); {
		one := s
		one.Happen = slices.Delete(slices.Clone(s.Happen), i, i+1)
		if r := play(t, one); len(r.violations) > 0 {
			s = without(one, r.missed)
		} else {
			i++
		}
	}
	return s
}

// A story is reported with the events that happened alone.
func TestSimplest(t *testing.T) {
	s := Story{Seed: 1, Pool: with(func(p *Pool) { p.Unmanaged = true }), Asks: aCapture,
		Happen: append(at(powerOff, 9, "throttled"), at("azure GET virtualMachineScaleSets/pool1", 1, "throttled")...)}
	r := play(t, s)
	if len(r.violations) == 0 || len(r.missed) != 1 {
		t.Fatalf("%d events missed\n%s", len(r.missed), explain(s, r))
	}
	if got := simplest(t, s, r.missed, play); len(got.Happen) > 0 { // the pod without a controller is reason enough
		t.Errorf("%#v", got)
	}
}

// playAll plays stories on all cores.
func playAll(t *testing.T, all []Story) {
	t.Helper()
	playAllBy(t, all, play)
}

func playAllBy(t *testing.T, all []Story, play func(*testing.T, Story) result) {
	t.Helper()
	var failed atomic.Int32
	begun := time.Now()
	left := make(chan Story, len(all))
	for _, s := range all {
		left <- s
	}
	close(left)
	t.Run("play", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for s := range left {
					r := play(t, s)
					if len(r.violations) == 0 && len(r.missed) < len(s.Happen) {
						continue
					}
					if len(r.violations) == 0 {
						t.Logf("none of its events happens: %#v", s)
						continue
					}
					failed.Add(1)
					s = simplest(t, s, r.missed, play)
					t.Error(explain(s, play(t, s)))
				}
			})
		}
	})
	t.Logf("%d plays in %.1f s, %d with violations", len(all), time.Since(begun).Seconds(), failed.Load())
}
