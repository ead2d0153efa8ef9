package kubesim

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budgetsOf returns the budgets that cover the pod, counted.
func (s *Server) budgetsOf(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var covering []*policyv1.PodDisruptionBudget
	t := s.tables["poddisruptionbudgets"]
	for _, e := range t.within(pod.Namespace) {
		budget, ok := e.object.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if counted, ok := s.recount(t, e).object.(*policyv1.PodDisruptionBudget); ok {
			covering = append(covering, counted)
		}
	}
	return covering
}

// recount does the disruption controller's work, when somebody looks: it gives
// the budget with its status as it is now. All else it gives as it is.
func (s *Server) recount(t *table, e *entry) *entry {
	budget, ok := e.object.(*policyv1.PodDisruptionBudget)
	if !ok || t.entries[e.key] != e {
		return e // also one of a snapshot
	}
	status := s.count(budget)
	if equality.Semantic.DeepEqual(status, budget.Status) {
		return e
	}
	next := budget.DeepCopy()
	next.Status = status
	return s.replace(t, e, next)
}

// count counts as the disruption controller does. What it cannot count allows
// nothing.
func (s *Server) count(budget *policyv1.PodDisruptionBudget) policyv1.PodDisruptionBudgetStatus {
	status := *budget.Status.DeepCopy()
	condition := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, ObservedGeneration: budget.Generation}
	going := map[string]metav1.Time{}
	expected, wanted, healthy, err := s.expect(budget, going)
	if err != nil {
		status.DisruptionsAllowed = 0
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, policyv1.SyncFailedReason, err.Error()
	} else {
		status.ObservedGeneration, status.ExpectedPods, status.DesiredHealthy, status.CurrentHealthy = budget.Generation, expected, wanted, healthy
		status.DisruptionsAllowed = max(0, healthy-wanted)
		status.DisruptedPods = going
		if len(going) == 0 {
			status.DisruptedPods = nil
		}
		if expected <= 0 {
			// So that a budget is safe while its first pods come.
			status.DisruptionsAllowed = 0
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
		if status.DisruptionsAllowed > 0 {
			condition.Status, condition.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
		}
	}
	condition.LastTransitionTime = now()
	for _, c := range budget.Status.Conditions {
		if c.Type == condition.Type && c.Status == condition.Status {
			condition.LastTransitionTime = c.LastTransitionTime
		}
	}
	status.Conditions = []metav1.Condition{condition}
	return status
}

// failure says why a budget could not be counted.
func failure(status policyv1.PodDisruptionBudgetStatus) string {
	for _, c := range status.Conditions {
		if c.Type == policyv1.DisruptionAllowedCondition && c.Reason == policyv1.SyncFailedReason {
			return c.Message
		}
	}
	return ""
}

// disruptionLasts is how long a pod whose eviction a budget allowed counts as
// gone, if it does not go.
const disruptionLasts = 2 * time.Minute

// expect returns how many pods there shall be, how many of them have to be
// healthy, and how many are. It adds the pods that are about to go.
func (s *Server) expect(budget *policyv1.PodDisruptionBudget, going map[string]metav1.Time) (expected, wanted, healthy int32, err error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return 0, 0, 0, err
	}
	spec := budget.Spec
	byScale := spec.MaxUnavailable != nil || spec.MinAvailable != nil && spec.MinAvailable.Type == intstr.String
	pods, scale := int32(0), map[types.UID]int32{} // of the pods' controllers
	for _, e := range s.tables["pods"].within(budget.Namespace) {
		pod, ok := e.object.(*corev1.Pod)
		if !ok || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		pods++
		since, goes := budget.Status.DisruptedPods[pod.Name]
		switch goes = goes && time.Since(since.Time) < disruptionLasts; {
		case pod.DeletionTimestamp != nil:
		case goes:
			going[pod.Name] = since
		case ready(pod):
			healthy++
		}
		if owner := metav1.GetControllerOf(pod); owner != nil && byScale {
			if err := s.addScale(scale, pod, owner); err != nil {
				return 0, 0, 0, err
			}
		}
	}
	expected = pods
	if byScale {
		expected = 0
		for _, n := range scale {
			expected += n
		}
	}
	value := spec.MinAvailable
	if spec.MaxUnavailable != nil {
		value = spec.MaxUnavailable
	}
	if value == nil {
		return expected, 0, healthy, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(expected), true)
	if err != nil {
		return 0, 0, 0, err
	}
	wanted = int32(n)
	if spec.MaxUnavailable != nil {
		wanted = max(0, expected-wanted)
	}
	return expected, wanted, healthy, nil
}

// addScale adds how many pods the controller of one shall have: a ReplicaSet
// says it, and of other kinds that have a scale, which are not served here, the
// pods that there are count.
func (s *Server) addScale(scale map[types.UID]int32, pod *corev1.Pod, owner *metav1.OwnerReference) error {
	switch owner.Kind {
	case "ReplicaSet", "StatefulSet", "ReplicationController":
	default:
		return fmt.Errorf("found no controllers for pod %q", pod.Name)
	}
	e := s.tables["replicasets"].entries[keyOf(pod.Namespace, owner.Name)]
	if owner.Kind != "ReplicaSet" || e == nil || e.object.GetUID() != owner.UID {
		scale[owner.UID]++
		return nil
	}
	scale[owner.UID] = 1
	if set, ok := e.object.(*appsv1.ReplicaSet); ok && set.Spec.Replicas != nil {
		scale[owner.UID] = *set.Spec.Replicas
	}
	return nil
}
