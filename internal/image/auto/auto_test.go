package auto_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

var now = time.Date(2026, 11, 26, 0, 42, 0, 0, time.UTC)

const group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/"

// A world is pools whose captures end as a test says.
type world struct {
	mu       sync.Mutex
	nodes    []fleet.Node
	pools    map[string]*capture.PoolStatus
	capture  func(w *world, q capture.Request) error // nil means that it succeeds
	captured []string
	running  int
	most     int
	evicts   int // how many donors that are raised others delete
	raised   int
	stale    bool // interrupted captures are undone, and their donors captured again
}

// pool adds one with nodes NAME0, NAME1, …, the first Ready longest.
func (w *world) pool(name string, nodes int, change func(*capture.PoolStatus)) {
	s := &capture.PoolStatus{Pool: fleet.Pool{ID: fleet.ResourceID(group + name), Name: name, Model: fleet.Model{Linux: true}}}
	for i := range nodes {
		id := fmt.Sprint(i)
		s.Instances = append(s.Instances, capture.InstanceStatus{InstanceID: id, HostName: name + id, VMID: vmOf(i), Created: now.Add(-time.Duration(9-i) * 24 * time.Hour)})
		w.nodes = append(w.nodes, fleet.Node{
			Name: name + id, ProviderID: "azure://" + group + name + "/virtualMachines/" + id, OS: "linux", SystemUUID: vmOf(i),
			Ready: true, ReadySince: now.Add(-time.Duration(9-i) * 24 * time.Hour),
		})
	}
	if change != nil {
		change(s)
	}
	if w.pools == nil {
		w.pools = map[string]*capture.PoolStatus{}
	}
	w.pools[name] = s
}

func vmOf(i int) string { return fmt.Sprintf("5c5e9f1e-6d5b-4f0e-8a9d-%012d", i+1) }

func (w *world) remove(node string) {
	for i, n := range w.nodes {
		if n.Name == node {
			w.nodes = append(w.nodes[:i:i], w.nodes[i+1:]...)
			return
		}
	}
}

func (w *world) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	w.mu.Lock()
	defer w.mu.Unlock()
	nodes := append([]fleet.Node(nil), w.nodes...)
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range nodes {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (w *world) Status(_ context.Context, pools []fleet.ResourceID) ([]capture.PoolStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []capture.PoolStatus{*w.pools[pools[0].Name()]}, nil
}

func (w *world) Plan(_ context.Context, q capture.Request) (plan.Plan, error) {
	return plan.Plan{Donor: q.Node}, nil
}

func (w *world) Capture(ctx context.Context, q capture.Request, checks ...func(context.Context) error) (capture.Result, error) {
	w.mu.Lock()
	w.running, w.raised = w.running+1, w.raised+1
	w.most = max(w.most, w.running)
	if w.capture != nil {
		if err := w.capture(w, q); err != nil {
			w.running--
			w.mu.Unlock()
			return capture.Result{}, err
		}
	}
	donor := q.Node
	if q.Fresh != "" && w.evicts > 0 {
		w.evicts, w.running = w.evicts-1, w.running-1
		w.mu.Unlock()
		return capture.Result{DonorLost: true}, &workflow.Outcome{Exit: workflow.ExitFailed, Step: "raise", Err: errors.New("others deleted it")}
	}
	if q.Fresh != "" {
		donor = q.Fresh.Name() + "9"
	}
	s := w.pools[donor[:len(donor)-1]]
	resumed := !w.stale && s.Capture != nil && s.Capture.Ended == nil
	if w.stale {
		s.Capture = nil
	}
	w.mu.Unlock()
	var err error
	if !resumed {
		err = checks[0](ctx)
	}
	time.Sleep(time.Millisecond) // long enough for others to begin
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; err != nil {
		return capture.Result{}, err
	}
	w.captured = append(w.captured, donor)
	s.Versions = append(s.Versions, version(now))
	return capture.Result{Donor: donor, Version: s.Pool.ID + "/v", Resumed: resumed}, nil
}

func version(at time.Time) capture.VersionStatus {
	return capture.VersionStatus{ImageVersion: fleet.ImageVersion{Name: at.Format("2006.01.02"), ProvisioningState: "Succeeded"}, BuiltAt: at}
}

func (w *world) auto(t *testing.T, change func(*auto.Config)) *auto.Auto {
	t.Helper()
	c := auto.Config{
		Service: func(fleet.ResourceID) auto.Service { return w }, Nodes: w, Places: func() auto.Places { return &azure.Places{} }, Now: func() time.Time { return now },
		Policy: donors.Policy{MinReady: time.Hour},
	}
	if change != nil {
		change(&c)
	}
	return auto.New(c)
}

// all runs all pools, and gives the results in one line each.
func all(t *testing.T, a *auto.Auto) ([]string, int) {
	t.Helper()
	pools, err := a.Pools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	results := a.Run(t.Context(), pools, true, false)
	lines := make([]string, len(results))
	for i, r := range results {
		lines[i] = strings.Join(strings.Fields(fmt.Sprintf("%s: %s %d %s (%s%s) passed %q", r.Pool.Name(), r.Outcome, r.Exit, r.Donor, r.Because,
			r.Error, fleet.Each(r.Passed, func(p auto.PassedOver) string { return p.Node + ": " + p.Reason }))), " ")
	}
	return lines, auto.Exit(results)
}

func expect(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	if len(lines) != len(parts) {
		t.Fatalf("%d results, want %d: %q", len(lines), len(parts), lines)
	}
	for i, part := range parts {
		if begin, end, _ := strings.Cut(part, " … "); !strings.HasPrefix(lines[i], begin) || !strings.Contains(lines[i], end) {
			t.Errorf("%q, want %q", lines[i], part)
		}
	}
}

func old(s *capture.PoolStatus) {
	s.Versions = []capture.VersionStatus{version(now.Add(-72 * time.Hour))}
}

func TestPoolsThatAreDueAreCaptured(t *testing.T) {
	w := &world{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.pool(name, 2, nil)
	}
	w.pool("old", 2, old)
	w.pool("rolledback", 2, func(s *capture.PoolStatus) {
		old(s)
		s.Versions[0].RolledBack = true // it counts, so that the next night does not undo the rollback
	})
	w.pool("unjudged", 2, func(s *capture.PoolStatus) { // and a rollback after its capture
		old(s)
		s.Versions[0].Tags = map[string]string{fleet.TagCanary: plan.Unjudged}
		s.Capture = &capture.RunStatus{Kind: rollback.Kind, Ended: &journal.End{}}
	})
	w.pool("failed", 2, func(s *capture.PoolStatus) {
		old(s)
		s.Versions[0].ProvisioningState = "Failed" // not a version that nodes can come from
	})
	a := w.auto(t, func(c *auto.Config) { c.MaxParallel = 2 })
	lines, code := all(t, a)
	expect(t, lines, "a: captured 0 a0", "b: captured 0 b0", "c: captured 0 c0", "d: captured 0 d0", "e: captured 0 e0",
		"failed: captured 0 failed0", "old: not due 0 … 2026.11.23 is there", "rolledback: not due 0 … version 2026.11.23 (rolled back) is there",
		"unjudged: captured 0 unjudged0")
	if code != 0 || w.most != 2 {
		t.Errorf("exit %d, %d at a time; want 0 and 2", code, w.most)
	}
	lines, _ = all(t, a)
	for _, l := range lines {
		if !strings.Contains(l, ": not due 0") {
			t.Errorf("again: %s", l)
		}
	}
}

func about(on, what string) error {
	return &workflow.Refused{Problems: []fleet.Problem{{On: on, What: what}}}
}

func TestTheNextDonorIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		capture func(w *world, q capture.Request) error
		want    string
	}{
		"refused for its own reasons": {func(_ *world, q capture.Request) error {
			if q.Node == "a0" {
				return about("node a0", "a budget allows no eviction")
			}
			return nil
		}, `a: captured 0 a1 … passed ["a0: a budget allows no eviction"]`},
		"its instance refused": {func(_ *world, q capture.Request) error {
			if q.Node == "a0" {
				return about(group+"a/virtualMachines/0", "it is stopped")
			}
			return nil
		}, `a: captured 0 a1 … it is stopped`},
		"vanished before the drain": {func(w *world, q capture.Request) error {
			if q.Node == "a0" {
				w.remove("a0")
				return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "drain", Err: errors.New("no such node")}
			}
			return nil
		}, `a: captured 0 a1 … passed ["a0: it is gone: step drain: no such node`},
		"cordoned since it was chosen": {func(w *world, q capture.Request) error {
			w.nodes[0].Unschedulable = true
			return nil
		}, `a: captured 0 a1 … cordoned`},
		"its disk has what all nodes share": {func(_ *world, q capture.Request) error {
			return &workflow.Refused{Problems: []fleet.Problem{{Code: "PoolCredentials", On: "node " + q.Node, What: "credentials"}}}
		}, `a: failed 3 a0 … passed []`},
		"all vanished": {func(w *world, q capture.Request) error {
			w.remove(q.Node)
			return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "drain", Err: errors.New("no such node")}
		}, `a: not due 0 … passed ["a0: it is gone: step drain: no such node; all changes were undone" "a1: it is gone`},
		"captured by another run meanwhile": {func(w *world, q capture.Request) error {
			w.pools["a"].Versions = []capture.VersionStatus{version(now)}
			return nil
		}, `a: not due 0 (version 2026.11.26`},
		"all refused": {func(_ *world, q capture.Request) error { return about("node "+q.Node, "no") },
			`a: failed 3 a2 … passed ["a0: no" "a1: no"]`},
		"the pool is refused": {func(_ *world, q capture.Request) error {
			return about(group+"a", "its upgrade mode is Automatic")
		}, `a: failed 3 a0 … passed []`},
		"it failed, and the donor is there": {func(*world, capture.Request) error {
			return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "version", Err: errors.New("quota")}
		}, `a: failed 1 a0 … passed []`},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{capture: c.capture}
			w.pool("a", 3, nil)
			lines, _ := all(t, w.auto(t, nil))
			expect(t, lines, c.want)
		})
	}
}

func TestOnePoolStopsNoOther(t *testing.T) {
	w := &world{capture: func(_ *world, q capture.Request) error {
		switch q.Node {
		case "a0":
			return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "version", Err: errors.New("quota")}
		case "b0":
			return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "start", Err: errors.New("no capacity")}
		case "c0":
			return &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "drain", Err: errors.New("stopped")}
		case "d0":
			return about(group+"d", "its upgrade mode is Automatic")
		}
		return nil
	}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.pool(name, 1, nil)
	}
	a := w.auto(t, nil)
	lines, code := all(t, a)
	expect(t, lines, "a: failed 1", "b: failed 4", "c: failed 5", "d: failed 3", "e: captured 0")
	if code != 4 {
		t.Errorf("exit %d, want 4", code)
	}
	for gravest, exits := range map[int][]int{0: {0, 0}, 3: {0, 3}, 5: {3, 5, 0}, 1: {5, 1, 3}, 4: {1, 4, 5}} {
		var results []auto.Result
		for _, e := range exits {
			results = append(results, auto.Result{Exit: e})
		}
		if got := auto.Exit(results); got != gravest {
			t.Errorf("of %v the gravest is %d, got %d", exits, gravest, got)
		}
	}
}

// With a donor that is raised, a pool is due whatever its nodes are, also without any. A node that a capture raised is no donor.
func TestFreshDonorsAreRaisedOfPoolsThatAreDue(t *testing.T) {
	w := &world{}
	w.pool("a", 1, old)
	w.pool("b", 1, func(s *capture.PoolStatus) { s.Versions = []capture.VersionStatus{version(now)} })
	w.pool("c", 1, func(s *capture.PoolStatus) {
		s.Versions, s.Capture = []capture.VersionStatus{version(now)}, &capture.RunStatus{Kind: capture.Kind, Fresh: true}
	})
	for i := range w.nodes {
		w.nodes[i].Unschedulable = true
	}
	lines, code := all(t, w.auto(t, func(c *auto.Config) { c.Fresh, c.Policy.MaxImageAge = true, 2 }))
	expect(t, lines, "a: captured 0 a9", "b: not due", "c: captured 0 c9 … interrupted")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	w = &world{}
	w.pool("a", 1, old)
	w.nodes[0].Annotations = map[string]string{fleet.AnnotationFresh: "20261121-120000"}
	observations, err := w.auto(t, nil).Observe(t.Context(), []fleet.ResourceID{group + "a"}, false)
	if err != nil || len(observations[0].Candidates) > 0 {
		t.Errorf("%+v, %v", observations, err)
	}
}

// At most two donors are raised for a pool in a run, as where Spot evicts them, and a second only if others deleted the first.
func TestAtMostTwoFreshDonors(t *testing.T) {
	for evicts, want := range map[int]string{1: `a: captured 0 a9 … passed ["a fresh donor: it is gone: step raise: others deleted it`, 3: "a: failed 1 a fresh donor … others deleted it"} {
		w := &world{evicts: evicts}
		w.pool("a", 1, old)
		lines, _ := all(t, w.auto(t, func(c *auto.Config) { c.Fresh, c.Policy.MaxImageAge = true, 2 }))
		if expect(t, lines, want); w.raised != 2 {
			t.Errorf("%d donors were raised", w.raised)
		}
	}
	w := &world{capture: func(*world, capture.Request) error {
		return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "raise", Err: errors.New("gate boot")}
	}}
	w.pool("a", 1, old)
	lines, _ := all(t, w.auto(t, func(c *auto.Config) { c.Fresh, c.Policy.MaxImageAge = true, 2 }))
	if expect(t, lines, "a: failed 1 a fresh donor … gate boot"); w.raised != 1 {
		t.Errorf("%d donors were raised, none of which others deleted", w.raised)
	}
}

// With --all no donor is raised of a pool at zero: it may be another cluster's. A Node that names an instance is none of it.
func TestPoolsWithoutANodeOfThisClusterAreLeftOut(t *testing.T) {
	w := &world{}
	w.pool("a", 1, old)
	w.pool("b", 1, old)
	w.nodes[1].SystemUUID = vmOf(7)
	fresh := func(c *auto.Config) { c.Fresh, c.Policy.MaxImageAge = true, 2 }
	lines, code := all(t, w.auto(t, fresh))
	if expect(t, lines, "a: captured 0 a9", "b: left out 0 … no node of it is in this cluster"); code != 0 {
		t.Errorf("exit %d", code)
	}
	if r := w.auto(t, fresh).Run(t.Context(), []fleet.ResourceID{group + "b"}, false, false); r[0].Outcome != auto.Captured {
		t.Errorf("a pool that is named: %+v", r[0])
	}
}

func TestPoolsThatAreNotOursToChange(t *testing.T) {
	w := &world{}
	w.pool("aks", 1, func(s *capture.PoolStatus) { s.Pool.Tags = map[string]string{"aks-managed-poolName": "x"} })
	w.pool("capz", 1, func(s *capture.PoolStatus) {
		s.Pool.Tags = map[string]string{"sigs.k8s.io_cluster-api-provider-azure_cluster_c": "owned"}
	})
	w.pool("web-canary", 1, func(s *capture.PoolStatus) {
		s.Pool.Tags = map[string]string{fleet.TagCanary: now.Format(time.RFC3339)}
	})
	w.pool("gone", 1, func(s *capture.PoolStatus) { s.Gone, s.Unread, s.Problem = true, true, "404" })
	w.pool("windows", 1, func(s *capture.PoolStatus) { s.Pool.Model.Linux = false })
	w.pool("masters", 2, func(s *capture.PoolStatus) { s.JournalDenied, s.Problem = true, "forbidden" })
	for i := range w.nodes {
		w.nodes[i].ControlPlane = strings.HasPrefix(w.nodes[i].Name, "masters")
	}
	lines, code := all(t, w.auto(t, nil))
	expect(t, lines, "aks: left out 0 … AKS manages it", "capz: left out 0 … Cluster API", "gone: left out 0 … no such scale set",
		"masters: left out 0 … control plane", "web-canary: left out 0 … a canary of web", "windows: left out 0 … Linux")
	if code != 0 || len(w.captured) > 0 {
		t.Errorf("exit %d, captured %v", code, w.captured)
	}
	// No Node's providerID names one: it is known by its ARM id alone.
	w.pool("by-hand", 0, func(s *capture.PoolStatus) { s.Pool.NoProfile, s.Pool.Model = true, fleet.Model{} })
	for _, name := range []string{"aks", "by-hand", "capz", "gone", "masters", "web-canary", "windows"} {
		r := w.auto(t, nil).Run(t.Context(), []fleet.ResourceID{fleet.ResourceID(group + name)}, false, false)[0]
		if r.Exit != 3 {
			t.Errorf("%s by name: exit %d %s, want a refusal", name, r.Exit, r.Error)
		}
	}
	owned := w.auto(t, func(c *auto.Config) { c.Request.AllowOwned = true })
	if r := owned.Run(t.Context(), []fleet.ResourceID{group + "capz"}, false, false)[0]; r.Outcome != auto.Captured {
		t.Errorf("with AllowOwned: %s %s", r.Outcome, r.Error)
	}
	refused := w.auto(t, nil).Run(t.Context(), []fleet.ResourceID{group + "capz"}, false, false)[0]
	if len(refused.Problems) != 1 || !strings.Contains(refused.Problems[0].WayOut, "--publish-only") {
		t.Errorf("the refusal does not name --publish-only: %+v", refused.Problems)
	}
	w.captured, w.pools["capz"].Versions = nil, nil
	lines, code = all(t, w.auto(t, func(c *auto.Config) { c.Request.PublishOnly = true }))
	expect(t, lines, "aks: left out 0 … AKS manages it", "capz: captured 0 … no version yet", "gone: left out 0 … no such scale set",
		"masters: left out 0 … control plane", "web-canary: left out 0 … a canary of web", "windows: left out 0 … Linux")
	if code != 0 || !slices.Equal(w.captured, []string{"capz0"}) {
		t.Errorf("with PublishOnly: exit %d, captured %v", code, w.captured)
	}
}

func TestWhatIsOpenIsFinishedFirst(t *testing.T) {
	open := func(kind string) func(*capture.PoolStatus) {
		return func(s *capture.PoolStatus) {
			s.Versions = []capture.VersionStatus{version(now)}
			s.Capture = &capture.RunStatus{Kind: kind, Donor: s.Pool.Name + "1"}
		}
	}
	w := &world{}
	w.pool("a", 2, open(capture.Kind))
	w.pool("b", 2, open(rollback.Kind))
	w.pool("c", 2, func(s *capture.PoolStatus) { s.JournalDenied, s.Problem = true, "forbidden" })
	w.pool("d", 2, func(s *capture.PoolStatus) { s.Problem = "cannot list versions" })
	lines, code := all(t, w.auto(t, nil))
	expect(t, lines, "a: captured 0 a1 … interrupted", "b: failed 3 … ortet rollback", "c: failed 3 … ("+group+"c)",
		"d: failed 3 … cannot list versions")
	if code != 3 {
		t.Errorf("exit %d, want 3", code)
	}
}

func TestAVersionThatItsCaptureDidNotPutIntoUseDoesNotCount(t *testing.T) {
	failed := func(change func(*capture.VersionStatus)) func(*capture.PoolStatus) {
		return func(s *capture.PoolStatus) {
			old(s)
			s.Capture = &capture.RunStatus{Kind: capture.Kind, Ended: &journal.End{Exit: workflow.ExitFailed}}
			change(&s.Versions[0])
		}
	}
	w := &world{}
	w.pool("a", 1, failed(func(*capture.VersionStatus) {}))
	w.pool("b", 1, failed(func(v *capture.VersionStatus) { v.InModel = true }))
	w.pool("c", 1, failed(func(v *capture.VersionStatus) { v.RolledBack = true }))
	w.pool("d", 1, failed(func(v *capture.VersionStatus) { v.Instances = 1 }))
	lines, _ := all(t, w.auto(t, nil))
	expect(t, lines, "a: captured 0 a0", "b: not due 0", "c: not due 0", "d: not due 0")
}

func TestPoolsThatTakeEachOthersNodesAreCapturedOneAfterTheOther(t *testing.T) {
	tries := map[string]int{}
	w := &world{capture: func(_ *world, q capture.Request) error {
		switch tries[q.Node]++; {
		case q.Node == "a0" && tries[q.Node] == 1:
			return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "protect-workbench", Err: errors.New("it is being captured")}
		case q.Node == "b0" && tries[q.Node] == 1:
			return &workflow.Refused{Problems: []fleet.Problem{{Code: "NoWorkbench", On: "node b0", What: "no other node"}}}
		case q.Node == "c0":
			return &workflow.Outcome{Exit: workflow.ExitFailed, Step: "protect", Err: errors.New("403")}
		}
		return nil
	}}
	for _, name := range []string{"a", "b", "c"} {
		w.pool(name, 1, nil)
	}
	lines, _ := all(t, w.auto(t, nil))
	expect(t, lines, "a: captured 0 a0", "b: captured 0 b0", "c: failed 1 c0 … 403")
	if tries["c0"] != 2 {
		t.Errorf("c0 was tried %d times, want 2", tries["c0"])
	}
}

func TestNoPoolIsBegunOnceInterrupted(t *testing.T) {
	w := &world{}
	w.pool("a", 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := w.auto(t, nil).Run(ctx, []fleet.ResourceID{group + "a"}, true, false)
	if auto.Exit(results) != workflow.ExitInterrupted || len(w.captured) > 0 {
		t.Errorf("%+v, captured %v", results, w.captured)
	}
}

func TestACaptureThatIsTooOldToResumeIsUndone(t *testing.T) {
	open := func(donor string) func(*capture.PoolStatus) {
		return func(s *capture.PoolStatus) {
			s.Capture = &capture.RunStatus{Kind: capture.Kind, Donor: donor}
		}
	}
	w := &world{stale: true}
	w.pool("a", 2, open("a1"))
	w.pool("b", 2, func(s *capture.PoolStatus) {
		open("b1")(s)
		s.Versions = []capture.VersionStatus{version(now)}
	})
	lines, code := all(t, w.auto(t, nil))
	expect(t, lines, "a: captured 0 a1 (an interrupted capture was undone; no version yet)", "b: not due 0 … version 2026.11.26")
	if code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
}

func TestACaptureWhoseDonorIsGoneIsUndone(t *testing.T) {
	w := &world{capture: func(w *world, q capture.Request) error {
		if q.Node != "a9" {
			return nil
		}
		w.pools["a"].Capture = nil
		return about("node a9", "not found")
	}}
	w.pool("a", 2, func(s *capture.PoolStatus) { s.Capture = &capture.RunStatus{Kind: capture.Kind, Donor: "a9"} })
	lines, code := all(t, w.auto(t, nil))
	expect(t, lines, `a: captured 0 a0 (no version yet) passed ["a9: not found"]`)
	if code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
}

func TestADryRunPlansWhatIsDue(t *testing.T) {
	w := &world{}
	w.pool("a", 2, nil)
	w.pool("b", 2, old)
	// Its donor is gone: a run would end that capture, and take the next.
	w.pool("c", 2, func(s *capture.PoolStatus) {
		s.Capture = &capture.RunStatus{Kind: capture.Kind, Donor: "c9"}
	})
	w.pool("d", 2, func(s *capture.PoolStatus) {
		s.Capture = &capture.RunStatus{Kind: capture.Kind, Donor: "d1"}
	})
	results := w.auto(t, nil).Run(t.Context(), []fleet.ResourceID{group + "a", group + "b", group + "c", group + "d"}, true, true)
	if results[2].Donor != "c0" || results[3].Donor != "d1" {
		t.Errorf("of interrupted captures: %+v", results[2:])
	}
	if results[0].Outcome != auto.Planned || results[0].Plan.Donor != "a0" || results[1].Outcome != auto.NotDue || len(w.captured) > 0 {
		t.Errorf("%+v", results)
	}
}

// A Node that is not the instance that it names is no donor, and is named.
func TestANodeOfAnotherNameIsNoDonor(t *testing.T) {
	w := &world{}
	w.pool("a", 2, func(s *capture.PoolStatus) { s.Instances[0].HostName = "b0" })
	l, err := w.auto(t, nil).Observe(t.Context(), []fleet.ResourceID{fleet.ResourceID(group + "a")}, false)
	if err != nil || len(l[0].Candidates) != 1 || l[0].Candidates[0].Node != "a1" || len(l[0].Notes) != 1 || !strings.Contains(l[0].Notes[0], `host name "b0"`) {
		t.Errorf("%+v, %v", l, err)
	}
}

// What a Node says of itself leaves out no pool, unless Azure shows that it is of it.
func TestHoleLiarHoldsUpPool(t *testing.T) {
	for name, claim := range map[string]string{"an instance's id": "/virtualMachines/0", "an id that no instance has": "/virtualMachines/9"} {
		w := &world{}
		w.pool("a", 2, nil)
		w.nodes = append(w.nodes, fleet.Node{Name: "liar", ProviderID: "azure://" + group + "a" + claim, SystemUUID: vmOf(0), OS: "linux", Ready: true,
			Labels: map[string]string{"kubernetes.azure.com/node-image-version": "AKSUbuntu-2204"}})
		lines, code := all(t, w.auto(t, nil))
		if expect(t, lines, "a: captured 0 a0"); code != 0 {
			t.Errorf("beside a Node that claims %s: exit %d", name, code)
		}
	}
	w := &world{} // its instances cannot be read, and its own Nodes say that AKS has it
	w.pool("a", 2, func(s *capture.PoolStatus) { s.Instances, s.Problem = nil, "list instances: 403" })
	for i := range w.nodes {
		w.nodes[i].Labels = map[string]string{"kubernetes.azure.com/node-image-version": "AKSUbuntu-2204"}
	}
	lines, _ := all(t, w.auto(t, nil))
	expect(t, lines, "a: left out 0 … AKS manages it")
}
