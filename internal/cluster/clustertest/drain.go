package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// telling collects what a drain reports.
type telling struct {
	sync.Mutex
	events []cluster.DrainEvent
}

func (s *telling) hear(e cluster.DrainEvent) {
	s.Lock()
	defer s.Unlock()
	s.events = append(s.events, e)
}

func (s *telling) heard(pod, what string) (cluster.DrainEvent, bool) {
	s.Lock()
	defer s.Unlock()
	for _, e := range s.events {
		if e.Pod == pod && e.What == what {
			return e, true
		}
	}
	return cluster.DrainEvent{}, false
}

func (w *world) cordoned() string {
	w.Helper()
	return w.node("", func(n *corev1.Node) { n.Spec.Unschedulable = true })
}

// blockedBy ends the test where the error is not a BlockedError, and gives it.
func (w *world) blockedBy(err error) *cluster.BlockedError {
	w.Helper()
	w.wantKind(err, fleet.KindBlocked, "drain")
	var blocked *cluster.BlockedError
	if !errors.As(err, &blocked) {
		w.Fatalf("drain: %v holds no BlockedError", err)
	}
	return blocked
}

func drainUncordoned(w *world) {
	ns, owner := w.namespace()
	name := w.node("", nil)
	w.kubelet(name)
	w.pod(ns, name, "web", owner, nil)
	err := w.under.Drain(w.ctx, name, cluster.DrainOptions{Deadline: patience}, nil)
	w.wantKind(err, fleet.KindInvalid, "drain of a schedulable node")
	if got := w.podsOn(name); got != "web" {
		w.Errorf("pods: %s", got)
	}
	w.wantKind(w.under.Drain(w.ctx, w.name+"-none", cluster.DrainOptions{Deadline: patience}, nil), fleet.KindNotFound, "drain of no node")
}

// daemon makes a DaemonSet for the node, and gives the name of its pod there.
func (w *world) daemon(namespace, node string) (pod string) {
	w.Helper()
	_, err := w.admin.AppsV1().DaemonSets(namespace).Create(w.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: node},
					Containers:   []corev1.Container{{Name: "c", Image: "example.invalid/c"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err, "make DaemonSet")
	w.eventually("pod of the DaemonSet", func() (string, bool) {
		pod = w.podsOn(node)
		return "none", pod != ""
	})
	return pod
}

// drainLeaves asserts which pods go and which stay.
func drainLeaves(w *world) {
	ns, owner := w.namespace()
	name, other := w.cordoned(), w.node("-other", nil)
	w.kubelet(name)
	agent := w.daemon(ns, name)
	w.pod(ns, name, "mirror", metav1.OwnerReference{}, func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	})
	w.pod(ns, other, "elsewhere", owner, nil)
	w.pod(ns, name, "web", owner, nil)
	w.pod(ns, name, "scratch", owner, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	done := w.pod(ns, name, "done", metav1.OwnerReference{}, nil)
	done.Status.Phase = corev1.PodSucceeded
	_, err := w.admin.CoreV1().Pods(ns).UpdateStatus(w.ctx, done, metav1.UpdateOptions{})
	w.must(err, "end a pod")

	var told telling
	w.must(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, told.hear), "drain")
	if got, want := w.podsOn(name), agent+" mirror"; got != want {
		w.Errorf("on the drained node: %q, want %q", got, want)
	}
	if got := w.podsOn(other); got != "elsewhere" {
		w.Errorf("on the other node: %q", got)
	}
	for _, pod := range []string{"web", "scratch", "done"} {
		for _, what := range []string{"evicting", "evicted"} {
			if _, ok := told.heard(ns+"/"+pod, what); !ok {
				w.Errorf("%s of %s was not told: %+v", what, pod, told.events)
			}
		}
	}
	if last := told.events[len(told.events)-1]; last.Left != 0 {
		w.Errorf("at the end %d are left: %+v", last.Left, last)
	}
	w.must(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, nil), "drain of a drained node")
}

// drainLeavesNamed has a pod of Ortet's own that nothing would create again, and
// one of that name elsewhere.
func drainLeavesNamed(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	job := w.name + "-job"
	w.pod(w.setup.Namespace, name, job, metav1.OwnerReference{}, nil)
	w.pod(ns, name, job, owner, nil)
	w.pod(ns, name, "web", owner, nil)
	w.must(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience, Leave: []string{job}}, nil), "drain")
	if got := w.podsOn(name); got != job {
		w.Errorf("pods: %q, want %s alone", got, job)
	}
	left, err := w.admin.CoreV1().Pods(w.setup.Namespace).Get(w.ctx, job, metav1.GetOptions{})
	w.must(err, "read the pod that was to stay")
	if left.DeletionTimestamp != nil {
		w.Error("the pod that was to stay is being deleted")
	}
	w.must(w.admin.CoreV1().Pods(w.setup.Namespace).Delete(w.ctx, job, grace(0)), "clean up")
}

func drainBudget(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.pod(ns, name, "web", owner, nil)
	w.budget(ns, "db-stays", 1, 1, 0)

	var told telling
	err := w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: 4 * time.Second}, told.hear)
	blocked := w.blockedBy(err)
	if len(blocked.Pods) != 1 || blocked.Pods[0].Pod != ns+"/db" || blocked.Pods[0].Budget != ns+"/db-stays" || !strings.Contains(blocked.Pods[0].Why, "disruption budget") {
		w.Errorf("blocked: %+v", blocked)
	}
	if !strings.Contains(err.Error(), ns+"/db-stays") {
		w.Errorf("the budget is not named: %v", err)
	}
	if got := w.podsOn(name); got != "db" {
		w.Errorf("pods: %q, want the blocked one alone", got)
	}
	if e, ok := told.heard(ns+"/db", "blocked"); !ok || e.Because != "PodDisruptionBudget "+ns+"/db-stays" || e.Left < 1 {
		w.Errorf("told: %+v", told.events)
	}
	if !w.readNode(name).Spec.Unschedulable {
		w.Error("the drain uncordoned the node, which is not its business")
	}
}

// drainBudgetLifted lifts the budget while the drain waits for it.
func drainBudgetLifted(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.budget(ns, "db-stays", 1, 1, 0)
	var lifted sync.Once
	var told telling
	err := w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, func(e cluster.DrainEvent) {
		told.hear(e)
		if e.What == "blocked" {
			lifted.Do(func() {
				if err := w.admin.PolicyV1().PodDisruptionBudgets(ns).Delete(w.ctx, "db-stays", metav1.DeleteOptions{}); err != nil {
					w.Errorf("lift the budget: %v", err)
				}
			})
		}
	})
	w.must(err, "drain")
	if got := w.podsOn(name); got != "" {
		w.Errorf("pods: %q", got)
	}
}

// drainSuccessor has a pod that a budget keeps die while the drain waits, and run
// elsewhere under its name: the budget still refuses, and the node is empty.
func drainSuccessor(w *world) {
	ns, owner := w.namespace()
	name, other := w.cordoned(), w.node("-other", nil)
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.budget(ns, "db-stays", 1, 1, 0)
	blocked, drained := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		drained <- w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, func(e cluster.DrainEvent) {
			if e.What == "blocked" {
				select {
				case blocked <- struct{}{}:
				default:
				}
			}
		})
	}()
	var err error
	select {
	case <-blocked:
		w.must(w.admin.CoreV1().Pods(ns).Delete(w.ctx, "db", grace(0)), "let the pod die")
		w.pod(ns, other, "db", owner, nil)
		err = <-drained
	case err = <-drained:
		w.Fatalf("the budget did not block: %v", err)
	}
	w.must(err, "drain")
	if here, there := w.podsOn(name), w.podsOn(other); here != "" || there != "db" {
		w.Errorf("pods on the node: %q, on the other: %q", here, there)
	}
}

// drainCancelled asserts that after a cancelled drain returned, no pod goes
// though the budget would allow it.
func drainCancelled(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.budget(ns, "db-stays", 1, 1, 0)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	err := w.under.Drain(ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, func(e cluster.DrainEvent) {
		if e.What == "blocked" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		w.Fatalf("a cancelled drain gives %v", err)
	}
	var blocked *cluster.BlockedError
	if !errors.As(err, &blocked) || blocked.Pods[0].Budget != ns+"/db-stays" {
		w.Errorf("what blocked until then is not said: %v", err)
	}
	w.must(w.under.SetUnschedulable(w.ctx, name, false), "give the node back")
	if n := w.readNode(name); n.Spec.Unschedulable {
		w.Error("the node is not given back")
	}
	if got := w.podsOn(name); got != "db" {
		w.Errorf("pods: %q", got)
	}
}

func drainForced(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.pod(ns, name, "alone", metav1.OwnerReference{}, nil)
	w.budget(ns, "db-stays", 1, 1, 0)
	var told telling
	w.must(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: 3 * time.Second, Force: true}, told.hear), "forced drain")
	if got := w.podsOn(name); got != "" {
		w.Errorf("pods: %q", got)
	}
	if _, ok := told.heard(ns+"/db", "deleted by force"); !ok {
		w.Errorf("told: %+v", told.events)
	}
	if _, ok := told.heard(ns+"/alone", "evicted"); !ok {
		w.Errorf("a pod that no budget covers was not evicted: %+v", told.events)
	}
}

func drainUnmanaged(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "alone", metav1.OwnerReference{}, nil)
	w.pod(ns, name, "alone2", metav1.OwnerReference{}, nil)
	w.pod(ns, name, "web", owner, nil)
	blocked := w.blockedBy(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, nil))
	var pods []string
	for _, p := range blocked.Pods {
		pods = append(pods, p.Pod)
		if !strings.Contains(p.Why, "no controller") {
			w.Errorf("why: %q", p.Why)
		}
	}
	if got, want := fmt.Sprint(pods), fmt.Sprintf("[%s/alone %s/alone2]", ns, ns); got != want {
		w.Errorf("blocked by %s, want %s", got, want)
	}
	if got := w.podsOn(name); got != "alone alone2 web" {
		w.Errorf("pods: %q, though nothing was to be evicted", got)
	}
}

func drainTwoBudgets(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.budget(ns, "one", 0, 1, 1)
	w.budget(ns, "two", 0, 1, 1)
	blocked := w.blockedBy(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience}, nil))
	if want := ns + "/one, " + ns + "/two"; len(blocked.Pods) != 1 || blocked.Pods[0].Budget != want {
		w.Errorf("blocked: %+v, want %s", blocked.Pods, want)
	}
	if got := w.podsOn(name); got != "db" {
		w.Errorf("pods: %q", got)
	}
}

// drainEvictionBlockers has pods that go, or may go later, and pods that never would.
func drainEvictionBlockers(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "web", owner, nil)
	w.daemon(ns, name)
	seen := func() string {
		pods, err := w.under.EvictionBlockers(w.ctx, name, nil)
		w.must(err, "read eviction blockers")
		var all []string
		for _, p := range pods {
			all = append(all, strings.TrimPrefix(p.Pod, ns+"/")+" "+strings.ReplaceAll(p.Budget, ns+"/", ""))
			if p.Why == "" {
				w.Errorf("no reason for %s", p.Pod)
			}
		}
		return strings.Join(all, "; ")
	}
	if got := seen(); got != "" {
		w.Errorf("where none is: %q", got)
	}
	w.pod(ns, name, "alone", metav1.OwnerReference{}, nil)
	w.pod(ns, name, "db", owner, nil)
	w.budget(ns, "none", 0, 1, 1)
	if got := seen(); got != "alone " {
		w.Errorf("beside a budget that lets its pod go: %q", got)
	}
	w.budget(ns, "all", 1, 1, 0)
	if got := seen(); got != "alone ; db all, none" {
		w.Errorf("two budgets: %q", got)
	}
	w.must(w.admin.PolicyV1().PodDisruptionBudgets(ns).Delete(w.ctx, "none", metav1.DeleteOptions{}), "delete a budget")
	if got := seen(); got != "alone ; db all" {
		w.Errorf("a budget that keeps all of its pods: %q", got)
	}
	w.must(w.admin.PolicyV1().PodDisruptionBudgets(ns).Delete(w.ctx, "all", metav1.DeleteOptions{}), "delete a budget")
	second := w.pod(ns, name, "second", owner, func(p *corev1.Pod) { p.Labels["app"] = "db" })
	second.ResourceVersion, second.Status.Conditions = "", nil
	_, err := w.admin.CoreV1().Pods(ns).UpdateStatus(w.ctx, second, metav1.UpdateOptions{})
	w.must(err, "report that a pod is not Ready")
	w.budget(ns, "tight", 1, 1, 0)
	if got := seen(); got != "alone " {
		w.Errorf("a budget that waits for its second pod: %q", got)
	}
	w.pod(ns, name, "ending", metav1.OwnerReference{}, func(p *corev1.Pod) { p.Annotations = map[string]string{stuck: ""} })
	w.must(w.admin.CoreV1().Pods(ns).Delete(w.ctx, "ending", metav1.DeleteOptions{}), "delete a pod")
	if got := seen(); got != "alone " {
		w.Errorf("beside a pod that is being deleted: %q", got)
	}
	if got := w.podsOn(name); !strings.Contains(got, "alone") || !strings.Contains(got, "db") {
		w.Errorf("pods: %q, though only a question was asked", got)
	}
}

// drainStuck has a pod that is evicted and does not end.
func drainStuck(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "slow", owner, func(p *corev1.Pod) { p.Annotations = map[string]string{stuck: ""} })
	blocked := w.blockedBy(w.under.Drain(w.ctx, name, cluster.DrainOptions{GracePeriod: time.Second, Deadline: 3 * time.Second}, nil))
	if len(blocked.Pods) != 1 || blocked.Pods[0].Pod != ns+"/slow" || !strings.Contains(blocked.Pods[0].Why, "terminating") || blocked.Pods[0].Budget != "" {
		w.Errorf("blocked: %+v", blocked.Pods)
	}
}
