package prove

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// begun is when a clone's boot began, by Azure's clock. None began before it was requested.
func (o Observation) begun(c Clone) time.Time {
	if c.Instance.Created.After(o.Begun) {
		return c.Instance.Created
	}
	return o.Begun
}

// judge takes a clone through the gates: the first that does not hold decides.
func (o Observation) judge(c Clone, b Baseline) Finding {
	i, n, age := c.Instance, c.Node, o.AzureNow.Sub(o.begun(c))
	late := age >= b.Limit
	result := func(r Result, gate, format string, args ...any) Finding {
		return Finding{Clone: i.Name, Result: r, Gate: gate, Why: i.Name + " " + fmt.Sprintf(format, args...)}
	}
	// by is for gates with a limit: until it is due, the clone is waited for.
	by := func(due bool, gate, format string, args ...any) Finding {
		if !due {
			return result(Waits, "", format, args...)
		}
		return result(Failed, gate, format+", after %s", append(args, short(age))...)
	}
	power := func(states ...fleet.PowerState) bool { return slices.Contains(states, i.Power) }
	deleting := strings.EqualFold(i.ProvisioningState, "Deleting")
	switch {
	case deleting && o.timedOut(c):
		return result(Failed, "boot", "had no Node, and Azure deleted it %s after its creation, as resilient creation does where that times out", short(age))
	case deleting:
		return result(NoResult, "", "is being deleted")
	case power(fleet.PowerDeallocating, fleet.PowerDeallocated):
		return result(NoResult, "", "is %s, as by an eviction", i.Power)
	case n == nil && late && len(c.Rivals) > 0: // it may be the instance's
		return result(NoResult, "", "has no Node, and node %s reports that it is the instance", c.Rivals[0])
	case n == nil && late && power("", fleet.PowerStarting):
		return result(NoResult, "", "was not started by Azure within %s (%s)", short(age), i.ProvisioningState)
	case n == nil && power(fleet.PowerStopping, fleet.PowerStopped):
		return by(late, "boot", "is %s and has no Node", i.Power)
	case n == nil && !strings.EqualFold(i.ProvisioningState, "Succeeded"):
		return by(late, "boot", "has no Node, and its provisioning state is %s", i.ProvisioningState)
	case n == nil:
		return by(late, "join", "runs and has no Node")
	}
	if twin := o.twin(n, b); twin != "" {
		return result(Failed, "identity", "has the machine id of %s", twin)
	}
	took := cameUp(n).Sub(o.inCluster(o.begun(c)))
	if o.behind() { // the kubelet, which wrote its Node's times, may go by Azure's clock
		took = min(took, cameUp(n).Sub(o.begun(c)))
	}
	if n.Reported.After(o.Now) {
		o.Now = n.Reported
	}
	switch {
	case !n.Ready:
		return by(late, "ready", "is not Ready (%s)", n.NotReadyWhy)
	case took > b.Limit+fleet.ClockPrecision:
		return result(Failed, "slow", "took %s to become Ready, more than %s; 90%% of the pool took at most %s",
			short(took), short(b.Limit), short(b.Boot))
	}
	due := func(soak time.Duration) bool {
		return age >= 2*b.Limit+soak || o.Now.Sub(n.ReadySince) >= b.Limit+soak
	}
	if falseVerdict(n) != "" {
		return by(due(0), "verdict", "is Ready, and its condition %s is False", fleet.ConditionBootSucceeded)
	}
	for _, m := range marksOf(n) {
		if b.Siblings > 0 && !slices.Contains(b.Marks, m) {
			return by(due(0), "conditions", "has %s, which most nodes of the pool lack", m)
		}
	}
	last, since := "its Node", n.ReadySince
	for _, set := range b.DaemonSets {
		p := podOf(c.Pods, set)
		if c.Pods == nil { // not read yet
			return by(false, "", "is Ready, and its pods are still to be read")
		}
		if p.Name == "" && due(0) && slices.ContainsFunc(n.Taints, unproven) {
			return result(NoResult, "", "has no pod of DaemonSet %s, and the taint of Nodes without a verdict", set)
		}
		if !p.Ready {
			return by(due(0), "daemonset", "has no Ready pod of DaemonSet %s (%s)", set, p.NotReadyWhy)
		}
		if p.ReadySince.After(since) {
			last, since = fmt.Sprintf("pod %s, %s", p.Name, fleet.Count(int(p.Restarts), "restart")), p.ReadySince
		}
	}
	if o.Now.Sub(since) < o.Soak {
		return by(due(o.Soak), "restarts", "has not been Ready for %s without a break (last: %s)", short(o.Soak), last)
	}
	if name, was, is := b.Devices.Fewer(i.Size, n.Devices); name != "" {
		return by(due(o.Soak), "devices", "has %d of %s allocatable and its donor had %d: "+
			"look for the driver's lines in its dmesg, and at the pod that registers %s",
			is, name, was, name)
	}
	if len(b.Tuned) == 0 {
		return Finding{Clone: i.Name, Result: Passed}
	}
	gate, why := o.tuned(c, b)
	switch {
	case gate != "":
		return result(Failed, gate, "%s", why)
	case why != "" && b.DonorBoot.Known() && o.Now.Sub(since) < reportFor:
		return by(false, "", "is Ready, and its boot report is still to come")
	}
	return Finding{Clone: i.Name, Result: Passed, Why: why}
}

// timedOut reports whether resilient creation is why a clone is deleted now.
func (o Observation) timedOut(c Clone) bool {
	return o.Recreates && c.Node == nil && o.AzureNow.Sub(o.begun(c)) >= fleet.RecreatedAfter
}

// behind reports whether the API server's clock is behind those of kubelets, as their reports show.
func (o Observation) behind() bool {
	return slices.ContainsFunc(slices.Concat(o.Clones, o.Others), func(c Clone) bool {
		return c.Node != nil && c.Node.Reported.Sub(o.Now) > 10*fleet.ClockPrecision
	})
}

// twin names the Node of the pool whose machine id a clone has, the donor first; "" without one. The
// donor's counts also when its Node is deleted; those of other pools may say what they like.
func (o Observation) twin(n *fleet.Node, b Baseline) (twin string) {
	if n.MachineID == b.MachineID && n.Name != b.Donor {
		return b.Donor
	}
	for _, c := range slices.Concat(o.Clones, o.Others) {
		other := c.Node
		if n.MachineID != "" && other != nil && other.MachineID == n.MachineID && other.Name != n.Name && (twin == "" || other.Name < twin) {
			twin = other.Name
		}
	}
	return twin
}

// falseVerdict is the reason of the controller's condition if the boot did not succeed; "" otherwise.
func falseVerdict(n *fleet.Node) string {
	if n != nil {
		for _, c := range n.Conditions {
			if c.Type == fleet.ConditionBootSucceeded && c.Status == "False" {
				return c.Reason
			}
		}
	}
	return ""
}

// unproven reports whether a taint keeps pods off until the verdict, those of DaemonSets too.
func unproven(t fleet.Taint) bool {
	return t.Key == fleet.TaintUnproven || t.Key == fleet.TaintReadiness
}

// podOf returns a DaemonSet's pod, preferably a Ready one: while the set is updated
// there may be two.
func podOf(pods []fleet.Pod, set string) fleet.Pod {
	pod := fleet.Pod{NotReadyWhy: "no pod"}
	for _, p := range pods {
		if p.DaemonSet == set && !pod.Ready {
			pod = p
		}
	}
	return pod
}
