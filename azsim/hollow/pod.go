package hollow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// A pod is one that runs on one boot of a node.
type pod struct {
	r             *running
	uid           types.UID
	name          types.NamespacedName
	restartPolicy corev1.RestartPolicy
	startedAt     metav1.Time
	dir           string // of its volumes
	ip            string
	ipIndex       byte // 0 on the host's network

	ctx    context.Context // ends its programs at once; nil without any
	cancel context.CancelFunc

	pushing sync.Mutex // held from reading the status until the API server took it

	mu         sync.Mutex
	containers []*containerRun // in order, init containers first
	active     bool            // a goroutine runs its programs
	done       chan struct{}   // closed when that one has ended; nil without any
	asked      chan struct{}   // closed when its programs shall end
	isAsked    bool
	killAt     time.Time // when they are killed, once asked
	endAt      time.Time // when one without programs ends, once deleted
	failed     bool      // by us: reason and message say why
	reason     string
	message    string
	pushed     [sha256.Size]byte // the last status that the API server took
}

// containerRun is a container of a pod, as its status says it. Guarded by pod.mu.
type containerRun struct {
	spec     *corev1.Container
	init     bool
	program  string // what really runs; "" if it only claims to
	state    corev1.ContainerState
	last     *corev1.ContainerStateTerminated
	restarts int32
	finished bool // will not be started again
	log      *containerLog
	previous *containerLog
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// claim has a container without a program be what it would be.
func (c *containerRun) claim(now time.Time) {
	at := metav1.NewTime(now)
	if c.init {
		c.finished = true
		c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at}}
		return
	}
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
}

// terminate notes that the pod is deleted and returns how long until it is worth
// looking again; 0 when only its programs, if any, are left.
func (p *pod) terminate(spec *corev1.Pod) time.Duration {
	now := time.Now()
	deadline := spec.DeletionTimestamp.Time
	p.mu.Lock()
	active := p.active
	if p.endAt.IsZero() {
		p.endAt = deadline
		if d := termination(spec); d < deadline.Sub(now) {
			p.endAt = now.Add(d)
		}
	}
	if deadline.Before(p.endAt) {
		p.endAt = deadline // deleted again, with less grace
	}
	left := p.endAt.Sub(now)
	p.mu.Unlock()
	if active {
		p.ask(deadline)
		return 0
	}
	return max(left, 0)
}

// ask has the pod's programs end, and be killed at deadline.
func (p *pod) ask(deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isAsked {
		return
	}
	p.isAsked, p.killAt = true, deadline
	close(p.asked)
}

// quiet reports whether no program of the pod runs.
func (p *pod) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.active
}

// fail ends the pod for a reason of the node's.
func (p *pod) fail(reason, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed {
		return
	}
	p.failed, p.reason, p.message = true, reason, message
	at := metav1.NewTime(time.Now())
	for _, c := range p.containers {
		if c.state.Terminated == nil {
			started := at
			if c.state.Running != nil {
				started = c.state.Running.StartedAt
			}
			c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", StartedAt: started, FinishedAt: at}}
		}
		c.finished = true
	}
	if p.cancel != nil {
		p.cancel()
	}
}

// push tells the API server the pod's status, if it changed.
func (p *pod) push(ctx context.Context, spec *corev1.Pod) error {
	// One at a time, or an older status may be taken after a newer one.
	p.pushing.Lock()
	defer p.pushing.Unlock()
	status := p.status(spec)
	content, err := json.Marshal(status)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(content)
	p.mu.Lock()
	same := p.pushed == digest
	p.mu.Unlock()
	if same {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": json.RawMessage(content)})
	if err != nil {
		return err
	}
	_, err = p.r.substrate.client.CoreV1().Pods(p.name.Namespace).Patch(ctx, p.name.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another of that name by now
	}
	if err != nil {
		return fmt.Errorf("status of pod %s: %w", p.name, err)
	}
	p.mu.Lock()
	p.pushed = digest
	p.mu.Unlock()
	return nil
}

// status is what the kubelet would say of the pod.
func (p *pod) status(spec *corev1.Pod) corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := corev1.PodStatus{
		Phase: p.phase(), Reason: p.reason, Message: p.message, StartTime: &p.startedAt,
		HostIP: p.r.hostIP(), HostIPs: []corev1.HostIP{{IP: p.r.hostIP()}},
		PodIP: p.ip, PodIPs: []corev1.PodIP{{IP: p.ip}},
		ObservedGeneration: spec.Generation,
	}
	ready := status.Phase == corev1.PodRunning
	initialized := true
	for _, c := range p.containers {
		one := c.status(p.uid)
		if c.init {
			initialized = initialized && c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
			status.InitContainerStatuses = append(status.InitContainerStatuses, one)
			continue
		}
		ready = ready && one.Ready
		status.ContainerStatuses = append(status.ContainerStatuses, one)
	}
	reason := ""
	switch {
	case status.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case status.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason = "ContainersNotReady"
	}
	for _, c := range []struct {
		of     corev1.PodConditionType
		is     bool
		reason string
	}{
		{corev1.PodReadyToStartContainers, status.Phase == corev1.PodRunning || status.Phase == corev1.PodPending, ""},
		{corev1.PodInitialized, initialized, ""},
		{corev1.PodReady, ready, reason},
		{corev1.ContainersReady, ready, reason},
	} {
		value := corev1.ConditionFalse
		if c.is {
			value = corev1.ConditionTrue
		}
		since := p.startedAt
		for _, was := range spec.Status.Conditions {
			if was.Type == c.of && was.Status == value {
				since = was.LastTransitionTime
			} else if was.Type == c.of {
				since = p.lastChange()
			}
		}
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c.of, Status: value, Reason: c.reason, LastTransitionTime: since, ObservedGeneration: spec.Generation})
	}
	if p.reason == "Terminated" {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
			Message: p.message, LastTransitionTime: p.lastChange(), ObservedGeneration: spec.Generation,
		})
	}
	return status
}

// lastChange is when a container last changed. The caller holds p.mu.
func (p *pod) lastChange() metav1.Time {
	last := p.startedAt
	for _, c := range p.containers {
		at := last
		if c.state.Running != nil {
			at = c.state.Running.StartedAt
		} else if c.state.Terminated != nil {
			at = c.state.Terminated.FinishedAt
		}
		if last.Before(&at) {
			last = at
		}
	}
	return last
}

// phase follows from the containers. The caller holds p.mu.
func (p *pod) phase() corev1.PodPhase {
	if p.failed {
		return corev1.PodFailed
	}
	over, begun, bad := true, false, false
	for _, c := range p.containers {
		ended := c.state.Terminated != nil && c.finished
		if c.init {
			if ended && c.state.Terminated.ExitCode != 0 {
				return corev1.PodFailed
			}
			if !ended {
				return corev1.PodPending
			}
			continue
		}
		over = over && ended
		begun = begun || c.state.Waiting == nil || c.restarts > 0
		bad = bad || (ended && c.state.Terminated.ExitCode != 0)
	}
	switch {
	case over && bad:
		return corev1.PodFailed
	case over:
		return corev1.PodSucceeded
	case begun:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

func (c *containerRun) status(uid types.UID) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, State: *c.state.DeepCopy(), RestartCount: c.restarts,
		Ready: c.state.Running != nil || (c.init && c.state.Terminated != nil && c.state.Terminated.ExitCode == 0),
	}
	status.Started = ptr.To(c.state.Running != nil)
	if c.last != nil {
		status.LastTerminationState.Terminated = c.last.DeepCopy()
	}
	if c.state.Waiting == nil {
		status.ImageID = imageID(c.spec.Image)
		digest := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", uid, c.spec.Name, c.restarts))
		status.ContainerID = "containerd://" + hex.EncodeToString(digest[:])
		if status.State.Terminated != nil {
			status.State.Terminated.ContainerID = status.ContainerID
		}
	}
	return status
}

// logOf returns a container's log, or its previous run's.
func (p *pod) logOf(name string, previous bool) (*containerLog, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		if c.spec.Name != name {
			continue
		}
		log := c.log
		if previous {
			if log = c.previous; log == nil {
				return nil, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.name.Name)
			}
		}
		if log == nil {
			if c.state.Waiting != nil {
				return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.name.Name, c.state.Waiting.Reason)
			}
			log = emptyLog()
		}
		return log, nil
	}
	return nil, fmt.Errorf("container %q is not in pod %q", name, p.name.Name)
}
