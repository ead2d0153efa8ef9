//go:build e2e && linux

package lab

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootline "github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/process"
)

// checkBootShown has a controller look at the pools, and asks where the boot time of
// a node went: its agent has told its Node, and Azure and the API server the rest.
func (l *lab) checkBootShown(ctx context.Context, t *testing.T, b boot) {
	t.Helper()
	if _, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ortet-system"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Command{
		Name: "ortet controller", Binary: filepath.Join(l.bin, "ortet"), Log: filepath.Join(l.dir, "controller.log"),
		Env: append(os.Environ(), "SSL_CERT_FILE="+l.azure.Endpoint.CAFile),
		Args: []string{"controller", "--leader-elect=false", "--first-pod=false", "--interval=5s", "--metrics-address=0", "--health-address=0", "--log-level=INFO",
			"--resource-group=" + l.group(), "--azure-config=" + l.azure.Endpoint.AzureConfig, "--kubeconfig=" + l.cp.Kubeconfig},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, func(ctx context.Context) error { return p.Stop(ctx, 20*time.Second) }) })
	t.Cleanup(func() {
		if log, err := os.ReadFile(p.Log); t.Failed() && err == nil {
			t.Logf("the controller's log:\n%s\n%s", log, l.machines.sh(ctx, t, b.host(), "journalctl -b --no-pager -u ortet-report; ls -l /var/lib/ortet/boots"))
		}
	})
	poll(ctx, t, "the report of "+b.host()+"'s boot in the controller's store", 3*time.Minute, func(ctx context.Context) (bool, error) {
		kept, err := l.client.CoreV1().ConfigMaps("ortet-system").List(ctx, metav1.ListOptions{LabelSelector: "ortet.io/boot,ortet.io/node=" + b.host()})
		return err == nil && len(kept.Items) > 0, err
	})
	var shown bootline.Timeline
	if err := json.Unmarshal([]byte(l.ortet(ctx, t, "boot", "show", b.host(), "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	text := l.ortet(ctx, t, "boot", "show", b.host())
	t.Logf("$ ortet boot show %s\n%s", b.host(), text)
	if shown.Node != b.host() || shown.Pool != b.pool || shown.OriginIs != "machine created" || shown.EndIs != "node Ready" || !shown.Complete {
		t.Errorf("node %q of pool %q, from %q to %q, complete: %v", shown.Node, shown.Pool, shown.OriginIs, shown.EndIs, shown.Complete)
	}
	for _, what := range []string{"cloud-init", "kubelet"} {
		if !strings.Contains(text, what) {
			t.Errorf("%s is not in what is told", what)
		}
	}
	poll(ctx, t, "the Node without the report", time.Minute, func(ctx context.Context) (bool, error) {
		node, err := l.client.CoreV1().Nodes().Get(ctx, b.host(), metav1.GetOptions{})
		return err == nil && node.Annotations[wire.BootAnnotation] == "", err
	})
}
