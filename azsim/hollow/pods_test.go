//go:build e2e

package hollow_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/hollow"
)

// program is what this test binary does when a pod runs it.
func program(mode string) int {
	switch mode {
	case "work":
		root := os.Args[len(os.Args)-1]
		content, err := os.ReadFile(filepath.Join(root, "etc", "hostname"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		fmt.Printf("host %s", content)
		fmt.Fprintln(os.Stderr, "working on", filepath.Base(os.Getenv("HOLLOW_TEST_DEVICE")))
		if err := os.WriteFile(filepath.Join(root, "etc", "hostname"), nil, 0o644); err != nil {
			return 4
		}
		if err := os.WriteFile(os.Getenv("HOLLOW_TEST_MESSAGE"), []byte("done well"), 0o600); err != nil {
			return 5
		}
		return 0
	case "fail":
		fmt.Println("about to fail")
		return 7
	case "stay":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		fmt.Println("staying")
		<-ended
		if err := os.WriteFile(filepath.Join(os.Args[len(os.Args)-1], "asked"), nil, 0o644); err != nil {
			return 1
		}
		return 0
	}
	return 64
}

func withProgram(t *testing.T) func(*hollow.Config) {
	return func(c *hollow.Config) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c.Programs = map[string]string{"worker": self}
	}
}

// worker is a pod that runs the program on the node's disk.
func worker(node, mode string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "worker-"},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](20),
			Containers: []corev1.Container{{
				Name: "worker", Image: "example.com/worker:1", Command: []string{"/usr/bin/worker"}, Args: []string{"--root", "/host"},
				TerminationMessagePath: "/run/message",
				Env: []corev1.EnvVar{
					{Name: "HOLLOW_TEST_PROGRAM", Value: mode}, {Name: "HOLLOW_TEST_DEVICE", Value: "/host/dev/disk"}, {Name: "HOLLOW_TEST_MESSAGE", Value: "/run/message"},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host"}},
			}},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		},
	}
}

func (w *world) create(pod *corev1.Pod) string {
	w.Helper()
	var created *corev1.Pod
	w.eventually("pod made", func(ctx context.Context) (err error) { // the service account comes with delay
		created, err = w.client.CoreV1().Pods(w.name).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return created.Name
}

func (w *world) phase(name string, want corev1.PodPhase) *corev1.Pod {
	w.Helper()
	var pod *corev1.Pod
	w.eventually(fmt.Sprintf("pod %s is %s", name, want), func(ctx context.Context) (err error) {
		if pod, err = w.client.CoreV1().Pods(w.name).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != want {
			return fmt.Errorf("%s %s %s %+v", pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

func (w *world) logs(pod string, options *corev1.PodLogOptions) string {
	w.Helper()
	content, err := w.client.CoreV1().Pods(w.name).GetLogs(pod, options).DoRaw(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return string(content)
}

func (w *world) gone(pod string) {
	w.Helper()
	w.eventually("pod "+pod+" is gone", func(ctx context.Context) error {
		_, err := w.client.CoreV1().Pods(w.name).Get(ctx, pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = errors.New("still there")
		}
		return err
	})
}

// The program works on an attached disk, and its output is read through the API.
func TestProgramWorksOnAttachedDisk(t *testing.T) {
	for _, nvme := range []bool{false, true} {
		t.Run(fmt.Sprintf("nvme=%v", nvme), func(t *testing.T) {
			w := newWorld(t, withProgram(t))
			donor := w.boot(0, azsim.Source{Platform: image})
			bench := w.boot(1, azsim.Source{Platform: image}, func(c *azsim.Computer) { c.NVMe = nvme })
			w.ready(bench.HostName)
			copied := azsim.Volume(w.name + "-copy")
			if err := w.substrate.CreateVolume(t.Context(), copied, azsim.Source{Volume: donor.OSDisk}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := w.substrate.Attach(t.Context(), bench.ID, 5, copied); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.substrate.Attach(t.Context(), bench.ID, 5, donor.OSDisk); err == nil {
				t.Error("a LUN holds two disks")
			}
			device := "/host/dev/disk/azure/scsi1/lun5"
			if nvme {
				device = "/host/dev/disk/azure/data/by-lun/5"
			}
			// A program that keeps to the host's tree finds the disk in it.
			if inside, err := os.OpenInRoot(w.substrate.Tree(bench.OSDisk), strings.TrimPrefix(device, "/host/")); err != nil {
				t.Error(err)
			} else if err := inside.Close(); err != nil {
				t.Error(err)
			}
			if err := w.substrate.DeleteVolume(t.Context(), copied); err == nil {
				t.Error("an attached disk was deleted")
			}
			pod := worker(bench.HostName, "work")
			pod.Spec.Containers[0].Args = []string{"--root", device}
			name := w.create(pod)
			done := w.phase(name, corev1.PodSucceeded)
			if got := done.Status.ContainerStatuses[0].State.Terminated; got.ExitCode != 0 || got.Message != "done well" {
				t.Errorf("ended as %+v", got)
			}
			if got := w.logs(name, &corev1.PodLogOptions{}); !strings.Contains(got, "host "+donor.HostName) || !strings.Contains(got, "working on disk") {
				t.Errorf("log %q", got)
			}
			if w.file(copied, "etc/hostname") != "" {
				t.Error("the disk is as it was")
			}
			if got := w.file(donor.OSDisk, "etc/hostname"); got != donor.HostName+"\n" {
				t.Errorf("the donor's disk changed: %q", got)
			}
			for range 2 {
				if err := w.substrate.Detach(t.Context(), bench.ID, 5); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Lstat(filepath.Join(w.substrate.Tree(bench.OSDisk), strings.TrimPrefix(device, "/host"))); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the device after Detach: %v", err)
			}
		})
	}
}

func TestProgramEnds(t *testing.T) {
	w := newWorld(t, withProgram(t))
	c := w.boot(0, azsim.Source{Platform: image})
	w.ready(c.HostName)
	root := w.substrate.Tree(c.OSDisk)

	failing := worker(c.HostName, "fail")
	failing.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	got := w.phase(w.create(failing), corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if got.ExitCode != 7 || got.Reason != "Error" || got.Message != "about to fail\n" {
		t.Errorf("failed as %+v", got)
	}

	staying := w.create(worker(c.HostName, "stay"))
	w.phase(staying, corev1.PodRunning)
	stream, err := w.client.CoreV1().Pods(w.name).GetLogs(staying, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stream).ReadString('\n')
	if err != nil || line != "staying\n" {
		t.Errorf("followed log says %q (%v)", line, err)
	}
	if err := w.client.CoreV1().Pods(w.name).Delete(t.Context(), staying, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the followed log does not end well: %v", err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	w.gone(staying)
	if _, err := os.Stat(filepath.Join(root, "asked")); err != nil {
		t.Errorf("the program was not asked to end: %v", err)
	}
	// As with a kubelet, a pod's logs go after its object, not before.
	w.eventually("the deleted pod's logs are gone", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(root, "var/log/pods/*"+staying+"*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left are %v", left)
		}
		return err
	})

	lost := w.create(worker(c.HostName, "stay"))
	w.phase(lost, corev1.PodRunning)
	if err := w.substrate.Shutdown(t.Context(), c.ID, true); err != nil {
		t.Fatal(err)
	}
	pod := w.phase(lost, corev1.PodFailed)
	if pod.Status.Reason != "Terminated" {
		t.Errorf("a pod on a node that shut down has reason %q", pod.Status.Reason)
	}
}

func deployment(replicas int32, selector map[string]string, annotations map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: annotations},
				Spec: corev1.PodSpec{
					NodeSelector: selector, TerminationGracePeriodSeconds: ptr.To[int64](5),
					Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}},
				},
			},
		},
	}
}

func (w *world) runningPods(want int) []corev1.Pod {
	w.Helper()
	var ready []corev1.Pod
	w.eventually(fmt.Sprintf("%d pods are Ready", want), func(ctx context.Context) error {
		pods, err := w.client.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready = ready[:0]
		for _, pod := range pods.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
					ready = append(ready, pod)
				}
			}
		}
		if len(ready) != want {
			return fmt.Errorf("%d of %d", len(ready), want)
		}
		return nil
	})
	return ready
}

func TestEvictionRespectsBudgetAndGrace(t *testing.T) {
	w := newWorld(t)
	c := w.boot(0, azsim.Source{Platform: image})
	w.ready(c.HostName)
	_, err := w.client.AppsV1().Deployments(w.name).Create(t.Context(), deployment(2, map[string]string{corev1.LabelHostname: c.HostName}, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := w.runningPods(2)
	if pods[0].Status.PodIP == pods[1].Status.PodIP || pods[0].Status.PodIP == "" {
		t.Errorf("addresses %q and %q", pods[0].Status.PodIP, pods[1].Status.PodIP)
	}
	if got := w.file(c.OSDisk, "var/lib/containerd/images.json"); !strings.Contains(got, "example.com/web:1") {
		t.Errorf("image store %s", got)
	}
	budget, err := w.client.PolicyV1().PodDisruptionBudgets(w.name).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	evict := func() error {
		return w.client.PolicyV1().Evictions(w.name).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: pods[0].Name}})
	}
	w.eventually("the budget is computed", func(ctx context.Context) error {
		got, err := w.client.PolicyV1().PodDisruptionBudgets(w.name).Get(ctx, budget.Name, metav1.GetOptions{})
		if err == nil && got.Status.CurrentHealthy != 2 {
			err = fmt.Errorf("%d healthy", got.Status.CurrentHealthy)
		}
		return err
	})
	if err := evict(); !apierrors.IsTooManyRequests(err) {
		t.Errorf("eviction against the budget: %v, want 429", err)
	}
	if err := w.client.PolicyV1().PodDisruptionBudgets(w.name).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the eviction is allowed", func(context.Context) error { return evict() })
	w.gone(pods[0].Name)

	slow := worker(c.HostName, "")
	slow.Annotations = map[string]string{hollow.IgnoreSIGTERM: "true"}
	slow.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3)
	name := w.create(slow)
	w.phase(name, corev1.PodRunning)
	begun := time.Now()
	if err := w.client.CoreV1().Pods(w.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone(name)
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("a pod that ignores SIGTERM was gone after %s of its grace of 3 s", took)
	}
}

func TestPodsRestartAfterPowerLoss(t *testing.T) {
	w := newWorld(t)
	c := w.boot(0, azsim.Source{Platform: image})
	w.ready(c.HostName)
	if _, err := w.client.AppsV1().Deployments(w.name).Create(t.Context(), deployment(1, map[string]string{corev1.LabelHostname: c.HostName}, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := w.runningPods(1)[0]
	if err := w.substrate.Shutdown(t.Context(), c.ID, false); err != nil {
		t.Fatal(err)
	}
	if err := w.substrate.Boot(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.eventually("the container is restarted", func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(w.name).Get(ctx, before.Name, metav1.GetOptions{})
		if err == nil && pod.Status.ContainerStatuses[0].RestartCount != 1 {
			err = fmt.Errorf("%d restarts", pod.Status.ContainerStatuses[0].RestartCount)
		}
		return err
	})
}
