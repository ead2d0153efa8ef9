//go:build e2e

package kube_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// serveMachines makes the API server serve Cluster API's Machines.
func serveMachines(config *rest.Config) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{
				"name":        "machines.cluster.x-k8s.io",
				"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"},
			},
			"spec": map[string]any{
				"group": "cluster.x-k8s.io", "scope": "Namespaced",
				"names": map[string]any{"kind": "Machine", "listKind": "MachineList", "plural": "machines", "singular": "machine"},
				"versions": []any{map[string]any{
					"name": "v1beta1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := definitions.Delete(context.WithoutCancel(t.Context()), "machines.cluster.x-k8s.io", metav1.DeleteOptions{}); err != nil {
				t.Errorf("clean up: %v", err)
			}
		})
	}
}
