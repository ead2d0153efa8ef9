package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

// EnsureNamespace makes Ortet's namespace, with the label by which Pod Security
// admission allows the workbench's pod. One that is there is left as it is. It
// is KindDenied, with the remedy, where it is missing and may not be made.
func (c *Cluster) EnsureNamespace(ctx context.Context) error {
	a := act{op: "read namespace", on: "namespace " + c.namespace,
		access: cluster.Access{Verb: "get", Resource: "namespaces", Name: c.namespace}}
	_, err := c.client.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
	if err == nil || apierrors.IsForbidden(err) {
		// Who may not look at namespaces may still work in this one; if it is
		// missing, the first write says so.
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return a.fail(ctx, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        c.namespace,
		Labels:      map[string]string{labelManagedBy: managedBy, apierror.PodSecurityLabel: "privileged"},
		Annotations: map[string]string{annotationMadeBy: c.identity},
	}}
	_, err = c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	a.op, a.access.Verb, a.access.Name = "make namespace", "create", ""
	err = a.fail(ctx, err)
	if fleet.Is(err, fleet.KindDenied) {
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindDenied, Err: err,
			Remedy: "have somebody who may make it: kubectl create namespace " + c.namespace +
				" && kubectl label namespace " + c.namespace + " " + apierror.PodSecurityLabel + "=privileged"}
	}
	return err
}
