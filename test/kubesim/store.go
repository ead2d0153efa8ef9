package kubesim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An entry is one state of an object, and never changes: a write puts another
// in its place. So what is read needs no copy, and what was encoded stays true.
type entry struct {
	key         string // "namespace/name", or "name"
	object      object
	proto, json []byte
}

// A table holds the objects of a kind, in the order in which they are listed.
type table struct {
	kind    *kind
	sorted  []*entry
	entries map[string]*entry

	history []change // for watches, by revision
	expired uint64   // revision of the last write that history has lost
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func (t *table) find(key string) (int, bool) {
	return slices.BinarySearchFunc(t.sorted, key, func(e *entry, key string) int { return strings.Compare(e.key, key) })
}

// within returns the entries of a namespace, or all for "".
func (t *table) within(namespace string) []*entry {
	if namespace == "" || !t.kind.namespaced {
		return t.sorted
	}
	// '0' is what comes after '/'.
	from, _ := t.find(namespace + "/")
	to, _ := t.find(namespace + "0")
	return t.sorted[from:to]
}

func initialNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// init makes the world of a new cluster. The caller holds the lock.
func (s *Server) init() {
	if s.tables != nil {
		return
	}
	s.tables = map[string]*table{}
	s.daemonPods = map[daemonOn]string{}
	for _, k := range kinds() {
		s.tables[k.resource] = &table{kind: k, entries: map[string]*entry{}}
	}
	for _, name := range initialNamespaces() {
		s.insert(s.tables["namespaces"], &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
}

// nextRevision is the resourceVersion of the write that comes.
func (s *Server) nextRevision() string {
	s.revision++
	return strconv.FormatUint(s.revision, 10)
}

// now is the time as objects hold it: in whole seconds.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// insert stores a new object, which it keeps, and runs the controllers.
func (s *Server) insert(t *table, o object) *entry {
	if o.GetUID() == "" {
		s.made++
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.made)))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(now())
	}
	if t.kind.generation && o.GetGeneration() == 0 {
		o.SetGeneration(1)
	}
	o.SetResourceVersion(s.nextRevision())
	e := &entry{key: keyOf(o.GetNamespace(), o.GetName()), object: t.kind.of(o)}
	i, _ := t.find(e.key)
	t.sorted = slices.Insert(t.sorted, i, e)
	t.entries[e.key] = e
	s.record(t, nil, e)
	s.wrote(t, nil, e)
	return e
}

// replace stores a new state, which it keeps, and runs the controllers.
func (s *Server) replace(t *table, old *entry, o object) *entry {
	o.SetResourceVersion(s.nextRevision())
	e := &entry{key: old.key, object: t.kind.of(o)}
	i, _ := t.find(e.key)
	t.sorted[i], t.entries[e.key] = e, e
	s.record(t, old, e)
	s.wrote(t, old, e)
	return e
}

// remove takes an object away, and runs the controllers.
func (s *Server) remove(t *table, old *entry) {
	i, _ := t.find(old.key)
	t.sorted = slices.Delete(t.sorted, i, i+1)
	delete(t.entries, old.key)
	s.revision++
	s.record(t, old, nil)
	s.wrote(t, old, nil)
}

// generatedName returns a name as the API server does for generateName: five
// letters and digits that make no words, here counted.
func (s *Server) generatedName(t *table, namespace, prefix string) string {
	name := s.countedName(prefix)
	for t.entries[keyOf(namespace, name)] != nil {
		name = s.countedName(prefix)
	}
	return name
}

func (s *Server) countedName(prefix string) string {
	const letters, longest = "bcdfghjklmnpqrstvwxz2456789", 63 - 5
	s.generated++
	suffix := make([]byte, 5)
	for i, n := len(suffix)-1, s.generated; i >= 0; i-- {
		suffix[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return prefix[:min(len(prefix), longest)] + string(suffix)
}
