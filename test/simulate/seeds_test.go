package simulate

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	seeds     = flag.Uint64("seeds", 150, "play so many seeds")
	firstSeed = flag.Uint64("first", 1, "the first of the seeds")
	within    = flag.Duration("within", 0, "play so many seeds again and again, for so long")
)

// TestSeeds plays stories with two to four events, drawn from what the sweep plays one by one.
func TestSeeds(t *testing.T) {
	from := slices.Concat(stories, extensionStories, swept)
	events := make([][]Event, len(from))
	var all []Story
	for seed, begun := *firstSeed, time.Now(); seed < *firstSeed+*seeds || time.Since(begun) < *within && !t.Failed(); seed++ {
		random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- the same at every run
		i := random.IntN(len(from))
		if events[i] == nil {
			events[i] = cases(play(t, from[i]).requests)
		}
		s := from[i]
		s.Seed = seed
		for range 2 + random.IntN(3) {
			s.Happen = append(s.Happen, events[i][random.IntN(len(events[i]))])
		}
		if all = append(all, s); uint64(len(all)) == *seeds {
			playAll(t, all)
			all = nil
		}
	}
}

// simplest drops events as long as the story still breaks an invariant.
func simplest(t *testing.T, s Story) Story {
	t.Helper()
	for i := 0; i < len(s.Happen) && len(s.Happen) > 1; {
		one := s
		one.Happen = slices.Delete(slices.Clone(s.Happen), i, i+1)
		if r := play(t, one); len(r.violations) > 0 {
			s = one
		} else {
			i++
		}
	}
	return s
}
