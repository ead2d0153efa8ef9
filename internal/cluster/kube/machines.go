package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

const machineGroup = "cluster.x-k8s.io"

// AnnotateMachine finds the Machine by the annotations that Cluster API puts on
// its nodes. It is not known where the node has none, where this API server
// does not serve Cluster API (its management cluster is then another one), or
// where no such Machine is there or can be: a kubelet may write what it likes
// into its node's annotations.
func (c *Cluster) AnnotateMachine(ctx context.Context, node fleet.Node, annotations map[string]*string) (map[string]*string, bool, error) {
	machines, namespace, name, err := c.machineOf(ctx, node)
	if err != nil || machines == nil {
		return nil, false, err
	}
	for range holdTries {
		var before map[string]*string
		before, err = annotateMachine(ctx, machines, namespace, name, annotations)
		switch {
		case err == nil:
			return before, true, nil
		case fleet.Is(err, fleet.KindNotFound):
			return nil, false, nil
		case !fleet.Is(err, fleet.KindConflict):
			return nil, false, err
		}
		// Cluster API's controllers wrote meanwhile, as they often do.
	}
	return nil, false, err
}

// Machine reads it.
func (c *Cluster) Machine(ctx context.Context, node fleet.Node) (map[string]string, bool, error) {
	machines, namespace, name, err := c.machineOf(ctx, node)
	if err != nil || machines == nil {
		return nil, false, err
	}
	machine, err := readMachine(ctx, machines, namespace, name)
	if fleet.Is(err, fleet.KindNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return machine.GetAnnotations(), true, nil
}

// machineOf says where the node's Machine is; the first result is nil where none
// is known.
func (c *Cluster) machineOf(ctx context.Context, node fleet.Node) (machines dynamic.ResourceInterface, namespace, name string, err error) {
	name, namespace = node.Annotations[fleet.AnnotationCapiMachine], node.Annotations[fleet.AnnotationCapiNamespace]
	if name == "" || namespace == "" {
		return nil, "", "", nil
	}
	version, err := c.machineVersion(ctx)
	if err != nil || version == "" {
		return nil, "", "", err
	}
	return c.dynamic.Resource(schema.GroupVersionResource{Group: machineGroup, Version: version, Resource: "machines"}).Namespace(namespace), namespace, name, nil
}

func readMachine(ctx context.Context, machines dynamic.ResourceInterface, namespace, name string) (*unstructured.Unstructured, error) {
	machine, err := machines.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, act{op: "read machine", on: "machine " + namespace + "/" + name,
			access: cluster.Access{Verb: "get", Group: machineGroup, Resource: "machines", Namespace: namespace}}.fail(ctx, err)
	}
	return machine, nil
}

func annotateMachine(ctx context.Context, machines dynamic.ResourceInterface, namespace, name string, annotations map[string]*string) (map[string]*string, error) {
	machine, err := readMachine(ctx, machines, namespace, name)
	if err != nil {
		return nil, err
	}
	before := make(map[string]*string, len(annotations))
	there := machine.GetAnnotations()
	for key := range annotations {
		before[key] = nil
		if value, ok := there[key]; ok {
			before[key] = &value
		}
	}
	a := act{op: "annotate machine", on: "machine " + namespace + "/" + name,
		access: cluster.Access{Verb: "patch", Group: machineGroup, Resource: "machines", Namespace: namespace}}
	// With the revision: the values before are restored later.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": annotations, "resourceVersion": machine.GetResourceVersion(),
	}})
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	if _, err := machines.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return nil, a.fail(ctx, err)
	}
	return before, nil
}

// machineVersion is the version of Cluster API that the server prefers; "" where
// it serves none.
func (c *Cluster) machineVersion(ctx context.Context) (string, error) {
	var group metav1.APIGroup
	body, err := c.client.Discovery().RESTClient().Get().AbsPath("/apis/"+machineGroup).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		if apierrors.IsNotFound(err) || apierror.Status(err).Code == http.StatusNotFound {
			return "", nil
		}
		return "", act{op: "discover Cluster API"}.fail(ctx, err)
	}
	if err := json.Unmarshal(body, &group); err != nil {
		return "", &fleet.Error{Op: "discover Cluster API", Kind: fleet.KindInvalid, Err: err}
	}
	version := group.PreferredVersion.Version
	if version == "" && len(group.Versions) > 0 {
		version = group.Versions[0].Version
	}
	if version == "" {
		return "", nil
	}
	if wrong := validation.IsDNS1035Label(version); len(wrong) > 0 {
		return "", &fleet.Error{Op: "discover Cluster API", Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is no version: %s", version, wrong[0])}
	}
	return version, nil
}
