package prove_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
)

// A node of the version that is watched: made so long after it went live.
type node struct {
	made   time.Duration
	change func(c *prove.Clone)
}

const within = 30 * time.Minute

func TestWatch(t *testing.T) {
	const passes = 70*time.Second + soak // after it was made
	evicted := func(c *prove.Clone) { c.Instance.Power = fleet.PowerDeallocated }
	twin := func(c *prove.Clone) { c.Node.MachineID = "machine-pool1_2" }
	undated := func(c *prove.Clone) { noNode(c); c.Instance.Created = time.Time{} }
	reimaged := func(at time.Duration) func(c *prove.Clone) {
		return func(c *prove.Clone) { c.Node.ReadySince = begun.Add(at) }
	}
	const old = -24 * time.Hour
	for _, c := range []struct {
		name  string
		nodes []node
		at    time.Duration
		want  prove.Result
		gate  string
	}{
		{"none came", nil, within - time.Second, prove.Waits, ""},
		{"none came", nil, within, prove.Unproven, ""},
		{"two of three passed", []node{{0, nil}, {0, nil}}, within - time.Second, prove.Waits, ""},
		{"two of three passed, the time is over", []node{{0, nil}, {0, nil}}, within, prove.Passed, ""},
		{"the third soaks", []node{{0, nil}, {0, nil}, {time.Minute, nil}}, time.Minute + passes - time.Second, prove.Waits, ""},
		{"three passed", []node{{0, nil}, {0, nil}, {time.Minute, nil}}, time.Minute + passes, prove.Passed, ""},
		{"three passed, one failed", []node{{0, nil}, {0, nil}, {0, nil}, {0, noNode}}, limit, prove.Waits, ""},
		{"three passed, one failed, the time is over", []node{{0, nil}, {0, nil}, {0, nil}, {0, noNode}}, within, prove.Passed, ""},
		{"three passed, one waits", []node{{0, nil}, {0, nil}, {0, nil}, {time.Minute, noNode}}, limit, prove.Passed, ""},
		{"one failed", []node{{0, noNode}}, within - time.Second, prove.Waits, ""},
		{"the only one failed", []node{{0, noNode}}, within, prove.Failed, "join"},
		{"two failed", []node{{0, noNode}, {0, noNode}}, limit - time.Second, prove.Waits, ""},
		{"two failed", []node{{0, noNode}, {0, noNode}, {0, nil}}, limit, prove.Failed, "join"},
		{"two of 22 failed, a tenth of those that passed", append(slices.Repeat([]node{{0, nil}}, 20), node{0, noNode}, node{0, noNode}), limit, prove.Waits, ""},
		{"two of 22 failed, the time is over", append(slices.Repeat([]node{{0, nil}}, 20), node{0, noNode}, node{0, noNode}), within, prove.Passed, ""},
		{"two of 21 failed, more than a tenth", append(slices.Repeat([]node{{0, nil}}, 19), node{0, noNode}, node{0, noNode}), limit, prove.Failed, "join"},
		{"one failed, another evicted", []node{{0, noNode}, {0, evicted}}, within, prove.Failed, "join"},
		{"the only one was evicted", []node{{0, evicted}}, within - time.Second, prove.Waits, ""},
		{"the only one was evicted", []node{{0, evicted}}, within, prove.NoResult, ""},
		{"one failed, another comes at the end", []node{{0, noNode}, {within - time.Minute, notReady}}, within, prove.Waits, ""},
		{"one comes at the end", []node{{within - time.Minute, nil}}, within - time.Minute + passes, prove.Passed, ""},
		{"one comes at the end, and fails", []node{{within - time.Minute, noNode}}, within - time.Minute + limit, prove.Failed, "join"},
		{"nodes come and come", []node{{within + 2*limit + soak - time.Minute, noNode}}, within + 2*limit + soak, prove.Unproven, ""},
		{"one that comes last is waited for", []node{{within + 2*limit + soak - time.Minute, noNode}}, within + 2*limit + soak - time.Second, prove.Waits, ""},
		{"made within what clocks differ before it went live", []node{{-2 * time.Minute, noNode}}, within, prove.Failed, "join"},
		{"made earlier", []node{{-2*time.Minute - time.Second, noNode}}, within + 2*limit + soak, prove.Unproven, ""},
		{"reimaged, and not up yet", []node{{old, nil}, {old, noNode}, {old, noNode}, {old, notReady}}, within - time.Second, prove.Waits, ""},
		{"reimaged, and not up", []node{{old, nil}}, within + 2*limit + soak, prove.Unproven, ""},
		{"reimaged, and up", []node{{old, reimaged(20 * time.Minute)}}, within, prove.Passed, ""},
		{"made at an unknown time", []node{{0, undated}}, within, prove.Failed, "join"},
		{"reimaged, and twins", []node{{old, twin}, {old, twin}}, time.Minute, prove.Failed, "identity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(0)
			for i, n := range c.nodes {
				x := clone("pool1", 20+i, begun.Add(n.made))
				if n.change != nil {
					n.change(&x)
				}
				w.Clones = append(w.Clones, x)
			}
			w.at(c.at)
			for _, ahead := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute} {
				j := prove.Watch{Need: 3, Within: within}.Decide(w.apart(ahead), w.base)
				if j.Result != c.want || j.Gate != c.gate || j.Why == "" {
					t.Errorf("the API server's clock %s ahead of Azure's: %s, gate %q: %s; want %s, gate %q", ahead, j.Result, j.Gate, j.Why, c.want, c.gate)
				}
			}
		})
	}
}

// TestWatchRemembers has instances go, as an autoscaler deletes those that do not join, while
// what is known is written and read between two looks.
func TestWatchRemembers(t *testing.T) {
	var known []prove.Finding
	look := func(at time.Duration, o func(w *world), clones ...prove.Clone) prove.Judgement {
		t.Helper()
		w := newWorld(0)
		w.Clones = clones
		w.at(at)
		if o != nil {
			o(w)
		}
		j := prove.Watch{Need: 3, Within: within, Known: known}.Decide(w.Observation, w.base)
		text, err := json.Marshal(j.Findings)
		if err != nil {
			t.Fatal(err)
		}
		known = nil
		if err := json.Unmarshal(text, &known); err != nil || len(known)+len(j.Findings) > 0 && !reflect.DeepEqual(known, j.Findings) {
			t.Fatalf("%v: %s is read as %+v, want %+v", err, text, known, j.Findings)
		}
		return j
	}
	want := func(j prove.Judgement, r prove.Result, findings int, why string) {
		t.Helper()
		if j.Result != r || len(j.Findings) != findings || !strings.Contains(j.Why, why) {
			t.Errorf("%s: %s; %+v; want %s: %s", j.Result, j.Why, j.Findings, r, why)
		}
	}
	made := func(number int, at time.Duration, change func(*prove.Clone)) prove.Clone {
		c := clone("pool1", number, begun.Add(at))
		if change != nil {
			change(&c)
		}
		return c
	}
	a, b := made(12, 0, noNode), made(11, 15*time.Minute, noNode)
	want(look(limit-time.Second, nil, a), prove.Waits, 1, "0 nodes passed")
	want(look(limit, nil, a), prove.Waits, 1, "0 nodes passed")
	want(look(15*time.Minute, nil, b), prove.Waits, 2, "0 nodes passed")
	want(look(15*time.Minute+limit, nil, b), prove.Failed, 2, "pool1_11 runs and has no Node, after 4m0s")
	if known[0].Clone != "pool1_11" {
		t.Errorf("order of %+v", known)
	}

	// What waited, and is deleted, counts for nothing.
	known = nil
	want(look(time.Minute, nil, a), prove.Waits, 1, "")
	want(look(within, nil), prove.Unproven, 0, "")

	// What passed stays so, whatever becomes of it.
	known = nil
	want(look(10*time.Minute, nil, made(13, 0, nil)), prove.Waits, 1, "1 node passed")
	want(look(20*time.Minute, nil, made(13, 0, notReady)), prove.Waits, 1, "1 node passed")
	want(look(within, nil), prove.Passed, 1, "1 node passed")

	// Its twin comes later.
	known = nil
	first := made(13, 0, nil)
	second := made(14, 5*time.Minute, func(c *prove.Clone) { c.Node.MachineID = first.Node.MachineID })
	want(look(4*time.Minute, nil, first), prove.Waits, 1, "1 node passed")
	want(look(7*time.Minute, nil, first, second), prove.Failed, 2, "pool1_13 has the machine id of node-pool1_14")

	// What failed in an outage does not fail after it, but can pass.
	known = nil
	away := func(w *world) { w.Outage = begun.Add(2 * time.Minute) }
	want(look(limit, away, made(15, 0, noNode)), prove.Waits, 1, "0 nodes")
	slow := made(15, 0, func(c *prove.Clone) {
		c.Node.Created, c.Node.ReadySince = begun.Add(5*time.Minute), begun.Add(6*time.Minute)
	})
	want(look(within, nil, slow), prove.NoResult, 1, "did not answer")
	want(look(within, nil, made(15, 0, nil)), prove.Passed, 1, "1 node passed")
}

// What resilient creation deletes as its creation times out has failed, whether or not it is seen as it
// goes; what goes earlier counts for nothing, and so does what goes from another pool.
func TestWatchCountsWhatResilientCreationDeletes(t *testing.T) {
	const slow = 15 * time.Minute
	for _, c := range []struct {
		name      string
		recreates bool
		gone      time.Duration // after its creation
		unseen    time.Duration // from one look to the next
		deleting  bool
		joined    bool
		want      prove.Result
	}{
		{"it is gone", true, 8 * time.Minute, 15 * time.Second, false, false, prove.Failed},
		{"it is deleted", true, 8 * time.Minute, 15 * time.Second, true, false, prove.Failed},
		{"it is gone earlier", true, 5 * time.Minute, 15 * time.Second, false, false, prove.Unproven},
		{"it is deleted earlier", true, 5 * time.Minute, 15 * time.Second, true, false, prove.NoResult},
		{"its Node had come", true, 8 * time.Minute, 15 * time.Second, true, true, prove.NoResult},
		{"it was not looked at meanwhile", true, 8 * time.Minute, 5 * time.Minute, false, false, prove.Unproven},
		{"another pool", false, 8 * time.Minute, 15 * time.Second, false, false, prove.Unproven},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(0)
			w.base.Limit = slow
			x := clone("pool1", 20, begun)
			x.Instance.ProvisioningState = "Creating"
			if notReady(&x); !c.joined {
				noNode(&x)
			}
			w.Clones, w.Recreates = []prove.Clone{x}, c.recreates
			w.at(c.gone - c.unseen)
			before := w.Observation
			known := prove.Watch{Need: 3, Within: within}.Decide(before, w.base).Findings
			if x.Instance.ProvisioningState = "Deleting"; !c.deleting {
				w.Clones = nil
			} else {
				w.Clones = []prove.Clone{x}
			}
			w.at(c.gone)
			known = prove.Watch{Need: 3, Within: within, Known: known, Before: before}.Decide(w.Observation, w.base).Findings
			w.Clones = nil
			w.at(within + 2*slow + soak)
			j := prove.Watch{Need: 3, Within: within, Known: known}.Decide(w.Observation, w.base)
			if j.Result != c.want || c.want == prove.Failed && (j.Gate != "boot" || !strings.Contains(j.Why, "resilient creation")) {
				t.Errorf("%s, gate %q: %s; want %s", j.Result, j.Gate, j.Why, c.want)
			}
		})
	}
}
