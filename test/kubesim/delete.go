package kubesim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// options reads how to delete: from the body, or else from the address.
func (c *call) options() (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	if len(c.body) > 0 {
		if err := decode(c.header.Get("Content-Type"), c.body, &o); err != nil {
			return o, err
		}
		if len(o.DryRun) > 0 {
			return o, apierrors.NewBadRequest("this server knows no dry runs")
		}
		if p := o.PropagationPolicy; p != nil && *p == metav1.DeletePropagationOrphan {
			return o, apierrors.NewBadRequest("this server deletes what is owned: it knows no propagationPolicy Orphan")
		}
		return o, nil
	}
	if text := c.parameter("gracePeriodSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return o, apierrors.NewBadRequest("gracePeriodSeconds " + text + " is no number")
		}
		o.GracePeriodSeconds = &n
	}
	return o, nil
}

func (s *Server) delete(c *call, t *table) (answer, error) {
	options, err := c.options()
	if err != nil {
		return answer{}, err
	}
	old := t.entries[c.key()]
	if old == nil {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	if t.kind.resource == "namespaces" && slices.Contains(initialNamespaces(), c.Name) {
		return answer{}, c.forbidden(c.Name, "this namespace may not be deleted")
	}
	left, err := s.deleteOne(t, old, options, Deletion{User: c.User})
	if err != nil {
		return answer{}, err
	}
	switch {
	case left != nil:
		return c.one(http.StatusOK, left)
	case t.kind.resource == "pods":
		return c.one(http.StatusOK, old)
	}
	return said(c.accept, http.StatusOK, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: c.Name, Group: t.kind.group, Kind: t.kind.resource, UID: old.object.GetUID()},
	}), nil
}

// deleteOne deletes as far as the API server does by itself: it gives what is
// left, or nil. of says who deletes; the rest of it is filled in here.
func (s *Server) deleteOne(t *table, old *entry, options metav1.DeleteOptions, of Deletion) (*entry, error) {
	was := old.object
	if p := options.Preconditions; p != nil {
		// The kind, and not the resource, is what the API server says here.
		about := schema.GroupResource{Group: t.kind.group, Resource: t.kind.name}
		if p.UID != nil && *p.UID != was.GetUID() {
			return nil, apierrors.NewConflict(about, was.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, was.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion() {
			return nil, apierrors.NewConflict(about, was.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, was.GetResourceVersion()))
		}
	}
	pod, isPod := was.(*corev1.Pod)
	if !isPod {
		if len(was.GetFinalizers()) == 0 {
			s.remove(t, old)
			return nil, nil
		}
		return s.waitsForFinalizers(t, old), nil
	}
	grace, pending := gracePeriod(pod, options.GracePeriodSeconds)
	if pending {
		return old, nil
	}
	if of.Grace = time.Duration(grace) * time.Second; of.Pod == nil {
		of.Pod = pod
	}
	left := s.terminate(t, old, grace)
	of.gone = left == nil
	s.deletions = append(s.deletions, of)
	return left, nil
}

// waitsForFinalizers marks what is to go, but for its finalizers.
func (s *Server) waitsForFinalizers(t *table, old *entry) *entry {
	if grace := old.object.GetDeletionGracePeriodSeconds(); old.object.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 {
		return old
	}
	o, ok := old.object.DeepCopyObject().(object)
	if !ok {
		return old
	}
	at, zero := now(), int64(0)
	if before := o.GetDeletionTimestamp(); before == nil || before.After(at.Time) {
		o.SetDeletionTimestamp(&at)
	}
	if old.object.GetDeletionTimestamp() == nil && o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	o.SetDeletionGracePeriodSeconds(&zero)
	return s.replace(t, old, o)
}

// gracePeriod returns what a pod gets, in seconds. pending is true where it has
// been deleted already, and this deletion changes nothing.
func gracePeriod(pod *corev1.Pod, asked *int64) (seconds int64, pending bool) {
	if asked != nil {
		seconds = *asked
	} else if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		seconds = *own
	}
	if seconds < 0 {
		seconds = 1
	}
	if pod.DeletionTimestamp != nil {
		left := pod.DeletionGracePeriodSeconds
		if left == nil || *left == 0 {
			return 0, false // it is due to go
		}
		// A deletion that is under way can only be shortened.
		return seconds, asked == nil || seconds >= *left
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		seconds = 0
	}
	return seconds, false
}

// terminate begins or shortens a pod's end; without a grace period it is the
// end, but for finalizers. It gives what is left, or nil.
func (s *Server) terminate(t *table, old *entry, grace int64) *entry {
	pod, ok := old.object.(*corev1.Pod)
	if !ok {
		return old
	}
	if grace == 0 {
		if len(pod.Finalizers) > 0 {
			return s.waitsForFinalizers(t, old)
		}
		s.remove(t, old)
		return nil
	}
	next := pod.DeepCopy()
	ends := metav1.NewTime(now().Add(time.Duration(grace) * time.Second))
	if pod.DeletionTimestamp == nil {
		next.Generation++
	} else {
		ends = metav1.NewTime(pod.DeletionTimestamp.Add(time.Duration(grace-*pod.DeletionGracePeriodSeconds) * time.Second))
		if at := now(); ends.Before(&at) {
			ends, grace = at, 1
		}
	}
	next.DeletionTimestamp, next.DeletionGracePeriodSeconds = &ends, &grace
	return s.replace(t, old, next)
}

// endsAfter takes a terminating pod away in time, unless it is another by then.
func (s *Server) endsAfter(pod *corev1.Pod, d time.Duration) {
	key, uid := keyOf(pod.Namespace, pod.Name), pod.UID
	s.after(d, func() { s.ended(key, uid) })
}

// ended is the kubelet's report that a terminating pod's containers are gone.
func (s *Server) ended(key string, uid types.UID) {
	t := s.tables["pods"]
	if e := t.entries[key]; e != nil && e.object.GetUID() == uid {
		s.terminate(t, e, 0)
	}
}
