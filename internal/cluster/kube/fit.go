package kube

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
)

const (
	// fitMargin is what a kubelet may take beyond a grace period to say that a pod's
	// containers have ended.
	fitMargin = 2 * time.Second
	// leastGrace is what every pod gets: less would not ask its containers.
	leastGrace = time.Second
	// fitLook is how often is looked who is left, and asked again who was refused.
	fitLook = time.Second
	// fitWave is how long an answer about one priority keeps the next one waiting.
	fitWave = 250 * time.Millisecond
	// fitAtOnce bounds the requests under way.
	fitAtOnce = 16
)

// fitGrace is what a pod gets of its own grace period when so much time is left.
func fitGrace(own, left time.Duration) time.Duration {
	return max(min(own, left-fitMargin).Truncate(time.Second), leastGrace)
}

// fitOverride says, of a pod with so long a grace period of its own that is still to
// be told, whether what keeps it has to be overridden now: with so much left of the
// whole time. It leaves the pod its own grace, or half of the time.
func fitOverride(own, left, whole time.Duration) bool {
	return left <= min(own+fitMargin, whole/2)
}

// fitPod is one pod of such a drain.
type fitPod struct {
	key      podKey
	priority int32
	own      time.Duration
	told     bool // terminates
}

// fit drains by the deadline: see cluster.DrainOptions.Fit.
func (d *drain) fit(ctx context.Context) error {
	now := d.cluster.now
	begun := now()
	until := begun.Add(d.options.Deadline)
	ticker := time.NewTicker(fitLook)
	defer ticker.Stop()
	for begins := true; ; {
		pods, err := d.fitList(ctx)
		// The Node is looked at after its pods, so that what was listed is its own.
		switch {
		case err == nil && begins:
			err = d.begin(ctx)
			begins = err != nil
		case err == nil:
			err = d.own(ctx)
		}
		switch {
		case err == nil && len(pods) == 0:
			return nil
		case err == nil:
			d.fitTell(ctx, pods, func() time.Duration { return until.Sub(now()) })
		case ctx.Err() == nil:
			if again, _ := passingFailure(ctx, err); !again {
				return act{op: d.a.op, on: d.a.on, access: cluster.Access{Verb: "list", Resource: "pods"}}.fail(ctx, err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return d.fitEnd(ctx)
		}
	}
}

// fitEnd is the deadline, the caller's end, or an answer that ends the drain.
func (d *drain) fitEnd(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errDeadline) || errors.Is(cause, errRefused) {
		// Of what has ended nothing runs any more.
		runs := d.stuck(func(s podState) bool { return !s.ended })
		if len(runs) == 0 {
			return nil
		}
		return d.blockedBy(&cluster.BlockedError{Node: d.node, Pods: runs})
	}
	return cause
}

// fitList returns the pods that have to go, the most important first, and notes which
// of those that were known are gone.
func (d *drain) fitList(ctx context.Context) ([]fitPod, error) {
	var pods []fitPod
	seen := map[podKey]bool{}
	options := metav1.ListOptions{FieldSelector: "spec.nodeName=" + d.node, Limit: podsPage}
	for {
		list, err := d.client.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		for i := range list.Items {
			pod := &list.Items[i]
			if d.stays(*pod) || fitStays(pod) {
				continue
			}
			d.note(pod)
			p := fitPod{key: podKey{pod.Namespace, pod.Name}, own: corev1.DefaultTerminationGracePeriodSeconds * time.Second, told: pod.DeletionTimestamp != nil}
			seen[p.key] = true
			if pod.Spec.Priority != nil {
				p.priority = *pod.Spec.Priority
			}
			if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
				p.own = time.Duration(*g) * time.Second
			}
			if d.options.GracePeriod >= 0 {
				p.own = min(p.own, d.options.GracePeriod)
			}
			pods = append(pods, p)
		}
		d.mu.Unlock()
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	for key := range d.left() {
		if !seen[key] {
			d.gone(key, true)
		}
	}
	slices.SortFunc(pods, func(a, b fitPod) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.key.String(), b.key.String()))
	})
	return pods, nil
}

// fitStays says of a pod that nothing is to be gained by its end: it has ended, or
// the node's kubelet or a DaemonSet has it there. One that has ended and is being
// deleted is waited for until its kubelet is done, which makes the grace period 0:
// nobody else would end it on a Node that is deleted.
func fitStays(pod *corev1.Pod) bool {
	if ended(pod) && (pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0) {
		return true
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// ended reports that none of a pod's containers runs, or will.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// fitTell tells the pods to end. Those of a higher priority have been asked before
// the next are; an answer that takes long keeps the next waiting for no longer than
// fitWave.
func (d *drain) fitTell(ctx context.Context, pods []fitPod, left func() time.Duration) {
	var group sync.WaitGroup
	places := make(chan struct{}, fitAtOnce)
	for len(pods) > 0 {
		next := slices.IndexFunc(pods, func(p fitPod) bool { return p.priority != pods[0].priority })
		if next < 0 {
			next = len(pods)
		}
		var wave sync.WaitGroup
		for _, p := range pods[:next] {
			if p.told && !d.fitTooLong(p, left()) {
				continue
			}
			places <- struct{}{}
			wave.Add(1)
			group.Go(func() {
				defer func() { <-places; wave.Done() }()
				d.fitAsk(ctx, p, left())
			})
		}
		pods = pods[next:]
		asked := make(chan struct{})
		group.Go(func() { wave.Wait(); close(asked) })
		timer := time.NewTimer(fitWave)
		select {
		case <-asked:
		case <-timer.C:
		}
		timer.Stop()
	}
	group.Wait()
}

// fitTooLong says of a pod that terminates that it would be there beyond the
// deadline by its grace period, so that it has to be cut.
func (d *drain) fitTooLong(p fitPod, left time.Duration) bool {
	if !d.options.Force {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.pods[p.key]
	// A deletion's time is when the grace period ends. What was cut once is left.
	return s != nil && !s.cut && !s.ended && s.deleting.After(d.cluster.now().Add(left))
}

// fitAsk asks for one pod's end: by eviction, or by deletion where it has to be.
func (d *drain) fitAsk(ctx context.Context, p fitPod, left time.Duration) {
	seconds := int64(fitGrace(p.own, left) / time.Second)
	options := metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: d.precondition(p.key)}
	force := p.told || d.options.Force && d.refusedNow(p.key) && fitOverride(p.own, left, d.options.Deadline)
	what, access := "evicting", cluster.Access{Verb: "create", Resource: "pods", Subresource: "eviction"}
	var err error
	if force {
		what, access = "deleted by force", cluster.Access{Verb: "delete", Resource: "pods"}
		err = d.client.CoreV1().Pods(p.key.namespace).Delete(ctx, p.key.name, options)
	} else {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.namespace, Name: p.key.name}, DeleteOptions: &options}
		// Without client-go's own repeats, which would wait as long as Retry-After says.
		err = d.client.PolicyV1().RESTClient().Post().
			AbsPath("/api/v1").Namespace(p.key.namespace).Resource("pods").Name(p.key.name).SubResource("eviction").
			Body(eviction).MaxRetries(0).Do(ctx).Error()
	}
	switch {
	case err == nil:
		d.accepted(p.key)
		if force {
			d.wasCut(p.key)
		}
		d.tell(p.key, what, "")
	case apierrors.IsNotFound(err):
		d.gone(p.key, true)
	case ctx.Err() != nil, apierrors.IsConflict(err):
		// Another pod bears the name, or it changed: the next look tells.
	case apierrors.IsForbidden(err) && apierror.RBACDenied(err.Error()), apierrors.IsUnauthorized(err):
		d.stop(act{op: "evict pod", on: "pod " + p.key.String(), access: access}.fail(ctx, err))
	case apierrors.IsTooManyRequests(err) && !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
	default:
		// A budget, several of them, or a webhook: each may be overridden in time.
		why, budgets := d.budgets(ctx, nil, p.key, apierror.Status(err))
		if why == "" {
			why = err.Error()
		}
		d.refuse(p.key, why, budgets...)
	}
}

func (d *drain) refusedNow(key podKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.pods[key]
	return s != nil && s.refused != ""
}

func (d *drain) wasCut(key podKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.pods[key]; s != nil {
		s.cut = true
	}
}
