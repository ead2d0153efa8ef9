package play

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/kubesim"
	"github.com/ortet/ortet/test/scenario"
)

// judgeDeletion: no pod is deleted outside the rules of a drain.
func (w *world) judgeDeletion(d kubesim.Deletion) {
	if d.User != ortetUser {
		return
	}
	p := d.Pod
	name := p.Namespace + "/" + p.Name
	if p.Namespace == namespace {
		if p.Labels["app.kubernetes.io/managed-by"] == "" {
			w.broken("pod %s was deleted, which is not Ortet's", name)
		}
		w.judgeForced(d)
		return
	}
	w.mu.Lock()
	force, uncordoned := w.force, w.found[p.Spec.NodeName].uncordoned
	donors := map[string]bool{}
	for _, o := range w.processes {
		donors[w.nodeOf(o.ask.Node)] = true
	}
	w.mu.Unlock()
	owner := metav1.GetControllerOf(p)
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	n, _ := w.kube.Get("nodes", "", p.Spec.NodeName).(*corev1.Node)
	switch {
	case !donors[p.Spec.NodeName]:
		w.broken("pod %s was deleted on node %s, which is no donor", name, p.Spec.NodeName)
	case n != nil && !n.Spec.Unschedulable && !uncordoned:
		w.broken("pod %s was deleted on a node that is schedulable", name)
	case mirror, owner != nil && owner.Kind == "DaemonSet":
		w.broken("pod %s of a DaemonSet or a static pod's mirror was deleted", name)
	case !d.Eviction && !force:
		w.broken("pod %s was deleted, not evicted, without --force-drain", name)
	case !d.Eviction && owner != nil && !w.patient():
		w.broken("pod %s was deleted before the drain had the time to evict it", name)
	case owner == nil && !force:
		w.broken("pod %s, which nothing would create again, was deleted without --force-drain", name)
	}
}

// judgeForced: a pod of Ortet's is taken away by force only where no kubelet ends it,
// since its command may have the disk in its hands.
func (w *world) judgeForced(d kubesim.Deletion) {
	c := w.computerOf(d.Pod.Spec.NodeName)
	if !d.Gone || d.Grace > 0 || c == nil || !w.isOn(c) || len(w.happenedTo(scenario.Stale, scenario.StartInstance, scenario.RestartInstance)) > 0 {
		return
	}
	w.mu.Lock()
	works := w.begun[d.Pod.UID] && d.Pod.Status.Phase == corev1.PodRunning
	w.mu.Unlock()
	if works {
		w.broken("pod %s is taken away by force while %s runs", d.Pod.Name, d.Pod.Spec.NodeName)
	}
}

// judgeRequest looks at what a process is about to change in Azure.
func (w *world) judgeRequest(p *process, r *http.Request) {
	if r.Method == http.MethodGet || strings.HasSuffix(strings.ToLower(r.URL.Path), "begingetaccess") {
		return
	}
	p.mu.Lock()
	p.changes++
	p.mu.Unlock()
	id := fleet.ResourceID(r.URL.Path)
	if r.Context().Value(underWay{}) == nil {
		w.judgeHold(p, id.Name())
	}
	w.judgeAzure(p, r)
	switch {
	case r.Method == http.MethodDelete && strings.Contains(low(id), "/versions/"):
		w.mu.Lock()
		theirs := w.othersGone[low(id)]
		w.mu.Unlock()
		// One that others deleted under the model, and whose making anew failed, has
		// to go before it can be made once more.
		anew := theirs && w.stateOf(id) == prototype.Failed
		if by := w.references(id); by != "" && !anew {
			w.broken("%s deletes image version %s, which %s refers to", p.name, id.Name(), by)
		}
		w.judgePruning(p, id)
	case r.Method == http.MethodPut && strings.Contains(low(id), "/versions/"):
		w.judgeOutcome(p, id)
	case r.Method == http.MethodPatch && id.Equal(w.pool):
		w.judgeModel(p, r)
	case r.Method == http.MethodPost && (strings.EqualFold(id.Name(), "poweroff") || strings.EqualFold(id.Name(), "deallocate")):
		w.judgeStop(p, id[:strings.LastIndex(string(id), "/")])
	}
	if tags, there := w.tagsOf(id); there && tags[fleet.TagCapture] == nil && (r.Method == http.MethodDelete || r.Method == http.MethodPut) {
		w.broken("%s changes %s, which Ortet did not make", p.name, id.Name())
	}
	if parts := strings.Split(strings.ToLower(string(id)), "/"); r.Method == http.MethodDelete &&
		!slices.Contains([]string{"snapshots", "disks", "versions", "extensions"}, parts[len(parts)-2]) {
		w.broken("%s deletes %s, which no capture does", p.name, id.Name())
	}
}

// judgeModel: what is set of the model is set on the condition that nobody else
// changed it since it was read, and what others set of the capacity is not lowered.
func (w *world) judgeModel(p *process, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var patch struct {
		SKU *struct {
			Capacity *int64 `json:"capacity"`
		} `json:"sku"`
		Properties struct {
			VirtualMachineProfile json.RawMessage `json:"virtualMachineProfile"`
		} `json:"properties"`
	}
	if err != nil || json.Unmarshal(body, &patch) != nil {
		return
	}
	match := r.Header.Get("If-Match")
	if match == "" || match == "*" {
		w.broken("%s changes the pool without a condition: %s", p.name, body)
	}
	w.mu.Lock()
	before := w.pointed0.image
	w.mu.Unlock()
	if profile := strings.ToLower(string(patch.Properties.VirtualMachineProfile)); profile != "" && !strings.Contains(profile, strings.Trim(before, "{}")) {
		w.judgeOutcome(p, w.pool)
	}
	if patch.SKU == nil || patch.SKU.Capacity == nil {
		return
	}
	w.judgeGrowth(p, *patch.SKU.Capacity)
	w.azure.View(func(v *azsim.View) {
		set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
		if ok && set.Etag != nil && match != *set.Etag {
			return // refused, since others were quicker
		}
		if ok && set.SKU != nil && set.SKU.Capacity != nil && *set.SKU.Capacity > *patch.SKU.Capacity {
			w.broken("%s lowers the pool's capacity from %d to %d", p.name, *set.SKU.Capacity, *patch.SKU.Capacity)
		}
	})
}
