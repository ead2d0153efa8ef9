//go:build e2e && linux

package lab

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	policyv1 "k8s.io/api/policy/v1"

	rootfs "github.com/ortet/ortet/hack/lab"
)

const replicas = 6

// poll asks until check says yes; the test ends where it does not in time.
func poll(ctx context.Context, t *testing.T, what string, atMost time.Duration, check func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, atMost, true, check); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

func ready(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// awaitNodes waits until just so many nodes are there and all are Ready, and
// gives their names, sorted.
func (l *lab) awaitNodes(ctx context.Context, t *testing.T, want int) []string {
	t.Helper()
	var names []string
	poll(ctx, t, fmt.Sprintf("%d Ready nodes", want), 10*time.Minute, func(ctx context.Context) (bool, error) {
		list, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		names = nil
		for _, n := range list.Items {
			if ready(n) {
				names = append(names, n.Name)
			}
		}
		return len(names) == want && len(list.Items) == want, nil
	})
	slices.Sort(names)
	return names
}

func (l *lab) node(ctx context.Context, t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// deploy gives the pool something to run, spread over all nodes, with a budget.
func (l *lab) deploy(ctx context.Context, t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	if _, err := l.client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "web", Image: rootfs.WebImage, ImagePullPolicy: corev1.PullNever}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
				},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.awaitDeployment(ctx, t)
}

func (l *lab) awaitDeployment(ctx context.Context, t *testing.T) {
	t.Helper()
	poll(ctx, t, "all pods of the Deployment", 5*time.Minute, func(ctx context.Context) (bool, error) {
		d, err := l.client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return d.Status.AvailableReplicas == replicas, nil
	})
}

// webPods returns the Deployment's pods that are not on their way out.
func (l *lab) webPods(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := l.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// runPod runs an image that must be on the node already, and takes the pod away.
func (l *lab) runPod(ctx context.Context, t *testing.T, name, node, image string) {
	t.Helper()
	pods := l.client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: corev1.PullNever}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, fmt.Sprintf("a pod of %s on %s", image, node), 5*time.Minute, func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Reason == "ErrImageNeverPull" {
				return false, fmt.Errorf("%s: %s", w.Reason, w.Message)
			}
		}
		return p.Status.Phase == corev1.PodRunning, nil
	})
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// evictions records which pods went by an eviction, until ctx ends.
type evictions struct {
	mu  sync.Mutex
	all map[string]bool // by pod name: evicted or otherwise deleted
}

func watchEvictions(ctx context.Context, t *testing.T, client kubernetes.Interface) *evictions {
	t.Helper()
	e := &evictions{all: map[string]bool{}}
	w, err := client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type != watch.Deleted {
				continue
			}
			evicted := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
			})
			e.mu.Lock()
			e.all[pod.Name] = evicted
			e.mu.Unlock()
		}
	}()
	return e
}

func (e *evictions) evicted(pod string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[pod]
}
