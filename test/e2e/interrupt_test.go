//go:build e2e

package e2e

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// interrupted presses Ctrl-C while the donor is drained, while it is stopped and
// while the version is built. Each time the donor is given back before the
// command ends, and the same command goes on.
func interrupted(t *testing.T, w *world) {
	p := w.pool(t, "ctrlc", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	p.run2pods(t, "app", donor, "example.invalid/app:"+p.short)
	before := p.node(t, donor)
	args := baked("capture", donor, "--workbench="+bench)
	interrupt := func(step string) {
		o := p.ortet(t, on(step, "started", os.Interrupt), args...).exits(t, exitInterrupted)
		o.says(t, "Interrupted", "is in service as it was found", "run the same command to resume")
		p.whole(t, donor, before)
	}
	interrupt("drain")
	interrupt("stop")
	if got := p.versions(t); len(got) > 0 {
		t.Errorf("interrupted before there was a snapshot, there are versions %v", got)
	}

	// A second Ctrl-C ends it at once, whatever state that leaves.
	twice := func() outcome {
		once := on("stop", "started", os.Interrupt)
		return p.ortet(t, func(l line) os.Signal {
			if strings.HasPrefix(l.text, "Interrupted") {
				return os.Interrupt
			}
			return once(l)
		}, args...)
	}
	for o := twice(); o.code != exitKilled; o = twice() {
		o.exits(t, exitInterrupted) // the second came late, on a machine with much to do
	}
	interrupt("version")

	// While a capture runs, another says who holds the pool.
	var other outcome
	asked := false
	first, err := p.try(t.Context(), func(process *os.Process) func(line) os.Signal {
		return func(l line) os.Signal {
			if !asked && l.step == "hold" && l.state == "done" {
				asked = true
				// It stands still meanwhile, so that it does not end before the other asks.
				stopped := process.Signal(syscall.SIGSTOP)
				var err error
				other, err = p.try(t.Context(), func(*os.Process) func(line) os.Signal { return nil }, append(args, p.access()...)...)
				if err := errors.Join(stopped, err, process.Signal(syscall.SIGCONT)); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
	}, append(args, p.access()...)...)
	must(t, err)
	first.exits(t, exitDone)
	if asked {
		host, err := os.Hostname()
		must(t, err)
		other.exits(t, exitRefused).says(t, "holds it since", host)
	} else {
		t.Errorf("the capture never held the pool\n%s", first)
	}

	day := time.Now().UTC().Format("2006.01.02")
	if got := p.versions(t); !slices.Equal(got, []string{day}) {
		t.Errorf("versions are %v, want %s alone", got, day)
	}
	p.pinned(t, day)
	p.whole(t, donor, before)
	p.clean(t)
}
