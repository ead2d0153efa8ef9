//go:build e2e

package kube_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/test/controlplane"
)

// childEnv holds the kubeconfig of a test process that does what a capture asks
// of the cluster, and prints its peak anonymous memory.
const childEnv = "ORTET_TEST_CHILD"

const (
	manyNodes   = 1000
	podsPerNode = 10
	memoryBound = 60 << 20
)

// BenchmarkMemory prints the peak anonymous memory of a process that walks the
// nodes of a large cluster, asks for its permissions and drains a node.
func BenchmarkMemory(b *testing.B) {
	_, admin := cp(b)
	const namespace = "ortet-memory"
	makeNamespace(b, admin, namespace)
	fill(b, admin, namespace)
	path, err := controlplane.Shared(b).WriteKubeconfig("memory", controlplane.Client{User: "kubernetes-admin", Groups: []string{"system:masters"}})
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		command := exec.CommandContext(b.Context(), self)
		command.Env = append(os.Environ(), childEnv+"="+path)
		command.Stderr = os.Stderr
		out, err := command.Output()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		peak, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(peak)/(1<<20), "MiB-anonymous")
		if peak > memoryBound {
			b.Errorf("%d bytes of anonymous memory, over %d", peak, int64(memoryBound))
		}
	}
}

// fill makes the nodes, each of the size that real ones have, and their pods.
func fill(b *testing.B, admin kubernetes.Interface, namespace string) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(16)
	b.Cleanup(func() {
		ctx := context.WithoutCancel(b.Context())
		if err := admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "ortet-memory"}); err != nil {
			b.Errorf("clean up: %v", err)
		}
	})
	images := make([]corev1.ContainerImage, 50)
	for i := range images {
		images[i] = corev1.ContainerImage{SizeBytes: 1 << 28, Names: []string{
			fmt.Sprintf("registry.example.com/team/application-%d@sha256:%064d", i, i), fmt.Sprintf("registry.example.com/team/application-%d:v1.2.%d", i, i),
		}}
	}
	many := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("500")}
	for i := range manyNodes {
		group.Go(func() error {
			name := fmt.Sprintf("memory-%04d", i)
			node, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"ortet-memory": ""},
				Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true", "filler": strings.Repeat("x", 1500)},
			}, Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			node.Status = corev1.NodeStatus{Images: images, Capacity: many, Allocatable: many}
			for _, kind := range []corev1.NodeConditionType{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"} {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "True", Reason: "KubeletReady", Message: strings.Repeat("m", 80)})
			}
			node.ResourceVersion = "" // the lifecycle controller writes meanwhile
			if _, err := admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
				return err
			}
			for j := range podsPerNode {
				_, err := admin.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, j), Annotations: map[string]string{"filler": strings.Repeat("x", 1500)},
						OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID, Controller: new(bool)}}},
					Spec: corev1.PodSpec{
						NodeName: name, TerminationGracePeriodSeconds: new(int64), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
						Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}},
					},
				}, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// child walks, asks and drains, and prints the peak of RssAnon.
func child() int {
	peak, err := work(os.Getenv(childEnv))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(peak)
	return 0
}

func work(kubeconfig string) (int64, error) {
	var peak atomic.Int64
	stop := make(chan struct{})
	watched := make(chan error)
	go func() {
		for {
			now, err := anonymous()
			if err != nil {
				watched <- err
				return
			}
			peak.Store(max(peak.Load(), now))
			select {
			case <-stop:
				watched <- nil
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	err := capture(kubeconfig)
	close(stop)
	if watching := <-watched; err == nil {
		err = watching
	}
	return peak.Load(), err
}

func capture(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c, err := kube.New(kube.Config{REST: config})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if _, err := c.Denied(ctx, kube.Accesses(kube.Rules(kube.Everything("")))); err != nil {
		return err
	}
	count := 0
	for _, err := range c.Nodes(ctx) {
		if err != nil {
			return err
		}
		count++
	}
	if count < manyNodes {
		return fmt.Errorf("%d nodes were walked", count)
	}
	return c.Drain(ctx, "memory-0500", cluster.DrainOptions{GracePeriod: 0, Deadline: 5 * time.Minute, Force: true}, nil)
}

// anonymous reads RssAnon of this process, in bytes.
func anonymous() (int64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no RssAnon in /proc/self/status")
}
