package kube

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// nodesPage bounds what one answer holds: a node with fifty images takes some
// 15 KiB.
const nodesPage = 250

func onNode(op, verb, node string) act {
	return act{op: op, on: "node " + node, access: cluster.Access{Verb: verb, Resource: "nodes"}}
}

// Node reads one node.
func (c *Cluster) Node(ctx context.Context, name string) (fleet.Node, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fleet.Node{}, onNode("read node", "get", name).fail(ctx, err)
	}
	return lean(node), nil
}

// Nodes walks all nodes by name, in pages of one snapshot of the cluster; where
// that snapshot expires meanwhile, the rest is of a newer one.
func (c *Cluster) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		options := metav1.ListOptions{Limit: nodesPage}
		for {
			page, err := c.client.CoreV1().Nodes().List(ctx, options)
			if err != nil {
				var expired apierrors.APIStatus
				if apierrors.IsResourceExpired(err) && errors.As(err, &expired) && options.Continue != "" {
					// The server gives a token that goes on in a newer snapshot.
					if next := expired.Status().Continue; next != "" && next != options.Continue {
						options.Continue = next
						continue
					}
				}
				yield(fleet.Node{}, act{op: "list nodes", access: cluster.Access{Verb: "list", Resource: "nodes"}}.fail(ctx, err))
				return
			}
			for i := range page.Items {
				if !yield(lean(&page.Items[i]), nil) {
					return
				}
				page.Items[i] = corev1.Node{}
			}
			if options.Continue = page.Continue; options.Continue == "" {
				return
			}
		}
	}
}

// Annotate sets and removes annotations by one merge patch.
func (c *Cluster) Annotate(ctx context.Context, node string, annotations map[string]*string) error {
	if len(annotations) == 0 {
		return nil
	}
	return c.patchNode(ctx, "annotate node", node, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// AnnotateUnchanged is Annotate with the resourceVersion that was read.
func (c *Cluster) AnnotateUnchanged(ctx context.Context, node fleet.Node, annotations map[string]*string) error {
	metadata := map[string]any{"annotations": annotations, "resourceVersion": node.Revision}
	return c.patchNode(ctx, "annotate node", node.Name, map[string]any{"metadata": metadata})
}

// SetUnschedulable cordons or uncordons by one merge patch.
func (c *Cluster) SetUnschedulable(ctx context.Context, node string, unschedulable bool) error {
	op, value := "cordon node", any(true)
	if !unschedulable {
		// The field is absent on a schedulable node.
		op, value = "uncordon node", nil
	}
	return c.patchNode(ctx, op, node, map[string]any{"spec": map[string]any{"unschedulable": value}})
}

// Isolate is one merge patch, so that no request comes between its two halves.
func (c *Cluster) Isolate(ctx context.Context, node string) error {
	return c.patchNode(ctx, "isolate node", node, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{corev1.LabelNodeExcludeBalancers: "true"}},
		"spec":     map[string]any{"unschedulable": true},
	})
}

func (c *Cluster) patchNode(ctx context.Context, op, node string, patch any) error {
	a := onNode(op, "patch", node)
	body, err := json.Marshal(patch)
	if err != nil {
		return a.fail(ctx, err)
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	return a.fail(ctx, err)
}

// fieldManager names Ortet in managedFields.
const fieldManager = "ortet"

// lean keeps of a node what Ortet needs, so that the rest can be collected.
func lean(n *corev1.Node) fleet.Node {
	out := fleet.Node{
		Name: n.Name, UID: string(n.UID), Revision: n.ResourceVersion, ProviderID: n.Spec.ProviderID,
		OS:            firstOf(n.Labels[corev1.LabelOSStable], n.Status.NodeInfo.OperatingSystem),
		Architecture:  firstOf(n.Status.NodeInfo.Architecture, n.Labels[corev1.LabelArchStable]),
		Zone:          firstOf(n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelFailureDomainBetaZone]),
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
	for _, taint := range n.Spec.Taints {
		out.Taints = append(out.Taints, fleet.Taint{Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect)})
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			out.Conditions = append(out.Conditions, fleet.Condition{Type: string(condition.Type), Status: string(condition.Status), Reason: condition.Reason})
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
		out.NotReadyWhy = firstOf(joined(condition.Reason, condition.Message), "its kubelet gives no reason")
	}
	return out
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
