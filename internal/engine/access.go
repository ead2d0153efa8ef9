package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// CaptureAccesses gives what RBAC has to allow for a capture, with Ortet's own
// objects in the namespace.
func CaptureAccesses(namespace string, force bool) []cluster.Access {
	var all []cluster.Access
	add := func(in, group, resource string, verbs ...string) {
		resource, sub, _ := strings.Cut(resource, "/")
		for _, v := range verbs {
			all = append(all, cluster.Access{Verb: v, Group: group, Resource: resource, Subresource: sub, Namespace: in})
		}
	}
	add("", "", "nodes", "get", "list", "patch")
	add("", "", "pods", "get", "list")
	add("", "", "pods/eviction", "create")
	if force {
		add("", "", "pods", "delete")
	}
	add("", "apps", "daemonsets", "get")
	add("", "policy", "poddisruptionbudgets", "list")
	add("default", "", "events", "create")
	add(namespace, "", "pods", "create", "delete")
	add(namespace, "", "pods/log", "get")
	add(namespace, "", "secrets", "get", "create", "update")
	add(namespace, "coordination.k8s.io", "leases", "get", "create", "update", "delete")
	return all
}

// RollbackAccesses gives what RBAC has to allow for a rollback.
func RollbackAccesses(namespace string) []cluster.Access {
	var all []cluster.Access
	for _, v := range []string{"get", "create", "update"} {
		all = append(all, cluster.Access{Verb: v, Resource: "secrets", Namespace: namespace})
	}
	for _, v := range []string{"get", "create", "update", "delete"} {
		all = append(all, cluster.Access{Verb: v, Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace})
	}
	return all
}

// describe puts an access in words: "create pods/eviction", "get secrets in ortet".
func describe(a cluster.Access) string {
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Group != "" {
		what += "." + a.Group
	}
	if a.Name != "" {
		what += " " + a.Name
	}
	s := fmt.Sprintf("%s %s", a.Verb, what)
	if a.Namespace != "" {
		s += " in " + a.Namespace
	}
	return s
}

// ofPool gives the accesses with the names of the pool's Secrets, where RBAC can
// restrict the verb to names. Without a pool these are left out.
func (e *Engine) ofPool(all []cluster.Access, pool fleet.ResourceID) []cluster.Access {
	if e.config.Secrets == nil {
		return all
	}
	var out []cluster.Access
	for _, a := range all {
		if a.Resource != "secrets" || a.Name != "" || a.Verb == "create" {
			out = append(out, a)
			continue
		}
		if pool == "" {
			continue
		}
		for _, a.Name = range e.config.Secrets(pool) {
			out = append(out, a)
		}
	}
	return out
}

func (w *watcher) deniedCluster(ctx context.Context, force bool, pool fleet.ResourceID) {
	w.deniedAmong(ctx, w.e.accesses(CaptureAccesses(w.e.config.Namespace, force)), pool)
}

func (w *watcher) deniedAmong(ctx context.Context, accesses []cluster.Access, pool fleet.ResourceID) {
	accesses = w.e.ofPool(accesses, pool)
	denied, err := ask(ctx, w.t, func(ctx context.Context) ([]cluster.Access, error) {
		return w.e.cluster.Denied(ctx, accesses)
	})
	w.unreadable("what the cluster allows", err)
	for _, a := range denied {
		w.o.DeniedCluster = append(w.o.DeniedCluster, describe(a))
	}
}
