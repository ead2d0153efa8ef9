package bootstrap

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// A verdict that is kept answers the question that it was given for, however that
// is put, and no other.
func TestKeptVerdictAnswersItsQuestionOnly(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.write("/run/other", "")
	o := r.options()
	o.Units, o.Sentinel, o.Settle = []string{"b", "a"}, "/run/other", time.Minute
	o.Deadline = 20 * time.Millisecond
	complete, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	first := wire.Verdict{Outcome: wire.Failed, Reason: wire.ReasonUnknown, BootID: bootA, At: time.Now().UTC(), Uptime: 1}
	text, err := encode(kept{first, complete.question(), false})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Options)
		again  bool // the same verdict is given
	}{
		"the same":                        {func(*Options) {}, true},
		"the units in another order":      {func(o *Options) { o.Units = []string{"a.service", "b.service", "a"} }, true},
		"another deadline":                {func(o *Options) { o.Deadline = time.Second }, true},
		"told somewhere else":             {func(o *Options) { o.Console = "/nowhere" }, true},
		"another unit":                    {func(o *Options) { o.Units = []string{"a"} }, false},
		"no unit":                         {func(o *Options) { o.Units = nil }, false},
		"another sentinel":                {func(o *Options) { o.Sentinel = "/run/third" }, false},
		"the kubelet too":                 {func(o *Options) { o.Kubelet = KubeletYes }, false},
		"the node too":                    {func(o *Options) { o.Node = NodeRegistered }, false},
		"another settle":                  {func(o *Options) { o.Settle = time.Second }, false},
		"another grace":                   {func(o *Options) { o.Grace = time.Hour }, false},
		"judged anew":                     {func(o *Options) { o.After = time.Now() }, false},
		"judged anew before it was given": {func(o *Options) { o.After = first.At.Add(-time.Second) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r.write(defaultState, string(text))
			asked := o
			c.change(&asked)
			v, err := Wait(t.Context(), asked, quiet())
			if err != nil || v.At.Equal(first.At) != c.again {
				t.Errorf("%s of %s (%v); the first is to be given again: %v", v.Outcome, v.At, err, c.again)
			}
		})
	}
}

func TestWhichVerdictAnswers(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		outcome   wire.Outcome
		at, after time.Time
		want      bool
	}{
		"failed":                               {wire.Failed, now, time.Time{}, true},
		"failed, and is asked about anew":      {wire.Failed, now.Add(-time.Hour), now, false},
		"degraded, and is asked about anew":    {wire.Degraded, now.Add(-time.Hour), now, false},
		"succeeded, and is asked about anew":   {wire.Succeeded, now.Add(-time.Hour), now, true},
		"failed since it was asked about anew": {wire.Failed, now, now.Add(-time.Hour), true},
		"failed, before the clock was set":     {wire.Failed, now.Add(time.Hour), now.Add(-time.Minute), false},
		"timed out":                            {wire.TimedOut, now, time.Time{}, false},
	} {
		k := kept{wire.Verdict{Outcome: c.outcome, At: c.at}, "q", false}
		if got := k.answers("q", c.after, now); got != c.want || k.answers("p", c.after, now) {
			t.Errorf("%s: %v, want %v, and another question never", name, got, c.want)
		}
	}
}

// readyNode is what the API server says of a node that works.
const readyNode = `200 {"kind":"Node","status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"bootID":"` + bootA + `"}}}`

// mendable is a node whose cloud-init failed, and whose kubelet and Node can be
// mended.
type mendable struct {
	root
	healthy atomic.Bool
	kubelet string
	options Options
}

func newMendable(t *testing.T) (*mendable, *apiServer) {
	t.Helper()
	s := newAPIServer(t)
	s.answer.Store(`404 {"kind":"Status","message":"not found"}`)
	m := &mendable{root: newRoot(t)}
	m.kubelet = kubelet(t, &m.healthy)
	s.login(m.root, "system:node:pool1000003")
	m.write("/etc/systemd/system/kubelet.service", "[Service]\n")
	m.write(outputLog, "[preflight] Running pre-flight checks\nerror execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists\n")
	m.cloudInit("status.json", "status-25.1.json")
	m.cloudInit("result.json", "result-runcmd.json")
	m.options = m.root.options()
	m.options.Kubelet, m.options.Settle, m.options.Grace = KubeletAuto, time.Millisecond, 50*time.Millisecond
	return m, s
}

func (m *mendable) judge(t *testing.T, o Options) wire.Verdict {
	t.Helper()
	o, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	before, answered, cameUp := recall(o, identifyNode(o), time.Now(), quiet())
	if answered {
		return before.Verdict
	}
	n := newNode(o, identifyNode(o), quiet())
	n.before, n.cameUp = before.Verdict, cameUp
	n.kubelet.address, n.kubelet.within = m.kubelet, time.Minute // a busy machine answers late
	v, err := n.wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A node that is mended by hand stays Failed until somebody asks anew; then it is
// Degraded, and says why it had failed.
func TestMendedNode(t *testing.T) {
	t.Parallel()
	m, s := newMendable(t)
	first := m.judge(t, m.options)
	if first.Outcome != wire.Failed || first.Reason != "NodeNotClean" {
		t.Fatalf("%s %s", first.Outcome, first.Reason)
	}
	again := m.options
	again.After = time.Now()
	if v := m.judge(t, again); v.Outcome != wire.Failed || v.Reason != first.Reason || v.At.Equal(first.At) {
		t.Errorf("asked anew, and nothing is mended: %s %s of %s", v.Outcome, v.Reason, v.At)
	}
	m.healthy.Store(true)
	s.answer.Store(readyNode)
	if v := m.judge(t, m.options); v.Outcome != wire.Failed {
		t.Errorf("nobody asked anew: %s", v.Outcome)
	}
	again.After = time.Now()
	unasked := again
	unasked.Node = NodeNo
	if v := m.judge(t, unasked); v.Outcome != wire.Failed || v.Reason != first.Reason {
		t.Errorf("without the cluster's word: %s %s, want it Failed still", v.Outcome, v.Reason)
	}
	again.After = time.Now()
	v := m.judge(t, again)
	if v.Outcome != wire.Degraded || v.Reason != first.Reason || v.Owner != first.Owner || len(v.Ignored) != 1 || !strings.HasPrefix(v.Message, "the node works, after its boot had failed: ") {
		t.Errorf("%+v", v)
	}
	if err := v.Validate(); err != nil {
		t.Error(err)
	}
	// And that is what is kept now.
	if kept := m.judge(t, m.options); !kept.At.Equal(v.At) || kept.Outcome != wire.Degraded {
		t.Errorf("%s of %s is given again", kept.Outcome, kept.At)
	}
}

// What failed after the bootstrap had succeeded leaves nothing behind but the
// verdict.
func TestMendedKubelet(t *testing.T) {
	t.Parallel()
	m, s := newMendable(t)
	m.cloudInitIsWell()
	first := m.judge(t, m.options)
	if first.Outcome != wire.Failed || first.Stage != "kubelet" {
		t.Fatalf("%+v", first)
	}
	m.healthy.Store(true)
	s.answer.Store(readyNode)
	for range 3 { // however often it is asked about
		again := m.options
		again.After = time.Now()
		v := m.judge(t, again)
		if v.Outcome != wire.Degraded || v.Reason != first.Reason || strings.Count(v.Message, "had failed") != 1 || v.At.Before(again.After) {
			t.Errorf("%+v", v)
		}
	}
}

func (m *mendable) cloudInitIsWell() {
	m.t.Helper()
	for _, name := range []string{"status.json", "result.json"} {
		m.remove(runPath + name)
	}
	m.cloudInit("result.json", "result-good.json")
	m.write(sentinelPath, "")
}

// The verdict of before is there until the new one is.
func TestOldVerdictStaysUntilTheNewOne(t *testing.T) {
	t.Parallel()
	m, _ := newMendable(t)
	first := m.judge(t, m.options)
	again := m.options
	again.After, again.Grace = time.Now(), time.Hour
	o, err := again.complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	n := newNode(o, identifyNode(o), quiet())
	n.before, n.kubelet.address = first, m.kubelet
	time.AfterFunc(50*time.Millisecond, stop)
	if v, err := n.wait(ctx); err == nil {
		t.Fatalf("%+v before the end", v)
	}
	if k, err := load(m.path(defaultState)); err != nil || !k.At.Equal(first.At) {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestDecideAnew(t *testing.T) {
	failed := seen{cloudInit: done(), kubelet: kubeletSeen{wanted: true, asked: at(1), healthy: true}}
	ready := membership{answered: true, registered: true, ready: true}
	for name, c := range map[string]struct {
		node             membership
		unhealthy, loops bool
		no               bool // nobody is asked
		when             float64
		came             bool
	}{
		"it works":                     {node: ready, when: 11, came: true},
		"it is not in the cluster":     {node: membership{answered: true}, when: 131},
		"nobody can be asked":          {node: membership{cannot: true}, when: 11},
		"nobody is asked":              {node: ready, no: true, when: 11},
		"the kubelet is not healthy":   {node: ready, unhealthy: true, when: 121},
		"the kubelet crash-loops":      {node: ready, loops: true, when: 1},
		"it is not Ready":              {node: membership{answered: true, registered: true}, when: 1200},
		"the API server does not tell": {node: membership{said: "refused"}, when: 131},
	} {
		t.Run(name, func(t *testing.T) {
			r := capiRules()
			r.node, r.again = NodeReady, true
			if c.no {
				r.node = NodeNo
			}
			var st state
			for _, now := range []float64{1, 11, 121, 131, 1200} {
				s := failed
				s.kubelet.asked, s.kubelet.healthy = at(now), !c.unhealthy
				s.node = nodeSeen{membership: c.node, asked: at(now)}
				if c.loops {
					s.kubelet.unit = unit("kubelet.service", "failed", "failed", 9)
				}
				var d decision
				if st, d = decide(r, st, s, at(now)); !d.over {
					continue
				}
				if now != c.when || d.came != c.came || d.deadline || st.failed == "" || !d.came && d.why != st.failed {
					t.Errorf("over at %v: %+v, want at %v, came up %v", now, d, c.when, c.came)
				}
				return
			}
			t.Error("never over")
		})
	}
}

// What is known of earlier boots is known after a second verdict of this one too.
func TestEarlierBootIsRemembered(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	me := whoAmI{vmID: "vm", bootID: bootB}
	o, err := r.options().complete()
	if err != nil {
		t.Fatal(err)
	}
	write := func(k kept) {
		t.Helper()
		text, err := encode(k)
		if err != nil {
			t.Fatal(err)
		}
		r.write(defaultState, string(text))
	}
	v := wire.Verdict{Outcome: wire.Succeeded, VMID: "vm", BootID: bootA, At: time.Now(), Uptime: 1}
	write(kept{v, "q", false})
	if _, _, cameUp := recall(o, me, time.Now(), quiet()); !cameUp {
		t.Error("it came up in an earlier boot")
	}
	v.BootID, v.Outcome, v.Reason = bootB, wire.Failed, wire.ReasonUnknown
	write(kept{v, "q", true})
	if before, answered, cameUp := recall(o, me, time.Now(), quiet()); !cameUp || answered || before.Outcome != wire.Failed {
		t.Errorf("came up before: %v, %+v", cameUp, before)
	}
	me.vmID = "another"
	if _, _, cameUp := recall(o, me, time.Now(), quiet()); cameUp {
		t.Error("another machine did")
	}
}

// Of AKS's CustomScript nothing may be there yet when cloud-init ends.
func TestAKSBegins(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.remove("/var/lib/cloud/instance/scripts/runcmd")
	r.write("/run/cloud-init/result.json", `{"v1":{"errors":[]}}`)
	o := r.options()
	t.Run("an image that has its scripts", func(t *testing.T) {
		r.write("/opt/azure/containers/provision.sh", "")
		r.write(provisionLog, "")
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(r.path(provisionLog), old, old); err != nil {
			t.Fatal(err)
		}
		if v := r.wait(o); v.Outcome != wire.Succeeded {
			t.Errorf("%+v", v)
		}
		r.remove(provisionLog)
	})
	r.write("/var/lib/cloud/instance/cloud-config.txt", "write_files:\n- path: /opt/azure/containers/provision_source.sh\n")
	t.Run("it is promised, and does not come", func(t *testing.T) {
		r.remove(defaultState)
		o := o
		o.Grace = 50 * time.Millisecond
		if v := r.wait(o); v.Outcome != wire.Succeeded {
			t.Errorf("%+v", v)
		}
	})
	t.Run("it is promised, and comes", func(t *testing.T) {
		r.remove(defaultState)
		v := r.whileWaiting(o, func() {
			r.write(provisionLog, "")
			r.write(provisionFile, `{"ExitCode":"50"}`)
		})
		if v.Outcome != wire.Failed || v.ExitCode == nil || *v.ExitCode != 50 {
			t.Errorf("%+v", v)
		}
	})
}

// An end that was only assumed is none where AKS begins after all, and the time
// until then is not held against the kubelet.
func TestDecideWhereAKSBeginsLate(t *testing.T) {
	r := capiRules()
	r.grace = 10 * time.Second
	k := kubeletSeen{wanted: true, asked: at(1)}
	s := seen{cloudInit: done(), otherSign: "nothing writes a sentinel", assumed: true, kubelet: k}
	st, d := decide(r, state{}, s, at(1))
	if d.over {
		t.Fatalf("%+v", d)
	}
	s.assumed, s.provisionRuns = false, true
	if st, d = decide(r, st, s, at(60)); d.over || !st.finished.IsZero() {
		t.Fatalf("AKS's provisioning runs: %+v", d)
	}
	s.provision, s.kubelet.asked = &verdict.Provision{ExitCode: "0"}, at(300)
	if _, d = decide(r, st, s, at(300)); d.over {
		t.Errorf("%+v, want the kubelet to have its time from now on", d)
	}
}
