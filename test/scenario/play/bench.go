package play

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
)

// maxLUN is the highest LUN of a Standard_D2s_v5, which takes four data disks.
const maxLUN = 3

// protectionOf is what an instance is protected from.
func (w *world) protectionOf(instance fleet.ResourceID) (p fleet.Protection) {
	w.azure.View(func(v *azsim.View) {
		i, ok := v.Get(string(instance)).(*armcompute.VirtualMachineScaleSetVM)
		if !ok || i.Properties == nil || i.Properties.ProtectionPolicy == nil {
			return
		}
		policy := i.Properties.ProtectionPolicy
		p.ScaleIn = policy.ProtectFromScaleIn != nil && *policy.ProtectFromScaleIn
		p.ScaleSetActions = policy.ProtectFromScaleSetActions != nil && *policy.ProtectFromScaleSetActions
	})
	return p
}

// byOthers reports whether others had a hand in a node, so that how it is says nothing
// of Ortet.
func (w *world) byOthers(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.touched[node] || w.remade[node]
}

// unguarded says what a node lacks of the protection that a donor and a workbench
// have: the annotation, and scale-in in Azure; "" for nothing.
func (w *world) unguarded(node string) string {
	n, ok := w.kube.Get("nodes", "", node).(*corev1.Node)
	c := w.computerOf(node)
	if !ok || c == nil || w.byOthers(node) {
		return ""
	}
	if n.Annotations[fleet.AnnotationScaleDownDisabled] != "true" {
		return "without " + fleet.AnnotationScaleDownDisabled
	}
	if !w.protectionOf(fleet.ResourceID(c.ResourceID)).ScaleIn {
		return "not protected from scale-in"
	}
	return ""
}

// judgeOutOfService: who takes a donor out of service has protected it, its Machine
// and the workbench, and has written down how they were.
func (w *world) judgeOutOfService(p *process, rec open, donor string) {
	w.judgeReasons(p, donor)
	n, ok := w.kube.Get("nodes", "", donor).(*corev1.Node)
	c := w.computerOf(donor)
	if !ok || c == nil || w.byOthers(donor) {
		return
	}
	if lacks := w.unguarded(donor); lacks != "" {
		w.broken("%s takes %s out of service, which is %s", p.name, donor, lacks)
	}
	if n.Annotations[fleet.AnnotationCapture] != rec.Capture {
		w.broken("%s takes %s out of service, which does not bear the mark of %s", p.name, donor, rec.Capture)
	}
	if !w.protectionOf(fleet.ResourceID(c.ResourceID)).ScaleSetActions {
		w.broken("%s takes %s out of service, which is not protected from scale set actions", p.name, donor)
	}
	if m, ok := w.kube.Get("machines", work, donor).(*unstructured.Unstructured); ok && m.GetAnnotations()[fleet.AnnotationSkipRemediation] == "" {
		w.broken("%s takes %s out of service, whose Machine may be remediated", p.name, donor)
	}
	bench := rec.facts.Bench.Node
	if bench == "" {
		w.broken("%s takes %s out of service, and has no workbench", p.name, donor)
		return
	}
	if lacks := w.unguarded(bench); lacks != "" {
		w.broken("%s takes %s out of service while its workbench %s is %s", p.name, donor, bench, lacks)
	}
}

// judgeNode: of nodes, a capture changes its donor and its workbenches; it cordons the
// donor alone, and a workbench stays protected while the copy is attached to it.
func (w *world) judgeNode(p *process, before, after *corev1.Node) {
	rec, ok := w.openRecord()
	if !ok {
		w.broken("%s changes node %s, and has no open record in the journal", p.name, after.Name)
		return
	}
	benches := append(slices.Clone(rec.facts.Bench.Lost), rec.facts.Bench.Node)
	isDonor := after.Name == rec.Donor
	if !isDonor && !slices.Contains(benches, after.Name) {
		w.broken("%s changes node %s, which is neither donor nor workbench of %s", p.name, after.Name, rec.Capture)
	}
	if !before.Spec.Unschedulable && after.Spec.Unschedulable {
		if !isDonor {
			w.broken("%s cordons %s, which is no donor", p.name, after.Name)
			return
		}
		if !rec.undoes("cordon") {
			w.broken("%s cordons %s, and has not written down that it is to be undone", p.name, after.Name)
		}
		w.judgeOutOfService(p, rec, after.Name)
		w.latePods(after.Name)
	}
	if c := w.computerOf(after.Name); c != nil && w.hasCopy(c) && before.Annotations[fleet.AnnotationScaleDownDisabled] == "true" {
		if lacks := w.unguarded(after.Name); strings.HasPrefix(lacks, "without") {
			w.broken("%s leaves %s %s while a copy of a disk is attached to it", p.name, after.Name, lacks)
		}
	}
}

func (w *world) hasCopy(c *computer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(c.luns) > 0
}

// judgeProtection: an instance is changed of a donor or a workbench alone; the
// workbench's protection is not lowered while the copy is attached to it.
func (w *world) judgeProtection(p *process, rec open, instance fleet.ResourceID, r *http.Request) {
	var body struct {
		Properties struct {
			ProtectionPolicy *struct {
				ProtectFromScaleIn bool `json:"protectFromScaleIn"`
			} `json:"protectionPolicy"`
		} `json:"properties"`
	}
	if json.Unmarshal(bodyOf(r), &body) != nil {
		return
	}
	w.mu.Lock()
	c := w.computers[low(instance)]
	node := ""
	if c != nil {
		node = strings.ToLower(c.HostName)
	}
	w.mu.Unlock()
	if c == nil || w.byOthers(node) {
		return
	}
	benches := append(slices.Clone(rec.facts.Bench.Lost), rec.facts.Bench.Node)
	if node != rec.Donor && !slices.Contains(benches, node) {
		w.broken("%s changes instance %s, which is neither donor nor workbench of %s", p.name, instance.Name(), rec.Capture)
	}
	lowers := body.Properties.ProtectionPolicy == nil || !body.Properties.ProtectionPolicy.ProtectFromScaleIn
	if lowers && w.hasCopy(c) {
		w.broken("%s takes the protection off %s while a copy of a disk is attached to it", p.name, node)
	}
}

// bodyOf reads a request's body, and leaves it to be read again.
func bodyOf(r *http.Request) []byte {
	if r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it was read to its end, or err says so
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	return body
}

// judgeDataDisks: the copy alone is attached, to the workbench that is on record and
// protected, in the donor's zone, at the highest LUN; it is detached when no pod of
// ours works on it any more.
func (w *world) judgeDataDisks(p *process, rec open, instance fleet.ResourceID, r *http.Request) {
	var body struct {
		DataDisksToAttach []struct {
			DiskID string `json:"diskId"`
			LUN    int32  `json:"lun"`
		} `json:"dataDisksToAttach"`
		DataDisksToDetach []struct {
			DiskID string `json:"diskId"`
		} `json:"dataDisksToDetach"`
	}
	if json.Unmarshal(bodyOf(r), &body) != nil {
		return
	}
	w.mu.Lock()
	c, donor := w.computers[low(instance)], w.computers[low(rec.facts.Instance)]
	node, zones, why := "", "", ""
	if c != nil {
		node = strings.ToLower(c.HostName)
		if why = w.spared[node]; why == notReadyYet && c.ready == c.life {
			why = "" // its kubelet may have reported since
		}
		if n, ok := w.kube.Get("nodes", "", node).(*corev1.Node); ok && fitAgain(why, n) {
			why = ""
		}
		if donor != nil && donor.Zone != c.Zone {
			zones = fmt.Sprintf("zone %q, and the donor in %q", c.Zone, donor.Zone)
		}
	}
	w.mu.Unlock()
	if c == nil {
		return
	}
	if !w.byOthers(node) {
		switch {
		case len(body.DataDisksToAttach) > 0:
			w.judgeReboots(p, "attaches a copy to "+node)
		case len(body.DataDisksToDetach) > 0 && !w.rebootLockRanOut():
			// Where it ran out while no process was, detaching is what helps.
			w.judgeReboots(p, "detaches a copy from "+node)
		}
	}
	for _, d := range body.DataDisksToAttach {
		w.judgeServed(p, rec)
		switch {
		case !fleet.ResourceID(d.DiskID).Equal(w.names.WorkDisk):
			w.broken("%s attaches %s, which is no copy", p.name, fleet.ResourceID(d.DiskID).Name())
		case !instance.Equal(rec.facts.Bench.Instance) || node == rec.Donor:
			w.broken("%s attaches the copy to %s, which is not the workbench on record", p.name, node)
		case zones != "":
			w.broken("%s attaches the copy to %s, which is in %s", p.name, node, zones)
		case why != "" && !w.byOthers(node):
			w.broken("%s attaches the copy to %s, which cannot be a workbench: %s", p.name, node, why)
		case d.LUN != w.freeLUN(c) && !w.hasCopy(c) && !w.lacked("GET skus"):
			w.broken("%s attaches the copy to %s at LUN %d, and %d is free", p.name, node, d.LUN, w.freeLUN(c))
		case !rec.undoes("attach"):
			w.broken("%s attaches the copy to %s, and has not written down that it is to be undone", p.name, node)
		}
		if lacks := w.unguarded(node); lacks != "" {
			w.broken("%s attaches the copy to %s, which is %s", p.name, node, lacks)
		}
	}
	// Who may not take the pod away detaches the disk all the same: the workbench must not
	// reboot beside it.
	if pod := w.atWork(node); pod != "" && len(body.DataDisksToDetach) > 0 && !w.byOthers(node) && !w.lacked("/pods/") {
		w.broken("%s detaches the copy from %s while pod %s works on it", p.name, node, pod)
	}
}

// atWork names a pod of ours that works on a node which runs, and that nobody deletes.
func (w *world) atWork(node string) (name string) {
	w.kube.Each("pods", func(o runtime.Object) bool {
		p := o.(*corev1.Pod)
		_, runs := w.runs(p)
		if p.Namespace == namespace && p.Spec.NodeName == node && runs && p.Status.Phase == corev1.PodRunning && !strings.HasSuffix(p.Name, "-look") {
			name = p.Name
		}
		return name == ""
	})
	return name
}

// notReadyNow is why a node cannot be a workbench until it reports that it is Ready.
const (
	notReadyNow  = "it is not Ready"
	othersCordon = "others had cordoned it"
)

// unfit says why a node cannot be a workbench, by what others have set on it; "" where
// it can.
func unfit(kind string) string {
	return map[string]string{
		"cordoned": othersCordon, "notready": notReadyNow, "unknown": notReadyNow,
		"captured": "another capture has it as its donor", "serving": "it is another pool's workbench",
		"rebooting": "kured is about to reboot it", "otherarch": "it has another architecture", full: "it has no room for a disk",
	}[kind]
}

// fitAgain reports whether what kept a node from being a workbench is gone, as where its
// instance was made or booted anew.
func fitAgain(why string, n *corev1.Node) bool {
	switch why {
	case notReadyNow:
		return isReady(n)
	case unfit("otherarch"):
		return n.Status.NodeInfo.Architecture == "amd64"
	case unfit("captured"):
		return n.Annotations[fleet.AnnotationCapture] == ""
	case unfit("serving"):
		return n.Annotations[fleet.AnnotationWorkbench] == ""
	case unfit("rebooting"):
		return n.Annotations[fleet.AnnotationKuredReboot] == ""
	}
	return false
}

// setUpBenches has others set on the pool's first nodes but the donor what the story
// says: that is where a workbench is looked for first.
func (w *world) setUpBenches() error {
	const some = 8 // nodes
	kind := w.story.Pool.Benches
	if kind == "" || kind == "plain" {
		return nil
	}
	last := min(some, w.story.Pool.Instances-1)
	why := unfit(kind)
	if why != "" {
		last = min(some, w.story.Pool.Instances-2) // one is left
	}
	for i := 1; i <= last; i++ {
		node := w.node(i)
		switch kind {
		case full:
			if err := w.hangVolumes(i, w.highestLUN(), 0); err != nil {
				return err
			}
		case "protected", "actions":
			if err := w.request(http.MethodPut, string(w.instance(i)), apiYear, object{"location": location, "properties": object{"protectionPolicy": object{
				"protectFromScaleIn": true, "protectFromScaleSetActions": kind == "actions",
			}}}); err != nil {
				return err
			}
		default:
			w.kube.Change("nodes", "", node, func(o runtime.Object) {
				n := o.(*corev1.Node)
				if n.Annotations == nil {
					n.Annotations = map[string]string{}
				}
				switch kind {
				case "scaledown":
					n.Annotations[fleet.AnnotationScaleDownDisabled] = "true"
				case "offered":
					n.Annotations[fleet.AnnotationScaleDownDisabled] = "false"
				case "cordoned":
					n.Spec.Unschedulable = true
				case "notready", "unknown":
					n.Status.Conditions[0].Status = map[string]corev1.ConditionStatus{"notready": corev1.ConditionFalse, "unknown": corev1.ConditionUnknown}[kind]
				case "captured":
					n.Annotations[fleet.AnnotationCapture] = "20000101-000000"
				case "serving":
					n.Annotations[fleet.AnnotationWorkbench] = string(w.pool.In("virtualMachineScaleSets", "pool2"))
				case "rebooting":
					n.Annotations[fleet.AnnotationKuredReboot] = "2000-01-01T00:00:00Z"
				case "otherarch":
					n.Labels[corev1.LabelArchStable], n.Status.NodeInfo.Architecture = "arm64", "arm64"
				}
			})
		}
		if why != "" {
			w.spared[node] = why
		}
	}
	return nil
}
