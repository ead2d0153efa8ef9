package kubesim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/test/kubesim"
)

// client is what the adapter of Ortet uses: protocol buffers.
func client(t testing.TB, s *kubesim.Server, user string) kubernetes.Interface {
	t.Helper()
	config := s.Config(user)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 12 {
		n.Labels[fmt.Sprintf("example.com/label-%d", i)], n.Annotations[fmt.Sprintf("example.com/annotation-%d", i)] = "value", "value"
	}
	for _, kind := range []corev1.NodeConditionType{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "True", Reason: "KubeletReady", LastTransitionTime: metav1.Now()})
	}
	return n
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func TestThread(t *testing.T) {
	var s kubesim.Server
	ctx, c := t.Context(), client(t, &s, "me")
	s.Put(node("n1"))
	got, err := c.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	must(t, err)
	patched, err := c.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b","example.com/annotation-3":null}},"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	must(t, err)
	if !patched.Spec.Unschedulable || patched.Annotations["a"] != "b" || len(patched.Annotations) != 12 || patched.ResourceVersion == got.ResourceVersion || len(patched.Status.Conditions) != 4 {
		t.Errorf("%+v", patched)
	}
	if _, err := c.CoreV1().Nodes().Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old state is written over a new one: %v", err)
	}
	if _, err := c.CoreV1().Secrets("none").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret is made in a namespace that is not there: %v", err)
	}
	lease, err := c.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	must(t, err)
	again, err := c.CoordinationV1().Leases("default").Update(ctx, lease, metav1.UpdateOptions{})
	must(t, err)
	if again.ResourceVersion != lease.ResourceVersion {
		t.Error("what changes nothing is written")
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
}
