package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ortet/ortet/internal/boots/assess"
)

func TestNodeOfInstance(t *testing.T) {
	b := aBoot()
	other := "azure://" + string(somePool.Child("virtualMachines", "4"))
	for name, c := range map[string]struct {
		provider, node string
		is             bool
	}{
		"its own id":               {"azure://" + string(b.Instance), "pool1000003", true},
		"its own id, another name": {"azure://" + string(b.Instance), "other", false},
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
			n := aNodeOf(c.node, c.provider, b.VMID)
			if got := assess.NodeFor([]assess.NodeView{*viewOf(n)}, b); (got != nil) != c.is {
				t.Errorf("from a list: %+v", got)
			}
			cluster := fake.NewClientBuilder().WithObjects(n).Build()
			r := &reconciler{nodes: cluster, client: cluster}
			if got, err := r.freshNode(t.Context(), nil, b); err != nil || (got != nil) != c.is {
				t.Errorf("of the API server: %v, %v", got, err)
			}
			if got, err := r.nodeOf(t.Context(), b); err != nil || (got != nil) != c.is {
				t.Errorf("in the cache: %v, %v", got, err)
			}
		})
	}
	// A younger Node of another name, and one of an earlier machine of the name.
	own, liar := aNodeOf("pool1000003", "azure://"+string(b.Instance), b.VMID), aNodeOf("zz", "azure://"+string(b.Instance), b.VMID)
	liar.CreationTimestamp = metav1.NewTime(noon)
	views := []assess.NodeView{*viewOf(liar), *viewOf(own)}
	for range 2 {
		if got := assess.NodeFor(views, b); got == nil || got.Name != own.Name {
			t.Errorf("beside a liar: %+v", got)
		}
		slices.Reverse(views)
	}
	own.Status.NodeInfo.SystemUUID = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"
	if got := assess.NodeFor([]assess.NodeView{*viewOf(own)}, b); got != nil {
		t.Errorf("of an earlier machine: %+v", got)
	}
	unnamed := b
	unnamed.HostName = ""
	if got := assess.NodeFor([]assess.NodeView{{Name: ""}}, unnamed); got != nil {
		t.Error("an instance without a host name is any Node without an id")
	}
}

func aNodeOf(name, provider, uuid string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: provider},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: uuid}}}
}
