package fleet

import (
	"maps"
	"slices"
	"strings"
)

// AKSMark returns the mark of a scale set that AKS manages, by a Node's labels or the set's
// own id and tags, or "". AKS Engine, which is served, labels its Nodes with
// kubernetes.azure.com/cluster too, but names its own resource group there.
func AKSMark(labels map[string]string, pool ResourceID, tags map[string]string) string {
	const managed = "MC_"
	if in := labels["kubernetes.azure.com/cluster"]; strings.HasPrefix(strings.ToUpper(in), managed) {
		return "label kubernetes.azure.com/cluster=" + in
	}
	if version := labels["kubernetes.azure.com/node-image-version"]; version != "" {
		return "label kubernetes.azure.com/node-image-version=" + version
	}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if strings.HasPrefix(strings.ToLower(k), "aks-managed-") {
			return "tag " + k
		}
	}
	if group := pool.Segment("resourceGroups"); strings.HasPrefix(strings.ToUpper(group), managed) {
		return "resource group " + group
	}
	return ""
}
