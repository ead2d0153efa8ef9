//go:build e2e

package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/wire"
)

// A kubelet may write any annotation of its Node, so it can forge the mark of a departure.
// Undoing it removes Ortet's own taint and what the node may change anyway, and no other
// taint or label.
func TestForgedMarkRemovesNoOtherTaint(t *testing.T) {
	w := newWorld(t, "ortet-mark")
	c := w.open()
	w.nodeReady("mark000001", "")
	patch := func(body string) {
		t.Helper()
		_, err := w.admin.CoreV1().Nodes().Patch(w.ctx, "mark000001", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		must(t, err)
	}
	patch(`{"metadata":{"labels":{"node-restriction.kubernetes.io/pool":"quarantine"}},
		"spec":{"taints":[{"key":"quarantine","effect":"NoExecute"},{"key":"` + wire.LeavingMark + `","effect":"NoSchedule"}]}}`)
	for _, mark := range []string{`{\"cordoned\":true,\"excluded\":true}`, `{\"cordoned\":true,\"excluded\":true,\"taints\":[],\"bootID\":\"x\"}`, `[`, `null`} {
		patch(`{"metadata":{"annotations":{"` + wire.LeavingMark + `":"` + mark + `"}}}`)
		must(t, c.Return(w.ctx, "mark000001"))
		n := w.getNode("mark000001")
		if n.Labels["node-restriction.kubernetes.io/pool"] != "quarantine" || !hasTaint(n, "quarantine") {
			t.Errorf("mark %s: labels %v, taints %v", mark, n.Labels, n.Spec.Taints)
		}
	}
}

func hasTaint(n *corev1.Node, key string) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}
