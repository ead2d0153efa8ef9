package hollow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// Annotations by which a pod that only claims to run says how it ends.
const (
	// TerminationSeconds is how long it takes after SIGTERM, at most its grace.
	TerminationSeconds = "azsim.ortet.io/termination-seconds"
	// IgnoreSIGTERM "true" has it stay until its grace period ends.
	IgnoreSIGTERM = "azsim.ortet.io/ignore-sigterm"
)

// byNode indexes pods by the name of their node.
const byNode = "node"

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// watchPods prepares the one watch from which all nodes learn of their pods.
func (s *Substrate) watchPods() cache.SharedIndexInformer {
	s.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second))
	bound := fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	pods := s.client.CoreV1().Pods(metav1.NamespaceAll)
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = bound
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = bound
			return pods.Watch(ctx, options)
		},
	}, s.client), &corev1.Pod{}, 0, cache.Indexers{byNode: func(object any) ([]string, error) {
		p, ok := object.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("%T is no pod", object)
		}
		return []string{p.Spec.NodeName}, nil
	}})
	// Before the start neither of these can fail.
	_ = informer.SetTransform(func(object any) (any, error) {
		if p, ok := object.(*corev1.Pod); ok {
			p.ManagedFields = nil // half of a pod's memory
		}
		return object, nil
	})
	add := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if p, ok := object.(*corev1.Pod); ok {
			s.queue.Add(podKey(p))
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, now any) { add(now) }, DeleteFunc: func(object any) {
			add(object)
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			// The name may be taken by another pod by the time that a worker
			// looks, so what belongs to this one is ended by its UID.
			if p, ok := object.(*corev1.Pod); ok {
				if r := s.primary(p.Spec.NodeName); r != nil {
					r.forgetPod(p.UID)
				}
			}
		},
	})
	s.pods = informer.GetIndexer()
	return informer
}

// actOnPods works through what changed.
func (s *Substrate) actOnPods() {
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		err := s.actOnPod(key)
		if err == nil || s.ctx.Err() != nil {
			s.queue.Forget(key)
		} else {
			s.log.Debug("pod on a hollow node, to be tried again", "pod", key, "error", err)
			s.queue.AddRateLimited(key)
		}
		s.queue.Done(key)
	}
}

// actOnPod brings one pod nearer to what the API server wants of it.
func (s *Substrate) actOnPod(key string) error {
	object, exists, err := s.pods.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	spec, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("%T is no pod", object)
	}
	r := s.primary(spec.Spec.NodeName)
	if r == nil {
		return nil // not ours, or its node is off
	}
	r.mu.Lock()
	p, stopping := r.pods[spec.UID], r.stopping
	r.mu.Unlock()
	over := spec.Status.Phase == corev1.PodSucceeded || spec.Status.Phase == corev1.PodFailed
	switch {
	case spec.DeletionTimestamp != nil && (p == nil || over):
		return r.deletePod(r.ctx, spec)
	case spec.DeletionTimestamp != nil:
		if again := p.terminate(spec); again > 0 {
			s.queue.AddAfter(key, again)
			return nil
		}
		if !p.quiet() {
			return nil // its programs' end comes back here
		}
		return r.deletePod(r.ctx, spec)
	case over:
		return nil
	case p == nil:
		if stopping {
			return nil
		}
		if p, err = r.startPod(spec); err != nil {
			return err
		}
		// What was deleted before it was known as started, nobody would end.
		if now, exists, err := s.pods.GetByKey(key); err != nil || !exists || !samePod(now, spec) {
			r.forgetPod(spec.UID)
			return err
		}
	}
	if d := spec.Spec.ActiveDeadlineSeconds; d != nil {
		if left := time.Until(p.startedAt.Add(time.Duration(*d) * time.Second)); left > 0 {
			s.queue.AddAfter(key, left)
		} else {
			p.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
		}
	}
	return p.push(r.ctx, spec)
}

func samePod(object any, spec *corev1.Pod) bool {
	p, ok := object.(*corev1.Pod)
	return ok && p.UID == spec.UID
}

// startPod begins to run a pod that is not running on this boot of the node.
func (r *running) startPod(spec *corev1.Pod) (*pod, error) {
	p := &pod{
		r: r, uid: spec.UID, name: types.NamespacedName{Namespace: spec.Namespace, Name: spec.Name},
		restartPolicy: spec.Spec.RestartPolicy, startedAt: metav1.NewTime(time.Now()),
		dir:   filepath.Join(r.scratch(), "pods", string(spec.UID)),
		asked: make(chan struct{}),
	}
	before := map[string]corev1.ContainerStatus{}
	for _, status := range append(append([]corev1.ContainerStatus{}, spec.Status.InitContainerStatuses...), spec.Status.ContainerStatuses...) {
		if status.State.Running != nil {
			before[status.Name] = status
		}
	}
	programs := false
	build := func(container *corev1.Container, init bool) {
		c := &containerRun{spec: container, init: init, state: waiting("PodInitializing")}
		if len(container.Command) > 0 {
			c.program = r.substrate.config.Programs[filepath.Base(container.Command[0])]
		}
		if old, ok := before[container.Name]; ok {
			// The power went while it ran.
			c.restarts = old.RestartCount + 1
			c.last = &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown", StartedAt: old.State.Running.StartedAt, FinishedAt: p.startedAt, ContainerID: old.ContainerID}
		}
		programs = programs || c.program != ""
		p.containers = append(p.containers, c)
	}
	for i := range spec.Spec.InitContainers {
		build(&spec.Spec.InitContainers[i], true)
	}
	for i := range spec.Spec.Containers {
		build(&spec.Spec.Containers[i], false)
	}
	if spec.Status.StartTime != nil && len(before) > 0 {
		p.startedAt = *spec.Status.StartTime
	}
	if err := r.layPod(spec, p); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping || r.ctx.Err() != nil {
		return nil, errors.New("the node is shutting down")
	}
	p.ip = r.hostIP()
	if !spec.Spec.HostNetwork {
		p.ip, p.ipIndex = r.takePodIP()
	}
	r.pods[spec.UID] = p
	if len(before) > 0 && p.restartPolicy == corev1.RestartPolicyNever {
		p.fail("", "")
		return p, nil
	}
	if programs {
		p.ctx, p.cancel = context.WithCancel(r.ctx)
		p.active, p.done = true, make(chan struct{})
		r.programs.Go(func() { p.runPrograms(spec) })
		return p, nil
	}
	for _, c := range p.containers {
		c.claim(time.Now())
	}
	return p, nil
}

// layPod leaves on the node's tree what a kubelet and a runtime leave of a pod.
func (r *running) layPod(spec *corev1.Pod, p *pod) error {
	images := make([]string, 0, len(p.containers))
	for _, c := range p.containers {
		images = append(images, c.spec.Image)
	}
	return errors.Join(
		r.pullImages(images),
		r.tree.mkdir("/var/lib/kubelet/pods/"+string(spec.UID)+"/volumes", 0o750),
		r.tree.mkdir(p.logFolder(), 0o755),
	)
}

func (p *pod) logFolder() string {
	return "/var/log/pods/" + p.name.Namespace + "_" + p.name.Name + "_" + string(p.uid)
}

// takePodIP returns a free address of the node's range. The caller holds r.mu.
func (r *running) takePodIP() (string, byte) {
	index := byte(2)
	for r.podIPs[index] && index < 254 {
		index++
	}
	r.podIPs[index] = true
	return fmt.Sprintf("10.%d.%d.%d", 128+r.index/256%64, r.index%256, index), index
}

// deletePod tells the API server that nothing of the pod runs any more.
func (r *running) deletePod(ctx context.Context, spec *corev1.Pod) error {
	err := r.substrate.client.CoreV1().Pods(spec.Namespace).Delete(ctx, spec.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &spec.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil
	}
	if err != nil {
		return err
	}
	r.forgetPod(spec.UID)
	return nil
}

// forgetPod ends what is left of a pod and removes its files.
func (r *running) forgetPod(uid types.UID) {
	r.mu.Lock()
	p := r.pods[uid]
	delete(r.pods, uid)
	if p != nil {
		delete(r.podIPs, p.ipIndex)
	}
	r.mu.Unlock()
	if p == nil {
		return
	}
	if p.cancel != nil {
		p.cancel()
	}
	err := errors.Join(
		r.tree.remove("/var/lib/kubelet/pods/"+string(uid)),
		r.tree.remove(p.logFolder()),
		os.RemoveAll(p.dir),
	)
	if err != nil {
		r.substrate.log.Warn("files of a pod that is gone", "pod", p.name.String(), "error", err)
	}
}

// endPods ends all pods as a graceful node shutdown does.
func (r *running) endPods(ctx context.Context) error {
	const grace = 2 * time.Second
	r.mu.Lock()
	r.stopping = true
	pods := make([]*pod, 0, len(r.pods))
	for _, p := range r.pods {
		pods = append(pods, p)
	}
	r.mu.Unlock()
	deadline := time.Now().Add(grace)
	for _, p := range pods {
		p.ask(deadline)
	}
	var errs []error
	for _, p := range pods {
		if err := p.awaitQuiet(ctx); err != nil {
			errs = append(errs, err)
			break
		}
		object, exists, err := r.substrate.pods.GetByKey(p.name.String())
		spec, ok := object.(*corev1.Pod)
		if err != nil || !exists || !ok || spec.UID != p.uid {
			continue
		}
		if spec.DeletionTimestamp != nil {
			errs = append(errs, r.deletePod(ctx, spec))
			continue
		}
		p.fail("Terminated", "Pod was terminated in response to imminent node shutdown.")
		errs = append(errs, p.push(ctx, spec))
	}
	return errors.Join(errs...)
}

// killPrograms ends at once what runs.
func (r *running) killPrograms() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	for _, p := range r.pods {
		if p.cancel != nil {
			p.cancel()
		}
	}
}

// runningPod finds a pod by name on the node whose kubelet was asked at local.
func (s *Substrate) runningPod(name types.NamespacedName, local net.Addr) *pod {
	object, exists, err := s.pods.GetByKey(name.String())
	if err != nil || !exists {
		return nil
	}
	spec, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	r := s.primary(spec.Spec.NodeName)
	if r == nil || r.listener == nil || (local != nil && local.String() != r.listener.Addr().String()) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[spec.UID]
}

// termination says how long a pod without programs takes to end.
func termination(spec *corev1.Pod) time.Duration {
	if ignore, err := strconv.ParseBool(spec.Annotations[IgnoreSIGTERM]); err == nil && ignore {
		return time.Duration(1<<62 - 1)
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(spec.Annotations[TerminationSeconds]), 64)
	if err != nil || seconds <= 0 || seconds > 1e6 {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
