package clustertest

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// serverWatch is what a watch shows: each write once and in order, from a resource
// version on, as a selector sees it.
func serverWatch(w *world) {
	ns, owner := w.namespace()
	node := w.cordoned()
	pods := w.admin.CoreV1().Pods(ns)
	w.pod(ns, node, "before", owner, nil)
	list, err := pods.List(w.ctx, metav1.ListOptions{})
	w.must(err, "list")

	bound := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, ResourceVersion: list.ResourceVersion}
	coloured := metav1.ListOptions{LabelSelector: "colour=red", ResourceVersion: list.ResourceVersion}
	open := func(options metav1.ListOptions) watch.Interface {
		w.Helper()
		watching, err := pods.Watch(w.ctx, options)
		w.must(err, "watch")
		w.Cleanup(watching.Stop)
		return watching
	}
	all, red := open(bound), open(coloured)
	everywhere, err := w.admin.CoreV1().Pods(metav1.NamespaceAll).Watch(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.name, ResourceVersion: list.ResourceVersion})
	w.must(err, "watch all namespaces")
	w.Cleanup(everywhere.Stop)
	label := func(patch string) {
		w.Helper()
		_, err := pods.Patch(w.ctx, "a", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"colour":`+patch+`}}}`), metav1.PatchOptions{})
		w.must(err, "label a pod")
	}
	// In another namespace, and on no node: neither is seen.
	elsewhere := w.pod(metav1.NamespaceDefault, node, w.name, metav1.OwnerReference{}, func(p *corev1.Pod) { p.Labels["colour"] = "red" })
	w.must(w.admin.CoreV1().Pods(elsewhere.Namespace).Delete(w.ctx, elsewhere.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}), "delete a pod")
	w.pod(ns, "", "unbound", owner, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"clustertest/never": "true"} })
	w.pod(ns, node, "a", owner, nil)
	label(`"red"`)
	label(`"blue"`)
	label(`"red"`)
	w.must(pods.Delete(w.ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}), "delete a pod")

	w.wants(everywhere, "ADDED "+w.name+" red", "DELETED "+w.name+" red")
	w.wants(red, "ADDED a red", "DELETED a red", "ADDED a red", "DELETED a red")
	last := w.wants(all, "ADDED a", "MODIFIED a red", "MODIFIED a blue", "MODIFIED a red", "DELETED a red")

	// The same again, from the same version: nothing is lost to who comes later.
	w.wants(open(coloured), "ADDED a red", "DELETED a red", "ADDED a red", "DELETED a red")
	// The version of what was deleted is the deletion's.
	bound.ResourceVersion = last.ResourceVersion
	late := open(bound)
	w.pod(ns, node, "b", owner, nil)
	w.wants(late, "ADDED b")

	// Without a version a watch begins with what there is.
	w.wants(open(metav1.ListOptions{FieldSelector: "metadata.name=before"}), "ADDED before")
	// And by the protocol of informers it says where that ends.
	informer := metav1.ListOptions{
		FieldSelector: "metadata.name=before", AllowWatchBookmarks: true,
		SendInitialEvents: ptr(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	w.wants(open(informer), "ADDED before", "BOOKMARK")

	// A watch ends in its time.
	ending := open(metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: ptr(int64(1)), LabelSelector: "colour=none"})
	w.eventually("end of a watch of a second", func() (string, bool) {
		// A cluster without a clock of its own sees the time when it is asked.
		_, err := w.admin.CoreV1().Namespaces().Get(w.ctx, ns, metav1.GetOptions{})
		w.must(err, "read the namespace")
		select {
		case event, more := <-ending.ResultChan():
			return fmt.Sprintf("it gives %s", event.Type), !more
		default:
			return "it goes on", false
		}
	})
	_, err = pods.Watch(w.ctx, metav1.ListOptions{FieldSelector: "spec.hostname=x"})
	w.says(err, metav1.StatusReasonBadRequest, "field label not supported: spec.hostname")
	if _, err := pods.Watch(w.ctx, metav1.ListOptions{ResourceVersion: "x"}); err == nil || apierrors.IsNotFound(err) {
		w.Errorf("watch from version x: %v", err)
	}
}

// wants reads that many events, and gives the last one's object. An event is its
// type, the pod's name and its label colour; writes of the cluster's own, which change
// none of these, do not count.
func (w *world) wants(watching watch.Interface, want ...string) *corev1.Pod {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var last *corev1.Pod
	var got []string
	for len(got) < len(want) {
		select {
		case event, more := <-watching.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			if !more || !ok {
				w.Fatalf("after %q: %+v", got, event)
			}
			text := strings.TrimSpace(fmt.Sprintf("%s %s %s", event.Type, pod.Name, pod.Labels["colour"]))
			last = pod
			if _, what, _ := strings.Cut(text, " "); event.Type != watch.Modified || len(got) == 0 || !strings.HasSuffix(got[len(got)-1], " "+what) {
				got = append(got, text)
			}
		case <-ctx.Done():
			w.Fatalf("events %q, want %q", got, want)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("events %q, want %q", got, want)
	}
	return last
}
