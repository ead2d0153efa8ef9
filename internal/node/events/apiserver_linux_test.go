//go:build e2e

package events

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/syncbuffer"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// What a real API server lets a kubelet do for its node, with its Node authorizer and
// NodeRestriction: all that a drain without the admission server asks for.
func TestDrainByTheAPIServer(t *testing.T) {
	cp := controlplane.Shared(t)
	client := cp.Admin(t)
	const name = "events-000003"
	login, err := cp.KubeconfigFor(controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}})
	root := t.TempDir()
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "etc/kubernetes"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "etc/kubernetes/kubelet.conf"), login, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "events-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	pods := client.CoreV1().Pods(namespace.Name)
	no := false
	for pod, grace := range map[string]int64{"web": 300, "guarded": 300, "static": 30} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{"app": pod}},
			Spec: corev1.PodSpec{NodeName: name, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if pod == "static" {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
		}
		made, err := pods.Create(ctx, p, metav1.CreateOptions{})
		for err != nil { // the service account comes with delay
			if !sleep(ctx, 100*time.Millisecond) {
				t.Fatal(err)
			}
			made, err = pods.Create(ctx, p, metav1.CreateOptions{})
		}
		made.ResourceVersion = "" // whoever else writes to it
		made.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		if _, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one := intstr.FromInt32(1)
	if _, err := client.PolicyV1().PodDisruptionBudgets(namespace.Name).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// What a kubelet would do once the containers have ended.
	var kubelet sync.WaitGroup
	playing, stop := context.WithCancel(ctx)
	defer kubelet.Wait()
	defer stop()
	graces := map[string]int64{}
	kubelet.Go(func() {
		for sleep(playing, 200*time.Millisecond) {
			list, err := pods.List(playing, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range list.Items {
				p := &list.Items[i]
				if p.DeletionTimestamp == nil {
					continue
				}
				graces[p.Name] = *p.DeletionGracePeriodSeconds
				now := int64(0)
				if err := pods.Delete(playing, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) && playing.Err() == nil {
					t.Error(err)
				}
			}
		}
	})

	z := &azure{incarnation: 1}
	log := &syncbuffer.Buffer{}
	state := filepath.Join(root, "events.json")
	running, halt := context.WithCancel(ctx)
	var daemon sync.WaitGroup
	defer daemon.Wait()
	defer halt()
	daemon.Go(func() {
		Run(running, Options{State: state, Metadata: z.ask, Log: slog.New(slog.NewTextHandler(log, nil)),
			Kubernetes: bootstrap.APIServer(root).Ask})
	})
	defer func() {
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			if !sleep(ctx, 100*time.Millisecond) {
				t.Fatalf("it does not come to this: %s", what)
			}
		}
	}
	z.schedule("E1", Preempt, time.Minute)
	until("acknowledged", func() bool { return len(z.acknowledged()) == 1 })
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, out := node.Labels[excluded]; !node.Spec.Unschedulable || !out || !strings.Contains(node.Annotations[wire.LeavingMark], `"cause":"Preempt"`) {
		t.Errorf("%+v %+v", node.ObjectMeta, node.Spec)
	}
	if list, err := pods.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "static" {
		t.Errorf("pods: %+v %v", list, err)
	}
	z.over("E1")
	until("given back", func() bool {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		_, out := node.Labels[excluded]
		_, marked := node.Annotations[wire.LeavingMark]
		return !node.Spec.Unschedulable && !out && !marked
	})
	until("told as Events", func() bool {
		list, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",source=ortet-node"})
		if err != nil {
			t.Fatal(err)
		}
		reasons := ""
		for i := range list.Items {
			reasons += list.Items[i].Reason + " "
		}
		return strings.Contains(reasons, "PreemptScheduled") && strings.Contains(reasons, "DrainedForPreempt") && strings.Contains(reasons, "Returned")
	})
	stop()
	kubelet.Wait()
	if g := graces["web"]; g < 2 || g > 55 {
		t.Errorf("web was given %d s", g)
	}
	if g := graces["guarded"]; g < 2 || g > 40 {
		t.Errorf("guarded was given %d s", g)
	}
}
