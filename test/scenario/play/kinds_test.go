package play

import (
	"testing"
	"time"

	"github.com/ortet/ortet/internal/engine"
)

// A Spot instance that Azure evicts is stopped, or gone, by the pool's eviction policy.
func TestSpotInstancesAreEvicted(t *testing.T) {
	for story, want := range map[string]struct{ runs, there bool }{
		"pool instances=3\ncapture\n":                 {true, true},
		"pool instances=3 kind=spot\ncapture\n":       {false, true},
		"pool instances=3 kind=spotdelete\ncapture\n": {false, false},
	} {
		in(t, story, func(w *world) {
			node := w.node(1)
			w.evict(node)
			time.Sleep(10 * time.Minute)
			c := w.computerOf(node)
			if there := c != nil; there != want.there || there && w.isOn(c) != want.runs {
				t.Errorf("%q: there %t, want %t, and to run: %t", story, there, want.there, want.runs)
			}
		})
	}
}

func TestRulesOfKinds(t *testing.T) {
	judged(t, []ruling{
		{"the highest LUN of eight", "pool instances=3 kind=nvme\ncapture\n", guarded, nil, attach(1, 7), attach(1, maxLUN), "and 7 is free"},
		{"a Spot donor is not deallocated", "pool instances=3 kind=spot\ncapture deallocate\n", nil, nil, ends("SpotDeallocate"), ends(), "and the world is a reason for"},
	})
}

// What is made of such pools succeeds where nothing happens, and the new nodes boot.
func TestKindsOfPools(t *testing.T) {
	for _, kind := range []string{"trusted", "nvme", "spot", "spotdelete"} {
		in(t, "pool instances=3 kind="+kind+"\ncapture newnodes=1\n", func(w *world) {
			p, err := w.start(w.story.Asks[0])
			if err != nil {
				t.Fatal(err)
			}
			<-p.done
			time.Sleep(10 * time.Minute)
			if code := engine.ExitCode(p.err); code != engine.ExitDone || w.node(3) == "" {
				t.Errorf("kind=%s: exit %d, %v; new node %q", kind, code, p.err, w.node(3))
			}
		})
	}
}
