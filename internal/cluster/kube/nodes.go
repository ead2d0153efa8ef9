package kube

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/conversion"
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
	return conversion.Node(node), nil
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
				if !yield(conversion.Node(&page.Items[i]), nil) {
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
	patch := map[string]any{"metadata": metadata}
	if node.Unschedulable {
		patch["spec"] = map[string]any{"unschedulable": true}
	}
	return c.patchNode(ctx, "annotate node", node.Name, patch)
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

// Forget deletes the Node of that UID, and its node password; what is gone is no error.
func (c *Cluster) Forget(ctx context.Context, name, uid string) error {
	id := types.UID(uid)
	err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return &fleet.Error{Op: "delete node", Resource: "node " + name, Err: err}
	}
	return c.ForgetPassword(ctx, name, "k3s")
}

// ForgetPassword deletes the Secret with the hash of a node password, by which k3s and RKE2 refuse another
// disk of the name (k3s documentation, "Node registration").
func (c *Cluster) ForgetPassword(ctx context.Context, node, distribution string) error {
	name := node + ".node-password." + distribution
	a := act{op: "delete the node password", on: "secret kube-system/" + name, access: cluster.Access{Verb: "delete", Resource: "secrets", Namespace: metav1.NamespaceSystem, Name: name}}
	err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return a.fail(ctx, err)
}
