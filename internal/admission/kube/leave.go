package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// attempts limits the retries of a write after a conflict.
const attempts = 8

// Leave implements admission.Cluster. The first pod is evicted after three requests.
func (c *Cluster) Leave(ctx context.Context, node string, request wire.LeaveRequest) (wire.Leave, error) {
	if err := request.Validate(); err != nil {
		return wire.Leave{}, &fleet.Error{Op: "leave", Resource: "node " + node, Kind: fleet.KindInvalid, Err: err}
	}
	if c.drainer == nil {
		return wire.Leave{}, &fleet.Error{Op: "leave", Resource: "node " + node, Kind: fleet.KindInvalid, Err: errors.New("nothing to drain with")}
	}
	until := c.now().Add(time.Duration(request.Within) * time.Second)
	uid, err := c.mark(ctx, node, request)
	if fleet.Is(err, fleet.KindNotFound) {
		return wire.Leave{Drained: true}, nil
	}
	if err != nil {
		return wire.Leave{}, err
	}
	left := max(until.Sub(c.now()), time.Second)
	err = c.drainer.Drain(ctx, node, cluster.DrainOptions{UID: string(uid), GracePeriod: -1, Deadline: left, Force: true, Fit: true}, nil)
	var blocked *cluster.BlockedError
	switch {
	case err == nil, fleet.Is(err, fleet.KindNotFound):
		return wire.Leave{Drained: true}, nil
	case ctx.Err() == nil && errors.As(err, &blocked):
		answer := wire.Leave{}
		for _, pod := range blocked.Pods {
			answer.Left = append(answer.Left, pod.Pod)
		}
		return answer, nil
	}
	return wire.Leave{}, err
}

// mark cordons, taints, and takes out of load balancers, by one write. It returns the
// Node's UID.
func (c *Cluster) mark(ctx context.Context, name string, request wire.LeaveRequest) (types.UID, error) {
	return c.changeNode(ctx, "mark a node that leaves", name, func(node *corev1.Node) (map[string]any, error) {
		m := wire.Leaving{Cause: request.Cause, At: c.now().UTC().Truncate(time.Second), Stay: request.Stay, BootID: node.Status.NodeInfo.BootID}
		_, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]
		m.Cordoned, m.Excluded = !node.Spec.Unschedulable, !excluded
		if before, ok := leavingOf(node); ok {
			// Marked before: what stands there now is our own doing.
			m.Cordoned, m.Excluded = before.Cordoned, before.Excluded
		}
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		taints := append(withoutLeaving(node.Spec.Taints), corev1.Taint{Key: wire.LeavingMark, Value: request.Cause[:min(len(request.Cause), 63)], Effect: corev1.TaintEffectNoSchedule})
		metadata := map[string]any{"annotations": map[string]any{wire.LeavingMark: string(text)}}
		if !excluded {
			metadata["labels"] = map[string]any{corev1.LabelNodeExcludeBalancers: ""}
		}
		return map[string]any{"metadata": metadata, "spec": map[string]any{"unschedulable": true, "taints": taints}}, nil
	})
}

// Return implements admission.Cluster.
func (c *Cluster) Return(ctx context.Context, name string) error {
	_, err := c.changeNode(ctx, "give a node back", name, unmark)
	if fleet.Is(err, fleet.KindNotFound) {
		return nil
	}
	return err
}

// giveBack is Return for a Node that was read.
func (c *Cluster) giveBack(ctx context.Context, node *corev1.Node) error {
	if _, marked := node.Annotations[wire.LeavingMark]; !marked {
		return nil
	}
	return c.Return(ctx, node.Name)
}

// unmark returns the patch that undoes what a departure marked; nil where nothing is.
func unmark(node *corev1.Node) (map[string]any, error) {
	m, ok := leavingOf(node)
	if !ok {
		return nil, nil
	}
	metadata := map[string]any{"annotations": map[string]any{wire.LeavingMark: nil}}
	if m.Excluded {
		metadata["labels"] = map[string]any{corev1.LabelNodeExcludeBalancers: nil}
	}
	spec := map[string]any{"taints": withoutLeaving(node.Spec.Taints)}
	if m.Cordoned {
		spec["unschedulable"] = nil
	}
	return map[string]any{"metadata": metadata, "spec": spec}, nil
}

// leavingOf reads the mark. One that cannot be read undoes nothing but itself.
func leavingOf(node *corev1.Node) (wire.Leaving, bool) {
	text, ok := node.Annotations[wire.LeavingMark]
	if !ok {
		return wire.Leaving{}, false
	}
	var m wire.Leaving
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return wire.Leaving{}, true
	}
	return m, true
}

// cameBack reports that a node that left is Ready after another boot: the cause of its
// leave is over.
func cameBack(node *corev1.Node) bool {
	m, ok := leavingOf(node)
	ready, _ := readiness(node)
	return ok && ready && m.BootID != "" && node.Status.NodeInfo.BootID != "" && m.BootID != node.Status.NodeInfo.BootID
}

func withoutLeaving(taints []corev1.Taint) []corev1.Taint {
	out := slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == wire.LeavingMark })
	if out == nil {
		out = []corev1.Taint{}
	}
	return out
}

// changeNode applies the patch that the function computes from the current Node, with
// retries after conflicts, and returns its UID. A nil patch changes nothing. A Node that
// was made under its name meanwhile is another, and fleet.KindNotFound.
func (c *Cluster) changeNode(ctx context.Context, op, name string, patch func(*corev1.Node) (map[string]any, error)) (uid types.UID, err error) {
	nodes, on := c.client.CoreV1().Nodes(), "node "+name
	var last error
	for range attempts {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return uid, fail(ctx, op, on, err)
		}
		if uid != "" && node.UID != uid {
			return uid, &fleet.Error{Op: op, Resource: on, Kind: fleet.KindNotFound, Err: errors.New("it was deleted, and another Node has its name")}
		}
		uid = node.UID
		change, err := patch(node)
		if err != nil || change == nil {
			return uid, fail(ctx, op, on, err)
		}
		metadata, ok := change["metadata"].(map[string]any)
		if !ok {
			return uid, fail(ctx, op, on, errors.New("a patch without metadata"))
		}
		metadata["resourceVersion"] = node.ResourceVersion
		body, err := json.Marshal(change)
		if err != nil {
			return uid, fail(ctx, op, on, err)
		}
		if _, last = nodes.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}); last == nil {
			return uid, nil
		}
		if !apierrors.IsConflict(last) {
			return uid, fail(ctx, op, on, last)
		}
	}
	return uid, fail(ctx, op, on, fmt.Errorf("it changed %d times meanwhile: %w", attempts, last))
}
