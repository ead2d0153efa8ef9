package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestNodeOfInstance(t *testing.T) {
	b := aBoot()
	other := "azure://" + string(somePool.Child("virtualMachines", "4"))
	for name, c := range map[string]struct {
		provider, node string
		is             bool
	}{
		"its own id":               {"azure://" + string(b.Instance), "pool1000003", true},
		"its own id, another name": {"azure://" + string(b.Instance), "other", true},
		"in capitals":              {"AZURE://" + string(b.Instance), "pool1000003", true},
		"no id yet":                {"", "pool1000003", true},
		"k3s":                      {"k3s://pool1000003", "pool1000003", true},
		"rke2":                     {"rke2://pool1000003", "pool1000003", true},
		"another cloud":            {"aws:///eu-west-1a/i-0", "pool1000003", true},
		"another instance":         {other, "pool1000003", false},
		"another, in capitals":     {"Azure" + other[len("azure"):], "pool1000003", false},
		"another name":             {"k3s://pool1000004", "pool1000004", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node}, Spec: corev1.NodeSpec{ProviderID: c.provider}}
			if got := NodeFor([]NodeView{*ViewOf(n)}, b); (got != nil) != c.is {
				t.Errorf("from a list: %+v", got)
			}
			r := &reconciler{nodes: fake.NewClientBuilder().WithObjects(n).WithIndex(&corev1.Node{}, nodeKeyField, nodeKey).Build()}
			if got, err := r.nodeOf(t.Context(), b); err != nil || (got != nil) != c.is {
				t.Errorf("in the cache: %v, %v", got, err)
			}
		})
	}
	// The Node of an earlier pool, whose host names were others.
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a000003"}, Spec: corev1.NodeSpec{ProviderID: "azure://" + string(b.Instance)}}
	for _, c := range []struct{ name, ready, want string }{
		{"pool1000003", "", "pool1000003"}, {"pool1000003", "a000003", "pool1000003"}, {"zz", "zz", "zz"}, {"zz", "a000003", "a000003"}, {"zz", "", "zz"},
	} {
		of := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name, CreationTimestamp: metav1.NewTime(noon)}, Spec: old.Spec}
		both := []client.Object{old.DeepCopy(), of}
		var views []NodeView
		for i, o := range both {
			n, ok := o.(*corev1.Node)
			if !ok {
				t.Fatal(i)
			}
			if n.Name == c.ready {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			}
			views = append(views, *ViewOf(n))
		}
		for range 2 {
			if got := NodeFor(views, b); got == nil || got.Name != c.want {
				t.Errorf("of %s (Ready: %s) and %s: %+v", old.Name, c.ready, c.name, got)
			}
			slices.Reverse(views)
		}
		r := &reconciler{nodes: fake.NewClientBuilder().WithObjects(both...).WithIndex(&corev1.Node{}, nodeKeyField, nodeKey).Build()}
		if got, err := r.nodeOf(t.Context(), b); err != nil || got == nil || got.Name != c.want {
			t.Errorf("in the cache, of %s (Ready: %s) and %s: %v, %v", old.Name, c.ready, c.name, got, err)
		}
	}
	unnamed := b
	unnamed.HostName = ""
	if got := NodeFor([]NodeView{{Name: ""}}, unnamed); got != nil {
		t.Error("an instance without a host name is any Node without an id")
	}
}
