//go:build e2e

package bootstrap

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// What a real API server, with its Node authorizer, tells a kubelet of its node.
func TestMembershipByTheAPIServer(t *testing.T) {
	cp := controlplane.Shared(t)
	client := cp.Admin(t)
	const name = "membership-000003"
	r := newRoot(t)
	o := r.options()
	login := func(client controlplane.Client) {
		t.Helper()
		text, err := cp.KubeconfigFor(client)
		if err != nil {
			t.Fatal(err)
		}
		r.write("/etc/kubernetes/kubelet.conf", string(text))
	}
	ask := func() membership { return askMembership(t.Context(), o, bootA) }

	login(controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}})
	if m := ask(); !m.answered || m.registered || !strings.Contains(m.said, `404 Not Found: nodes "`+name+`" not found`) {
		t.Errorf("without a Node: %+v", m)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	report := func(boot string, ready corev1.ConditionStatus, message string) {
		t.Helper()
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // others set taints and the like
			node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			node.Status.NodeInfo.BootID = boot
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "KubeletNotReady", Message: message}}
			node.Status.Images = nil
			for i := range 50 { // a real Node is as long as this
				node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("x", 200+i)}, SizeBytes: 1})
			}
			_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	report(bootB, corev1.ConditionTrue, "")
	if m := ask(); !m.answered || m.registered || !strings.Contains(m.said, bootB) {
		t.Errorf("of another boot: %+v", m)
	}
	report(bootA, corev1.ConditionFalse, "cni plugin not initialized")
	if m := ask(); !m.registered || m.ready || m.condition != "KubeletNotReady: cni plugin not initialized" || m.said != "" {
		t.Errorf("not ready: %+v", m)
	}
	report(bootA, corev1.ConditionTrue, "kubelet is posting ready status")
	if m := ask(); !m.registered || !m.ready {
		t.Errorf("ready: %+v", m)
	}
	login(controlplane.Client{User: "system:node:" + name})
	if m := ask(); m.answered || !strings.Contains(m.said, "403 Forbidden: ") || !strings.Contains(m.said, "is forbidden: ") {
		t.Errorf("not of the nodes' group: %+v", m)
	}
	login(controlplane.Client{User: "jane"})
	if m := ask(); !m.cannot {
		t.Errorf("not a node: %+v", m)
	}
}
