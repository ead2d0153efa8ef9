package prove_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
)

var begun = time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)

const (
	set   = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/")
	limit = 4 * time.Minute // of the baseline
	soak  = 2 * time.Minute
)

// clone is one that came up: Ready a minute after it was made, its pods 10 s later.
func clone(pool string, number int, made time.Time) prove.Clone {
	name := fmt.Sprintf("%s_%d", pool, number)
	id := set + fleet.ResourceID(fmt.Sprintf("%s/virtualMachines/%d", pool, number))
	return prove.Clone{
		Instance: fleet.Instance{ID: id, Name: name, Created: made, ProvisioningState: "Succeeded", Power: fleet.PowerRunning},
		Node: &fleet.Node{Name: "node-" + name, ProviderID: "azure://" + string(id), MachineID: "machine-" + name, Ready: true,
			Created: made.Add(50 * time.Second), ReadySince: made.Add(time.Minute),
			Taints: []fleet.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}},
			Conditions: []fleet.Condition{{Type: "MemoryPressure", Status: "False"},
				{Type: fleet.ConditionBootSucceeded, Status: "True", Reason: "Succeeded"}}},
		Pods: []fleet.Pod{
			{Name: "kube-system/cni-" + name, DaemonSet: "kube-system/cni", Ready: true, ReadySince: made.Add(70 * time.Second)},
			{Name: "kube-system/log-" + name, DaemonSet: "kube-system/log", Ready: true, ReadySince: made.Add(55 * time.Second)},
			{Name: "apps/web-" + name},
		},
	}
}

// siblings booted in 120 s, so that the limit is 4 minutes.
func siblings() (all []prove.Clone) {
	for i := range 4 {
		c := clone("pool1", i, begun.Add(-time.Hour*24*time.Duration(i+1)))
		c.Node.ReadySince = c.Instance.Created.Add(2 * time.Minute)
		c.Node.Created = c.Node.ReadySince.Add(-20 * time.Second)
		all = append(all, c)
	}
	return all
}

type world struct {
	prove.Observation
	base prove.Baseline
}

// newWorld has clones that all passed at the very moment.
func newWorld(clones int) *world {
	w := &world{base: baselineOf(siblings(), "node-pool1_0")}
	w.Begun, w.Soak, w.Others = begun, soak, siblings()
	for i := range clones {
		w.Clones = append(w.Clones, clone("pool1-canary", i, begun))
	}
	w.at(70*time.Second + soak)
	return w
}

// others makes more of them.
func (w *world) others(n int) {
	for len(w.Others) < n {
		w.Others = append(w.Others, clone("pool1", len(w.Others), begun.Add(-time.Hour)))
	}
}

// at sets the time since Begun.
func (w *world) at(d time.Duration) { w.Now, w.AzureNow = begun.Add(d), begun.Add(d) }

// apart returns the Observation as an API server has it whose clock is so far ahead of Azure's.
func (w *world) apart(ahead time.Duration) prove.Observation {
	o := w.Observation
	o.Now = o.Now.Add(ahead)
	if !o.Outage.IsZero() {
		o.Outage = o.Outage.Add(ahead)
	}
	for _, clones := range []*[]prove.Clone{&o.Clones, &o.Others} {
		*clones = slices.Clone(*clones)
		for i := range *clones {
			c := &(*clones)[i]
			if c.Node != nil {
				n := *c.Node
				n.Created, n.ReadySince = n.Created.Add(ahead), n.ReadySince.Add(ahead)
				c.Node = &n
			}
			c.Pods = slices.Clone(c.Pods)
			for i := range c.Pods {
				c.Pods[i].ReadySince = c.Pods[i].ReadySince.Add(ahead)
			}
		}
	}
	return o
}

func baselineOf(siblings []prove.Clone, donor string) prove.Baseline {
	return prove.NewBaseline(prove.Observation{Others: siblings, Now: begun, AzureNow: begun}, map[string]string{fleet.TagBuiltFrom: donor})
}

func noNode(c *prove.Clone) { c.Node, c.Pods = nil, nil }

func notReady(c *prove.Clone) {
	c.Node.Ready, c.Node.ReadySince, c.Node.NotReadyWhy = false, c.Node.Created, "KubeletNotReady: no network"
}

func condition(c *prove.Clone, kind, status, reason string) {
	others := slices.DeleteFunc(slices.Clone(c.Node.Conditions), func(x fleet.Condition) bool { return x.Type == kind })
	c.Node.Conditions = append(slices.Clip(others), fleet.Condition{Type: kind, Status: status, Reason: reason})
}

const (
	second = time.Second
	ready  = time.Minute           // when the clone that is changed is Ready: its limits from then end at 5 and 7 minutes
	soaked = 70*time.Second + soak // when it has passed, unless it is changed
)

type change func(w *world, c *prove.Clone)

func off(power fleet.PowerState, state string) change {
	return func(_ *world, c *prove.Clone) {
		noNode(c)
		c.Instance.Power, c.Instance.ProvisioningState = power, state
	}
}

func provisioning(state string) change {
	return func(_ *world, c *prove.Clone) { c.Instance.ProvisioningState = state }
}

func only(do func(c *prove.Clone)) change { return func(_ *world, c *prove.Clone) { do(c) } }

func isMachine(id string) change { return only(func(c *prove.Clone) { c.Node.MachineID = id }) }

func has(kind, status, reason string) change {
	return only(func(c *prove.Clone) { condition(c, kind, status, reason) })
}

func tainted(key, value string) change {
	return only(func(c *prove.Clone) {
		c.Node.Taints = append(c.Node.Taints, fleet.Taint{Key: key, Value: value, Effect: "NoExecute"})
	})
}

func readyAt(at time.Duration) change {
	return only(func(c *prove.Clone) { c.Node.ReadySince = begun.Add(at) })
}

func made(at time.Duration) change {
	return only(func(c *prove.Clone) { c.Instance.Created = begun.Add(at) })
}

func noCNI(_ *world, c *prove.Clone) { c.Pods = c.Pods[1:] }

func restarted(at time.Duration, times int32) change {
	return only(func(c *prove.Clone) { c.Pods[0].ReadySince, c.Pods[0].Restarts = begun.Add(at), times })
}

func beside(pod fleet.Pod) change {
	pod.DaemonSet = "kube-system/cni"
	return only(func(c *prove.Clone) { c.Pods = append(append([]fleet.Pod{pod}, c.Pods...), pod) })
}

// oddSiblings gives some siblings a condition that the clone has.
func oddSiblings(n int) change {
	return func(w *world, c *prove.Clone) {
		all := siblings()
		for i := range n {
			condition(&all[i], "Odd", "True", "")
		}
		condition(c, "Odd", "True", "")
		w.base = baselineOf(all, "")
	}
}

// gpus has the donor have had two, beside a resource that no tag could hold, and the clone so many.
func gpus(size string, n int64) change {
	return func(w *world, c *prove.Clone) {
		w.base.Devices = fleet.DevicesOf("Standard_NC8", map[string]int64{"nvidia.com/gpu": 2, "a.example/none": 0, "z.example/" + strings.Repeat("z", 256): 1})
		c.Instance.Size, c.Node.Devices = size, map[string]int64{"nvidia.com/gpu": n}
	}
}

func away(at time.Duration) change {
	return func(w *world, _ *prove.Clone) { w.Outage = begun.Add(at) }
}

// sick has others not be Ready since then.
func sick(n, of int, since time.Duration) change {
	return func(w *world, _ *prove.Clone) {
		w.others(of)
		for i := range n {
			w.Others[i].Node.Ready, w.Others[i].Node.ReadySince = false, begun.Add(since)
		}
	}
}

// another has an instance of another image that was made then not join.
func another(at time.Duration) change {
	return func(w *world, _ *prove.Clone) {
		c := clone("pool1", 9, begun.Add(at))
		noNode(&c)
		w.Others = append(w.Others, c)
	}
}

func all(changes ...change) change {
	return func(w *world, c *prove.Clone) {
		for _, do := range changes {
			do(w, c)
		}
	}
}

// TestGates changes the second of two clones that pass otherwise.
func TestGates(t *testing.T) {
	const verdict = fleet.ConditionBootSucceeded
	unregistered, unready := only(noNode), only(notReady)
	for _, c := range []struct {
		name   string
		change change
		at     time.Duration
		waits  bool // a second before
		want   prove.Result
		gate   string
		why    string
	}{
		{"all hold", all(), soaked, true, prove.Passed, "", "2 clones passed"},
		{"no soak", func(w *world, _ *prove.Clone) { w.Soak = 0 }, 70 * second, false, prove.Passed, "", ""},

		{"stopped", off("stopped", "Succeeded"), limit, true, prove.Failed, "boot", "is stopped and has no Node, after 4m0s"},
		{"stopping", off("stopping", "Creating"), limit, true, prove.Failed, "boot", "is stopping"},
		{"not provisioned", off("running", "Creating"), limit, true, prove.Failed, "boot", "state is Creating, after"},
		{"provisioning failed", off("running", "Failed"), limit, true, prove.Failed, "boot", "state is Failed, after"},
		{"provisioning failed, and Ready", provisioning("Failed"), soaked, true, prove.Passed, "", ""},
		{"no capacity", off("", "Failed"), limit, true, prove.NoResult, "", "was not started by Azure within 4m0s (Failed)"},
		{"starting", off("starting", "Creating"), limit, true, prove.NoResult, "", "not started"},

		{"no Node", unregistered, limit, true, prove.Failed, "join", "pool1-canary_1 runs and has no Node, after 4m0s"},
		{"made later, no Node", all(made(time.Minute), unregistered), limit + time.Minute, true, prove.Failed, "join", "after 4m0s"},
		{"made at an unknown time, no Node", all(only(func(c *prove.Clone) { c.Instance.Created = time.Time{} }), unregistered),
			limit, true, prove.Failed, "join", ""},

		{"not Ready", unready, limit, true, prove.Failed, "ready", "is not Ready (KubeletNotReady: no network), after 4m0s"},
		{"Ready at the limit", readyAt(limit), limit + soak, true, prove.Passed, "", ""},
		{"Ready after the limit by less than clocks tell", readyAt(limit + fleet.ClockPrecision), limit + fleet.ClockPrecision + soak, true, prove.Passed, "", ""},
		{"Ready after the limit", readyAt(limit + 2*second), limit + 2*second, false, prove.Failed, "slow",
			"took 4m2s to become Ready, more than 4m0s; 90% of the pool took at most 2m0s"},
		{"Ready again long after", readyAt(10 * time.Minute), 10*time.Minute + soak, false, prove.Passed, "", ""},

		{"twin of a node", isMachine("machine-pool1_2"), ready, false, prove.Failed, "identity", "_1 has the machine id of node-pool1_2"},
		{"twin of the donor, which is deleted", all(isMachine("machine-pool1_0"), func(w *world, _ *prove.Clone) { w.Others = w.Others[1:] }),
			ready, false, prove.Failed, "identity", "of node-pool1_0"},
		{"both twins of the donor", all(isMachine("machine-pool1_0"), func(w *world, c *prove.Clone) { w.Clones[0].Node.MachineID = c.Node.MachineID }),
			ready, false, prove.Failed, "identity", "pool1-canary_0 has the machine id of node-pool1_0"},
		{"twin of the other clone", isMachine("machine-pool1-canary_0"), ready, false, prove.Failed, "identity",
			"pool1-canary_0 has the machine id of node-pool1-canary_1"},
		{"twin that is not Ready", all(isMachine("machine-pool1_2"), unready), ready, false, prove.Failed, "identity", ""},
		{"twin in an outage", all(isMachine("machine-pool1_2"), away(ready)), ready, false, prove.Failed, "identity", ""},
		{"no machine ids", all(isMachine(""), func(w *world, _ *prove.Clone) { w.Clones[0].Node.MachineID = "" }),
			soaked, true, prove.Passed, "", ""},

		{"verdict", has(verdict, "False", "UnitFailed"), ready + limit, true, prove.Failed, "verdict",
			"its condition ortet.io/BootSucceeded is False, after 5m0s: UnitFailed, a unit failed"},
		{"verdict without a reason", has(verdict, "False", "TimedOut"), ready + limit, true, prove.Failed, "verdict", ": TimedOut"},
		{"no verdict", only(func(c *prove.Clone) { c.Node.Conditions = nil }), soaked, true, prove.Passed, "", ""},
		{"verdict Unknown", has(verdict, "Unknown", "Booting"), soaked, true, prove.Passed, "", ""},
		{"not Ready, the network's", all(unready, has(verdict, "False", "DNSFailed")), limit, true, prove.NoResult, "",
			"DNSFailed, names are not resolved; the reason is the network's"},
		{"not Ready, the image's", all(unready, has(verdict, "False", "KubeletMissing")), limit, true, prove.Failed, "ready",
			"KubeletMissing, the kubelet is not installed"},
		{"not Ready, and nothing says why", all(unready, has(verdict, "False", "BootScriptMissing")), limit, true, prove.Failed, "ready", "BootScriptMissing"},
		{"not Ready, the platform's", all(unready, has(verdict, "False", "DiskErrors")), limit, true, prove.NoResult, "", "the platform's"},

		{"another taint", tainted("broken", ""), ready + limit, true, prove.Failed, "conditions",
			"has taint broken:NoExecute, which most nodes of the pool lack, after 5m0s"},
		{"cordoned", tainted("node.kubernetes.io/unschedulable", ""), soaked, true, prove.Passed, "", ""},
		{"to be scaled in", tainted("ToBeDeletedByClusterAutoscaler", "1"), soaked, true, prove.Passed, "", ""},
		{"candidate of a scale-in", tainted("DeletionCandidateOfClusterAutoscaler", "1"), soaked, true, prove.Passed, "", ""},
		{"to be disrupted by Karpenter", tainted("karpenter.sh/disrupted", ""), soaked, true, prove.Passed, "", ""},
		{"without a verdict yet", tainted(fleet.TaintUnproven, ""), soaked, true, prove.Passed, "", ""},
		{"without a verdict yet, by a rule", tainted(fleet.TaintReadiness, ""), soaked, true, prove.Passed, "", ""},
		{"pressure", has("DiskPressure", "True", "Full"), ready + limit, true, prove.Failed, "conditions", "condition DiskPressure=True,"},
		{"configuration not applied", has("ConfigurationApplied", "False", "Refused"), ready + limit, true, prove.Failed, "conditions",
			"condition ConfigurationApplied=False"},
		{"configuration applied", has("ConfigurationApplied", "True", "Applied"), soaked, true, prove.Passed, "", ""},
		{"as two of four siblings", oddSiblings(2), soaked, true, prove.Passed, "", ""},
		{"as one of four siblings", oddSiblings(1), ready + limit, true, prove.Failed, "conditions", "Odd"},

		{"DaemonSet missing", noCNI, ready + limit, true, prove.Failed, "daemonset",
			"has no Ready pod of DaemonSet kube-system/cni (no pod), after 5m0s"},
		{"DaemonSet not Ready", all(noCNI, beside(fleet.Pod{Name: "kube-system/cni-x", NotReadyWhy: "cni: CrashLoopBackOff"})),
			ready + limit, true, prove.Failed, "daemonset", "kube-system/cni (cni: CrashLoopBackOff)"},
		{"DaemonSet missing, its Node flaps", all(noCNI, readyAt(2*limit-time.Minute)), 2 * limit, true, prove.Failed, "daemonset", ""},
		{"DaemonSet kept off until the verdict", all(noCNI, tainted(fleet.TaintUnproven, "")), ready + limit, true, prove.NoResult, "",
			"has no pod of DaemonSet kube-system/cni, and the taint of Nodes without a verdict"},
		{"DaemonSet not Ready before the verdict", all(noCNI, tainted(fleet.TaintUnproven, ""), beside(fleet.Pod{Name: "kube-system/cni-x"})),
			ready + limit, true, prove.Failed, "daemonset", ""},
		{"DaemonSet updated, two pods", beside(fleet.Pod{Name: "kube-system/cni-x", NotReadyWhy: "ends"}), soaked, true, prove.Passed, "", ""},
		{"DaemonSet not Ready elsewhere either", all(noCNI, func(w *world, _ *prove.Clone) { w.Others[2].Pods = w.Others[2].Pods[1:] }),
			ready + limit, true, prove.NoResult, "", "so does pool1_2"},
		{"DaemonSet not known elsewhere", all(noCNI, func(w *world, _ *prove.Clone) { w.Others[2].Pods = nil }),
			ready + limit, true, prove.Failed, "daemonset", ""},

		{"restarted once", restarted(2*time.Minute, 1), 2*time.Minute + soak, true, prove.Passed, "", ""},
		{"restarts and restarts", restarted(6*time.Minute, 5), ready + limit + soak, true, prove.Failed, "restarts",
			"has not been Ready for 2m0s without a break (last: pod kube-system/cni-pool1-canary_1, 5 restarts), after 7m0s"},
		{"its Node flaps", readyAt(2*limit + soak - time.Minute), 2*limit + soak, true, prove.Failed, "restarts", "last: its Node"},

		{"no GPU", gpus("Standard_NC8", 0), ready + limit + soak, true, prove.Failed, "devices",
			"pool1-canary_1 has 0 of nvidia.com/gpu allocatable and its donor had 2: look for the driver's lines in its dmesg, and at the pod that registers nvidia.com/gpu, after 7m0s"},
		{"a GPU less", gpus("standard_nc8", 1), ready + limit + soak, true, prove.Failed, "devices", "has 1 of nvidia.com/gpu allocatable"},
		{"its GPUs", gpus("Standard_NC8", 2), soaked, true, prove.Passed, "", ""},
		{"no GPU, of another size", gpus("Standard_NC4", 0), soaked, true, prove.Passed, "", ""},
		{"no GPU in an outage", all(gpus("Standard_NC8", 0), away(time.Minute)), ready + limit + soak, true, prove.NoResult, "", "did not answer"},
		{"no GPU, its Node flaps", all(gpus("Standard_NC8", 0), readyAt(2*limit+soak-time.Minute)), 2*limit + soak, true, prove.Failed, "restarts", ""},

		{"its Node may be another", all(unregistered, only(func(c *prove.Clone) { c.Rivals = []string{"renamed"} })), limit, true, prove.NoResult, "",
			"has no Node, and node renamed reports that it is the instance"},
		{"beside a rival of its Node", only(func(c *prove.Clone) { c.Rivals = []string{"liar"} }), soaked, true, prove.Passed, "", ""},
		{"deleted", provisioning("Deleting"), soaked, false, prove.NoResult, "", "is being deleted"},
		{"evicted", only(func(c *prove.Clone) { c.Instance.Power = fleet.PowerDeallocated }), soaked, false, prove.NoResult, "", "deallocated"},
		{"evicted just now", only(func(c *prove.Clone) { c.Instance.Power = fleet.PowerDeallocating }), soaked, false, prove.NoResult, "", ""},

		{"an outage", all(unregistered, away(time.Minute)), limit, true, prove.NoResult, "", "did not answer"},
		{"an outage before", all(unregistered, away(0)), limit, true, prove.Failed, "join", ""},
		{"an outage, and no failure", away(time.Minute), soaked, true, prove.Passed, "", ""},
		{"one of ten others fails", all(unregistered, sick(1, 10, time.Minute)), limit, true, prove.NoResult, "",
			"4m0s; so does pool1_0, of another image"},
		{"one of eleven others fails", all(unregistered, sick(1, 11, time.Minute)), limit, true, prove.Failed, "join", ""},
		{"others failed before", all(unregistered, sick(3, 4, -time.Minute)), limit, true, prove.Failed, "join", ""},
		{"others are cordoned", all(unregistered, sick(1, 4, time.Minute), func(w *world, _ *prove.Clone) {
			w.Others[0].Node.Unschedulable = true
		}),
			limit, true, prove.Failed, "join", ""},
		{"others are deleted", all(unregistered, sick(1, 4, time.Minute), func(w *world, _ *prove.Clone) {
			w.Others[0].Instance.ProvisioningState = "Deleting"
		}),
			limit, true, prove.Failed, "join", ""},
		{"a new one fails, too", all(unregistered, another(-limit)), limit, true, prove.NoResult, "", "so does pool1_9"},
		{"a new one does not yet", all(unregistered, another(second)), limit, true, prove.Failed, "join", ""},
		{"a new one failed before", all(unregistered, another(-limit-second)), limit, true, prove.Failed, "join", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(2)
			c.change(w, &w.Clones[1])
			w.at(c.at)
			for _, ahead := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute} {
				j := prove.Judge(w.apart(ahead), w.base, 2)
				if j.Result != c.want || j.Gate != c.gate || !strings.Contains(j.Why, c.why) {
					t.Errorf("the API server's clock %s ahead of Azure's: %s, gate %q: %s; want %s, gate %q: %s", ahead, j.Result, j.Gate, j.Why, c.want, c.gate, c.why)
				}
			}
			w.at(c.at - second)
			if j := prove.Judge(w.Observation, w.base, 2); c.waits && (j.Result != prove.Waits || j.Gate != "" || j.Why == "") {
				t.Errorf("a second before: %s, gate %q: %s", j.Result, j.Gate, j.Why)
			}
		})
	}
}

func TestMissingInstances(t *testing.T) {
	for _, c := range []struct {
		clones, want int
		at           time.Duration
		result       prove.Result
		why          string
	}{
		{2, 3, limit - time.Second, prove.Waits, "1 instance to be made"},
		{2, 3, limit, prove.NoResult, "2 of 3 instances exist after 4m0s"},
		{0, 2, limit, prove.NoResult, "0 of 2"},
		{3, 2, limit, prove.Passed, "3 clones passed"}, // scaled by a person
	} {
		w := newWorld(c.clones)
		w.at(c.at)
		if j := prove.Judge(w.Observation, w.base, c.want); j.Result != c.result || !strings.Contains(j.Why, c.why) {
			t.Errorf("%d of %d after %s: %s, %s; want %s, %s", c.clones, c.want, c.at, j.Result, j.Why, c.result, c.why)
		}
	}
	// A failure says more than a missing instance.
	w := newWorld(1)
	noNode(&w.Clones[0])
	w.at(limit)
	if j := prove.Judge(w.Observation, w.base, 2); j.Result != prove.Failed || j.Gate != "join" {
		t.Errorf("%+v", j)
	}
}

func TestBaseline(t *testing.T) {
	booted := func(all []prove.Clone, boots ...time.Duration) []prove.Clone {
		all = all[:len(boots)]
		for i, d := range boots {
			all[i].Node.ReadySince = all[i].Instance.Created.Add(d)
			all[i].Node.Created = all[i].Node.ReadySince.Add(-time.Second)
		}
		return all
	}
	for _, c := range []struct {
		name        string
		siblings    []prove.Clone
		boot, limit time.Duration
	}{
		{"none", nil, 0, 15 * time.Minute},
		{"fast", booted(siblings(), 10*time.Second), 10 * time.Second, 3 * time.Minute},
		{"80 s are 3 minutes", booted(siblings(), 80*time.Second), 80 * time.Second, 3 * time.Minute},
		{"slow", booted(siblings(), 20*time.Second, 10*time.Minute), 10 * time.Minute, 16 * time.Minute},
		{"registered again", booted(siblings(), 2*time.Minute, 61*time.Minute), 2 * time.Minute, limit},
		{"Ready again a day later", func() []prove.Clone {
			all := booted(siblings(), 2*time.Minute)
			all[0].Node.ReadySince = all[0].Node.ReadySince.Add(24 * time.Hour)
			return all
		}(), 119 * time.Second, 3*time.Minute + 58500*time.Millisecond},
		{"one of ten is slow", func() (all []prove.Clone) {
			for range 3 {
				all = append(all, siblings()...)
			}
			booted(all[:1], 10*time.Minute)
			return all[:10]
		}(), 2 * time.Minute, limit},
		{"not Ready", func() []prove.Clone { all := siblings()[:1]; notReady(&all[0]); return all }(), 0, 15 * time.Minute},
	} {
		if b := baselineOf(c.siblings, ""); b.Boot != c.boot || b.Limit != c.limit {
			t.Errorf("%s: %s, limit %s; want %s, %s", c.name, b.Boot, b.Limit, c.boot, c.limit)
		}
	}
	all := siblings()
	all[1].Pods = nil                         // not read
	all[2].Pods = all[2].Pods[1:]             // without cni
	for _, name := range []string{"a", "b"} { // while it is updated
		all[0].Pods = append(all[0].Pods, fleet.Pod{Name: name, DaemonSet: "two", Ready: true}, fleet.Pod{DaemonSet: "bad"})
	}
	all[2].Pods = append(all[2].Pods, fleet.Pod{DaemonSet: "bad"})
	all[3].Pods, all[3].Node = nil, nil // not registered
	b := baselineOf(all, "node-pool1_1")
	want := prove.Baseline{Boot: 2 * time.Minute, Limit: limit, Siblings: 3, Marks: []string{"taint gpu=yes:NoSchedule"},
		DaemonSets: []string{"kube-system/log"}, Donor: "node-pool1_1", MachineID: "machine-pool1_1"}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var read prove.Baseline
	if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, b) {
		t.Errorf("%v: %s is read as %+v", err, text, read)
	}
}

func TestPair(t *testing.T) {
	a, b := clone("pool1", 1, begun), clone("pool1", 2, begun)
	const vm = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5"
	for i, c := range []*prove.Clone{&a, &b} {
		c.Instance.HostName, c.Instance.VMID = strings.ToUpper(c.Node.Name), fmt.Sprint(vm, i)
		c.Node.SystemUUID = c.Instance.VMID
	}
	younger := *a.Node // of another name, it claims the instance
	younger.Name, younger.Created, younger.SystemUUID = "liar", begun.Add(time.Hour), ""
	stalest := younger // of an earlier pool
	stalest.Name, stalest.SystemUUID = "stale", vm+"9"
	copies := younger // and another the vmId, in the other byte order
	copies.Name, copies.ProviderID, copies.SystemUUID = "copies", "k3s://copies", "1e9f5e5c-5b6d-0e4f-8a9d-0c1b2a3f4e50"
	upper := *b.Node
	upper.ProviderID = strings.Replace(upper.ProviderID, "resourceGroups/g", "resourceGroups/G", 1)
	stale := clone("pool1", 3, begun)
	stale.Instance.HostName, stale.Instance.VMID, stale.Node.SystemUUID = stale.Node.Name, vm+"3", vm+"4"
	none := fleet.Instance{ID: set + "pool1/virtualMachines/4"}
	got := prove.Pair([]fleet.Instance{a.Instance, b.Instance, stale.Instance, none}, []fleet.Node{younger, stalest, copies, *a.Node, upper, *stale.Node})
	if len(got) != 4 || !reflect.DeepEqual(got[0].Node, a.Node) || !slices.Equal(got[0].Rivals, []string{"copies", "liar"}) ||
		!reflect.DeepEqual(got[1].Node, &upper) || got[1].Rivals != nil || got[2].Node != nil || got[3].Node != nil {
		t.Errorf("%+v", got)
	}
}

// TestAnyObservation judges clones, others and clusters in random states.
func TestAnyObservation(t *testing.T) {
	gates := strings.Fields("boot join ready slow identity verdict conditions daemonset restarts")
	results := map[prove.Result]int{}
	failed := map[string]int{}
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		one := func(n int) bool { return r.IntN(n) == 0 }
		w := newWorld(1 + r.IntN(4))
		change := func(c *prove.Clone) {
			c.Instance.Created = begun.Add(time.Duration(r.IntN(240)) * time.Second)
			for _, x := range []func(){
				func() { notReady(c) }, func() { c.Node.ReadySince = begun.Add(time.Duration(r.IntN(1200)) * time.Second) },
				func() { c.Node.Created = c.Node.ReadySince },
				func() { c.Node.MachineID = "machine-pool1_2" }, func() {
					condition(c, fleet.ConditionBootSucceeded, "False", []string{"DNSFailed", "DiskErrors", "UnitFailed"}[r.IntN(3)])
				},
				func() { condition(c, "Odd", "True", "") }, func() { c.Pods = c.Pods[1:] },
				func() { c.Pods[0].ReadySince = begun.Add(time.Duration(r.IntN(1200)) * time.Second) },
				func() { c.Instance.Power = []fleet.PowerState{"", "stopped", "deallocated", "starting"}[r.IntN(4)] },
				func() { c.Instance.ProvisioningState = []string{"Failed", "Creating", "Deleting"}[r.IntN(3)] },
				func() { noNode(c) },
			} {
				if one(8) {
					x()
				}
			}
		}
		for i := range w.Clones {
			change(&w.Clones[i])
		}
		if one(4) {
			w.Outage = begun.Add(time.Minute)
		}
		w.at(time.Duration(r.IntN(1500)) * time.Second)
		want := 1 + r.IntN(4)
		o := w.Observation
		j := prove.Judge(o, w.base, want)
		results[j.Result]++
		failed[j.Gate]++

		check := func(r prove.Result, gate, why string) {
			known := gate == "" || slices.Contains(gates, gate)
			if !known || (gate != "") != (r == prove.Failed) || r != prove.Passed && why == "" || r == prove.Unproven {
				t.Errorf("seed %d: %s at gate %q: %s", seed, r, gate, why)
			}
		}
		check(j.Result, j.Gate, j.Why)
		passed := 0
		for _, f := range j.Findings {
			check(f.Result, f.Gate, f.Why)
			if f.Result == prove.Passed {
				passed++
			}
			// Nothing is waited for without end.
			if f.Result == prove.Waits && w.Now.Sub(begun) >= 4*time.Minute+2*limit+soak {
				t.Errorf("seed %d: %s waits: %s", seed, f.Clone, f.Why)
			}
		}
		if j.Result == prove.Passed && (passed != len(w.Clones) || passed < want) {
			t.Errorf("seed %d: passed with %d of %d: %+v", seed, passed, want, j)
		}
		r.Shuffle(len(o.Clones), func(a, b int) { o.Clones[a], o.Clones[b] = o.Clones[b], o.Clones[a] })
		if again := prove.Judge(o, w.base, want); !reflect.DeepEqual(j, again) {
			t.Errorf("seed %d: in another order:\n%+v, want\n%+v", seed, again, j)
		}
		if o.Outage.IsZero() {
			// An ill cluster makes failures no result, and changes nothing else.
			o.Outage = o.Now.Add(time.Hour)
			for i, f := range prove.Judge(o, w.base, want).Findings {
				if was := j.Findings[i]; !reflect.DeepEqual(f, was) && (was.Result != prove.Failed || was.Gate == "identity" || f.Result != prove.NoResult) {
					t.Errorf("seed %d: in an ill cluster %+v, was %+v", seed, f, was)
				}
			}
		}
	}
	for _, gate := range gates {
		if failed[gate] < 5 {
			t.Errorf("%d observations fail at the gate %s", failed[gate], gate)
		}
	}
	for _, r := range []prove.Result{prove.Passed, prove.Failed, prove.NoResult, prove.Waits} {
		if results[r] < 50 {
			t.Errorf("%d observations are %s", results[r], r)
		}
	}
}

// TestOutcomeWrongClockFailsNoClone has the API server's clock be wrong, beside Nodes whose kubelets'
// is right and reported up to five minutes ago, one of them within a minute: no good clone fails, and each passes in the end.
func TestOutcomeWrongClockFailsNoClone(t *testing.T) {
	for _, ahead := range []time.Duration{-3 * time.Hour, -40 * time.Minute, -20 * time.Minute, -2 * time.Minute, time.Hour} {
		passed := false
		for after := 2 * time.Minute; after < 2*time.Hour; after += 10 * time.Second {
			w := newWorld(1)
			w.at(after)
			w.Others[0].Node.Reported = begun.Add(after - time.Minute)
			w.Clones[0].Node.Reported = begun.Add(after.Truncate(5*time.Minute) + time.Minute)
			w.Now = w.Now.Add(ahead)
			j := prove.Judge(w.Observation, w.base, 1)
			if passed = passed || j.Result == prove.Passed; j.Result == prove.Failed || j.Result == prove.NoResult {
				t.Fatalf("the API server's clock is %s ahead, after %s: %s %s: %s", ahead, after, j.Result, j.Gate, j.Why)
			}
		}
		if !passed {
			t.Errorf("the API server's clock is %s ahead: the clone never passes", ahead)
		}
	}
}
