package clustertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

func (w *world) job(node string) cluster.Job {
	return cluster.Job{
		Name: w.name + "-generalize", Node: node, Image: "example.invalid/ortet-node:1", Command: []string{"ortet-node", "generalize"},
		PullSecret: "pull", Labels: map[string]string{"ortet.io/capture": "c1"}, Deadline: time.Hour,
	}
}

// reportPod plays the kubelet's report of the job's pod.
func (w *world) reportPod(name string, status corev1.PodStatus) {
	w.Helper()
	w.eventually("pod status", func() (string, bool) {
		pod, err := w.admin.CoreV1().Pods(w.setup.Namespace).Get(w.ctx, name, metav1.GetOptions{})
		w.must(err, "read the job's pod")
		pod.Status = status
		_, err = w.admin.CoreV1().Pods(w.setup.Namespace).UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			w.must(err, "report pod status")
		}
		return "conflict", err == nil
	})
}

// deleteJob deletes a job and waits until it is gone.
func deleteJob(ctx context.Context, under cluster.Cluster, name string) error {
	for {
		if gone, err := under.DeleteJob(ctx, name); gone || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deleting asks for the deletion of a job that does not end.
func (w *world) deleting(name string) {
	w.Helper()
	gone, err := w.under.DeleteJob(w.ctx, name)
	w.must(err, "delete")
	if gone {
		w.Error("a pod that nothing ended is reported as gone")
	}
}

func jobLife(w *world) {
	node := w.cordoned()
	w.kubelet(node)
	job := w.job(node)
	state, err := w.under.Job(w.ctx, job.Name)
	w.must(err, "read a job that is not there")
	if state.Exists {
		w.Errorf("before the start: %+v", state)
	}
	w.must(deleteJob(w.ctx, w.under, job.Name), "delete a job that is not there")

	w.must(w.under.StartJob(w.ctx, job), "start")
	pod, err := w.admin.CoreV1().Pods(w.setup.Namespace).Get(w.ctx, job.Name, metav1.GetOptions{})
	w.must(err, "read the pod")
	spec := pod.Spec
	container := spec.Containers[0]
	switch {
	case spec.NodeName != node, spec.RestartPolicy != corev1.RestartPolicyNever,
		spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken,
		spec.ActiveDeadlineSeconds == nil || *spec.ActiveDeadlineSeconds != 3600,
		len(spec.ImagePullSecrets) != 1 || spec.ImagePullSecrets[0].Name != "pull",
		container.Image != job.Image || strings.Join(container.Command, " ") != "ortet-node generalize",
		container.SecurityContext == nil || container.SecurityContext.Privileged == nil || !*container.SecurityContext.Privileged,
		len(container.VolumeMounts) != 1 || container.VolumeMounts[0].MountPath != "/host",
		len(spec.Volumes) != 1 || spec.Volumes[0].HostPath == nil || spec.Volumes[0].HostPath.Path != "/",
		pod.Labels["ortet.io/capture"] != "c1":
		w.Errorf("the pod is not what was asked for: %+v", pod)
	}
	tolerates := false
	for _, t := range spec.Tolerations {
		tolerates = tolerates || t.Operator == corev1.TolerationOpExists && t.Key == "" && t.Effect == ""
	}
	if !tolerates {
		w.Errorf("it does not tolerate everything: %+v", spec.Tolerations)
	}

	other := job
	other.Image = "example.invalid/other"
	w.must(w.under.StartJob(w.ctx, other), "start again")
	again, err := w.admin.CoreV1().Pods(w.setup.Namespace).Get(w.ctx, job.Name, metav1.GetOptions{})
	w.must(err, "read the pod")
	if again.UID != pod.UID || again.Spec.Containers[0].Image != job.Image {
		w.Error("the second start changed the pod")
	}
	state, err = w.under.Job(w.ctx, job.Name)
	w.must(err, "read")
	if !state.Exists || state.Done || state.Why != "" {
		w.Errorf("once started: %+v", state)
	}
	w.must(deleteJob(w.ctx, w.under, job.Name), "delete")
	if got := w.podsOn(node); got != "" {
		w.Errorf("pods after the deletion: %q", got)
	}
	w.must(deleteJob(w.ctx, w.under, job.Name), "delete again")
}

// jobReadOnly may read all of the node, and nothing else.
func jobReadOnly(w *world) {
	node := w.cordoned()
	w.kubelet(node)
	job := w.job(node)
	job.ReadOnly = true
	w.must(w.under.StartJob(w.ctx, job), "start")
	pod, err := w.admin.CoreV1().Pods(w.setup.Namespace).Get(w.ctx, job.Name, metav1.GetOptions{})
	w.must(err, "read the pod")
	container := pod.Spec.Containers[0]
	s := container.SecurityContext
	switch {
	case s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
		s.Capabilities == nil || fmt.Sprint(s.Capabilities.Drop, s.Capabilities.Add) != "[ALL] [DAC_READ_SEARCH]",
		s.SELinuxOptions == nil || s.SELinuxOptions.Type != "spc_t",
		len(container.VolumeMounts) != 1 || !container.VolumeMounts[0].ReadOnly || container.VolumeMounts[0].MountPath != "/host",
		pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] != "false":
		w.Errorf("the pod may do more than read: %+v", pod)
	}
	w.must(deleteJob(w.ctx, w.under, job.Name), "delete")
}

func jobStuck(w *world) {
	node := w.cordoned()
	job := w.job(node)
	w.must(w.under.StartJob(w.ctx, job), "start")
	w.reportPod(job.Name, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "work", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
	}}})
	state, err := w.under.Job(w.ctx, job.Name)
	w.must(err, "read")
	if state.Done || state.Ran || !strings.Contains(state.Why, "ImagePullBackOff") || !strings.Contains(state.Why, "no such image") {
		w.Errorf("%+v", state)
	}
	w.deleting(job.Name)
	w.deleting(job.Name)
	w.wantKind(w.under.StartJob(w.ctx, job), fleet.KindConflict, "start while the former pod goes")
	w.kubelet(node)
	w.must(deleteJob(w.ctx, w.under, job.Name), "deletion once the node is back")
}

// jobForced has nobody to end the pod: it goes all the same, also after it was asked
// to go in order.
func jobForced(w *world) {
	w.must(w.under.ForceDeleteJob(w.ctx, w.job("").Name), "delete by force what is not there")
	node := w.cordoned()
	job := w.job(node)
	for _, asked := range []bool{false, true} {
		w.must(w.under.StartJob(w.ctx, job), "start")
		w.reportPod(job.Name, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "work", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}})
		if asked {
			w.deleting(job.Name)
		}
		w.must(w.under.ForceDeleteJob(w.ctx, job.Name), "delete by force")
		if got := w.podsOn(node); got != "" {
			w.Errorf("pods after the deletion by force: %q", got)
		}
	}
}

func jobLost(w *world) {
	node := w.cordoned()
	w.kubelet(node)
	job := w.job(node)
	w.must(w.under.StartJob(w.ctx, job), "start")
	w.reportPod(job.Name, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"})
	state, err := w.under.Job(w.ctx, job.Name)
	w.must(err, "read")
	if !state.Done || state.ExitCode == 0 || !strings.Contains(state.Why, "low on memory") {
		w.Errorf("%+v", state)
	}
	w.must(deleteJob(w.ctx, w.under, job.Name), "delete")
}

// jobForeign has a pod of the job's name that somebody else made.
func jobForeign(w *world) {
	node := w.cordoned()
	w.kubelet(node)
	job := w.job(node)
	w.pod(w.setup.Namespace, node, job.Name, metav1.OwnerReference{}, nil)
	w.wantKind(w.under.StartJob(w.ctx, job), fleet.KindInvalid, "start")
	_, err := w.under.DeleteJob(w.ctx, job.Name)
	w.wantKind(err, fleet.KindInvalid, "delete")
	w.wantKind(w.under.ForceDeleteJob(w.ctx, job.Name), fleet.KindInvalid, "delete by force")
	if got := w.podsOn(node); got != job.Name {
		w.Errorf("pods: %q", got)
	}
	w.must(w.admin.CoreV1().Pods(w.setup.Namespace).Delete(w.ctx, job.Name, metav1.DeleteOptions{}), "clean up")
}

// jobOutput reads what a job prints: from the node's kubelet, which is played
// here, unless Setup.Print says that the API server asks none.
func jobOutput(w *world) {
	job := w.job("")
	const output = "progress\nreport\n"
	printing, asKubelet := w.setup.Print, func(*corev1.Node) {}
	if printing == nil {
		printing, asKubelet = w.printingKubelet(job.Name)
	}
	job.Node = w.node("", func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		asKubelet(n)
	})
	w.kubelet(job.Node)
	w.must(w.under.StartJob(w.ctx, job), "start")
	w.reportPod(job.Name, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "work", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}})
	state, err := w.under.Job(w.ctx, job.Name)
	w.must(err, "read a running job whose log is not there yet")
	if state.Done || len(state.Output) != 0 {
		w.Errorf("%+v", state)
	}
	printing(w.T, w.setup.Namespace, job.Name, output)
	state, err = w.under.Job(w.ctx, job.Name)
	w.must(err, "read a running job")
	if state.Done || string(state.Output) != output {
		w.Errorf("done %t, output %q", state.Done, state.Output)
	}
	w.reportPod(job.Name, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "work", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}},
	}}})
	state, err = w.under.Job(w.ctx, job.Name)
	w.must(err, "read an ended job")
	if !state.Done || state.ExitCode != 3 || string(state.Output) != output {
		w.Errorf("done %t, exit %d, output %q", state.Done, state.ExitCode, state.Output)
	}
	w.must(deleteJob(w.ctx, w.under, job.Name), "delete")
}

// printingKubelet serves what a pod printed, as a node's kubelet does. It gives
// how to print, and how the node says where its kubelet is.
func (w *world) printingKubelet(pod string) (printing func(t *testing.T, namespace, pod, output string), as func(*corev1.Node)) {
	w.Helper()
	pathOf := "/containerLogs/" + w.setup.Namespace + "/" + pod + "/"
	var printed atomic.Value
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		output, ok := printed.Load().(string)
		if !strings.HasPrefix(request.URL.Path, pathOf) || !ok {
			http.Error(answer, "no such container", http.StatusNotFound)
			return
		}
		if _, err := io.WriteString(answer, output); err != nil {
			w.Errorf("kubelet: %v", err)
		}
	}))
	w.Cleanup(kubelet.Close)
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	w.must(err, "address of the kubelet")
	number, err := strconv.ParseInt(port, 10, 32)
	w.must(err, "port of the kubelet")
	return func(_ *testing.T, _, _, output string) { printed.Store(output) }, func(n *corev1.Node) {
		n.Status.Addresses[0].Address = host
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	}
}
