package play

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/scenario"
)

// nodeOf names the node of the n-th instance as its kubelet does, by the host
// name in lower case, whether or not it is still there.
func (w *world) nodeOf(n int) string {
	return fmt.Sprintf("%s%06s", poolName, strconv.FormatInt(int64(n), 36))
}

// others does what an event has others do just before a request is served; it
// is false where the event is none of theirs. What they are refused, as anybody
// would be, they leave.
func (w *world) others(e scenario.Event, p *process) bool {
	switch e.What {
	case scenario.RivalComes:
		w.rivalComes(p)
	case scenario.ScaleOut:
		w.scaleOut(max(1, argument(e, 0)))
	case scenario.ScaleIn:
		w.scaleIn(time.Now().Add(time.Duration(argument(e, 0)) * time.Second))
	case scenario.DeleteInstance, scenario.StopInstance:
		w.instanceGoes(e, p)
	case scenario.Evict:
		w.evict(w.target(e, p))
	case scenario.StartInstance:
		if c := w.computerOf(w.target(e, p)); c != nil {
			_ = w.request(http.MethodPost, c.ResourceID+"/start", apiYear, nil)
		}
	case scenario.RestartInstance:
		if c := w.computerOf(w.target(e, p)); c != nil && w.isOn(c) {
			_ = w.request(http.MethodPost, c.ResourceID+"/restart", apiYear, nil)
		}
	case scenario.DeleteSnapshot:
		w.deleted(w.names.Snapshot, disksYear)
	case scenario.DeleteCopy:
		w.deleted(w.names.Generalized, disksYear)
	case scenario.DeleteDisk:
		w.deleted(w.names.WorkDisk, disksYear)
	case scenario.DeleteVersion:
		if id := w.newestVersion(); id != "" {
			w.deleted(id, galleries)
		}
	case scenario.DeleteGallery:
		w.deleteGallery()
	case scenario.ChangeModel:
		w.changeModel(e.Args[0])
	case scenario.NodeNotReady:
		w.notReady(w.target(e, p), time.Duration(max(1, argument(e, 1)))*time.Second)
	case scenario.NodeGone:
		w.nodeGone(w.target(e, p))
	case scenario.Cordon, scenario.Uncordon:
		w.cordon(w.target(e, p), e.What == scenario.Cordon)
	case scenario.Clock:
		p.mu.Lock()
		p.skew += time.Duration(argument(e, 0)) * time.Second
		p.jumped = true
		p.mu.Unlock()
	case scenario.Suspend:
		p.suspend(time.Duration(argument(e, 0)) * time.Second)
	case scenario.KubeOutage:
		w.goesDown(scenario.Kube, e, 0)
	case scenario.AzureOutage:
		w.goesDown(scenario.Azure, e, http.StatusServiceUnavailable)
	case scenario.Deny:
		w.deny(e)
	case scenario.ExpireLogin:
		w.goesDown(scenario.Azure, e, http.StatusUnauthorized)
	default:
		return false
	}
	w.write("others: %s %s", e.What, strings.Join(e.Args, " "))
	return true
}

func (w *world) goesDown(side string, e scenario.Event, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(time.Duration(max(1, argument(e, 0))) * time.Second)
	if was, down := w.down[side]; !down || was.until.Before(until) {
		w.down[side] = outage{until, status}
	}
}

// target gives the node that an event's first argument names, "" for none.
func (w *world) target(e scenario.Event, p *process) string {
	donor := w.nodeOf(p.ask.Node)
	bench := ""
	w.mu.Lock()
	for _, c := range w.computers {
		if len(c.luns) > 0 {
			bench = strings.ToLower(c.HostName)
		}
	}
	w.mu.Unlock()
	what := ""
	if len(e.Args) > 0 {
		what = e.Args[0]
	}
	switch what {
	case "donor":
		return donor
	case "bench":
		if bench != "" {
			return bench
		}
	}
	names := w.nodeNames()
	for i := len(names) - 1; i >= 0; i-- {
		if names[i] != donor && names[i] != bench {
			return names[i]
		}
	}
	return ""
}

func (w *world) scaleOut(by int) {
	capacity, size := int64(0), ""
	w.azure.View(func(v *azsim.View) {
		if set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet); ok && set.SKU != nil && set.SKU.Capacity != nil {
			capacity, size = *set.SKU.Capacity, *set.SKU.Name
		}
	})
	w.mu.Lock()
	w.scaledOut += int64(by)
	w.mu.Unlock()
	_ = w.request(http.MethodPatch, string(w.pool), apiYear, object{"sku": object{"name": size, "tier": "Standard", "capacity": capacity + int64(by)}})
}

// changeModel has others set the pool's image, or its tags: what they set is theirs.
func (w *world) changeModel(what string) {
	body := object{"tags": object{"team": fmt.Sprint("others-", time.Since(w.begin))}}
	if what == "image" {
		body = object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": object{
			"id": nil, "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "24.04.202510010",
		}}}}}
	}
	if w.request(http.MethodPatch, string(w.pool), apiYear, body) != nil {
		return
	}
	now := w.pointedAt()
	rest, _, _ := w.modelNow()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model0 = rest
	if what == "image" {
		w.pointed0.image, w.theirImage = now.image, now.image
	}
}

func (w *world) instanceGoes(e scenario.Event, p *process) {
	node := w.target(e, p)
	c := w.computerOf(node)
	if c == nil {
		return
	}
	id := fleet.ResourceID(c.ResourceID)
	w.theirs(node)
	if e.What == scenario.StopInstance {
		_ = w.request(http.MethodPost, string(id)+"/poweroff", apiYear, nil)
		return
	}
	if w.request(http.MethodPost, string(w.pool)+"/delete", apiYear, object{"instanceIds": []string{id.Name()}}) == nil {
		w.gone(id)
	}
}

// gone remembers what others deleted, or tried to.
func (w *world) gone(id fleet.ResourceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.othersGone[low(id)] = true
}

// theirs marks a node as one whose end others have a hand in.
func (w *world) theirs(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched[node] = true
}

func (w *world) deleted(id fleet.ResourceID, version string) {
	w.gone(id)
	_ = w.request(http.MethodDelete, string(id), version, nil)
}

// newestVersion is the version whose name sorts last, as made last.
func (w *world) newestVersion() (newest fleet.ResourceID) {
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(id string, _ any) {
			newest = fleet.ResourceID(id)
		})
	})
	return newest
}

// deleteGallery takes the gallery away bit by bit, as one has to.
func (w *world) deleteGallery() {
	var versions []fleet.ResourceID
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(id string, _ any) {
			versions = append(versions, fleet.ResourceID(id))
		})
	})
	for _, id := range versions {
		w.deleted(id, galleries)
	}
	w.gone(w.names.Definition)
	w.gone(w.names.Gallery)
	w.after(6*time.Minute, func() {
		w.deleted(w.names.Definition, galleries)
		w.after(time.Minute, func() { w.deleted(w.names.Gallery, galleries) })
	})
}

func (w *world) notReady(node string, d time.Duration) {
	c := w.computerOf(node)
	if c == nil {
		return
	}
	w.mu.Lock()
	life := c.life
	w.mu.Unlock()
	w.kube.Change("nodes", "", node, func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "PLEG is not healthy", LastTransitionTime: metav1.Now()}}
	})
	w.after(d, func() {
		if w.lives(c, life) {
			w.report(node, c, true)
		}
	})
}

// nodeGone deletes the Node object; a kubelet that runs makes it anew, without
// what was on it.
func (w *world) nodeGone(node string) {
	c := w.computerOf(node)
	var gone []*corev1.Pod // whose ReplicaSets make others
	w.kube.Each("pods", func(o runtime.Object) bool {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
			gone = append(gone, pod)
		}
		return true
	})
	if c == nil || !w.kube.Remove("nodes", "", node) {
		return
	}
	for _, pod := range gone {
		w.replace(pod)
	}
	w.mu.Lock()
	life := c.life
	f := w.found[node]
	f.unschedulable, f.either, f.annotations = false, false, nil
	w.remade[node] = true
	w.found[node] = f
	w.mu.Unlock()
	w.after(time.Minute, func() {
		if w.lives(c, life) {
			w.report(node, c, true)
		}
	})
}

func (w *world) cordon(node string, on bool) {
	n, ok := w.kube.Get("nodes", "", node).(*corev1.Node)
	if !ok {
		return
	}
	_, ours := n.Annotations[fleet.AnnotationCapture]
	w.mu.Lock()
	f := w.found[node]
	// Whose cordon it is on a node that is cordoned already cannot be known, also
	// where our mark is gone and our cordon could not be taken off yet.
	f.either = f.either || ours || on && n.Spec.Unschedulable && !f.unschedulable
	f.unschedulable = on
	f.uncordoned = f.uncordoned || !on
	if !on && w.spared[node] == unfit("cordoned") {
		delete(w.spared, node)
	}
	w.found[node] = f
	if !on && w.spared[node] == othersCordon {
		delete(w.spared, node)
	}
	w.mu.Unlock()
	w.kube.Change("nodes", "", node, func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = on })
}
