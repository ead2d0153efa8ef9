package simulate

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// slowDaemons is the story in a pool whose DaemonSets need a minute on a new node, with a laptop's
// clock that is so far ahead.
func slowDaemons(s Story, ahead time.Duration) Story {
	s.Pool.Daemons, s.Pool.SlowDaemons = 1, time.Minute
	s.Name = fmt.Sprintf("%s, the clock %s ahead", s.Name, ahead)
	for i := range s.Asks {
		s.Asks[i].Ahead = ahead
	}
	return s
}

// watchedLater is a watch during which an autoscaler adds two nodes.
func watchedLater(bad string) Story {
	s := watched(bad, "cordon")
	s.Asks[0].Grow = 0
	for n := range 2 {
		s.Happen = append(s.Happen, Event{At: "azure GET virtualMachineScaleSets/" + poolName + "/virtualMachines", N: 6 + 2*n, What: "autoscaler adds a node"})
	}
	return s
}

const apart = 4*time.Minute + 50*time.Second

// TestOutcomeClockOfLaptop has a laptop's clock be off: what servers wrote is judged by their own,
// good versions go live, and bad ones do not. The judge sees to that.
func TestOutcomeClockOfLaptop(t *testing.T) {
	for _, ahead := range []time.Duration{apart, -apart} {
		for _, s := range []Story{provenFirst(""), watchedLater(""), provenFirst("no join"), watchedLater("no join")} {
			s = slowDaemons(s, ahead)
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
					t.Fatal(explain(s, r))
				}
			})
		}
	}
}

// TestOutcomeClockIsSaid has the results of a canary and of a watch say that the clock is off, at
// Azure's pace and at that of the playground.
func TestOutcomeClockIsSaid(t *testing.T) {
	for _, speed := range []float64{1, 1500} {
		for ahead, said := range map[time.Duration]string{apart: "4m50s ahead of the API server's", -apart: "4m50s behind the API server's", time.Minute: ""} {
			t.Run(fmt.Sprintf("%s, Azure %.0f times as fast", ahead, speed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(slowDaemons(provenFirst(""), ahead))
					defer w.close()
					w.azure.Speed = speed
					w.pursue(0, Ask{Do: "capture", Canary: 2, Grow: 2, Ahead: ahead, Once: true})
					w.pursue(1, Ask{Do: "watch", Ahead: ahead, Once: true})
					captured, watched := w.processes[0], w.processes[1]
					if captured.code() != workflow.ExitDone || watched.code() != workflow.ExitDone || watched.watch.Outcome != watch.Proven {
						t.Errorf("capture %v, watch %v: %q", captured.err, watched.err, watched.watch.Outcome)
					}
					for _, notes := range [][]string{captured.capture.Notes, watched.watch.Notes} {
						text := strings.Join(notes, "\n")
						if said != "" && !strings.Contains(text, "this machine's clock is "+said) || said == "" && strings.Contains(text, "clock") {
							t.Errorf("%q, want %q", text, said)
						}
					}
				})
			})
		}
	}
}

// TestOutcomeTagsAreOfAzuresClock has a laptop's clock be off by far: what its commands tag is dated by
// Azure, also by a rollback. Claims see to that.
func TestOutcomeTagsAreOfAzuresClock(t *testing.T) {
	for _, ahead := range []time.Duration{apart, -apart} {
		s := watched("", "cordon")
		s.Asks = append(s.Asks, Ask{Do: "rollback"})
		s = slowDaemons(s, ahead)
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
				t.Fatal(explain(s, r))
			}
		})
	}
}
