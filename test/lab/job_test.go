//go:build e2e && linux

package lab

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the chart calls its Job, for a node and for all pools.
const (
	jobName     = "kamino-gen-" + poolName
	autoJobName = "kamino-gen-autoupdate"
)

// helm runs it.
func (l *lab) helm(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	binary := strings.TrimSpace(l.run(ctx, t, "hack/helm/build.sh"))
	l.run(ctx, t, append([]string{binary, "--kubeconfig", l.cp.Kubeconfig, "--namespace", "default"}, args...)...)
}

// install installs the chart as its users do; settings are more of its values.
func (l *lab) install(ctx context.Context, t *testing.T, donor string, settings ...string) {
	t.Helper()
	args := []string{"install", "prototype", "charts/vmss-prototype"}
	for _, s := range append([]string{"kamino.targetNode=" + donor, "kamino.drain.gracePeriod=30", "ortet.image=" + ortetImage}, settings...) {
		args = append(args, "--set", s)
	}
	l.helm(ctx, t, args...)
}

// installAuto installs the chart so that its Job finds the pool and its donor by itself.
// The Job's pod runs on the node that is marked as AKS Engine marks a control plane's, and
// so is no donor; neither are those that are ignored.
func (l *lab) installAuto(ctx context.Context, t *testing.T, controlPlane string, ignored ...string) {
	t.Helper()
	l.mark(ctx, t, controlPlane, `"master"`)
	l.helm(ctx, t, "install", "prototype", "charts/vmss-prototype", "--set", "kamino.targetVMSS=ALL,kamino.drain.gracePeriod=30,kamino.scheduleOnControlPlane=true",
		"--set", "ortet.image="+ortetImage+",kamino.auto.minimumReadyTime=1s,ortet.auto.ignoreNodes={"+strings.Join(ignored, ",")+"}")
}

// mark sets the label of AKS Engine's control planes on a node, or takes it off (null).
func (l *lab) mark(ctx context.Context, t *testing.T, node, value string) {
	t.Helper()
	patch := `{"metadata":{"labels":{"kubernetes.io/role":` + value + `}}}`
	if _, err := l.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A job is one that has succeeded.
type job struct {
	pods []string // in the order in which they ran
	log  string   // of all of them
}

// follow follows the logs of the Job's pods until it has succeeded; each line is
// given to heard as well, if it is not nil.
func (l *lab) follow(ctx context.Context, t *testing.T, name, donor string, heard func(pod *corev1.Pod, line string)) job {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	defer func() {
		if t.Failed() {
			l.explain(t)
		}
	}()
	var j job
	var log strings.Builder
	pods := l.client.CoreV1().Pods("default")
	for done := false; !done; {
		var next *corev1.Pod
		poll(ctx, t, "the Job to end, or a pod of its", 2*time.Minute, func(ctx context.Context) (bool, error) {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + name})
			if err != nil {
				return false, err
			}
			for _, p := range list.Items {
				if p.Status.Phase != corev1.PodPending && !slices.Contains(j.pods, p.Name) {
					next = &p
					return true, nil
				}
			}
			done, err = l.jobDone(ctx, name)
			return done, err
		})
		if done {
			break
		}
		j.pods = append(j.pods, next.Name)
		if next.Spec.NodeName == donor {
			t.Fatalf("%s runs on the node that it captures, %s", next.Name, donor)
		}
		stream, err := pods.GetLogs(next.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(stream); lines.Scan(); {
			t.Log("job: " + lines.Text())
			log.WriteString(lines.Text() + "\n")
			if heard != nil {
				heard(next, lines.Text())
			}
		}
		_ = stream.Close()
	}
	j.log = log.String()
	return j
}

// jobDone says whether the Job has succeeded; that it failed is an error.
func (l *lab) jobDone(ctx context.Context, name string) (bool, error) {
	j, err := l.client.BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobFailed:
			return false, fmt.Errorf("the Job failed: %s: %s", c.Reason, c.Message)
		case batchv1.JobComplete:
			return true, nil
		}
	}
	return false, nil
}

// explain shows what a person would look at when a Job did not succeed.
func (l *lab) explain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	pods, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	for _, p := range pods.Items {
		t.Logf("pod %s/%s on %s: %s %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Message)
		for _, c := range p.Status.ContainerStatuses {
			t.Logf("  %s: waiting %+v, terminated %+v", c.Name, c.State.Waiting, c.State.Terminated)
		}
	}
	events, err := l.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	for _, e := range events.Items {
		if e.Type != corev1.EventTypeNormal && e.Reason != "CgroupV1" {
			t.Logf("event %s/%s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}
