package azclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ScaleDownDisabled is the annotation by which cluster-autoscaler leaves a node alone.
const ScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// A Cluster is an API server as an autoscaler reads it; it asks for no credentials.
type Cluster struct{ URL string }

// A Node is what an autoscaler reads of one.
type Node struct {
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

// IsReady reports whether the node's kubelet says that it takes pods.
func (n Node) IsReady() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// A Pod is what an autoscaler reads of one.
type Pod struct {
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

// Nodes returns all Nodes, in the order of their names.
func (c Cluster) Nodes(ctx context.Context) ([]Node, error) {
	var list struct{ Items []Node }
	if err := c.get(ctx, "/api/v1/nodes", &list); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b Node) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return list.Items, nil
}

// Pods returns the pods of all namespaces.
func (c Cluster) Pods(ctx context.Context) ([]Pod, error) {
	var list struct{ Items []Pod }
	err := c.get(ctx, "/api/v1/pods", &list)
	return list.Items, err
}

func (c Cluster) get(ctx context.Context, path string, out any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, nil)
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
