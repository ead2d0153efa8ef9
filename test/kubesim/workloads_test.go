package kubesim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/test/kubesim"
)

func lease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name, Annotations: map[string]string{"at": time.Now().String()}}}
}

// spread counts the pods by node; "" has those that are not bound.
func spread(s *kubesim.Server) map[string]int {
	s.Tick()
	count := map[string]int{}
	s.Each("pods", func(o runtime.Object) bool {
		if pod, ok := o.(*corev1.Pod); ok && pod.DeletionTimestamp == nil {
			count[pod.Spec.NodeName]++
		}
		return true
	})
	return count
}

func webSet(replicas int32) *appsv1.ReplicaSet {
	app := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}
}

// playKubelets makes what is bound run.
func playKubelets(s *kubesim.Server) {
	var bound []string
	s.Each("pods", func(o runtime.Object) bool {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending {
			bound = append(bound, pod.Name)
		}
		return true
	})
	for _, name := range bound {
		s.Change("pods", "default", name, func(o runtime.Object) {
			o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		})
	}
}

// A ReplicaSet's pods are spread over the nodes that may take them, and come again
// where one goes.
func TestReplicaSetFillsUp(t *testing.T) {
	s := &kubesim.Server{Controllers: true}
	c := client(t, s, "me")
	for _, name := range []string{"n1", "n2", "n3"} {
		s.Put(node(name))
	}
	s.Change("nodes", "", "n3", func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = true })
	s.Put(webSet(5))
	if got := spread(s); got["n1"]+got["n2"] != 5 || got["n1"] < 2 || got["n2"] < 2 {
		t.Fatalf("pods by node: %v, want five on two", got)
	}
	playKubelets(s)
	if set := s.Get("replicasets", "default", "web").(*appsv1.ReplicaSet); spread(s)[""] != 0 || set.Status.ReadyReplicas != 5 {
		t.Fatalf("%+v", set.Status)
	}
	// A drain: n1 is cordoned, and what is evicted from it comes up elsewhere.
	s.Change("nodes", "", "n1", func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = true })
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	must(t, err)
	for _, pod := range pods.Items {
		must(t, c.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	if got := spread(s); got["n2"] != 5 || got["n3"] != 0 {
		t.Fatalf("pods by node after a drain of n1: %v", got)
	}
	// Nowhere to go: it says so, and goes when there is room.
	s.Change("nodes", "", "n2", func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = true })
	_, err = c.AppsV1().ReplicaSets("default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":6}}`), metav1.PatchOptions{})
	must(t, err)
	if got := spread(s); got[""] != 1 {
		t.Fatalf("pods by node without one that is schedulable: %v", got)
	}
	s.Put(node("n4"))
	if got := spread(s); got["n4"] != 1 {
		t.Fatalf("pods by node after n4 came: %v", got)
	}
	_, err = c.AppsV1().ReplicaSets("default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	must(t, err)
	if got := spread(s); got["n1"]+got["n2"]+got["n4"] != 1 {
		t.Fatalf("pods by node after a scale to one: %v", got)
	}
	// A pod that loses its label is released, and another takes its place.
	pods, err = c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	stays := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil })
	_, err = c.CoreV1().Pods("default").Patch(t.Context(), pods.Items[stays].Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"debug"}}}`), metav1.PatchOptions{})
	must(t, err)
	if got := spread(s); got["n2"]+got["n4"]+got[""] != 2 {
		t.Fatalf("pods by node after one was released: %v", got)
	}
	must(t, c.CoreV1().Pods("default").Delete(t.Context(), pods.Items[stays].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	for what, patch := range map[string]string{
		"replicas": `{"spec":{"replicas":-1}}`,
		"selector": `{"spec":{"template":{"metadata":{"labels":{"app":"other"}}}}}`,
	} {
		if _, err := c.AppsV1().ReplicaSets("default").Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s of a ReplicaSet: %v", what, err)
		}
	}
	must(t, c.AppsV1().ReplicaSets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	if got := spread(s); len(got) != 0 {
		t.Fatalf("pods by node without the ReplicaSet: %v", got)
	}
}

// A node that falls silent becomes Unknown, loses its pods after a while, and is as
// before when it speaks again.
func TestSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &kubesim.Server{Controllers: true}
		c := client(t, s, "me")
		s.Put(node("n1"))
		s.Put(node("n2"))
		s.Put(webSet(2))
		if got := spread(s); got["n1"] != 1 || got["n2"] != 1 {
			t.Fatal(got)
		}
		playKubelets(s)
		live := func(d time.Duration, names ...string) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				for _, name := range names {
					s.Put(lease(name))
				}
				playKubelets(s)
			}
		}
		status := func(name string) string {
			s.Tick()
			n := s.Node(name)
			var taints []string
			for _, taint := range n.Spec.Taints {
				taints = append(taints, taint.Key+":"+string(taint.Effect))
			}
			return fmt.Sprint(n.Status.Conditions[0].Status, taints)
		}
		live(5*time.Minute, "n1", "n2")
		if got := status("n1"); got != "True[]" {
			t.Fatalf("n1, which renews its Lease: %s", got)
		}
		live(20*time.Second, "n2")
		if got := status("n1"); got != "True[]" {
			t.Fatalf("n1 after 30 s: %s", got)
		}
		live(30*time.Second, "n2")
		if got := status("n1"); got != "Unknown[node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute]" {
			t.Fatalf("n1 after a minute of silence: %s", got)
		}
		if set := s.Get("replicasets", "default", "web").(*appsv1.ReplicaSet); set.Status.ReadyReplicas != 1 {
			t.Errorf("%d ready pods while one of two nodes is silent", set.Status.ReadyReplicas)
		}
		live(5*time.Minute, "n2")
		if got := spread(s); got["n2"] != 2 {
			t.Fatalf("pods by node five minutes later: %v", got)
		}
		_, err := c.CoreV1().Nodes().Patch(t.Context(), "n1", types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
		must(t, err)
		s.Put(lease("n1"))
		if got := status("n1"); got != "True[]" {
			t.Fatalf("n1, which is back: %s", got)
		}
		// It falls silent again: its pods have five minutes from then on.
		s.Put(pod("default", "late", "n1"))
		live(4*time.Minute, "n2")
		if s.Pod("default", "late").DeletionTimestamp != nil {
			t.Error("a pod is deleted four minutes after its node fell silent")
		}
		live(3*time.Minute, "n2")
		if s.Pod("default", "late").DeletionTimestamp == nil {
			t.Error("a pod stays seven minutes after its node fell silent")
		}
		must(t, c.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		if s.Get("leases", corev1.NamespaceNodeLease, "n1") != nil {
			t.Error("the Lease of a node that was deleted stays")
		}
	})
}

// A watch from a version that is no longer known ends by saying so, as a client needs
// it to list again.
func TestWatchFromTooLongAgo(t *testing.T) {
	s := &kubesim.Server{}
	c := client(t, s, "me")
	s.Put(node("n"))
	for i := range 3000 {
		s.Change("nodes", "", "n", func(o runtime.Object) { o.(*corev1.Node).Labels["i"] = fmt.Sprint(i) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watching, err := c.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: "10"})
	must(t, err)
	defer watching.Stop()
	status, ok := (<-watching.ResultChan()).Object.(*metav1.Status)
	if !ok || status.Reason != metav1.StatusReasonExpired || status.Code != 410 {
		t.Fatalf("%+v", status)
	}
	if _, more := <-watching.ResultChan(); more {
		t.Error("the watch goes on")
	}
	list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(t, err)
	watching, err = c.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(t, err)
	defer watching.Stop()
	must(t, c.CoreV1().Nodes().Delete(ctx, "n", metav1.DeleteOptions{}))
	if event := <-watching.ResultChan(); event.Type != "DELETED" {
		t.Errorf("%+v", event)
	}
}

// Lists that are read in parts at the same time do not get into each other.
func TestTwoListsInParts(t *testing.T) {
	s := &kubesim.Server{}
	c := client(t, s, "me")
	for _, name := range []string{"a", "b"} {
		s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config-" + name}})
		s.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret-" + name}})
	}
	one := metav1.ListOptions{Limit: 1}
	configs, err := c.CoreV1().ConfigMaps("default").List(t.Context(), one)
	must(t, err)
	_, err = c.CoreV1().Secrets("default").List(t.Context(), one)
	must(t, err)
	rest, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Continue: configs.Continue})
	must(t, err)
	if len(rest.Items) != 1 || rest.Items[0].Name != "config-b" {
		t.Errorf("%+v", rest.Items)
	}
}
