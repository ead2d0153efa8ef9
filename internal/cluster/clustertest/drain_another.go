package clustertest

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// drainAnotherNode has the Node deleted and made anew under its name in the middle of a
// drain: the pods of the new one stay, and the drain says that its Node is gone.
func drainAnotherNode(w *world) {
	w.drainAnother(cluster.DrainOptions{GracePeriod: time.Second, Deadline: patience})
}

func drainFitAnotherNode(w *world) { w.drainAnother(fitting(patience)) }

func (w *world) drainAnother(options cluster.DrainOptions) {
	ns, owner := w.namespace()
	name := w.cordoned()
	w.pod(ns, name, "old", owner, nil)
	again := false
	err := w.under.Drain(w.ctx, name, options, func(e cluster.DrainEvent) {
		if e.What != "evicting" || again {
			return
		}
		again = true
		w.must(w.admin.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}), "delete node")
		w.cordoned()
		w.pod(ns, name, "new", owner, nil)
		w.must(w.admin.CoreV1().Pods(ns).Delete(w.ctx, "old", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}), "end the old pod")
	})
	w.wantKind(err, fleet.KindNotFound, "drain of a Node that was made anew")
	pod, err := w.admin.CoreV1().Pods(ns).Get(w.ctx, "new", metav1.GetOptions{})
	w.must(err, "read the new Node's pod")
	if pod.DeletionTimestamp != nil {
		w.Errorf("the new Node's pod was evicted")
	}
	// Nor is one drained that is not meant.
	options.UID = "another"
	w.wantKind(w.under.Drain(w.ctx, name, options, nil), fleet.KindNotFound, "drain of another Node than is there")
	if pod, err = w.admin.CoreV1().Pods(ns).Get(w.ctx, "new", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		w.Errorf("the pod of a Node that was not meant: %v", err)
	}
}
