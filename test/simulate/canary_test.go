package simulate

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// provenFirst is a capture with a canary.
func provenFirst(bad string) Story {
	s := Story{Name: "canary of nodes that are " + cmp.Or(bad, "good"), Seed: 7, Pool: with(func(p *Pool) { p.Daemons, p.Versions, p.GPUs, p.Bad = 1, 2, true, bad }),
		Asks: []Ask{{Do: "capture", Canary: 2}}}
	if bad != "" {
		s.Asks, s.Cannot = []Ask{{Do: "capture", Canary: 2, History: 2, Exit: 1, Once: true}, {Do: "capture", Canary: 2, Exit: 3}}, "RolledBack"
	}
	return s
}

// TestCanary proves a good image and six bad ones by clones, and watches the bad ones where they
// went live without. The judge sees to the outcome.
func TestCanary(t *testing.T) {
	for _, bad := range []string{"", "no join"} {
		s := onFlexible(provenFirst(bad))
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, s); len(r.violations) > 0 {
				t.Fatal(explain(s, r))
			}
		})
	}
	for _, bad := range []string{"", "no boot", "slow", "no join", "twin", "daemon", "no GPU"} {
		s := provenFirst(bad)
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := play(t, s)
			if len(r.violations) > 0 {
				t.Fatal(explain(s, r))
			}
			took := between(t, r, " PUT virtualMachineScaleSets/pool1-canary 1:", " DELETE virtualMachineScaleSets/pool1-canary 1:")
			if bad == "" {
				t.Logf("by canary: good after %s", took)
				s.Asks[0].Canary = 0
				with, without := costOf(t, r), costOf(t, play(t, s))
				azure, kube, took := with[0]-without[0], with[1]-without[1], with[2]-without[2]
				t.Logf("a good canary costs %.0f requests to Azure, %.0f to the API server and %.0f seconds", azure, kube, took)
				if azure > 100 || kube > 200 || took > 300 {
					t.Error("want at most 100, 200 and 300")
				}
				return
			}
			t.Logf("by canary: %s after %s", gateOf(t, r), took)
			if bad != "daemon" && bad != "no GPU" && took > 8*time.Minute { // nodes of the pool take 3 to boot
				t.Error("its limit is 6 minutes")
			}
			w := watched(bad, "cordon")
			if r = play(t, w); len(r.violations) > 0 {
				t.Fatal(explain(w, r))
			}
			t.Logf("by watch: %s after %s", gateOf(t, r), between(t, r, " begins: watch", " ends: 1"))
		})
	}
}

// gateOf is the gate that a version failed.
func gateOf(t *testing.T, r result) string {
	t.Helper()
	gate := regexp.MustCompile(`is quarantined: (\w+):`).FindStringSubmatch(strings.Join(r.trace, "\n"))
	if gate == nil {
		t.Fatal("no version is quarantined")
	}
	return gate[1]
}

// between is the time from one line of the trace to another.
func between(t *testing.T, r result, from, to string) time.Duration {
	t.Helper()
	at := func(text string) (seconds float64) {
		i := slices.IndexFunc(r.trace, func(l string) bool { return strings.Contains(l, text) })
		if i < 0 {
			t.Fatalf("no %q in\n%s", text, strings.Join(r.trace, "\n"))
		}
		if _, err := fmt.Sscan(r.trace[i], &seconds); err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	return time.Duration((at(to) - at(from)) * float64(time.Second)).Round(time.Second)
}

// canaries are stories of canaries without a result, or that were killed.
var canaries = []Story{
	killedAfterQuarantine(),
	{Name: "canary refused, and the same command", Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }), Single: powerOff,
		Asks: []Ask{{Do: "capture", Canary: 2, Once: true}, {Do: "capture", Canary: 2}}, Happen: at(putCanary, 1, "refused")},
	{Name: "canary refused in auto mode", Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }), Single: putCanary,
		Asks: []Ask{{Do: "capture", Canary: 2, Auto: true}}, Happen: at(putCanary, 1, "refused")},
	{Name: "canary refused, and auto mode the next night", Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }), Single: powerOff,
		Asks: []Ask{{Do: "capture", Canary: 2, Once: true}, {Do: "wait", For: day}, {Do: "capture", Canary: 2, Auto: true}}, Happen: at(putCanary, 1, "refused")},
	{Name: "canary refused, and a rollback two versions later", Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }),
		Asks:   []Ask{{Do: "capture", Canary: 2, Once: true}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback"}},
		Happen: at(putCanary, 1, "refused")},
}

const putCanary = "azure PUT virtualMachineScaleSets/pool1-canary"

func killedAfterQuarantine() Story {
	s := provenFirst("no join")
	s.Name, s.Happen = "killed after its quarantine", at("azure PATCH galleries/SIG_azsim/images/kamino-pool1-prototype/versions/2000.01.01", 1, "kill after")
	return s
}

func TestCanariesThatDoNotFinish(t *testing.T) {
	for _, s := range canaries {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
				t.Error(explain(s, r))
			}
		})
	}
}

// costOf counts requests to Azure and to the API server, and seconds, which are virtual.
func costOf(t *testing.T, r result) (cost [3]float64) {
	t.Helper()
	for _, q := range r.requests {
		if q.side() == "azure" {
			cost[0]++
		} else {
			cost[1]++
		}
	}
	for _, l := range r.trace {
		if strings.Contains(l, " ends: ") {
			if _, err := fmt.Sscan(l, &cost[2]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cost
}

// TestSweepCanary plays them with one event at each request from the canary on.
func TestSweepCanary(t *testing.T) {
	match := regexp.MustCompile(*only)
	for _, s := range []Story{provenFirst(""), provenFirst("no join")} {
		t.Run(s.Name, func(t *testing.T) {
			plain := play(t, s)
			if len(plain.violations) > 0 {
				t.Fatal(explain(s, plain))
			}
			from := 0
			for i, r := range plain.requests {
				if from == 0 && r.name == putCanary {
					from = i
				}
			}
			events := cases(plain.requests[from:])
			if !*sweepAll {
				events = sample(events, 1)
			}
			var all []Story
			for i, e := range events {
				if !*sweepAll && i%4 > 0 { // TestSweep has the rest of a capture
					continue
				}
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

// TestCanaryNotFoundYet has ARM answer 404 for what the capture has just made.
func TestCanaryNotFoundYet(t *testing.T) {
	for _, list := range []string{"", "/virtualMachines"} {
		s := provenFirst("")
		s.Happen = at("azure GET virtualMachineScaleSets/"+poolName+"-canary"+list, 1, "not found yet")
		if list == "" {
			s.Happen[0].N = 5
		}
		if r := play(t, s); len(r.violations) > 0 || !strings.Contains(strings.Join(r.trace, "\n"), "p1 ends: 0 ") {
			t.Error(explain(s, r))
		}
	}
}

// TestCanaries are captures with one in other pools, by other means.
func TestCanaries(t *testing.T) {
	proving := func(a Ask) []Ask { a.Do, a.Canary = "capture", 2; return []Ask{a} }
	const set = "virtualMachineScaleSets/" + poolName + "-canary"
	kept := Ask{KeepExtensions: true, Exit: 3}
	playAll(t, []Story{
		{Name: "canary of a pool of k3s", Seed: 12, Pool: with(func(p *Pool) { p.Spelling = "k3s" }), Asks: proving(Ask{})},
		{Name: "canary of a pool whose ids Azure answers in upper case", Seed: 11, Pool: with(func(p *Pool) { p.Spelling = "upper" }), Asks: proving(Ask{})},
		{Name: "canary with an extension whose settings are on the disk", Seed: 11, Asks: proving(Ask{KeepExtensions: true}),
			Pool: Pool{Instances: 3, Extensions: []string{"cse", "monitor"}, Settings: "sealed"}},
		{Name: "canary if possible, and Azure cannot be read", Seed: 11, Pool: usual, Asks: proving(Ask{Auto: true}),
			Happen: []Event{{At: "azure GET " + set, N: 1, What: "away for 20 minutes", For: time.Minute}}, Single: "azure PUT " + set},
		{Name: "canary with an extension that an earlier capture did not learn", Seed: 11, Asks: proving(kept), Cannot: "CanaryNeedsExtension",
			Pool: Pool{Instances: 3, Versions: 2, Extensions: []string{"cse"}, Settings: "sealed"}},
	})
}

// TestCanaryDeleted has a person delete the canary: what the message says goes on with the version
// that is there.
func TestCanaryDeleted(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := Story{Name: "canary deleted", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Canary: 2, Again: again, Once: true}, {Do: "capture", Canary: 2}},
			Happen: at("azure GET virtualMachineScaleSets/"+poolName+"-canary/virtualMachines", 5, "canary deleted"),
			Single: "azure POST virtualMachineScaleSets/" + poolName + "/virtualMachines/0/powerOff"}
		r := play(t, s)
		if said := strings.Contains(strings.Join(r.trace, "\n"), "again without --again, which makes others"); len(r.violations) > 0 || said != again {
			t.Error(explain(s, r))
		}
	}
}

// checkEmptied: clones are deleted once their pods were evicted.
func (w *world) checkEmptied(p *process, req request) {
	set := fleet.CanaryOf(w.pool)
	if methodOf(req.name) != http.MethodDelete || path.Base(req.about()) != set.Name() || w.isDown("kube") {
		return
	}
	for _, name := range w.nodesOf(set) {
		for _, pod := range w.evictable(name) {
			w.broken(16, "%s deletes %s, and pod %s on its node %s was not evicted", p.name, set.Name(), pod.Name, name)
		}
	}
}

// Pods that come to clones after they were judged are evicted before the clones are deleted.
func TestOutcomePodsOfClonesAreEvicted(t *testing.T) {
	s := provenFirst("daemon")
	s.Asks, s.Cannot = s.Asks[:1], "is quarantined"
	s.Happen = at("azure PATCH "+definition+"/versions/2000.01.01", 1, "pods come to the clones")
	if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
		t.Error(explain(s, r))
	}
}

// TestClonesRegisteredAgain has the Nodes of clones open for pods, as after they were deleted and
// registered again: they are cordoned, and pods leave long before the end of the canary.
func TestClonesRegisteredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(provenFirst(""))
		defer w.close()
		seen, open := 0, 0
		w.after(840*time.Second, func() {
			for _, name := range w.nodesOf(fleet.CanaryOf(w.pool)) {
				seen++
				w.kube.Change("nodes", "", name, func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = false })
				w.putPod(name, "web", 90+seen, nil)
			}
		})
		w.after(870*time.Second, func() {
			for _, name := range w.nodesOf(fleet.CanaryOf(w.pool)) {
				if !w.kube.Node(name).Spec.Unschedulable || len(w.evictable(name)) > 0 {
					open++
				}
			}
		})
		w.pursue(0, Ask{Do: "capture", Canary: 2, Once: true})
		if seen != 2 || open > 0 {
			t.Errorf("of %d clones' Nodes, %d are open for pods\n%s", seen, open, strings.Join(append(w.violations, w.lines...), "\n"))
		}
	})
}

// TestImpossibleCanaries refuses a canary that cannot be made before the donor is touched, and
// leaves it out in auto mode, but not that of tunings.
func TestImpossibleCanaries(t *testing.T) {
	for code, c := range map[string]struct {
		disk  string
		setUp func(w *world)
	}{
		"CanaryCannotBoot": {disk: "unread"},
		"CanaryIdentity": {setUp: func(w *world) {
			w.make(http.MethodPatch, w.pool, computeAPI, object{"identity": object{"type": "SystemAssigned"}})
		}},
		"CanaryQuota":     {setUp: func(w *world) { w.azure.Quota = map[string]int{"cores": 9} }}, // 4 machines have 8
		"ForeignScaleSet": {setUp: func(w *world) { w.makeSet(fleet.CanaryOf(w.pool), 1, false, nil) }},
	} {
		for _, ask := range []Ask{{Canary: 2}, {Canary: 2, Auto: true}, {Tune: wire.RecommendedTunings()}, {Canary: 2, Auto: true, Tune: wire.RecommendedTunings()}} {
			t.Run(fmt.Sprintf("%s, auto %t, %s", code, ask.Auto, ask.Tune), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Disk = c.disk })})
					defer w.close()
					if c.setUp != nil {
						w.azure.Instant(true)
						c.setUp(w)
						w.azure.Instant(false)
					}
					made := w.counts[putCanary]
					ask.Do, ask.Once = "capture", true
					w.pursue(0, ask)
					p := w.processes[0]
					may := ask.Auto && len(ask.Tune) == 0
					leftOut := p.code() == workflow.ExitDone && strings.Contains(strings.Join(p.capture.Notes, "\n"), "no canary: ")
					refused := workflow.RefusedFor(p.err, code) && w.counts[powerOff] == 0
					if way := strings.Contains(fmt.Sprint(p.err), "without --tune and --canary"); may != leftOut || may == refused || refused && way != (len(ask.Tune) > 0) || w.counts[putCanary] != made {
						t.Errorf("exit %d: %v; %d PUTs of a canary, notes %q", p.code(), p.err, w.counts[putCanary]-made, p.capture.Notes)
					}
				})
			})
		}
	}
}

// TestCanaryAndLatest has the version stay out of latest where the user says so, and be in it
// where a canary alone kept it out. In both cases its tag says when its clones came up.
func TestCanaryAndLatest(t *testing.T) {
	for _, excluded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(provenFirst(""))
			defer w.close()
			w.pursue(0, Ask{Do: "capture", Canary: 2, Excluded: excluded, Once: true})
			v := w.versions()[low(w.modelNow().image)]
			if is := v.Properties.PublishingProfile.ExcludeFromLatest; w.processes[0].code() != workflow.ExitDone || is == nil || *is != excluded {
				t.Errorf("exit %d; excluded %t of a version that is to be so: %t", w.processes[0].code(), *is, excluded)
			}
			if at, err := time.Parse(time.RFC3339, tagsOf(v)[fleet.TagCanary]); err != nil || time.Since(at) < 0 || time.Since(at) > day {
				t.Errorf("its clones came up at %q: %v", tagsOf(v)[fleet.TagCanary], err)
			}
		})
	}
}

// TestClockOfTheAPIServer has the API server's clock be ten minutes behind Azure's.
func TestClockOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(provenFirst(""))
		defer w.close()
		seen := 0
		w.after(830*time.Second, func() {
			for _, name := range w.nodesOf(fleet.CanaryOf(w.pool)) {
				seen++
				w.kube.Change("nodes", "", name, func(o runtime.Object) {
					o.(*corev1.Node).CreationTimestamp = metav1.NewTime(time.Now().Add(-10 * time.Minute))
				})
			}
		})
		w.pursue(0, Ask{Do: "capture", Canary: 2, Once: true})
		if p := w.processes[0]; seen != 2 || p.code() != workflow.ExitDone {
			t.Errorf("of %d clones, exit %d: %v\n%s", seen, p.code(), p.err, strings.Join(append(w.violations, w.lines...), "\n"))
		}
	})
}

// TestNodesOfAnEarlierCanary has Nodes in the cluster that are still Ready, of clones of an
// earlier canary: Azure numbers those of the next one alike.
func TestNodesOfAnEarlierCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Bad = "no join" })})
		defer w.close()
		for i := range 2 {
			w.kube.Put(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool1-c110112000000000%d", i)},
				Spec:       corev1.NodeSpec{ProviderID: fmt.Sprintf("azure://%s-canary/virtualMachines/%d", w.pool, i), Unschedulable: true},
				Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", MachineID: fmt.Sprint("earlier-", i), SystemUUID: "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"},
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}},
			})
		}
		w.pursue(0, Ask{Do: "capture", Canary: 2, Once: true})
		if p := w.processes[0]; p.code() != workflow.ExitFailed || !strings.Contains(fmt.Sprint(p.err), "join: pool1-canary_0 runs and has no Node") {
			t.Errorf("exit %d: %v\n%s", p.code(), p.err, strings.Join(append(w.violations, w.lines...), "\n"))
		}
	})
}
