package play

import (
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/test/scenario"
)

const (
	scaleEvery = 10 * time.Second // cluster-autoscaler's --scan-interval
	fewest     = 2                // nodes that it leaves
)

// scaleIn is an autoscaler until a time: it deletes every empty node that nothing
// protects. It asks Azure as cloud-provider-azure's azclient does: a list of the
// instances, and a deletion by their ids.
func (w *world) scaleIn(until time.Time) {
	var there, empty []string // there: and not being deleted
	for _, name := range w.nodeNames() {
		n, ok := w.kube.Get("nodes", "", name).(*corev1.Node)
		c := w.computerOf(name)
		if c == nil || w.isGone(fleet.ResourceID(c.ResourceID)) {
			continue
		}
		there = append(there, name)
		if ok && n.Annotations[fleet.AnnotationScaleDownDisabled] != "true" && w.isEmpty(name) {
			empty = append(empty, name)
		}
	}
	empty = empty[:min(len(empty), max(0, len(there)-fewest))]
	var ids []string
	for _, name := range empty {
		c := w.computerOf(name)
		if c == nil {
			continue
		}
		w.judgeScaleIn(name, c)
		ids = append(ids, fleet.ResourceID(c.ResourceID).Name())
		w.theirs(name)
	}
	if len(ids) > 0 && w.request(http.MethodGet, string(w.pool)+"/virtualMachines", apiYear, nil) == nil &&
		w.request(http.MethodPost, string(w.pool)+"/delete", apiYear, object{"instanceIds": ids}) == nil {
		for _, id := range ids {
			w.gone(w.pool.Child("virtualMachines", id))
		}
	}
	if time.Now().Before(until) {
		w.after(scaleEvery, func() { w.scaleIn(until) })
	}
}

// isEmpty reports whether only pods of DaemonSets and mirrors are on a node.
func (w *world) isEmpty(node string) bool {
	empty := true
	w.kube.Each("pods", func(o runtime.Object) bool {
		p := o.(*corev1.Pod)
		owner := metav1.GetControllerOf(p)
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		stays := mirror || owner != nil && owner.Kind == "DaemonSet" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		empty = empty && (p.Spec.NodeName != node || stays)
		return empty
	})
	return empty
}

// judgeScaleIn: a donor that is out of service, and a node that has a copy of its disk
// attached, are protected from an autoscaler, unless others took that away.
func (w *world) judgeScaleIn(node string, c *computer) {
	w.mu.Lock()
	attached, theirs := len(c.luns) > 0, w.touched[node]
	w.mu.Unlock()
	rec, ok := w.record()
	out := ok && rec.Ended == nil && strings.EqualFold(rec.Donor, node) &&
		slices.ContainsFunc(rec.Undo, func(u journal.Undo) bool { return u.Name == "cordon" || u.Name == "stop" })
	// One that Azure refuses to start does not come back, and is left unprotected.
	refused := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		return e.What == scenario.Error && strings.HasSuffix(strings.ToLower(e.Request), "/start")
	})
	out = out && !refused
	n, _ := w.kube.Get("nodes", "", node).(*corev1.Node)
	if (attached || out) && !theirs && n != nil && !w.madeAgain(node) {
		w.broken("an autoscaler deletes %s, which nothing protects: donor=%t, copy attached=%t", node, out, attached)
	}
}

// isGone reports whether others asked for its deletion.
func (w *world) isGone(id fleet.ResourceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.othersGone[low(id)]
}

// madeAgain reports whether others deleted a Node, which bears no mark of ours then.
func (w *world) madeAgain(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.remade[node]
}
