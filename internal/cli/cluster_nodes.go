package cli

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/elastic/agents"
	"github.com/ortet/ortet/internal/fleet"
)

// clusterNodes are the Nodes of an elastic cluster by its API server.
type clusterNodes struct {
	*kube.Cluster
	client kubernetes.Interface
}

var _ agents.Nodes = clusterNodes{}

// Forget implements agents.Nodes. k3s keeps a hash of the node password in a Secret, by which
// it refuses another machine of the name (k3s documentation, "Node registration").
func (k clusterNodes) Forget(ctx context.Context, name, uid string) error {
	id := types.UID(uid)
	err := k.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return &fleet.Error{Op: "delete node", Resource: "node " + name, Err: err}
	}
	err = k.client.CoreV1().Secrets("kube-system").Delete(ctx, name+".node-password.k3s", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return &fleet.Error{Op: "delete the node password", Resource: "secret kube-system/" + name + ".node-password.k3s", Err: err}
	}
	return nil
}
