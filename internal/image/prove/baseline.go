package prove

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Baseline is what clones are compared with. A canary's is computed once, and saved.
type Baseline struct {
	Boot       time.Duration `json:"boot,omitempty"`       // 90th percentile of the siblings' boots; 0: not known
	Limit      time.Duration `json:"limit"`                // for a clone to become Ready
	Siblings   int           `json:"siblings,omitempty"`   // that Marks are of; 0 switches the gate conditions off
	Marks      []string      `json:"marks,omitempty"`      // taints and conditions of at least half of them
	DaemonSets []string      `json:"daemonSets,omitempty"` // with a Ready pod on each sibling whose Pods are known
	Donor      string        `json:"donor,omitempty"`      // a Node
	MachineID  string        `json:"machineId,omitempty"`  // the donor's
	Tuned      []string      `json:"tuned,omitempty"`      // the version's tunings: more gates
	DonorBoot  Boot          `json:"donorBoot,omitzero"`   // only with Tuned
	Devices    fleet.Devices `json:"devices,omitempty"`    // of the donor before its drain
}

// NewBaseline computes it from the Observation's Others: those whose Node is Ready
// count. tags are the image version's, which say what its donor was; nil without one.
func NewBaseline(o Observation, tags map[string]string) Baseline {
	donor := tags[fleet.TagBuiltFrom]
	b := Baseline{Limit: 15 * time.Minute, Devices: fleet.Devices(tags[fleet.TagDevices])}
	var boots []time.Duration
	marks, sets, read := map[string]int{}, map[string]int{}, 0
	for _, c := range o.Others {
		if c.Node == nil {
			continue
		}
		if c.Node.Name == donor && c.Node.MachineID != "" {
			b.Donor, b.MachineID = donor, c.Node.MachineID
		}
		if !c.Node.Ready {
			continue
		}
		b.Siblings++
		for _, m := range marksOf(c.Node) {
			marks[m]++
		}
		// More than an hour means that the Node was registered again, or the instance reimaged.
		if d := cameUp(c.Node).Sub(o.inCluster(c.Instance.Created)); d > 0 && d <= time.Hour {
			boots = append(boots, d)
		}
		if c.Pods != nil {
			read++
		}
		for _, p := range c.Pods {
			if p == podOf(c.Pods, p.DaemonSet) && p.Ready && p.DaemonSet != "" {
				sets[p.DaemonSet]++
			}
		}
	}
	b.Marks, b.DaemonSets = atLeast(marks, (b.Siblings+1)/2), atLeast(sets, read)
	if slices.Sort(boots); len(boots) > 0 {
		b.Boot = boots[(9*len(boots)+9)/10-1]
		b.Limit = max(3*time.Minute, b.Boot+b.Boot/2+time.Minute)
	}
	return b
}

// atLeast returns what was counted so often, in order.
func atLeast(counts map[string]int, n int) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(name string) bool { return counts[name] < n })
}

// cameUp is when a Ready Node was so first, as far as it shows: a change to Ready more than five
// minutes after the registration is a later one.
func cameUp(n *fleet.Node) time.Time {
	if n.ReadySince.Sub(n.Created) > 5*time.Minute {
		return n.Created
	}
	return n.ReadySince
}

// marksOf are a Node's taints and those conditions that are no good news, but for what Ortet,
// Kubernetes' controllers and autoscalers set on nodes of any image.
func marksOf(n *fleet.Node) (marks []string) {
	for _, t := range n.Taints {
		anyImages := func(prefix string) bool { return strings.HasPrefix(t.Key, prefix) }
		owners := []string{"node.kubernetes.io/", "ToBeDeletedBy", "DeletionCandidateOf", "karpenter.sh/"}
		if !slices.ContainsFunc(owners, anyImages) && !unproven(t) {
			marks = append(marks, "taint "+strings.TrimSuffix(t.Key+"="+t.Value, "=")+":"+t.Effect)
		}
	}
	for _, c := range n.Conditions {
		good := "False" // as of all pressures
		if c.Type == "ConfigurationApplied" {
			good = "True"
		}
		if c.Status != good && c.Type != fleet.ConditionBootSucceeded {
			marks = append(marks, "condition "+c.Type+"="+c.Status)
		}
	}
	slices.Sort(marks)
	return marks
}
