package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	// maxOutput bounds what is read of a pod's log.
	maxOutput = 4 << 20
	// outputLines keeps the end of the log, where the report is, if a pod
	// prints without end. The kubelet counts a line over 16 KiB as several.
	outputLines = 4000
	// workContainer is the pod's only container.
	workContainer = "work"
)

func (c *Cluster) onPod(op, verb, subresource, name string) act {
	return act{op: op, on: "pod " + c.namespace + "/" + name,
		access: cluster.Access{Verb: verb, Resource: "pods", Subresource: subresource, Namespace: c.namespace}}
}

// StartJob creates the pod. One of that name that somebody else made is
// fleet.KindInvalid; one that is being deleted is fleet.KindConflict.
func (c *Cluster) StartJob(ctx context.Context, job cluster.Job) error {
	a := c.onPod("start job", "create", "", job.Name)
	pods := c.client.CoreV1().Pods(c.namespace)
	_, err := pods.Create(ctx, c.pod(job), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) && job.ReadOnly { // there is no namespace
		if err := c.EnsureNamespace(ctx); err != nil {
			return err
		}
		_, err = pods.Create(ctx, c.pod(job), metav1.CreateOptions{FieldManager: fieldManager})
	}
	if !apierrors.IsAlreadyExists(err) {
		return a.fail(ctx, err)
	}
	a = c.onPod("read job", "get", "", job.Name)
	there, err := pods.Get(ctx, job.Name, metav1.GetOptions{})
	if err != nil {
		return a.fail(ctx, err)
	}
	switch {
	case there.Labels[labelManagedBy] != managedBy:
		return &fleet.Error{Op: "start job", Resource: a.on, Kind: fleet.KindInvalid,
			Err: errors.New("a pod of that name is there that Ortet did not make"), Remedy: "delete it if it is not needed"}
	case there.DeletionTimestamp != nil:
		return &fleet.Error{Op: "start job", Resource: a.on, Kind: fleet.KindConflict,
			Err: errors.New("a pod of that name is still being deleted"), RetryAfter: time.Second}
	}
	return nil
}

// pod bypasses the scheduler and the pod network: it works on a node that is
// cordoned, tainted, full, or has no addresses left.
func (c *Cluster) pod(job cluster.Job) *corev1.Pod {
	meta := c.ours(job.Name, "capture")
	for key, value := range job.Labels {
		meta.Labels[key] = value
	}
	meta.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
	pod := &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			NodeName:                      job.Node,
			RestartPolicy:                 corev1.RestartPolicyNever,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			HostNetwork:                   true,
			HostPID:                       job.HostPID,
			DNSPolicy:                     corev1.DNSDefault,
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
			TerminationGracePeriodSeconds: ptr(int64(30)),
			Containers: []corev1.Container{{
				Name: workContainer, Image: job.Image, Command: job.Command,
				ImagePullPolicy:          corev1.PullIfNotPresent,
				TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				SecurityContext:          &corev1.SecurityContext{Privileged: ptr(true), RunAsUser: ptr(int64(0))},
				VolumeMounts:             []corev1.VolumeMount{{Name: "host", MountPath: "/host"}},
			}},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: ptr(corev1.HostPathDirectory)},
			}}},
		},
	}
	if job.ReadOnly {
		work := &pod.Spec.Containers[0]
		work.VolumeMounts[0].ReadOnly = true
		// spc_t is the SELinux type of containers that work on the host.
		work.SecurityContext = &corev1.SecurityContext{
			RunAsUser: ptr(int64(0)), AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_READ_SEARCH"}},
			SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
		}
	}
	if job.Deadline > 0 {
		pod.Spec.ActiveDeadlineSeconds = ptr(int64(seconds(job.Deadline)))
	}
	if job.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: job.PullSecret}}
	}
	return pod
}

func ptr[T any](v T) *T { return &v }

// Job reads the pod and its log. Standard error is in the log too: Kubernetes
// does not tell them apart. While the pod runs, Output is what could be read.
// ExitCode is -1 where no container's end was seen.
func (c *Cluster) Job(ctx context.Context, name string) (cluster.JobState, error) {
	pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return cluster.JobState{}, nil
	}
	if err != nil {
		return cluster.JobState{}, c.onPod("read job", "get", "", name).fail(ctx, err)
	}
	state, started := judgePod(pod)
	if !started {
		return state, nil
	}
	output, err := c.output(ctx, c.onPod("read the log of job", "get", "log", name), name, workContainer, outputLines)
	if err != nil {
		if state.Done && state.Why == "" {
			// Its report is what everybody waits for.
			return state, err
		}
		c.log.DebugContext(ctx, "log of a job cannot be read yet", "pod", name, "error", err)
		return state, nil
	}
	state.Output = output
	return state, nil
}

// judgePod says how far the pod is, and whether its container has begun.
func judgePod(pod *corev1.Pod) (state cluster.JobState, started bool) {
	state.Exists = true
	var status corev1.ContainerStatus
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == workContainer {
			status = s
		}
	}
	switch end := status.State.Terminated; {
	case end != nil:
		state.Done, state.ExitCode, started = true, end.ExitCode, true
		state.Ran = end.Reason != "StartError" && end.Reason != "ContainerCannotRun" // containerd's word, and dockershim's
		if end.ExitCode != 0 && end.Reason != "" && end.Reason != "Error" {
			state.Why = joined(end.Reason, end.Message) // OOMKilled, ContainerCannotRun
		}
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		// The kubelet refused the pod, or the node was lost.
		state.Done, state.ExitCode = true, -1
		state.Why = cmp.Or(joined(pod.Status.Reason, pod.Status.Message), "the pod ended, and nothing is known of its container")
	case status.State.Running != nil:
		started, state.Ran = true, true
	case status.State.Waiting != nil:
		switch status.State.Waiting.Reason {
		case "ContainerCreating", "PodInitializing", "":
		default:
			state.Why = joined(status.State.Waiting.Reason, status.State.Waiting.Message)
		}
	}
	if state.Done && pod.Status.Reason != "" {
		state.Why = joined(pod.Status.Reason, pod.Status.Message) // DeadlineExceeded, Evicted, NodeLost
	}
	if state.Done {
		return state, started
	}
	for _, condition := range pod.Status.Conditions {
		switch {
		case condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue,
			condition.Type == corev1.PodReady && condition.Reason == "NodeNotReady":
			state.Why = joined(condition.Reason, condition.Message)
		}
	}
	if pod.Status.Reason == "NodeLost" {
		state.Why = joined(pod.Status.Reason, pod.Status.Message)
	}
	if pod.DeletionTimestamp != nil {
		state.Why = cmp.Or(state.Why, "the pod is being deleted")
	}
	return state, started
}

func joined(reason, message string) string {
	if message == "" {
		return reason
	}
	if reason == "" {
		return message
	}
	return reason + ": " + message
}

// output reads the end of a container's log.
func (c *Cluster) output(ctx context.Context, a act, name, container string, lines int64) (output []byte, err error) {
	stream, err := c.client.CoreV1().Pods(a.access.Namespace).GetLogs(name, &corev1.PodLogOptions{
		Container: container, TailLines: &lines, LimitBytes: ptr(int64(maxOutput)),
	}).Stream(ctx)
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	defer func() {
		if closing := stream.Close(); err == nil && closing != nil {
			err = a.fail(ctx, closing)
		}
	}()
	output, err = io.ReadAll(io.LimitReader(stream, maxOutput))
	if err != nil {
		return nil, a.fail(ctx, fmt.Errorf("the log broke off: %w", err))
	}
	return output, nil
}

// DeleteJob deletes the pod. It is not deleted by force, since its command may still
// use the disk.
func (c *Cluster) DeleteJob(ctx context.Context, name string) (gone bool, err error) {
	return c.deleteJob(ctx, name, nil)
}

// ForceDeleteJob deletes the pod as kubectl delete --force --grace-period=0 does.
func (c *Cluster) ForceDeleteJob(ctx context.Context, name string) error {
	_, err := c.deleteJob(ctx, name, ptr(int64(0)))
	return err
}

// deleteJob deletes the pod with a grace period, or its own if that is nil.
func (c *Cluster) deleteJob(ctx context.Context, name string, grace *int64) (gone bool, err error) {
	a := c.onPod("delete job", "delete", "", name)
	pods := c.client.CoreV1().Pods(c.namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, c.onPod("read job", "get", "", name).fail(ctx, err)
	case pod.Labels[labelManagedBy] != managedBy:
		return false, &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: errors.New("a pod of that name is there that Ortet did not make")}
	case pod.DeletionTimestamp != nil && grace == nil:
		return false, nil
	}
	err = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err): // another pod may have the name: the next call reads it
		return false, nil
	}
	return false, a.fail(ctx, err)
}
