package kubesim

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budgetsOf gives the budgets that cover the pod, counted.
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

func (s *Server) count(budget *policyv1.PodDisruptionBudget) policyv1.PodDisruptionBudgetStatus {
	status := *budget.Status.DeepCopy()
	status.ObservedGeneration = budget.Generation
	status.DisruptedPods = nil
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	pods, healthy := 0, int32(0)
	scale := map[types.UID]int{} // of the pods' controllers
	for _, e := range s.tables["pods"].within(budget.Namespace) {
		pod, ok := e.object.(*corev1.Pod)
		if !ok || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		pods++
		if pod.DeletionTimestamp == nil && ready(pod) {
			healthy++
		}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			if n, ok := s.replicas(pod.Namespace, owner); ok {
				scale[owner.UID] = n
			} else {
				scale[owner.UID]++
			}
		}
	}
	expected := pods
	var wanted int
	switch spec := budget.Spec; {
	case spec.MaxUnavailable != nil:
		expected = total(scale)
		if wanted, err = intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, expected, true); err == nil {
			wanted = max(0, expected-wanted)
		}
	case spec.MinAvailable != nil:
		if spec.MinAvailable.Type == intstr.String {
			expected = total(scale)
		}
		wanted, err = intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, expected, true)
	}
	if err != nil {
		wanted = pods // as where the controller fails: nothing may go
	}
	status.ExpectedPods, status.DesiredHealthy, status.CurrentHealthy = int32(expected), int32(wanted), healthy
	status.DisruptionsAllowed = max(0, healthy-int32(wanted))
	if expected <= 0 {
		status.DisruptionsAllowed = 0
	}
	allowed(&status)
	return status
}

// allowed sets the condition that says whether a pod may go.
func allowed(status *policyv1.PodDisruptionBudgetStatus) {
	condition := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
		ObservedGeneration: status.ObservedGeneration, LastTransitionTime: now()}
	if status.DisruptionsAllowed > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	for _, c := range status.Conditions {
		if c.Type == condition.Type && c.Status == condition.Status {
			condition.LastTransitionTime = c.LastTransitionTime
		}
	}
	status.Conditions = []metav1.Condition{condition}
}

// replicas is how many pods a controller shall have, where that is known.
func (s *Server) replicas(namespace string, owner *metav1.OwnerReference) (int, bool) {
	if owner.Kind != "ReplicaSet" {
		return 0, false
	}
	e := s.tables["replicasets"].entries[keyOf(namespace, owner.Name)]
	if e == nil || e.object.GetUID() != owner.UID {
		return 0, false
	}
	set, ok := e.object.(*appsv1.ReplicaSet)
	if !ok || set.Spec.Replicas == nil {
		return 1, ok
	}
	return int(*set.Spec.Replicas), true
}

func total(scale map[types.UID]int) int {
	sum := 0
	for _, n := range scale {
		sum += n
	}
	return sum
}
