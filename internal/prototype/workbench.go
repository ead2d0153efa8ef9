package prototype

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// A Workbench is a node on which a copy of the donor's disk is worked on.
type Workbench struct {
	Node     fleet.Node
	Instance fleet.Instance
	LUN      int32 // free on it
}

// CannotServe says why a node cannot be the donor's workbench, as far as
// Kubernetes knows; "" means that it may. The words are for counting.
func CannotServe(donor, node fleet.Node) string {
	id, _ := fleet.ParseProviderID(donor.ProviderID) // without one, no pool is its own
	_, err := fleet.ParseProviderID(node.ProviderID)
	_, marked := node.Annotations[fleet.AnnotationCapture]
	switch {
	case node.Name == donor.Name:
		return "is the donor"
	case err != nil:
		return "is not an instance of a Uniform scale set"
	case !strings.EqualFold(node.OS, "linux"):
		return "is not Linux"
	case node.Architecture != donor.Architecture:
		return "has another architecture"
	case !node.Ready:
		return "is not Ready"
	case node.Unschedulable:
		return "is cordoned"
	case marked:
		return "is being captured"
	case UsedBy(node, id.Parent()) != "":
		return "is another capture's workbench"
	case node.Annotations[fleet.AnnotationKuredReboot] != "":
		return "is about to reboot"
	}
	return ""
}

// UsedBy gives the pool whose capture uses the node as its workbench; "" where none
// but the given pool's does.
func UsedBy(node fleet.Node, pool fleet.ResourceID) fleet.ResourceID {
	by := fleet.ResourceID(node.Annotations[fleet.AnnotationWorkbench])
	if by.Equal(pool) {
		return ""
	}
	return by
}

// RankWorkbenches sorts candidates, the best first: of the donor's pool, no
// control plane, of the donor's zone, then by name.
func RankWorkbenches(donor fleet.Node, candidates []fleet.Node) {
	pool, _ := fleet.ParseProviderID(donor.ProviderID)
	rank := func(n fleet.Node) (r int) {
		if id, err := fleet.ParseProviderID(n.ProviderID); err != nil || !id.Parent().Equal(pool.Parent()) {
			r += 4
		}
		if n.ControlPlane {
			r += 2
		}
		if n.Zone != donor.Zone {
			r++
		}
		return r
	}
	slices.SortFunc(candidates, func(a, b fleet.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
}

// BenchLUN gives a free LUN of an instance that may be the donor's workbench,
// or why it cannot serve. The highest is taken, since volume drivers take the
// lowest, so that the two do not race for one.
func BenchLUN(donor, instance fleet.Instance, size fleet.SizeInfo) (lun int32, why string) {
	switch {
	case instance.Zone != donor.Zone:
		return 0, "is in another zone"
	case instance.Power != fleet.PowerRunning:
		return 0, "is " + string(instance.Power)
	case instance.ProvisioningState != "" && instance.ProvisioningState != Succeeded && instance.ProvisioningState != Updating:
		return 0, "is " + instance.ProvisioningState
	}
	taken := map[int32]bool{}
	for _, d := range instance.DataDisks {
		taken[d.LUN] = true
	}
	for lun := min(size.MaxDataDisks, 64) - 1; lun >= 0; lun-- {
		if !taken[lun] && int32(len(taken)) < size.MaxDataDisks {
			return lun, ""
		}
	}
	return 0, "has no room for a disk"
}

// Tally counts reasons: "2 are in another zone" would need grammar, so it
// gives "is in another zone (2), is not Ready (1)", most frequent first.
func Tally(reasons map[string]int) string {
	words := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	})
	for i, w := range words {
		words[i] = fmt.Sprintf("%s (%d)", w, reasons[w])
	}
	return strings.Join(words, ", ")
}
