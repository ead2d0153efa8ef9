package clustertest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// graceOf reads what is left to a pod, "gone" where it is not there, "-" where
// it is not being deleted.
func (w *world) graceOf(namespace, name string) string {
	w.Helper()
	pod, err := w.admin.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "gone"
	case err != nil:
		w.Fatalf("read pod: %v", err)
	case pod.DeletionTimestamp == nil:
		return "-"
	case pod.DeletionGracePeriodSeconds == nil:
		return "none"
	}
	return fmt.Sprint(*pod.DeletionGracePeriodSeconds)
}

func grace(seconds int64) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

// serverDelete is what becomes of pods that are deleted.
func serverDelete(w *world) {
	ns, owner := w.namespace()
	node := w.cordoned() // without a kubelet
	pods := w.admin.CoreV1().Pods(ns)
	pod := w.pod(ns, node, "bound", owner, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(100)) })
	w.pod(ns, "", "unbound", owner, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"clustertest/never": "true"} })
	done := w.pod(ns, node, "done", owner, nil)
	done.Status.Phase = corev1.PodSucceeded
	_, err := pods.UpdateStatus(w.ctx, done, metav1.UpdateOptions{})
	w.must(err, "end a pod")
	w.pod(ns, node, "held", owner, func(p *corev1.Pod) { p.Finalizers = []string{"example.com/keep"} })

	err = pods.Delete(w.ctx, "bound", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("Operation cannot be fulfilled on Pod %q: the UID in the precondition (another) does not match the UID in record (%s). The object might have been deleted and then recreated", "bound", pod.UID))
	for _, step := range []struct {
		pod     string
		options metav1.DeleteOptions
		want    string
	}{
		{"bound", metav1.DeleteOptions{}, "100"},
		{"bound", metav1.DeleteOptions{}, "100"},
		{"bound", grace(200), "100"},
		{"bound", grace(50), "50"},
		{"bound", grace(80), "50"},
		{"bound", grace(0), "gone"},
		{"unbound", grace(50), "gone"},
		{"done", grace(50), "gone"},
		{"held", grace(0), "0"},
		{"held", grace(0), "0"},
	} {
		w.must(pods.Delete(w.ctx, step.pod, step.options), "delete "+step.pod)
		if got := w.graceOf(ns, step.pod); got != step.want {
			w.Errorf("%s, deleted with %+v: %s, want %s", step.pod, step.options.GracePeriodSeconds, got, step.want)
		}
	}
	_, err = pods.Patch(w.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/keep","example.com/more"]}}`), metav1.PatchOptions{})
	w.says(err, metav1.StatusReasonInvalid, "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted")
	_, err = pods.Patch(w.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.must(err, "take the finalizer away")
	if got := w.graceOf(ns, "held"); got != "gone" {
		w.Errorf("without its finalizer: %s", got)
	}
	w.says(pods.Delete(w.ctx, "bound", metav1.DeleteOptions{}), metav1.StatusReasonNotFound, `pods "bound" not found`)
}

// evict sends one eviction: client-go itself would send some again.
func (w *world) evict(namespace, name string, options *metav1.DeleteOptions) error {
	return w.admin.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(name).SubResource("eviction").
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: options}).
		MaxRetries(0).Do(w.ctx).Error()
}

func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status()
	}
	return metav1.Status{}
}

// refused tests that a budget refused an eviction.
func (w *world) refused(err error, why string) {
	w.Helper()
	w.says(err, metav1.StatusReasonTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget.")
	status := statusOf(err)
	again := int32(0)
	if strings.Contains(why, "still being processed") {
		again = 10
	}
	if status.Code != http.StatusTooManyRequests || status.Details == nil || len(status.Details.Causes) != 1 ||
		status.Details.Causes[0].Type != policyv1.DisruptionBudgetCause || status.Details.Causes[0].Message != why || status.Details.RetryAfterSeconds != again {
		w.Errorf("refused with %+v, want %q", status, why)
	}
}

// dbPod makes a pod that the budgets for "db" cover.
func (w *world) dbPod(namespace, node, name string, owner metav1.OwnerReference, status func(*corev1.PodStatus)) *corev1.Pod {
	w.Helper()
	pod := w.pod(namespace, node, name, owner, func(p *corev1.Pod) { p.Labels["app"] = "db" })
	if status == nil {
		return pod
	}
	status(&pod.Status)
	pod, err := w.admin.CoreV1().Pods(namespace).UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
	w.must(err, "report pod status")
	return pod
}

func unready(s *corev1.PodStatus) { s.Conditions[0].Status = corev1.ConditionFalse }

// counted waits until the budget counts as many healthy pods, and allows as
// many disruptions as said.
func (w *world) counted(namespace, name string, healthy, allowed int32) {
	w.Helper()
	w.eventually("budget's count", func() (string, bool) {
		budget, err := w.admin.PolicyV1().PodDisruptionBudgets(namespace).Get(w.ctx, name, metav1.GetOptions{})
		w.must(err, "read budget")
		s := budget.Status
		return fmt.Sprintf("%+v", s), s.CurrentHealthy == healthy && s.DisruptionsAllowed == allowed
	})
}

// serverEvict is which evictions a budget refuses, in which words.
func serverEvict(w *world) {
	ns, owner := w.namespace()
	node := w.cordoned() // without a kubelet
	pods := w.admin.CoreV1().Pods(ns)
	first := w.dbPod(ns, node, "db-0", owner, nil)
	w.dbPod(ns, node, "db-1", owner, nil)
	w.dbPod(ns, node, "db-2", owner, unready)
	w.dbPod(ns, node, "db-pending", owner, func(s *corev1.PodStatus) { s.Phase = corev1.PodPending; unready(s) })
	w.dbPod(ns, node, "db-failed", owner, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed; unready(s) })
	w.budget(ns, "db-stays", 2, 2, 0)

	// The budget is asked before the precondition is looked at.
	other := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
	w.refused(w.evict(ns, "db-0", &other), "The disruption budget db-stays needs 2 healthy pods and has 2 currently")
	w.refused(w.evict(ns, "db-0", nil), "The disruption budget db-stays needs 2 healthy pods and has 2 currently")
	for name, want := range map[string]string{"db-pending": "1", "db-failed": "gone", "db-2": "1"} {
		// They are not healthy, and the healthy ones are enough.
		w.must(w.evict(ns, name, nil), "evict "+name)
		if got := w.graceOf(ns, name); got != want {
			w.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	evicted, err := pods.Get(w.ctx, "db-2", metav1.GetOptions{})
	w.must(err, "read the evicted pod")
	target := false
	for _, c := range evicted.Status.Conditions {
		target = target || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	}
	if !target {
		w.Errorf("an evicted pod does not say so: %+v", evicted.Status.Conditions)
	}

	// Too few are healthy: then those go neither that are not.
	first.Status.Conditions[0].Status = corev1.ConditionFalse
	_, err = pods.UpdateStatus(w.ctx, first, metav1.UpdateOptions{})
	w.must(err, "report pod status")
	w.counted(ns, "db-stays", 1, 0)
	w.refused(w.evict(ns, "db-0", nil), "The disruption budget db-stays needs 2 healthy pods and has 1 currently")
	policy := policyv1.AlwaysAllow
	w.changeBudget(ns, "db-stays", func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &policy })
	// Not even that it is another pod is said of one that may go since it is not
	// ready, but that one shall ask again in ten seconds.
	w.refused(w.evict(ns, "db-0", &other), "The disruption budget db-stays is still being processed by the server.")
	w.must(w.evict(ns, "db-0", ptr(grace(7))), "evict what is not ready, as the policy says")
	if got := w.graceOf(ns, "db-0"); got != "7" {
		w.Errorf("db-0: %s", got)
	}
	w.must(w.evict(ns, "db-0", nil), "evict what is terminating")

	// One may go, and then none: also where the one did not go.
	w.dbPod(ns, node, "db-3", owner, nil)
	w.changeBudget(ns, "db-stays", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable.IntVal = 1 })
	w.counted(ns, "db-stays", 2, 1)
	w.says(w.evict(ns, "db-3", &other), metav1.StatusReasonConflict, `Operation cannot be fulfilled on Pod "db-3": the UID in the precondition (another) does not match the UID in record (`)
	w.counted(ns, "db-stays", 1, 0)
	w.refused(w.evict(ns, "db-1", nil), "The disruption budget db-stays needs 1 healthy pods and has 1 currently")
	w.changeBudget(ns, "db-stays", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable.IntVal = 0 })
	w.counted(ns, "db-stays", 1, 1)
	w.must(w.evict(ns, "db-3", nil), "evict the one that may go")
	w.counted(ns, "db-stays", 1, 1)

	w.budget(ns, "again", 0, 1, 1)
	several := statusOf(w.evict(ns, "db-1", nil))
	if several.Code != http.StatusInternalServerError || several.Reason != "" || several.Message != "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support." {
		w.Errorf("two budgets: %+v", several)
	}
	w.says(w.evict(ns, "none", nil), metav1.StatusReasonNotFound, `pods "none" not found`)
	for _, name := range []string{"db-0", "db-1", "db-2", "db-3", "db-pending"} {
		err := pods.Delete(w.ctx, name, grace(0))
		if err != nil && !apierrors.IsNotFound(err) {
			w.Errorf("clean up: %v", err)
		}
	}
}

// changeBudget changes a budget's spec, and waits until it is counted anew.
func (w *world) changeBudget(namespace, name string, change func(*policyv1.PodDisruptionBudget)) {
	w.Helper()
	budgets := w.admin.PolicyV1().PodDisruptionBudgets(namespace)
	w.eventually("change of the budget", func() (string, bool) {
		budget, err := budgets.Get(w.ctx, name, metav1.GetOptions{})
		w.must(err, "read budget")
		change(budget)
		_, err = budgets.Update(w.ctx, budget, metav1.UpdateOptions{})
		return fmt.Sprint(err), err == nil
	})
	w.eventually("count of the changed budget", func() (string, bool) {
		budget, err := budgets.Get(w.ctx, name, metav1.GetOptions{})
		w.must(err, "read budget")
		return fmt.Sprintf("%+v", budget.Status), budget.Status.ObservedGeneration == budget.Generation
	})
}

// serverDaemons is where a DaemonSet has its pods.
func serverDaemons(w *world) {
	ns, _ := w.namespace()
	one, other := w.node("-one", nil), w.node("-other", nil)
	w.kubelet(one)
	w.kubelet(other)
	labelled := func(node, value string) {
		w.Helper()
		_, err := w.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{"clustertest/agent":%s}}}`, value))
		w.must(err, "label node")
	}
	has := func(node string, count int) (names string) {
		w.Helper()
		w.eventually(fmt.Sprintf("%d pods on %s", count, node), func() (string, bool) {
			names = w.podsOn(node)
			return names, len(strings.Fields(names)) == count
		})
		return names
	}
	labelled(one, `"`+w.name+`"`)
	made, err := w.admin.AppsV1().DaemonSets(ns).Create(w.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
				Spec:       corev1.PodSpec{NodeSelector: map[string]string{"clustertest/agent": w.name}, Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}}},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err, "make DaemonSet")
	first := has(one, 1)
	if got := w.podsOn(other); got != "" {
		w.Errorf("where the label is not: %s", got)
	}
	pod, err := w.admin.CoreV1().Pods(ns).Get(w.ctx, first, metav1.GetOptions{})
	w.must(err, "read pod")
	if c := metav1.GetControllerOf(pod); c == nil || c.Kind != "DaemonSet" || c.UID != made.UID || pod.Labels["app"] != "agent" || !strings.HasPrefix(pod.Name, "agent-") {
		w.Errorf("%+v", pod.ObjectMeta)
	}
	w.must(w.admin.CoreV1().Pods(ns).Delete(w.ctx, first, grace(0)), "delete the pod")
	if again := has(one, 1); again == first {
		w.Errorf("the pod that came again is named %s as before", again)
	}
	labelled(other, `"`+w.name+`"`)
	has(other, 1)
	labelled(other, `null`)
	has(other, 0)
	w.must(w.admin.AppsV1().DaemonSets(ns).Delete(w.ctx, "agent", metav1.DeleteOptions{}), "delete DaemonSet")
	has(one, 0)
}
