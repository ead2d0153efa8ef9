package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// matches reports whether a condition has the status and the reason of an assessment.
func matches(c *corev1.NodeCondition, a assess.Assessment) bool {
	return c != nil && string(c.Status) == statusOf(a) && c.Reason == reasonOf(a)
}

// setNodeCondition sets the condition on a Node, if it is another. It returns whether its
// status changed.
func (r *reconciler) setNodeCondition(ctx context.Context, node *corev1.Node, a assess.Assessment) (changed bool, err error) {
	if node == nil {
		return false, nil
	}
	now := metav1.NewTime(r.config.Now())
	want := corev1.NodeCondition{
		Type: fleet.ConditionBootSucceeded, Status: corev1.ConditionStatus(statusOf(a)), Reason: reasonOf(a), Message: a.ConditionMessage(),
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
	changed = true
	if c := conditionFor(node, a); c != nil {
		if matches(c, a) && c.Message == want.Message {
			return false, nil
		}
		if c.Status == want.Status {
			changed, want.LastTransitionTime = false, c.LastTransitionTime
		}
	}
	// By server-side apply we own this condition of the list and no other. The UID
	// keeps it off a Node that was created again.
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node.Name, "uid": node.UID},
		"status": map[string]any{"conditions": []corev1.NodeCondition{want}},
	})
	if err != nil {
		return false, fmt.Errorf("condition of Node %s: %w", node.Name, err)
	}
	on := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	err = r.client.Status().Patch(ctx, on, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(fieldManager), client.ForceOwnership)
	if apierrors.IsConflict(err) { // another Node of that name, whose event follows
		return false, nil
	}
	if err := ignoreGone(err); err != nil {
		return false, fmt.Errorf("set the condition %s of Node %s: %w", fleet.ConditionBootSucceeded, node.Name, err)
	}
	return changed, nil
}

// conditionFor returns our condition on a Node, unless it was written of an earlier machine
// than the assessed one: see NodeView.of.
func conditionFor(node *corev1.Node, a assess.Assessment) *corev1.NodeCondition {
	c := conditionOf(node)
	if c == nil || a.Created.IsZero() {
		return c
	}
	made := a.Created.Add(-assess.Clocks)
	if node.CreationTimestamp.Time.Before(made) && c.LastTransitionTime.Time.Before(made) && c.LastHeartbeatTime.Time.Before(made) {
		return nil
	}
	return c
}

func conditionOf(node *corev1.Node) *corev1.NodeCondition {
	for i, c := range node.Status.Conditions {
		if c.Type == fleet.ConditionBootSucceeded {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// writes is how often a condition is tried where others write at the same time.
const writes = 5

// setMemberCondition sets the condition on a Machine or one of Azure's machines, if it
// is another.
//
// The lists of conditions of older API versions are written as a whole, by server
// and client alike. So the list is read, our condition is put in, and the rest is
// sent back as it was, on condition that it is unchanged.
func (r *reconciler) setMemberCondition(ctx context.Context, m member, a assess.Assessment) error {
	if m.published.status == statusOf(a) && m.published.reason == reasonOf(a) && m.published.message == a.ConditionMessage() {
		return nil
	}
	on := m.gvk.Kind + " " + m.namespace + "/" + m.name
	for range writes {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(m.gvk)
		if err := r.client.Get(ctx, types.NamespacedName{Namespace: m.namespace, Name: m.name}, u); err != nil {
			if err = ignoreGone(err); err != nil {
				err = fmt.Errorf("read %s: %w", on, err)
			}
			return err
		}
		if u.GetUID() != m.uid {
			return nil
		}
		list := withCondition(u, a, r.config.Now())
		if list == nil {
			return nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": u.GetResourceVersion()}, "status": map[string]any{"conditions": list},
		})
		if err != nil {
			return fmt.Errorf("condition of %s: %w", on, err)
		}
		err = r.client.Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, body), client.FieldOwner(fieldManager))
		if apierrors.IsConflict(err) {
			continue
		}
		if err := ignoreGone(err); err != nil {
			return fmt.Errorf("set the condition %s of %s: %w", fleet.ConditionBootSucceeded, on, err)
		}
		return nil
	}
	return fmt.Errorf("set the condition %s of %s: others write it all the time", fleet.ConditionBootSucceeded, on)
}

// withCondition returns an object's conditions with ours as it should be; nil where
// it is so already. Others' are as they were found.
func withCondition(u *unstructured.Unstructured, a assess.Assessment, now time.Time) []any {
	old, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // another type is as good as none
	status, reason, message := statusOf(a), reasonOf(a), a.ConditionMessage()
	want := map[string]any{"type": fleet.ConditionBootSucceeded, "status": status, "reason": reason, "lastTransitionTime": now.UTC().Format(time.RFC3339)}
	if message != "" || !severities(u) {
		want["message"] = message
	}
	if severities(u) && a.State.Bad() {
		want["severity"] = "Error"
	}
	at := -1
	for i, c := range old {
		m, ok := c.(map[string]any)
		if !ok || m["type"] != fleet.ConditionBootSucceeded {
			continue
		}
		at = i
		if m["status"] == status {
			want["lastTransitionTime"] = m["lastTransitionTime"]
			if text, _ := m["message"].(string); m["reason"] == reason && text == message {
				return nil
			}
		}
	}
	if at < 0 {
		return append(old, want)
	}
	old[at] = want
	return old
}

// severities reports whether an object has Cluster API's own conditions, as in its API
// versions up to v1beta1, or those of Kubernetes.
func severities(u *unstructured.Unstructured) bool {
	switch u.GroupVersionKind().Version {
	case "v1alpha3", "v1alpha4", "v1beta1":
		return true
	}
	return false
}
