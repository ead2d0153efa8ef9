package kubesim

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// What follows is done where Server.Controllers is set: the part of the controller
// manager and of the scheduler that a cluster of plain pods needs.

const (
	// nodeGrace is how long a Node may be silent before it becomes Unknown: the
	// kubelet renews every 10 s (--node-monitor-grace-period of Kubernetes < 1.32).
	nodeGrace = 40 * time.Second
	// unreachableLasts is how long pods stay bound to such a Node, as the admission
	// plugin DefaultTolerationSeconds has it.
	unreachableLasts = 5 * time.Minute
)

// control takes notice of a write.
func (s *Server) control(t *table, old, e *entry) {
	switch t.kind.resource {
	case "nodes":
		s.controlNode(old, e)
	case "leases":
		lease, ok := ofEntry[coordinationv1.Lease](e)
		if ok && lease.Namespace == corev1.NamespaceNodeLease {
			s.heartbeat(lease.Name)
		}
		return
	case "replicasets":
		if e == nil {
			s.dismissOwned(old)
		}
	case "pods":
	default:
		return
	}
	if !s.reconciles {
		s.reconciles = true
		s.after(0, s.reconcile)
	}
}

func ofEntry[T any](e *entry) (*T, bool) {
	if e == nil {
		return nil, false
	}
	o, ok := any(e.object).(*T)
	return o, ok
}

// heartbeat is a sign of life of a Node. What counts is when it came, not what it
// says.
func (s *Server) heartbeat(node string) {
	if s.heartbeats == nil {
		s.heartbeats = map[string]time.Time{}
	}
	s.heartbeats[node] = time.Now()
	s.after(nodeGrace, func() { s.checkNode(node) })
}

func (s *Server) controlNode(old, e *entry) {
	if e == nil {
		name := old.object.GetName()
		delete(s.heartbeats, name)
		leases := s.tables["leases"]
		if lease := leases.entries[keyOf(corev1.NamespaceNodeLease, name)]; lease != nil {
			s.remove(leases, lease) // it is the Node's
		}
		return
	}
	node, ok := ofEntry[corev1.Node](e)
	if !ok {
		return
	}
	if old == nil {
		s.heartbeat(node.Name)
	}
	// The taints follow what the Node is; their writes come here again.
	next := node.DeepCopy()
	switch condition := readiness(node); {
	case condition == nil:
		return
	case condition.Status == corev1.ConditionTrue:
		taint(next, "")
	case condition.Status == corev1.ConditionUnknown:
		taint(next, corev1.TaintNodeUnreachable)
	default:
		taint(next, corev1.TaintNodeNotReady)
	}
	if !equality.Semantic.DeepEqual(node.Spec.Taints, next.Spec.Taints) {
		s.replace(s.tables["nodes"], e, next)
	}
}

func readiness(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// taint gives a Node the taints of being not ready or unreachable, or for "" takes
// both away.
func taint(node *corev1.Node, key string) {
	var taints []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Key == key {
			return
		}
		if t.Key != corev1.TaintNodeUnreachable && t.Key != corev1.TaintNodeNotReady {
			taints = append(taints, t)
		}
	}
	if key != "" {
		at := now()
		taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at})
	}
	node.Spec.Taints = taints
}

// checkNode calls a Node Unknown that has been silent for too long.
func (s *Server) checkNode(name string) {
	e := s.tables["nodes"].entries[name]
	node, ok := ofEntry[corev1.Node](e)
	if !ok || time.Since(s.heartbeats[name]) < nodeGrace {
		return
	}
	next, at := node.DeepCopy(), now()
	if condition := readiness(next); condition == nil || condition.Status == corev1.ConditionUnknown {
		return
	}
	for i := range next.Status.Conditions {
		c := &next.Status.Conditions[i]
		c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", at
	}
	s.replace(s.tables["nodes"], e, next)
	pods := s.tables["pods"]
	for _, e := range slices.Clone(pods.sorted) {
		if pod, ok := ofEntry[corev1.Pod](e); ok && pod.Spec.NodeName == name && ready(pod) {
			next := pod.DeepCopy()
			for i := range next.Status.Conditions {
				if c := &next.Status.Conditions[i]; c.Type == corev1.PodReady {
					c.Status, c.LastTransitionTime = corev1.ConditionFalse, at
				}
			}
			s.replace(pods, e, next)
		}
	}
	s.after(unreachableLasts, func() { s.evictUnreachable(name) })
}

// evictUnreachable deletes the pods of a Node that is still Unknown, but for those
// of DaemonSets, which tolerate it.
func (s *Server) evictUnreachable(name string) {
	node, ok := ofEntry[corev1.Node](s.tables["nodes"].entries[name])
	if !ok || !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		// It may have come back and fallen silent again meanwhile.
		return t.Key == corev1.TaintNodeUnreachable && t.TimeAdded != nil && time.Since(t.TimeAdded.Time) >= unreachableLasts
	}) {
		return
	}
	pods := s.tables["pods"]
	for _, e := range slices.Clone(pods.sorted) {
		pod, ok := ofEntry[corev1.Pod](e)
		if !ok || pod.Spec.NodeName != name || pod.DeletionTimestamp != nil {
			continue
		}
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "DaemonSet" {
			s.dismiss(pods, e)
		}
	}
}

// reconcile brings ReplicaSets to their number of pods and binds pods to nodes.
func (s *Server) reconcile() {
	s.reconciles = false
	for _, e := range slices.Clone(s.tables["replicasets"].sorted) {
		if set, ok := ofEntry[appsv1.ReplicaSet](e); ok && set.DeletionTimestamp == nil {
			s.fill(e, set)
		}
	}
	s.schedule()
}

// fill makes the pods that a ReplicaSet lacks and deletes the youngest of those
// beyond its number. A pod that its selector no longer matches is released.
func (s *Server) fill(e *entry, set *appsv1.ReplicaSet) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return // as a controller that cannot work on it
	}
	pods := s.tables["pods"]
	var active []*entry
	status := appsv1.ReplicaSetStatus{ObservedGeneration: set.Generation}
	for _, e := range slices.Clone(pods.within(set.Namespace)) {
		pod, ok := ofEntry[corev1.Pod](e)
		if owner := metav1.GetControllerOf(e.object); !ok || owner == nil || owner.UID != set.UID || pod.DeletionTimestamp != nil || over(pod) {
			continue
		}
		if !selector.Matches(labels.Set(pod.Labels)) {
			released := pod.DeepCopy()
			released.OwnerReferences = slices.DeleteFunc(released.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == set.UID })
			s.replace(pods, e, released)
			continue
		}
		active = append(active, e)
		if ready(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}
	want := 1
	if set.Spec.Replicas != nil {
		want = int(*set.Spec.Replicas)
	}
	for range want - len(active) {
		active = append(active, s.podFrom(set.Spec.Template, set, "ReplicaSet", ""))
	}
	if extra := len(active) - want; extra > 0 {
		slices.SortFunc(active, func(a, b *entry) int {
			return b.object.GetCreationTimestamp().Compare(a.object.GetCreationTimestamp().Time)
		})
		for _, e := range active[:extra] {
			s.dismiss(pods, e)
		}
		active = active[extra:]
	}
	status.Replicas = int32(len(active)) // #nosec G115 -- at most what was an int32
	status.FullyLabeledReplicas = status.Replicas
	if !equality.Semantic.DeepEqual(set.Status, status) {
		next := set.DeepCopy()
		next.Status = status
		s.replace(s.tables["replicasets"], e, next)
	}
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// schedule binds each pod to the node with the fewest pods of those that it may be
// on: Ready, schedulable, without a taint that it does not tolerate.
func (s *Server) schedule() {
	pods, count := s.tables["pods"], map[string]int64{}
	var waiting []*entry
	for _, e := range pods.sorted {
		pod, ok := ofEntry[corev1.Pod](e)
		switch {
		case !ok || over(pod):
		case pod.Spec.NodeName != "":
			count[pod.Spec.NodeName]++
		case pod.DeletionTimestamp == nil:
			waiting = append(waiting, e)
		}
	}
	for _, e := range waiting {
		pod, ok := ofEntry[corev1.Pod](e)
		if !ok {
			continue
		}
		var best *corev1.Node
		for _, e := range s.tables["nodes"].sorted {
			node, ok := ofEntry[corev1.Node](e)
			if ok && fits(pod, node, count[node.Name]) && (best == nil || count[node.Name] < count[best.Name]) {
				best = node
			}
		}
		next, condition := pod.DeepCopy(), corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now()}
		if best != nil {
			next.Spec.NodeName = best.Name
			count[best.Name]++
		} else {
			condition.Status, condition.Reason = corev1.ConditionFalse, corev1.PodReasonUnschedulable
			condition.Message = fmt.Sprintf("0/%d nodes are available: none is Ready and schedulable for this pod, with room.", len(s.tables["nodes"].sorted))
		}
		old := slices.IndexFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
		switch {
		case old < 0:
			next.Status.Conditions = append(next.Status.Conditions, condition)
		case next.Status.Conditions[old].Status == condition.Status:
			continue
		default:
			next.Status.Conditions[old] = condition
		}
		s.replace(pods, e, next)
	}
}

func fits(pod *corev1.Pod, node *corev1.Node, count int64) bool {
	condition := readiness(node)
	if condition == nil || condition.Status != corev1.ConditionTrue || node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	if most, ok := node.Status.Allocatable[corev1.ResourcePods]; ok && count >= most.Value() {
		return false
	}
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			return false
		}
	}
	return true
}

// tolerates is for the operators Equal and Exists.
func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" && t.Operator == corev1.TolerationOpExists || t.Key == taint.Key) &&
		(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
}
