//go:build e2e

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/test/controlplane"
)

// The commands on a real API server, by a user who may list ConfigMaps in the
// namespace, and get Nodes, as docs/reference/kubernetes-permissions.md says.
func TestBootInACluster(t *testing.T) {
	cp := controlplane.Run(t, controlplane.Config{})
	admin := cp.Admin(t)
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ortet-system"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		for j, version := range []string{"2026.11.20", "2026.11.21"} {
			r := aKept(t, 10*j+i, version, "aaaa", time.Duration(24*j+i)*time.Hour, 2e6)
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: "ortet-system", Labels: r.Labels, Annotations: r.Annotations}, Data: r.Data, BinaryData: r.Binary}
			if _, err := admin.CoreV1().ConfigMaps(m.Namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cp.Grant(t.Context(), t, "reader", map[string][]rbacv1.PolicyRule{
		"":             {{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}},
		"ortet-system": {{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	})
	text, err := cp.KubeconfigFor(controlplane.Client{User: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := run(t, append(append([]string{"boot"}, args...), "--kubeconfig", file)...)
		if code != want {
			t.Fatalf("ortet boot %q: code %d\n%s%s", args, code, out, errs)
		}
		return out, errs
	}
	out, _ := ask(0, "show", "node-12", "-o", "json")
	var shown timeline.Timeline
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Node != "node-12" || shown.Pool != "Pool1" || !shown.Complete || shown.OriginIs != "machine created" || shown.EndIs != "node Ready" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := ask(0, "show", "node-12"); !strings.Contains(out, "node-12") || !strings.Contains(out, "cloud-config.service") {
		t.Error(out)
	}
	if out, _ := ask(0, "show", "node/node-12"); !strings.Contains(out, "cloud-config.service") { // as kubectl takes it
		t.Error(out)
	}
	if out, _ := ask(0, "stats", "pool1@latest"); !strings.Contains(out, "5 boots") {
		t.Error(out)
	}
	if out, _ := ask(0, "diff", "pool1@previous", "pool1@latest", "-o", "yaml"); !strings.Contains(out, "2026.11.20") || !strings.Contains(out, "difference:") {
		t.Error(out)
	}
	if out, _ := ask(0, "diff", "pool1@previous", "pool1@latest", "-o", "html"); !strings.Contains(out, "<!doctype html>") || !strings.Contains(out, "pool1") {
		t.Error(out)
	}
	if _, errs := ask(3, "show", "nobody"); !strings.Contains(errs, "no boot of nobody is kept") {
		t.Error(errs)
	}
	if _, errs := ask(1, "stats", "pool1", "--namespace", "default"); !strings.Contains(errs, "forbidden") {
		t.Error(errs)
	}
}
