package kube

import (
	"context"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
)

// An act is one request, for its error's sake: what was tried, on what, and
// what RBAC has to allow for it.
type act struct {
	op     string // "cordon node"
	on     string // "node pool1000003"
	access cluster.Access
}

// fail makes a *fleet.Error of what client-go gave. It is nil for nil.
func (a act) fail(ctx context.Context, err error) error {
	return apierror.Request{Op: a.op, On: a.on, Grant: a.grant(), Privileged: a.access.Namespace}.Error(ctx, err)
}

func (a act) grant() string { return "grant " + Show(a.access) + " to these credentials" }

// Show writes an Access for a person: `create pods/eviction in all namespaces`.
func Show(a cluster.Access) string {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Group != "" {
		resource += "." + a.Group
	}
	if a.Name != "" {
		resource += " " + a.Name
	}
	switch {
	case a.Namespace != "":
		resource += " in namespace " + a.Namespace
	case namespaced(a.Resource):
		resource += " in all namespaces"
	}
	return a.Verb + " " + resource
}

// namespaced says it of the resources that Ortet uses.
func namespaced(resource string) bool {
	switch resource {
	case "nodes", "namespaces", "selfsubjectaccessreviews":
		return false
	}
	return true
}
