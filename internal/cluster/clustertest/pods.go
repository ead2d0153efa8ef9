package clustertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func ptr[T any](v T) *T { return &v }

// stuck marks a pod whose containers do not end.
const stuck = "clustertest/stuck"

// namespace makes a namespace with a ConfigMap "owner", which stands for a
// controller that makes pods again, so that no real controller meddles.
func (w *world) namespace() (name string, owner metav1.OwnerReference) {
	w.Helper()
	_, err := w.admin.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{})
	w.must(err, "make namespace")
	w.Cleanup(func() {
		err := w.admin.CoreV1().Namespaces().Delete(context.WithoutCancel(w.ctx), w.name, metav1.DeleteOptions{})
		if err != nil {
			w.Errorf("clean up namespace: %v", err)
		}
	})
	w.eventually("service account", func() (string, bool) {
		_, err := w.admin.CoreV1().ServiceAccounts(w.name).Get(w.ctx, "default", metav1.GetOptions{})
		return fmt.Sprint(err), err == nil
	})
	config, err := w.admin.CoreV1().ConfigMaps(w.name).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	w.must(err, "make owner")
	return w.name, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: config.Name, UID: config.UID, Controller: ptr(true)}
}

// pod makes a running, ready pod on the node, whose owner is the given one
// unless it is empty.
func (w *world) pod(namespace, node, name string, owner metav1.OwnerReference, change func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr(int64(1)), AutomountServiceAccountToken: new(bool),
			Containers:  []corev1.Container{{Name: "c", Image: "example.invalid/c"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if owner.Name != "" {
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	}
	if change != nil {
		change(pod)
	}
	made, err := w.admin.CoreV1().Pods(namespace).Create(w.ctx, pod, metav1.CreateOptions{})
	w.must(err, "make pod")
	made.ResourceVersion = "" // the scheduler may write meanwhile
	made.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	made, err = w.admin.CoreV1().Pods(namespace).UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
	w.must(err, "report pod status")
	return made
}

// budget makes a PodDisruptionBudget for the pod "db", and waits
// until it counts as many healthy ones and allows as many disruptions as said.
func (w *world) budget(namespace, name string, minAvailable, healthy, allowed int32) {
	w.Helper()
	_, err := w.admin.PolicyV1().PodDisruptionBudgets(namespace).Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr(intstr.FromInt32(minAvailable)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		},
	}, metav1.CreateOptions{})
	w.must(err, "make budget")
	w.eventually("budget", func() (string, bool) {
		budget, err := w.admin.PolicyV1().PodDisruptionBudgets(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		s := budget.Status
		return fmt.Sprintf("%+v", s), s.ObservedGeneration == budget.Generation && s.CurrentHealthy == healthy && s.DisruptionsAllowed == allowed
	})
}

// kubelet ends the terminating pods of the node until the test ends, but those
// marked stuck.
func (w *world) kubelet(node string) {
	ctx, cancel := context.WithCancel(w.ctx)
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			list, err := w.admin.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
			if err != nil {
				if ctx.Err() == nil {
					w.Errorf("kubelet of %s: %v", node, err)
				}
				return
			}
			for i := range list.Items {
				pod := &list.Items[i]
				if _, ok := pod.Annotations[stuck]; ok || pod.DeletionTimestamp == nil {
					continue
				}
				err := w.admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
					GracePeriodSeconds: ptr(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
				})
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
					w.Errorf("kubelet of %s: end pod %s: %v", node, pod.Name, err)
				}
			}
		}
	})
	w.Cleanup(func() { cancel(); group.Wait() })
}
