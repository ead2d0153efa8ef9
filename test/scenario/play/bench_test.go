package play

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	powerOff = "POOL/virtualMachines/0/poweroff"
	disksOf  = "POOL/virtualMachines/%d/attachDetachDataDisks"
	pool3    = "pool instances=3\ncapture\n"
)

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func attach(n, lun int) func(*world, *process) {
	return sent(http.MethodPost, fleet.ResourceID(fmt.Sprintf(disksOf, n)), fmt.Sprintf(`{"dataDisksToAttach":[{"diskId":"DISK","lun":%d}]}`, lun))
}

func TestRulesOfTheWorkbench(t *testing.T) {
	cordon := nodeChanged(0, cordoned)
	unprotect := `{"properties":{"protectionPolicy":null}}`
	judged(t, []ruling{
		{"donor annotated before it is stopped", pool3, guarded, func(w *world) { annotate(w, w.node(0), fleet.AnnotationScaleDownDisabled, "") },
			sent(http.MethodPost, powerOff, ""), nil, "which is without"},
		{"donor protected before it is stopped", pool3, guarded, func(w *world) { protect(w, 0, false, false) },
			sent(http.MethodPost, powerOff, ""), nil, "not protected from scale-in"},
		{"donor protected from repairs", pool3, guarded, func(w *world) { protect(w, 0, true, false) },
			sent(http.MethodPost, powerOff, ""), nil, "not protected from scale set actions"},
		{"donor marked", pool3, guarded, func(w *world) { annotate(w, w.node(0), fleet.AnnotationCapture, "") },
			sent(http.MethodPost, powerOff, ""), nil, "does not bear the mark"},
		{"workbench protected before the donor is cordoned", pool3, guarded, func(w *world) { protect(w, 1, false, false) },
			cordon, nil, "its workbench pool1000001 is not protected"},
		{"workbench annotated before the donor is cordoned", pool3, guarded, func(w *world) { annotate(w, w.node(1), fleet.AnnotationScaleDownDisabled, "") },
			cordon, nil, "its workbench pool1000001 is without"},
		{"cordon written down", pool3, guarded, func(w *world) { onRecord(w) }, cordon, nil, "has not written down"},
		{"no other node is cordoned", pool3, guarded, nil, cordon, nodeChanged(1, cordoned), "which is no donor"},
		{"no other node is changed", pool3, guarded, nil, cordon, nodeChanged(2, cordoned), "neither donor nor workbench"},
		{"attached to the workbench", pool3, guarded, nil, attach(1, maxLUN), attach(2, maxLUN), "not the workbench on record"},
		{"attached at the highest LUN", pool3, guarded, nil, attach(1, maxLUN), attach(1, 0), "is free"},
		{"no other instance is changed", pool3, guarded, nil, sent(http.MethodPatch, "POOL/virtualMachines/1", unprotect),
			sent(http.MethodPatch, "POOL/virtualMachines/2", unprotect), "neither donor nor workbench"},
		{"workbench protected at attach", pool3, guarded, func(w *world) { protect(w, 1, false, false) },
			attach(1, maxLUN), nil, "attaches the copy to pool1000001, which is not protected"},
		{"attach written down", pool3, guarded, func(w *world) { onRecord(w) },
			attach(1, maxLUN), nil, "has not written down"},
		{"cordoned node is no workbench", "pool instances=3 benches=cordoned\ncapture\n", func(w *world) { guarded(w); clear(w.spared) },
			func(w *world) { w.spared[w.node(1)] = othersCordon },
			attach(1, maxLUN), nil, "cannot be a workbench"},
		{"uncordoned node is one", pool3, func(w *world) { w.spared[w.node(1)] = othersCordon; guarded(w); w.cordon(w.node(1), false) },
			func(w *world) { w.spared[w.node(1)] = othersCordon },
			attach(1, maxLUN), nil, "cannot be a workbench"},
		{"workbench is in the donor's zone", pool3, guarded, func(w *world) { w.computers[low(w.instance(1))].Zone = "2" },
			attach(1, maxLUN), nil, "and the donor in"},
		{"workbench stays protected", pool3, guarded, attached(1),
			sent(http.MethodPatch, "POOL/virtualMachines/1", unprotect), nil, "takes the protection off"},
		{"workbench stays annotated", pool3, guarded, attached(1),
			nodeChanged(1, func(n *corev1.Node) { delete(n.Annotations, fleet.AnnotationScaleDownDisabled) }), nil, "while a copy of a disk is attached"},
		{"no detach under the pod", pool3, guarded, working,
			sent(http.MethodPost, fleet.ResourceID(fmt.Sprintf(disksOf, 1)), `{"dataDisksToDetach":[{"diskId":"DISK"}]}`), nil, "works on it"},
	})
}

// working is a pod of ours at work on the workbench.
func working(w *world) {
	w.kube.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-generalize"},
		Spec: corev1.PodSpec{NodeName: w.node(1)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
}
