package kube

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// EvictionBlockers lists the pods as a drain without force does, and names those that it
// would not evict however long it waits. It changes nothing.
func (c *Cluster) EvictionBlockers(ctx context.Context, node string, leave []string) ([]fleet.BlockedPod, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d := &drain{
		a:       act{op: "list pods", on: "node " + node, access: cluster.Access{Verb: "list", Resource: "pods"}},
		cluster: c, client: c.client, node: node, stop: stop, pods: map[podKey]*podState{},
		options: cluster.DrainOptions{GracePeriod: -1, Leave: leave},
	}
	list, errs := d.helper(ctx).GetPodsForDeletion(node)
	if ctx.Err() != nil {
		return nil, d.a.fail(ctx, context.Cause(ctx))
	}
	if list == nil {
		return nil, d.a.fail(ctx, errors.Join(errs...))
	}
	var found []fleet.BlockedPod
	if len(errs) > 0 {
		err := d.refusedByKubectl(errs)
		blocked := (*cluster.BlockedError)(nil)
		if !errors.As(err, &blocked) {
			return nil, err
		}
		if found, err = d.staying(ctx, blocked.Pods); err != nil {
			return nil, err
		}
	}
	budgets := map[string][]policyv1.PodDisruptionBudget{} // by namespace
	for _, pod := range list.Pods() {
		if pod.DeletionTimestamp != nil || !ready(pod) {
			continue // one that is not Ready may go in spite of its budget
		}
		all, known := budgets[pod.Namespace]
		if !known {
			var err error
			if all, err = d.budgetsIn(ctx, pod.Namespace); err != nil {
				a := act{op: "list budgets", on: "namespace " + pod.Namespace, access: cluster.Access{Verb: "list", Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}}
				return nil, a.fail(ctx, err)
			}
			budgets[pod.Namespace] = all
		}
		if b, ok := neverEvicted(pod, covering(all, &pod)); ok {
			found = append(found, b)
		}
	}
	return found, nil
}

// staying leaves out what is being deleted already, and so goes without a drain.
func (d *drain) staying(ctx context.Context, pods []fleet.BlockedPod) (stay []fleet.BlockedPod, err error) {
	for _, blocked := range pods {
		namespace, name, _ := strings.Cut(blocked.Pod, "/")
		pod, err := d.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			a := act{op: "read pod", on: "pod " + blocked.Pod, access: cluster.Access{Verb: "get", Resource: "pods", Namespace: namespace, Name: name}}
			return nil, a.fail(ctx, err)
		case pod.DeletionTimestamp == nil:
			stay = append(stay, blocked)
		}
	}
	return stay, nil
}

func ready(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return pod.Status.Phase == corev1.PodRunning && c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// neverEvicted says of a Ready pod why its budgets will not let it go, and false where
// they may, now or later.
func neverEvicted(pod corev1.Pod, budgets []policyv1.PodDisruptionBudget) (fleet.BlockedPod, bool) {
	var names []string
	why := ""
	for i := range budgets {
		names = append(names, pod.Namespace+"/"+budgets[i].Name)
		if never(&budgets[i]) {
			why = fmt.Sprintf("the budget %s allows no eviction, also with all of its pods healthy", budgets[i].Name)
		}
	}
	if len(budgets) > 1 { // the eviction API refuses such a pod
		why = "several budgets cover it, and the API server then evicts by none"
	}
	sort.Strings(names)
	return fleet.BlockedPod{Pod: pod.Namespace + "/" + pod.Name, Budget: strings.Join(names, ", "), Why: why}, why != ""
}

// never reports whether a budget allows no eviction with all of its pods healthy, as
// it is written, or by what its controller made of that.
func never(b *policyv1.PodDisruptionBudget) bool {
	if most := b.Spec.MaxUnavailable; most != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(most, 100, true)
		if err == nil && n == 0 {
			return true
		}
	}
	s := b.Status
	return s.ObservedGeneration >= b.Generation && s.ExpectedPods > 0 && s.DesiredHealthy >= s.ExpectedPods
}
