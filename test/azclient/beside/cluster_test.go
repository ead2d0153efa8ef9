package beside

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/test/azclient"
)

// A cluster is a control plane, reached by kubectl's proxy.
type cluster struct{ url, kubeconfig string }

// A node is what an autoscaler reads of one.
type node struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ProviderID    string `json:"providerID"`
		Unschedulable bool   `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// isReady reports whether the node's kubelet says that it takes pods.
func (n node) isReady() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// A pod is what an autoscaler reads of one.
type pod struct {
	Metadata struct {
		Annotations     map[string]string `json:"annotations"`
		OwnerReferences []struct {
			Kind string `json:"kind"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
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
	azclient.Start(t, "ready: ", filepath.Join(azclient.Build(t, "./hack/cluster"), "cluster"), "--dir", dir)
	c := cluster{kubeconfig: filepath.Join(dir, "kubeconfig")}
	c.url = "http://" + azclient.Start(t, "Starting to serve on ", binary, "kubectl", "proxy", "--kubeconfig="+c.kubeconfig, "--port=0")
	return c
}

// get reads from the API server.
func (c cluster) get(ctx context.Context, path string, out any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(out)
}

// nodes are in the order of their names.
func (c cluster) nodes(ctx context.Context) ([]node, error) {
	var list struct{ Items []node }
	if err := c.get(ctx, "/api/v1/nodes", &list); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b node) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return list.Items, nil
}

// awaitReady waits until so many nodes are Ready.
func (c cluster) awaitReady(t *testing.T, want int) []node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		nodes, err := c.nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if nodes = slices.DeleteFunc(nodes, func(n node) bool { return !n.isReady() }); len(nodes) == want {
			return nodes
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d nodes are Ready, want %d", len(nodes), want)
		case <-tick.C:
		}
	}
}
