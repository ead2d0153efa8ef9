package beside

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/test/azclient"
)

// A cluster is a control plane, reached by kubectl's proxy.
type cluster struct {
	azclient.Cluster
	kubeconfig string
}

// startCluster starts a control plane that ends with the test.
func startCluster(t *testing.T) cluster {
	t.Helper()
	root := azclient.Root(t)
	script := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "controlplane", "build.sh"), "--path")
	script.Stderr = t.Output()
	built, err := script.Output()
	if err != nil {
		t.Fatalf("no control plane to test against (build it by: make controlplane): %v", err)
	}
	binary := filepath.Join(strings.TrimSpace(string(built)), "controlplane")
	t.Setenv("ORTET_CONTROLPLANE", binary)
	dir := t.TempDir()
	azclient.Start(t, "ready: ", filepath.Join(azclient.Build(t, root, "./hack/cluster"), "cluster"), "--dir", dir)
	c := cluster{kubeconfig: filepath.Join(dir, "kubeconfig")}
	c.URL = "http://" + azclient.Start(t, "Starting to serve on ", binary, "kubectl", "proxy", "--kubeconfig="+c.kubeconfig, "--port=0")
	return c
}

// awaitReady waits until so many nodes are Ready.
func (c cluster) awaitReady(t *testing.T, want int) []azclient.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		nodes, err := c.Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if nodes = slices.DeleteFunc(nodes, func(n azclient.Node) bool { return !n.IsReady() }); len(nodes) == want {
			return nodes
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d nodes are Ready, want %d", len(nodes), want)
		case <-tick.C:
		}
	}
}
