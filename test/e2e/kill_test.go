package e2e

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// killedAfterEachStep kills a capture with SIGKILL after each of its steps, one
// after the other, and says the same command again each time.
func killedAfterEachStep(t *testing.T, w *world) {
	chain(t, w.pool(t, "chain", 2), func(l line) bool { return l.state == "done" })
}

// killedAtEachStep does so right after each step's beginning.
func killedAtEachStep(t *testing.T, w *world) {
	// What is killed while it stops the donor waits a minute for the cluster to
	// notice; the chain of ends covers that step.
	chain(t, w.pool(t, "begun", 2), func(l line) bool { return l.state == "started" })
}

// chain kills at each line that want picks, at each step once, until a run ends
// by itself; then all must be as after a capture that nobody disturbed.
func chain(t *testing.T, p *pool, want func(line) bool) {
	donor, bench := p.nodes[0], p.nodes[1]
	p.run2pods(t, "app", donor, "example.invalid/app:"+p.short)
	before := p.node(t, donor)
	day := time.Now().UTC().Format("2006.01.02")
	args := baked("capture", donor, "--workbench="+bench)

	const runs = 60 // more than there are steps
	var (
		killed  []string
		slowest time.Duration
		last    outcome
	)
	for n := 0; ; n++ {
		if n == runs {
			t.Fatalf("killed %d times and not finished, after %v\n%s", n, killed, last)
		}
		at := ""
		began := time.Now()
		last = p.ortet(t, func(l line) os.Signal {
			if at != "" || !want(l) || slices.Contains(killed, l.step) {
				return nil
			}
			at = l.step
			return syscall.SIGKILL
		}, args...)
		if held := last.when("hold", "done"); n > 0 && !held.IsZero() {
			slowest = max(slowest, held.Sub(began))
		}
		t.Logf("run %d: killed at %q after %s, exit %d", n, at, time.Since(began).Round(10*time.Millisecond), last.code)
		if last.code != exitKilled {
			break
		}
		killed = append(killed, at)
	}
	last.exits(t, exitDone)
	// Killed after its last step, there is nothing more to do.
	p.ortet(t, nil, args...).exits(t, exitDone).says(t, "Nothing to do", day)
	t.Logf("killed %d times: %v; a restart had the dead one's Lease after at most %s", len(killed), killed, slowest.Round(time.Millisecond))
	if len(killed) < 15 {
		t.Errorf("killed at %d steps alone: %v", len(killed), killed)
	}
	if got := p.versions(t); !slices.Equal(got, []string{day}) {
		t.Errorf("versions are %v, want %s alone", got, day)
	}
	p.pinned(t, day)
	p.clean(t)
	p.whole(t, donor, before)
	p.whole(t, bench, p.node(t, bench))
	p.savedCustomData(t)
	p.extensionsLeft(t)
	p.scaleOut(t, 3)
	clone := p.newest(t, 3)
	p.fromVersion(t, clone, day)
	p.strangers(t, donor, bench, clone)
}
