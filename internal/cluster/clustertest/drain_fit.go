package clustertest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// fitting is a departure's drain.
func fitting(deadline time.Duration) cluster.DrainOptions {
	return cluster.DrainOptions{GracePeriod: -1, Deadline: deadline, Force: true, Fit: true}
}

func important(p *corev1.Pod) {
	p.Spec.PriorityClassName, p.Spec.Priority = "system-cluster-critical", ptr(int32(2000000000))
}

func patient(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(600)) }

// drainFitLeaves asserts which pods go and which stay: those that nothing would
// create again go too.
func drainFitLeaves(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	agent := w.daemon(ns, name)
	w.pod(ns, name, "mirror", metav1.OwnerReference{}, func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	})
	w.pod(ns, name, "alone", metav1.OwnerReference{}, nil)
	w.pod(ns, name, "web", owner, patient)
	w.pod(ns, name, "core", owner, important)
	done := w.pod(ns, name, "done", metav1.OwnerReference{}, nil)
	done.Status.Phase = corev1.PodSucceeded
	_, err := w.admin.CoreV1().Pods(ns).UpdateStatus(w.ctx, done, metav1.UpdateOptions{})
	w.must(err, "end a pod")
	var told telling
	w.must(w.under.Drain(w.ctx, name, fitting(patience), told.hear), "drain")
	if got, want := w.podsOn(name), agent+" done mirror"; got != want {
		w.Errorf("on the drained node: %q, want %q", got, want)
	}
	if first := told.events[0]; first.Pod != ns+"/core" || first.What != "evicting" {
		w.Errorf("first was told: %+v", first)
	}
	if last := told.events[len(told.events)-1]; last.Left != 0 {
		w.Errorf("at the end %d are left: %+v", last.Left, last)
	}
	w.wantKind(w.under.Drain(w.ctx, w.node("-schedulable", nil), fitting(patience), nil), fleet.KindInvalid, "drain of a schedulable node")
}

// drainFitCuts has pods whose grace period is longer than what is left, and that use
// all of it: each was given what fits, and at the deadline they are named.
func drainFitCuts(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	stays := func(p *corev1.Pod) {
		patient(p)
		p.Annotations = map[string]string{stuck: ""}
	}
	w.pod(ns, name, "web", owner, stays)
	before := w.pod(ns, name, "before", owner, stays)
	w.must(w.admin.CoreV1().Pods(ns).Delete(w.ctx, "before", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &before.UID}}), "tell a pod before the drain")
	const deadline = 5 * time.Second
	blocked := w.blockedBy(w.under.Drain(w.ctx, name, fitting(deadline), nil))
	if len(blocked.Pods) != 2 || blocked.Pods[0].Pod != ns+"/before" || blocked.Pods[1].Pod != ns+"/web" {
		w.Errorf("left: %+v", blocked.Pods)
	}
	for _, pod := range []string{"before", "web"} {
		p, err := w.admin.CoreV1().Pods(ns).Get(w.ctx, pod, metav1.GetOptions{})
		w.must(err, "read pod")
		if p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds < 1 || *p.DeletionGracePeriodSeconds > int64(deadline/time.Second) {
			w.Errorf("%s was given %v seconds of %s", pod, p.DeletionGracePeriodSeconds, deadline)
		}
		w.must(w.admin.CoreV1().Pods(ns).Delete(w.ctx, pod, grace(0)), "clean up")
	}
}

// drainFitBudget has a budget hold at first, and be overridden in time.
func drainFitBudget(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.budget(ns, "db-stays", 1, 1, 0)
	var told telling
	w.must(w.under.Drain(w.ctx, name, fitting(8*time.Second), told.hear), "drain")
	if got := w.podsOn(name); got != "" {
		w.Errorf("pods: %q", got)
	}
	if e, ok := told.heard(ns+"/db", "blocked"); !ok || e.Because != "PodDisruptionBudget "+ns+"/db-stays" {
		w.Errorf("told: %+v", told.events)
	}
	if _, ok := told.heard(ns+"/db", "deleted by force"); !ok {
		w.Errorf("told: %+v", told.events)
	}
}

// drainFitHeld has no leave to override a budget.
func drainFitHeld(w *world) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.kubelet(name)
	w.pod(ns, name, "db", owner, nil)
	w.pod(ns, name, "web", owner, nil)
	w.budget(ns, "db-stays", 1, 1, 0)
	options := fitting(4 * time.Second)
	options.Force = false
	blocked := w.blockedBy(w.under.Drain(w.ctx, name, options, nil))
	if len(blocked.Pods) != 1 || blocked.Pods[0].Pod != ns+"/db" || blocked.Pods[0].Budget != ns+"/db-stays" {
		w.Errorf("blocked: %+v", blocked.Pods)
	}
	if got := w.podsOn(name); got != "db" {
		w.Errorf("pods: %q", got)
	}
}
