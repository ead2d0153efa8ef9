package play

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// modelOf is what of a scale set no capture changes: all but the image, the
// extensions that bootstrap a node, customData and the capacity.
func modelOf(set *armcompute.VirtualMachineScaleSet) (rest, customData string) {
	text, err := json.Marshal(set)
	if err != nil {
		return err.Error(), ""
	}
	var own armcompute.VirtualMachineScaleSet
	if err := json.Unmarshal(text, &own); err != nil || own.Properties == nil || own.Properties.VirtualMachineProfile == nil {
		return string(text), ""
	}
	own.Etag, own.Properties.ProvisioningState = nil, nil
	if own.SKU != nil {
		own.SKU.Capacity = nil
	}
	profile := own.Properties.VirtualMachineProfile
	if profile.StorageProfile != nil {
		profile.StorageProfile.ImageReference = nil
	}
	if profile.OSProfile != nil && profile.OSProfile.CustomData != nil {
		customData = *profile.OSProfile.CustomData
		profile.OSProfile.CustomData = nil
	}
	if profile.ExtensionProfile != nil {
		profile.ExtensionProfile.Extensions = slices.DeleteFunc(profile.ExtensionProfile.Extensions, goes)
	}
	text, err = json.Marshal(own)
	if err != nil {
		return err.Error(), customData
	}
	return string(text), customData
}

// goes reports whether an extension goes with a capture.
func goes(e *armcompute.VirtualMachineScaleSetExtension) bool {
	return e.Properties != nil && e.Properties.Type != nil && *e.Properties.Type == "CustomScript"
}

// modelNow is modelOf as the world has it, with the capacity.
func (w *world) modelNow() (rest, customData string, capacity int64) {
	w.azure.View(func(v *azsim.View) {
		if set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet); ok {
			rest, customData = modelOf(set)
			if set.SKU != nil && set.SKU.Capacity != nil {
				capacity = *set.SKU.Capacity
			}
		}
	})
	return rest, customData, capacity
}

// hurtModel says what of the pool's model is not as others have it.
func (w *world) hurtModel() (all []lack) {
	rest, customData, _ := w.modelNow()
	if rest != w.model0 {
		all = append(all, lack{name: poolName, what: fmt.Sprintf("otherwise than others set it: %s, and was %s", rest, w.model0)})
	}
	baked := false
	for _, a := range w.story.Asks {
		baked = baked || a.Bake
	}
	was := base64.StdEncoding.EncodeToString([]byte(firstCustomData))
	noop := base64.StdEncoding.EncodeToString([]byte(prototype.NoopCustomData))
	if customData != was && (!baked || customData != noop) && !w.story.Pool.CustomData {
		all = append(all, lack{name: poolName, what: fmt.Sprintf("with the customData %q", customData)})
	}
	// A version's nodes need the customData that it was tagged with.
	// Where others deleted a version, nobody can read what it went with, and so what
	// the model has.
	w.mu.Lock()
	anew := false
	for id := range w.othersGone {
		anew = anew || strings.Contains(id, "/versions/")
	}
	w.mu.Unlock()
	if tags, there := w.tagsOf(w.model()); there && tags[fleet.TagCustomData] != nil && (!anew || *tags[fleet.TagCustomData] == noopSum()) {
		text, _ := base64.StdEncoding.DecodeString(customData)
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != *tags[fleet.TagCustomData] {
			all = append(all, lack{name: poolName, what: fmt.Sprintf("with the customData %q, which %s does not go with", text, w.model().Name())})
		}
	}
	return all
}

// noopSum is how a version is tagged whose nodes need no customData.
func noopSum() string {
	sum := sha256.Sum256([]byte(prototype.NoopCustomData))
	return hex.EncodeToString(sum[:])
}

// drainFor is how long a drain evicts before it deletes by force.
const drainFor = 15 * time.Minute

// patient reports whether a process is at work for as long as a drain evicts.
func (w *world) patient() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.ended && time.Since(p.began) >= drainFor
	})
}

// judgeStop: before a donor is stopped, the pods on it are gone.
func (w *world) judgeStop(p *process, instance fleet.ResourceID) {
	w.mu.Lock()
	c := w.computers[low(instance)]
	node := ""
	running := false
	if c != nil {
		node, running = strings.ToLower(c.HostName), c.running
	}
	theirs := w.found[node].uncordoned
	w.mu.Unlock()
	if node != "" && node != w.nodeOf(p.ask.Node) && !w.unfinished(p) {
		w.broken("%s stops %s, which is no donor of its", p.name, node)
	}
	// A Node that is made anew is not cordoned, and pods may come to it.
	anew := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool { return e.What == scenario.NodeGone })
	// Nor is one looked for that was not there in the last answer.
	late := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		return e.What == scenario.Stale && strings.HasPrefix(e.Request, "GET") && strings.Contains(e.Request, "pods")
	})
	if !running || theirs || anew || late {
		return
	}
	w.kube.Each("pods", func(o runtime.Object) bool {
		pod := o.(*corev1.Pod)
		owner := metav1.GetControllerOf(pod)
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		// One of which the API server said that it is gone is believed to be, as by
		// kubectl drain.
		denied := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
			return e.What == scenario.Error && len(e.Args) > 0 && e.Args[0] == "404" && e.Request == "GET "+pod.Namespace+"/pods/"+pod.Name
		})
		if pod.Spec.NodeName == node && pod.Namespace == work && !mirror && !denied && (owner == nil || owner.Kind != "DaemonSet") {
			w.broken("%s stops %s while pod %s is on it", p.name, node, pod.Name)
		}
		return true
	})
}

// checkLost: a donor that did not come back is cordoned, and unprotected as far
// as Azure lets it.
func (w *world) checkLost(p *process) {
	text := p.err.Error()
	if !strings.Contains(text, "did not come back") {
		return
	}
	node := w.nodeOf(p.ask.Node)
	w.mu.Lock()
	f := w.found[node]
	w.mu.Unlock()
	n, ok := w.kube.Get("nodes", "", node).(*corev1.Node)
	if !ok || !strings.Contains(text, "node "+node+" did not come back") {
		return
	}
	c := w.computerOf(node)
	if c == nil {
		return
	}
	w.mu.Lock()
	running := c.running
	w.mu.Unlock()
	if !n.Spec.Unschedulable && !f.uncordoned && !f.either && !running {
		w.broken("%s ends with exit 4, and %s, which did not come back, is not cordoned: %v", p.name, node, p.err)
	}
	// Where nothing was wrong but its power, and Azure is not at work on it, nothing
	// kept it from being unprotected.
	only := !slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		outage := e.What == scenario.AzureOutage || e.What == scenario.KubeOutage || e.What == scenario.ExpireLogin
		return outage || !slices.Contains([]string{"start", "poweroff", "deallocate"}, path.Base(e.Request))
	})
	w.azure.View(func(v *azsim.View) { only = only && !v.Running(c.ResourceID) })
	for _, l := range w.hurt() {
		if l.name == node && strings.HasPrefix(l.what, "protected") && (only || !strings.Contains(text, "still protected")) {
			w.broken("%s ends with exit 4, and %s, which did not come back, is %s: %v", p.name, node, l.what, p.err)
		}
	}
}

// record is what the journal of the pool says, as it is kept.
func (w *world) record() (rec journal.Record, ok bool) {
	secret, there := w.kube.Get("secrets", namespace, kube.JournalName(low(w.pool))).(*corev1.Secret)
	if !there {
		return rec, false
	}
	rec, err := journal.Decode(low(w.pool), secret.Data["record"])
	return rec, err == nil
}

// judgeGrowth: no capture adds more nodes than it was asked for, however often it
// is taken up again.
func (w *world) judgeGrowth(p *process, to int64) {
	rec, ok := w.record()
	if !ok {
		w.broken("%s sets the capacity, and has no record in the journal", p.name)
		return
	}
	w.mu.Lock()
	w.grown[rec.Capture] = begunWith(rec)
	most := w.capacity0 + w.scaledOut
	for _, n := range w.grown {
		most += n
	}
	w.mu.Unlock()
	if to > most {
		w.broken("%s sets the capacity to %d, and %d is all that was asked for", p.name, to, most)
	}
}

// checkGrown: a capture that is done has asked for its nodes, unless others
// changed their number meanwhile.
func (w *world) checkGrown(p *process) {
	theirs := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		return e.What == scenario.ScaleOut || e.What == scenario.ScaleIn || e.What == scenario.DeleteInstance
	})
	rec, ok := w.record()
	if !ok {
		return // checkClosed says so
	}
	w.mu.Lock()
	_, grown := w.grown[p.capture.Capture]
	w.mu.Unlock()
	n := int64(p.ask.NewNodes)
	if p.capture.Resumed {
		n = begunWith(rec)
	}
	anothers := rec.Capture != p.capture.Capture // who went on after this one was suspended
	if n > 0 && !grown && !theirs && !anothers {
		w.broken("%s reports that it is done, and never asked for %d new nodes", p.name, n)
	}
}

// begunWith is how many nodes the capture on record adds: as many as who began it
// asked for, who may be another than who finishes it.
func begunWith(rec journal.Record) int64 {
	var asked struct{ NewNodes int64 }
	if json.Unmarshal(rec.Request, &asked) != nil {
		return 0
	}
	return asked.NewNodes
}

// checkClosed: what has come to an end is not open in the journal.
func (w *world) checkClosed(p *process) {
	if rec, ok := w.record(); ok && rec.Ended == nil {
		w.broken("%s ended with exit %d, and %s %s is open in the journal: %v", p.name, engine.ExitCode(p.err), rec.Kind, rec.Capture, p.err)
	}
}

// usualHistory is how many versions are kept where nobody says.
const usualHistory = 3

// judgePruning: as many versions are left as are to be kept. The newest goes where
// the capture that made it failed after all.
func (w *world) judgePruning(p *process, id fleet.ResourceID) {
	if w.stateOf(id) != prototype.Succeeded || w.newestVersion().Equal(id) {
		return
	}
	least := usualHistory
	for _, a := range w.story.Asks {
		if a.Verb == scenario.Capture && a.History > 0 {
			least = min(least, a.History)
		}
	}
	left := 0
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(other string, _ any) {
			if !id.Equal(fleet.ResourceID(other)) {
				left++
			}
		})
	})
	w.mu.Lock()
	theirs := len(w.othersGone) > 0
	w.mu.Unlock()
	if left < least && !theirs {
		w.broken("%s prunes version %s, after which %d are left and %d are to be kept", p.name, id.Name(), left, least)
	}
}

// onlyInterrupted reports whether nothing happened but that operators pressed Ctrl-C.
func (w *world) onlyInterrupted() bool {
	return !slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool { return e.What != scenario.Interrupt })
}

// checkInterrupted: where nothing else is in the way, one who is interrupted gives
// back the donor first, and leaves nothing at the workbench.
func (w *world) checkInterrupted(p *process) {
	if !w.onlyInterrupted() || w.unfinished(p) || !p.wasInterrupted() {
		return
	}
	w.whole(p)
	for _, l := range w.litter(p) {
		// Those are for the next who goes on, who takes them away or uses them.
		if l.what != "a temporary resource" && l.what != "a half-made version" {
			w.broken("%s was interrupted, and %s is left: %s; it says: %v", p.name, l.name, l.what, p.err)
		}
	}
}
