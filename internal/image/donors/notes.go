package donors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Notes name what somebody wrote for auto mode and what has no effect: annotations of the
// pool's nodes, and ignored names that no node of the cluster has.
func (p Policy) Notes(nodes, cluster []fleet.Node) (notes []string) {
	named := append([]string{p.PatchAnnotation, p.RebootAnnotation}, p.IgnoreAnnotations...)
	for _, n := range nodes {
		for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
			domain, _, _ := strings.Cut(key, "/")
			switch value := n.Annotations[key]; {
			case !strings.EqualFold(domain, fleet.AnnotationDomain) || slices.Contains(named, key):
			case !fleet.OwnAnnotation(key):
				notes = append(notes, fmt.Sprintf("annotation %s of node %s has no effect: Ortet has none of that name; remove it, or give it by --ignore-annotation", key, n.Name))
			case key == fleet.AnnotationCapture && value == "", key == fleet.AnnotationWorkbench && fleet.ResourceID(value).Segment("virtualMachineScaleSets") == "":
				notes = append(notes, fmt.Sprintf("annotation %s of node %s has the value %.80q, which no capture writes; if none runs, remove it", key, n.Name, value))
			}
		}
	}
	for _, name := range p.IgnoreNodes {
		if !slices.ContainsFunc(cluster, func(n fleet.Node) bool { return n.Name == name }) {
			notes = append(notes, "--ignore-node "+name+" has no effect: the cluster has no node of that name")
		}
	}
	return notes
}
