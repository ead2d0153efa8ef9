//go:build e2e

package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster/kube"
)

// killedAfterEachStep kills a capture with SIGKILL after each of its steps, one
// after the other, and repeats the same command each time.
func killedAfterEachStep(t *testing.T, w *world) {
	var done []string
	w.pool(t, "chain", 2).killed(t, func(*os.Process) func(line) os.Signal {
		at := len(done)
		return func(l line) os.Signal {
			if len(done) > at || l.state != "done" || slices.Contains(done, l.step) {
				return nil
			}
			done = append(done, l.step)
			return syscall.SIGKILL
		}
	})
	t.Logf("killed after %v", done)
}

// leastKills is how often a capture is killed at least.
const leastKills = 15

// killedAnywhere kills at any moment, also between what a step writes down and
// what it begins.
func killedAnywhere(t *testing.T, w *world) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := 0
	w.pool(t, "storm", 2).killed(t, func(process *os.Process) func(line) os.Signal {
		n++
		return func(l line) os.Signal {
			if l.step == "preflight" && l.state == "done" { // before that it waits for the lock of the last one
				// At first within four seconds: the pod on the workbench is read after five, so none
				// of these ends. Then longer each time, so that it ends whatever the machine is.
				within := time.Duration(max(min(n+1, 4), n-leastKills+4)) * time.Second
				after := time.Duration(random.Int64N(int64(within)))
				time.AfterFunc(after, func() { _ = process.Kill() }) // it may have ended
			}
			return nil
		}
	})
}

// killed repeats one capture and has each killed, until one ends by itself; then all
// must be as after a capture that was not disturbed.
func (p *pool) killed(t *testing.T, kill func(*os.Process) func(line) os.Signal) {
	t.Helper()
	donor, bench := p.nodes[0], p.nodes[1]
	p.run2pods(t, "app", donor, "example.invalid/app:"+p.short)
	before := p.node(t, donor)
	day := time.Now().UTC().Format("2006.01.02")
	args := baked("capture", donor, "--workbench="+bench, "--lease-duration=5s")

	const most = 100
	last, times := outcome{code: exitKilled}, -1
	for last.code == exitKilled {
		if times++; times == most {
			t.Fatalf("killed %d times and not finished\n%s", times, last)
		}
		var err error
		last, err = p.try(t.Context(), kill, append(args, p.access(args)...)...)
		must(t, err)
	}
	last.exits(t, exitDone)
	// Where the last kill came after all was done, there is nothing more to do.
	p.ortet(t, nil, args...).exits(t, exitDone).says(t, "Nothing to do", day)
	t.Logf("killed %d times", times)
	if times < leastKills {
		t.Errorf("killed %d times, want %d at least", times, leastKills)
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

// killedElsewhere kills a capture while its donor is down, gives its Lease the name
// of a process on another machine, and captures another node: once the Lease has
// expired, the first donor is returned to service.
func killedElsewhere(t *testing.T, w *world) {
	p := w.pool(t, "other", 3)
	first, second, bench := p.nodes[0], p.nodes[1], p.nodes[2]
	before := p.node(t, first)
	p.ortet(t, on("stop", "done", syscall.SIGKILL), baked("capture", first, "--workbench="+bench, "--lease-duration=5s")...).exits(t, exitKilled)
	if now := p.node(t, first); now.power == "running" || !now.spec.Unschedulable || !now.protected {
		t.Fatalf("the donor is not down, cordoned and protected: %+v", now)
	}
	p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "capture of "+first, "still to undo", "not running: "+first+" (stopped)").fits(t)

	patch := []byte(`{"spec":{"holderIdentity":"elsewhere/1/-/00000000"}}`)
	_, err := p.kube.CoordinationV1().Leases(namespace).Patch(t.Context(), kube.LeaseName(string(p.id())), types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	o := p.ortet(t, nil, baked("capture", second, "--workbench="+bench)...).exits(t, exitDone)
	waits := slices.IndexFunc(o.lines, func(l line) bool { return strings.Contains(l.text, "waiting for the pool lock of elsewhere/1") })
	if waits < 0 {
		t.Fatalf("it did not wait for the Lease\n%s", o)
	}
	if waited := o.when("preflight", "done").Sub(o.lines[waits].at); waited < 4*time.Second || waited > 15*time.Second {
		t.Errorf("waited %s for a Lease of 5s\n%s", waited, o)
	}
	day := time.Now().UTC().Format("2006.01.02")
	p.pinned(t, day)
	p.whole(t, first, before)
	p.clean(t)
	if got := p.versions(t); !slices.Equal(got, []string{day}) {
		t.Errorf("versions are %v, want %s alone", got, day)
	}
}
