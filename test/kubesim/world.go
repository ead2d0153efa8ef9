package kubesim

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// What follows is the hand of the test, which plays what else there is in the
// world: it asks nobody, and nothing it does is refused. What it takes and gives
// are copies. Resources are named as in addresses: "nodes", "pods", "leases".

// Put makes or replaces an object, and its namespace where that is missing.
// Then controllers do their part. It panics at a type that is not served.
func (s *Server) Put(o runtime.Object) {
	s.begin()
	defer s.end()
	copied, ok := o.DeepCopyObject().(object)
	if !ok {
		panic(fmt.Sprintf("kubesim: %T has no metadata", o))
	}
	complete(copied)
	t := s.tableFor(copied)
	if t.kind.namespaced {
		if copied.GetNamespace() == "" {
			copied.SetNamespace("default")
		}
		if namespaces := s.tables["namespaces"]; namespaces.entries[copied.GetNamespace()] == nil {
			s.insert(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: copied.GetNamespace()}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}})
		}
	}
	old := t.entries[keyOf(copied.GetNamespace(), copied.GetName())]
	if old == nil {
		s.insert(t, copied)
		return
	}
	s.succeed(t, old, copied)
}

// succeed replaces a state by the hand's.
func (s *Server) succeed(t *table, old *entry, o object) {
	if o.GetUID() == "" {
		o.SetUID(old.object.GetUID())
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(old.object.GetCreationTimestamp())
	}
	o.SetGeneration(old.object.GetGeneration())
	if t.kind.generation && !sameSpec(o, old.object) {
		o.SetGeneration(old.object.GetGeneration() + 1)
	}
	s.replace(t, old, o)
}

// tableFor finds where an object of the type lies.
func (s *Server) tableFor(o object) *table {
	if u, ok := o.(*unstructured.Unstructured); ok {
		for _, t := range s.tables {
			if t.kind.groupVersionKind() == u.GroupVersionKind() {
				return t
			}
		}
	} else {
		for _, t := range s.tables {
			if fmt.Sprintf("%T", t.kind.fresh()) == fmt.Sprintf("%T", o) {
				return t
			}
		}
	}
	panic(fmt.Sprintf("kubesim: %T is not served", o))
}

// table panics at a resource that is not served.
func (s *Server) table(resource string) *table {
	t := s.tables[resource]
	if t == nil {
		panic(fmt.Sprintf("kubesim: %s are not served", resource))
	}
	return t
}

// Get returns an object, or nil.
func (s *Server) Get(resource, namespace, name string) runtime.Object {
	s.begin()
	defer s.end()
	t := s.table(resource)
	e := t.entries[keyOf(namespace, name)]
	if e == nil {
		return nil
	}
	return s.recount(t, e).object.DeepCopyObject()
}

func typed[T any](o runtime.Object) *T {
	t, _ := any(o).(*T)
	return t
}

// Node returns a node, or nil.
func (s *Server) Node(name string) *corev1.Node { return typed[corev1.Node](s.Get("nodes", "", name)) }

// Pod returns a pod, or nil.
func (s *Server) Pod(namespace, name string) *corev1.Pod {
	return typed[corev1.Pod](s.Get("pods", namespace, name))
}

// Secret returns a Secret, or nil.
func (s *Server) Secret(namespace, name string) *corev1.Secret {
	return typed[corev1.Secret](s.Get("secrets", namespace, name))
}

// DaemonSet returns a DaemonSet, or nil.
func (s *Server) DaemonSet(namespace, name string) *appsv1.DaemonSet {
	return typed[appsv1.DaemonSet](s.Get("daemonsets", namespace, name))
}

// Each yields all objects of a resource, by namespace and name, until yield
// reports false.
func (s *Server) Each(resource string, yield func(runtime.Object) bool) {
	s.Peek(resource, func(o runtime.Object) bool { return yield(o.DeepCopyObject()) })
}

// Peek is Each without the copies, for who looks often: the objects are the
// server's own, which do not change, and must not be changed.
func (s *Server) Peek(resource string, yield func(runtime.Object) bool) {
	s.begin()
	t := s.table(resource)
	all := slices.Clone(t.sorted)
	for i, e := range all {
		all[i] = s.recount(t, e)
	}
	s.end()
	for _, e := range all {
		if !yield(e.object) {
			return
		}
	}
}

// Change changes an object, and reports whether it is there. change is called
// under the lock: it must not call the server.
func (s *Server) Change(resource, namespace, name string, change func(runtime.Object)) bool {
	s.begin()
	defer s.end()
	t := s.table(resource)
	old := t.entries[keyOf(namespace, name)]
	if old == nil {
		return false
	}
	o, ok := old.object.DeepCopyObject().(object)
	if !ok {
		return false
	}
	change(o)
	s.succeed(t, old, o)
	return true
}

// Remove takes an object away at once, whatever its finalizers, and reports
// whether it was there.
func (s *Server) Remove(resource, namespace, name string) bool {
	s.begin()
	defer s.end()
	t := s.table(resource)
	e := t.entries[keyOf(namespace, name)]
	if e == nil {
		return false
	}
	s.remove(t, e)
	return true
}
