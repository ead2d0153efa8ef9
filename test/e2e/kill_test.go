//go:build e2e

package e2e

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azsim"
)

// killedAfterEachStep kills a capture with SIGKILL after each of its steps, one
// after the other, and says the same command again each time.
func killedAfterEachStep(t *testing.T, w *world) {
	chain(t, w.pool(t, "chain", 2), func(l line) bool { return l.state == "done" })
}

// killedAtEachStep does so right after each step's beginning.
func killedAtEachStep(t *testing.T, w *world) {
	chain(t, w.pool(t, "begun", 2), func(l line) bool { return l.state == "started" })
}

// killedAnywhere kills at any moment, between what a step writes down and what
// it begins, too.
func killedAnywhere(t *testing.T, w *world) {
	p := w.pool(t, "storm", 2)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	n := 0
	p.killed(t, 15, func(process *os.Process) (string, func(line) os.Signal) {
		// Longer each time, so that it ends whatever the machine is.
		n++
		after := time.Duration(chance.Int64N(int64(time.Duration(100+40*n+n*n*n/50) * time.Millisecond)))
		time.AfterFunc(after, func() { _ = process.Kill() }) // it may have ended
		return after.Round(time.Millisecond).String(), nil
	})
}

// killedOnce kills a fresh capture at one place, and says the same command once
// more: that alone finishes it.
func killedOnce(t *testing.T, w *world) {
	p := w.pool(t, "once", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	p.run2pods(t, "app", donor, "example.invalid/app:"+p.short)
	before := p.node(t, donor)
	args := baked("capture", donor, "--workbench="+bench, "--again", "--history=100")
	made := 0
	for _, at := range []struct{ step, state string }{
		{"stop", "started"}, {"snapshot", "started"}, {"attach", "done"}, {"generalize", "started"}, {"version", "started"}, {"model", "started"},
	} {
		for o := p.ortet(t, on(at.step, at.state, syscall.SIGKILL), args...); o.code != exitKilled; {
			// The signal came late, on a machine with much to do.
			o.exits(t, exitDone)
			made++
			o = p.ortet(t, on(at.step, at.state, syscall.SIGKILL), args...)
		}
		made++
		var result struct {
			Version string
			Resumed bool
		}
		p.ortet(t, nil, append(args, "-o", "json")...).exits(t, exitDone).json(t, &result)
		versions := p.versions(t)
		if len(versions) != made || lastOf(versions) != path.Base(result.Version) {
			t.Fatalf("killed at %s %s, versions are %v, the newest is said to be %s", at.step, at.state, versions, result.Version)
		}
		t.Logf("killed at %s %s: resumed %v", at.step, at.state, result.Resumed)
		p.pinned(t, path.Base(result.Version))
		p.whole(t, donor, before)
		p.clean(t)
	}
}

// chain kills at each line that want picks, at each step once.
func chain(t *testing.T, p *pool, want func(line) bool) {
	var done []string
	p.killed(t, 15, func(*os.Process) (string, func(line) os.Signal) {
		at := len(done)
		return "", func(l line) os.Signal {
			if len(done) > at || !want(l) || slices.Contains(done, l.step) {
				return nil
			}
			done = append(done, l.step)
			return syscall.SIGKILL
		}
	})
	t.Logf("killed at %v", done)
}

// killed says one capture again and again, and has each killed, until one ends
// by itself, at least so many times; then all must be as after a capture that
// nobody disturbed.
func (p *pool) killed(t *testing.T, least int, kill func(*os.Process) (string, func(line) os.Signal)) {
	t.Helper()
	donor, bench := p.nodes[0], p.nodes[1]
	p.run2pods(t, "app", donor, "example.invalid/app:"+p.short)
	before := p.node(t, donor)
	day := time.Now().UTC().Format("2006.01.02")
	args := append(baked("capture", donor, "--workbench="+bench), p.access()...)

	const most = 100
	var (
		slowest time.Duration
		last    outcome
		times   int
	)
	for ; ; times++ {
		if times == most {
			t.Fatalf("killed %d times and not finished\n%s", times, last)
		}
		began, how := time.Now(), ""
		var err error
		last, err = p.try(t.Context(), func(process *os.Process) (watch func(line) os.Signal) {
			how, watch = kill(process)
			return watch
		}, args...)
		must(t, err)
		if held := last.when("hold", "done"); times > 0 && !held.IsZero() {
			slowest = max(slowest, held.Sub(began))
		}
		if last.code != exitKilled {
			break
		}
		t.Logf("run %d: killed after %s %s", times, time.Since(began).Round(10*time.Millisecond), how)
	}
	last.exits(t, exitDone)
	// Where the last kill came after all was done, there is nothing more to do.
	p.ortet(t, nil, baked("capture", donor, "--workbench="+bench)...).exits(t, exitDone).says(t, "Nothing to do", day)
	t.Logf("killed %d times; a restart had the dead one's Lease after at most %s", times, slowest.Round(time.Millisecond))
	if times < least {
		t.Errorf("killed %d times, want %d at least", times, least)
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

// killedAndLeft kills a capture while its donor is down, and captures another
// node: the first is given back before.
func killedAndLeft(t *testing.T, w *world) {
	p := w.pool(t, "other", 3)
	first, second, bench := p.nodes[0], p.nodes[1], p.nodes[2]
	before := p.node(t, first)
	p.ortet(t, on("stop", "done", syscall.SIGKILL), baked("capture", first, "--workbench="+bench)...).exits(t, exitKilled)
	if now := p.node(t, first); now.power == "running" || !now.spec.Unschedulable || !now.protected {
		t.Fatalf("the donor is not down, cordoned and protected: %+v", now)
	}
	p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "capture of "+first, "can be resumed", "still to undo", "not running: "+first+" (stopped)").fits(t)
	p.ortet(t, nil, baked("capture", second, "--dry-run")...).exits(t, exitDone).fits(t)

	made := p.capture(t, second, "--workbench="+bench)
	p.pinned(t, made)
	p.whole(t, first, before)
	p.clean(t)
	if got := p.versions(t); !slices.Equal(got, []string{made}) {
		t.Errorf("versions are %v, want %s alone", got, made)
	}
}

// faulty captures while Azure fails in all the ways that it has.
func faulty(t *testing.T, w *world) {
	p := w.pool(t, "faulty", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	before := p.node(t, donor)
	for _, f := range []azsim.Fault{
		{Name: "throttled", Effect: azsim.EffectThrottle, RetryAfterSeconds: 1, Probability: 0.03},
		{Name: "error", Effect: azsim.EffectError, Probability: 0.03},
		{Name: "dropped", Effect: azsim.EffectDropBefore, Probability: 0.03},
		{Name: "dropped after", Effect: azsim.EffectDropAfter, Probability: 0.05},
		{Name: "expired", Effect: azsim.EffectExpireToken, Probability: 0.02},
		{Name: "stop said to fail", Method: "POST", Path: "poweroff$", Effect: azsim.EffectReportFailure, Count: 1},
		{Name: "extension not deleted", Method: "DELETE", Path: "extensions", Effect: azsim.EffectReportSuccess, Count: 1},
		{Name: "null ignored", Method: "PATCH", Effect: azsim.EffectIgnoreNull, Count: 1},
	} {
		f.Name += " " + p.short
		f.Path = p.name + ".*" + f.Path
		p.control(t, http.MethodPost, "faults", f, nil)
		t.Cleanup(func() { p.dropFault(t, f.Name) })
	}
	o := p.ortet(t, nil, baked("capture", donor, "--workbench="+bench)...).exits(t, exitDone)
	t.Logf("%s", o)
	made := time.Now().UTC().Format("2006.01.02")
	met := map[string]int{}
	var list struct {
		Value []azsim.Fault `json:"value"`
	}
	p.control(t, http.MethodGet, "faults", nil, &list)
	for _, f := range list.Value {
		if strings.HasSuffix(f.Name, p.short) {
			met[f.Name] = f.Met
			p.dropFault(t, f.Name)
		}
	}
	t.Logf("faults that were met: %v", met)
	p.pinned(t, made)
	p.whole(t, donor, before)
	p.clean(t)
	p.extensionsLeft(t)
	if got := p.versions(t); !slices.Equal(got, []string{made}) {
		t.Errorf("versions are %v, want %s alone", got, made)
	}
	p.scaleOut(t, 3)
	p.fromVersion(t, p.newest(t, 3), made)
}

// dropFault switches a fault off; it may be off already.
func (p *pool) dropFault(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := background()
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.azure.Endpoint.ResourceManager+"/azsim/faults/"+url.PathEscape(name), http.NoBody)
	must(t, err)
	answer, err := p.web.Do(request)
	must(t, err)
	must(t, answer.Body.Close())
}
