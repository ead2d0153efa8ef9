package kubesim

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// evict serves the eviction subresource of a pod, by policy/v1.
func (s *Server) evict(c *call, t *table) (answer, error) {
	var eviction policyv1.Eviction
	if err := decode(c.header.Get("Content-Type"), c.body, &eviction); err != nil {
		return answer{}, err
	}
	if eviction.Name != c.Name {
		return answer{}, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	old := t.entries[c.key()]
	if old == nil {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	pod, ok := old.object.(*corev1.Pod)
	if !ok {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	unhealthyOf, err := s.disrupt(pod)
	if err != nil {
		return answer{}, err
	}
	options := metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		options = *eviction.DeleteOptions
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		if unhealthyOf != "" && p.ResourceVersion == nil {
			// It takes any conflict for one with its own precondition that the
			// pod is still not ready.
			return answer{}, refusedBy(fmt.Sprintf("The disruption budget %s is still being processed by the server.", unhealthyOf), 10)
		}
		return answer{}, apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name,
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID))
	}
	// The pod says by itself why it went.
	marked := pod.DeepCopy()
	disrupted(&marked.Status, now())
	old = s.replace(t, old, marked)
	if p := options.Preconditions; p != nil && p.ResourceVersion != nil {
		if *p.ResourceVersion != pod.ResourceVersion {
			return answer{}, apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name, errModified)
		}
		p.ResourceVersion = &marked.ResourceVersion
	}
	if _, err := s.deleteOne(t, old, options, Deletion{User: c.User, Eviction: true, Pod: pod}); err != nil {
		return answer{}, err
	}
	return said(c.accept, http.StatusCreated, schema.GroupVersionKind{Version: "v1", Kind: "Status"},
		&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}), nil
}

// disrupted sets the condition of a pod that is evicted.
func disrupted(status *corev1.PodStatus, at metav1.Time) {
	condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: at,
		Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == condition.Type {
			if c.Status == condition.Status {
				condition.LastTransitionTime = c.LastTransitionTime
			}
			*c = condition
			return
		}
	}
	status.Conditions = append(status.Conditions, condition)
}

// disrupt asks the pod's budget, before anything else of the eviction is looked
// at. It names the budget of a pod that may go since it is not ready.
func (s *Server) disrupt(pod *corev1.Pod) (unhealthyOf string, err error) {
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodPending, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return "", nil
	}
	covering := s.budgetsOf(pod)
	if len(covering) == 0 {
		return "", nil
	}
	if len(covering) > 1 {
		// So says the API server, without a reason.
		return "", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
	}
	budget, status := covering[0], covering[0].Status
	if !ready(pod) {
		policy := budget.Spec.UnhealthyPodEvictionPolicy
		if policy != nil && *policy == policyv1.AlwaysAllow || status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0 {
			return budget.Name, nil
		}
	}
	if status.DisruptionsAllowed > 0 {
		// From here on the pod counts as gone, whether or not it goes.
		next := budget.DeepCopy()
		if next.Status.DisruptedPods == nil {
			next.Status.DisruptedPods = map[string]metav1.Time{}
		}
		next.Status.DisruptedPods[pod.Name] = now()
		t := s.tables["poddisruptionbudgets"]
		s.replace(t, t.entries[keyOf(budget.Namespace, budget.Name)], next)
		return "", nil
	}
	why := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", budget.Name)
	failed := failure(status)
	switch {
	case failed != "":
		why += " because it failed sync: " + failed
	case status.CurrentHealthy <= status.DesiredHealthy:
		why = fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, status.DesiredHealthy, status.CurrentHealthy)
	}
	return "", refusedBy(why, 0)
}

// refusedBy is how a budget refuses.
func refusedBy(why string, retryAfter int) error {
	refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: why}}
	return refused
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
