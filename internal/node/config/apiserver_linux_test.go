//go:build e2e

package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// With the kubelet's credentials a real API server, with its Node authorizer and
// NodeRestriction, lets the agent watch and patch its own Node and no other.
func TestAgentAtTheAPIServer(t *testing.T) {
	cp := controlplane.Shared(t)
	client := cp.Admin(t)
	const name = "config-000003"
	login, err := cp.KubeconfigFor(controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 'a')
	if err := errors.Join(os.MkdirAll(filepath.Join(w.root, "etc/kubernetes"), 0o755), os.WriteFile(filepath.Join(w.root, "etc/kubernetes/kubelet.conf"), login, 0o600)); err != nil {
		t.Fatal(err)
	}
	nodes := client.CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	if _, err := nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(w)
	defer s.Close()
	o := w.options(s.URL)
	o.Kubernetes = bootstrap.APIServer(w.root)
	if ready, at, err := config.Heartbeat(o.Kubernetes, time.Now)(t.Context()); err != nil || !ready || at.IsZero() {
		t.Errorf("heartbeat: %t, %s, %v", ready, at, err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		config.Run(ctx, o)
	}()
	defer func() {
		end()
		<-done
	}()
	time.Sleep(2 * time.Second) // the first reading finds no document, and the watch begins
	w.push(document(4), 'a')
	began := time.Now()
	if _, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+wire.ConfigurationWanted+`":"4"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var a wire.ConfigurationAnswer
		if text := node.Annotations[wire.ConfigurationAnnotation]; text != "" {
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err)
			}
		}
		if a.State == wire.ConfigurationApplied && a.Generation == 4 {
			t.Logf("answered after %s", time.Since(began))
			conditions := map[corev1.NodeConditionType]corev1.ConditionStatus{}
			for _, c := range node.Status.Conditions {
				conditions[c.Type] = c.Status
			}
			if conditions[wire.ConfigurationCondition] != corev1.ConditionTrue || conditions[corev1.NodeReady] != corev1.ConditionTrue {
				t.Errorf("conditions %v", conditions)
			}
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("no answer: %+v", a)
		}
		time.Sleep(50 * time.Millisecond)
	}
	err = o.Kubernetes.Watch(t.Context(), func(string) string {
		return "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dother&timeoutSeconds=1"
	}, "application/json", time.Minute, func([]byte) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("a watch of another Node: %v", err)
	}
}
