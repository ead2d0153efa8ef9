// Package conversion makes the fleet's nouns of the API server's objects. It is for adapters and
// for the controller, and links no client.
package conversion

import (
	"cmp"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// Node keeps of a Node what Ortet needs, so that the rest can be collected.
func Node(n *corev1.Node) fleet.Node {
	out := fleet.Node{
		Name: n.Name, UID: string(n.UID), Revision: n.ResourceVersion, ProviderID: n.Spec.ProviderID,
		OS:            cmp.Or(n.Labels[corev1.LabelOSStable], n.Status.NodeInfo.OperatingSystem),
		Architecture:  cmp.Or(n.Status.NodeInfo.Architecture, n.Labels[corev1.LabelArchStable]),
		Zone:          cmp.Or(n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelFailureDomainBetaZone]),
		Unschedulable: n.Spec.Unschedulable,
		Annotations:   n.Annotations, Labels: n.Labels,
		BootID: n.Status.NodeInfo.BootID, MachineID: n.Status.NodeInfo.MachineID, SystemUUID: n.Status.NodeInfo.SystemUUID,
		OSImage: n.Status.NodeInfo.OSImage, Kernel: n.Status.NodeInfo.KernelVersion,
		Runtime: n.Status.NodeInfo.ContainerRuntimeVersion, Kubelet: n.Status.NodeInfo.KubeletVersion,
		Created:     n.CreationTimestamp.Time,
		NotReadyWhy: "its kubelet has not reported yet",
	}
	// AKS Engine's own mark, by which kamino knows a control plane node.
	out.ControlPlane = n.Labels["kubernetes.io/role"] == "master"
	for _, role := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd"} {
		if _, ok := n.Labels[role]; ok {
			out.ControlPlane = true
		}
	}
	for _, address := range n.Status.Addresses {
		if _, err := netip.ParseAddr(address.Address); err == nil {
			out.Addresses = append(out.Addresses, address.Address)
		}
	}
	for name, quantity := range n.Status.Allocatable {
		// As in Kubernetes, an extended resource has a domain, and that is not kubernetes.io.
		if s := string(name); strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) {
			if out.Devices == nil {
				out.Devices = map[string]int64{}
			}
			out.Devices[s] = quantity.Value()
		}
	}
	for _, taint := range n.Spec.Taints {
		out.Taints = append(out.Taints, fleet.Taint{Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect)})
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			out.Conditions = append(out.Conditions, fleet.Condition{Type: string(condition.Type), Status: string(condition.Status), Reason: condition.Reason,
				Message: condition.Message, Since: condition.LastTransitionTime.Time, Written: condition.LastHeartbeatTime.Time})
			continue
		}
		if condition.Status != corev1.ConditionUnknown { // which a controller wrote
			out.Reported = condition.LastHeartbeatTime.Time
		}
		if condition.Status == corev1.ConditionTrue {
			out.Ready, out.ReadySince, out.NotReadyWhy = true, condition.LastTransitionTime.Time, ""
			continue
		}
		out.Ready, out.ReadySince = false, condition.LastTransitionTime.Time
		out.NotReadyWhy = cmp.Or(strings.Trim(condition.Reason+": "+condition.Message, ": "), "its kubelet gives no reason")
	}
	return out
}

// Record is what a ConfigMap holds.
func Record(m *corev1.ConfigMap) fleet.Record {
	return fleet.Record{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, Data: m.Data, Binary: m.BinaryData}
}
