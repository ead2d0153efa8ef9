package kubesim

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podGarbage is how long the pods of a node that was deleted stay: the pod
// garbage collector looks every 20 s, and lets a node be missing for 40 s.
const podGarbage = 60 * time.Second

// daemonOn is a DaemonSet's place on a node.
type daemonOn struct {
	set  types.UID
	node string
}

// wrote runs the controllers after a write: old or e is nil for an object that
// is new or gone.
func (s *Server) wrote(t *table, old, e *entry) {
	switch t.kind.resource {
	case "namespaces":
		s.wroteNamespace(old, e)
	case "nodes":
		s.wroteNode(old, e)
	case "daemonsets":
		s.wroteDaemonSet(old, e)
	case "pods":
		s.wrotePod(old, e)
	case "certificatesigningrequests":
		s.wroteRequest(old, e)
	}
	if s.Controllers {
		s.control(t, old, e)
	}
}

// wroteNamespace gives a new one its service account, and takes away with one
// that is gone what was in it.
func (s *Server) wroteNamespace(old, e *entry) {
	switch {
	case old == nil:
		s.insert(s.tables["serviceaccounts"], &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.key, Name: "default"}})
	case e == nil:
		// DaemonSets go before their pods, or these would come again.
		for _, resource := range slices.Sorted(maps.Keys(s.tables)) {
			t := s.tables[resource]
			if !t.kind.namespaced {
				continue
			}
			for _, e := range slices.Clone(t.within(old.key)) {
				if t.entries[e.key] == e {
					s.remove(t, e)
				}
			}
		}
	}
}

func (s *Server) wroteNode(old, e *entry) {
	if e == nil {
		name := old.object.GetName()
		s.after(podGarbage, func() {
			if s.tables["nodes"].entries[name] != nil {
				return
			}
			pods := s.tables["pods"]
			for _, e := range slices.Clone(pods.sorted) {
				if pod, ok := e.object.(*corev1.Pod); ok && pod.Spec.NodeName == name {
					s.terminate(pods, e, 0)
				}
			}
		})
		return
	}
	if old != nil && maps.Equal(old.object.GetLabels(), e.object.GetLabels()) {
		return
	}
	for _, set := range slices.Clone(s.tables["daemonsets"].sorted) {
		s.place(set, e)
	}
}

func (s *Server) wroteDaemonSet(old, e *entry) {
	if e != nil {
		if old != nil && old.object.GetGeneration() == e.object.GetGeneration() {
			return
		}
		for _, node := range slices.Clone(s.tables["nodes"].sorted) {
			s.place(e, node)
		}
		return
	}
	s.dismissOwned(old)
}

// dismissOwned deletes the pods of a DaemonSet or ReplicaSet that is gone.
func (s *Server) dismissOwned(set *entry) {
	pods := s.tables["pods"]
	for _, pod := range slices.Clone(pods.within(set.object.GetNamespace())) {
		if owner := metav1.GetControllerOf(pod.object); owner != nil && owner.UID == set.object.GetUID() {
			s.dismiss(pods, pod)
		}
	}
}

// podFrom makes a pod of a DaemonSet's or ReplicaSet's template, on a node unless that
// is "".
func (s *Server) podFrom(template corev1.PodTemplateSpec, owner metav1.Object, kind, node string) *entry {
	pods, prefix := s.tables["pods"], owner.GetName()+"-"
	pod := &corev1.Pod{Spec: *template.Spec.DeepCopy()}
	pod.Labels, pod.Annotations, pod.Finalizers = maps.Clone(template.Labels), maps.Clone(template.Annotations), slices.Clone(template.Finalizers)
	begun(pod)
	complete(pod)
	pod.Namespace, pod.GenerateName, pod.Name = owner.GetNamespace(), prefix, s.generatedName(pods, owner.GetNamespace(), prefix)
	if node != "" {
		pod.Spec.NodeName = node
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	return s.insert(pods, pod)
}

// dismiss deletes a pod as a controller does.
func (s *Server) dismiss(pods *table, e *entry) {
	// Without preconditions nothing refuses.
	_, _ = s.deleteOne(pods, e, metav1.DeleteOptions{}, Deletion{unasked: true})
}

// wrotePod keeps account of DaemonSets' pods, and has one that went come again.
func (s *Server) wrotePod(old, e *entry) {
	if e != nil {
		if place, ok := placeOf(e); ok {
			s.daemonPods[place] = e.key
		}
		return
	}
	place, ok := placeOf(old)
	if !ok || s.daemonPods[place] != old.key {
		return
	}
	delete(s.daemonPods, place)
	node := s.tables["nodes"].entries[place.node]
	if node == nil {
		return
	}
	for _, set := range s.tables["daemonsets"].within(old.object.GetNamespace()) {
		if set.object.GetUID() == place.set {
			s.place(set, node)
			return
		}
	}
}

func placeOf(e *entry) (daemonOn, bool) {
	pod, ok := e.object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return daemonOn{}, false
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return daemonOn{}, false
	}
	return daemonOn{owner.UID, pod.Spec.NodeName}, true
}

// place gives a node its pod of a DaemonSet, or takes it away, as the node
// selector says.
func (s *Server) place(of, on *entry) {
	set, ok := of.object.(*appsv1.DaemonSet)
	if !ok {
		return
	}
	pods, place := s.tables["pods"], daemonOn{set.UID, on.object.GetName()}
	there := pods.entries[s.daemonPods[place]]
	wanted := set.DeletionTimestamp == nil
	for key, value := range set.Spec.Template.Spec.NodeSelector {
		wanted = wanted && on.object.GetLabels()[key] == value
	}
	switch {
	case wanted && there == nil:
		s.podFrom(set.Spec.Template, set, "DaemonSet", place.node)
	case !wanted && there != nil && there.object.GetDeletionTimestamp() == nil:
		s.dismiss(pods, there)
	}
}
