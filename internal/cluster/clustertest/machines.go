package clustertest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ortet/ortet/internal/fleet"
)

func (w *world) machineNode(namespace, machine string) fleet.Node {
	w.Helper()
	name := w.node("-"+machine, func(n *corev1.Node) {
		n.Annotations = map[string]string{fleet.AnnotationCapiMachine: machine, fleet.AnnotationCapiNamespace: namespace}
	})
	node, err := w.under.Node(w.ctx, name)
	w.must(err, "read node")
	return node
}

var skip = map[string]*string{fleet.AnnotationSkipRemediation: ptr("")}

// machineUnknown has a cluster that no Cluster API manages, or whose management
// cluster is another one.
func machineUnknown(w *world) {
	plain, err := w.under.Node(w.ctx, w.node("", nil))
	w.must(err, "read node")
	for _, node := range []fleet.Node{plain, w.machineNode("default", "elsewhere")} {
		before, known, err := w.under.AnnotateMachine(w.ctx, node, skip)
		w.must(err, "annotate")
		if known || before != nil {
			w.Errorf("%s: known %t, before %v", node.Name, known, before)
		}
		if read, known, err := w.under.Machine(w.ctx, node); known || read != nil || err != nil {
			w.Errorf("%s: read %v, %t, %v", node.Name, read, known, err)
		}
	}
}

func machineAnnotate(w *world) {
	w.setup.ServeMachines(w.T)
	ns, _ := w.namespace()
	machines := w.dynamic.Resource(schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machines"}).Namespace(ns)
	machine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
		"metadata": map[string]any{"name": "m1", "annotations": map[string]any{"theirs": "stays", "old": "value"}},
	}}
	w.eventually("serving of Machines", func() (string, bool) {
		_, err := machines.Create(w.ctx, machine, metav1.CreateOptions{})
		return fmt.Sprint(err), err == nil
	})
	if _, known, err := w.under.AnnotateMachine(w.ctx, w.machineNode(ns, "missing"), skip); known || err != nil {
		w.Errorf("a Machine that is not there: known %t, %v", known, err)
	}
	node := w.machineNode(ns, "m1")
	for i, step := range []struct {
		set, before map[string]*string
		want        map[string]string
	}{
		{map[string]*string{"new": ptr("n"), "old": ptr("o")}, map[string]*string{"new": nil, "old": ptr("value")}, map[string]string{"theirs": "stays", "new": "n", "old": "o"}},
		{map[string]*string{"new": ptr("n")}, map[string]*string{"new": ptr("n")}, map[string]string{"theirs": "stays", "new": "n", "old": "o"}},
		{map[string]*string{"new": nil, "old": ptr("value")}, map[string]*string{"new": ptr("n"), "old": ptr("o")}, map[string]string{"theirs": "stays", "old": "value"}},
	} {
		before, known, err := w.under.AnnotateMachine(w.ctx, node, step.set)
		w.must(err, "annotate")
		if !known || show(before) != show(step.before) {
			w.Errorf("step %d: known %t, before %s, want %s", i, known, show(before), show(step.before))
		}
		got, err := machines.Get(w.ctx, "m1", metav1.GetOptions{})
		w.must(err, "read machine")
		if read, known, err := w.under.Machine(w.ctx, node); !known || err != nil || fmt.Sprint(read) != fmt.Sprint(step.want) {
			w.Errorf("step %d: read %v, %t, %v", i, read, known, err)
		}
		if fmt.Sprint(got.GetAnnotations()) != fmt.Sprint(step.want) {
			w.Errorf("step %d: %v, want %v", i, got.GetAnnotations(), step.want)
		}
	}
}

func show(values map[string]*string) string {
	plain := map[string]string{}
	for key, value := range values {
		plain[key] = "absent"
		if value != nil {
			plain[key] = "=" + *value
		}
	}
	return fmt.Sprint(plain)
}
