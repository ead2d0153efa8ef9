package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// The invariants, by number. One excuse holds for all: a neighbour changed this very
// object (world.touched).
//
//	 1  the donor is as it was found: cordon, annotations, Machine, protection, power
//	 2  so is the workbench
//	 3  no other node or instance changed
//	 4  the model uses a version that succeeded; exit 0: the reported one; exit 1 or 3: the one from before
//	 5  a version is of a disk that was copied while stopped and generalised wholly; its customData tag is what clones get
//	 6  no version in use is gone, no complete one replaced, and the history is kept
//	 7  nothing is left, or exit 4 names it
//	 8  the capacity is what there was, and what was asked for
//	 9  exit codes are true
//	10  once calm, the same command ends with 0 within a day; a fault that passes is no exit 1
//	11  the journal is closed at exit 0 and 1; no process writes while another locks the pool
//	12  at no time: a donor stopped with pods to evict, or uncordoned before it is Ready; a copy attached to an
//	    unprotected workbench or without kured's lock; another's kured lock replaced; the donor's disk attached elsewhere
//	13  model, extensions and capacity change while the set is at rest, for 20 minutes
//	14  a rollback to the original restores its extensions, or exit 4 names those that are lost

// A lack is something that is not as it has to be at a process's end.
type lack struct {
	invariant  int
	name, what string
	also       string // another name of it
}

// beginAsk notes how everything is before an ask.
func (w *world) beginAsk() {
	versions, image := w.versions(), low(w.modelNow().image)
	toLatest := image == low(w.names.Definition)
	for id, v := range versions {
		own := *v
		own.Tags = maps.Clone(v.Tags) // azsim changes them in place
		versions[id] = &own
		if profile := v.Properties.PublishingProfile; toLatest && id > image && (profile.ExcludeFromLatest == nil || !*profile.ExcludeFromLatest) {
			image = id // the version that such a model uses
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.imageBefore = versions, image
}

// checkEnd compares a process's exit code with what Azure and the cluster show.
func (w *world) checkEnd(p *process) {
	code, text := p.code(), fmt.Sprint(p.err)
	w.mu.Lock()
	earlier := w.open // a process that left its work open
	w.open = code == workflow.ExitNeedsPerson || code == workflow.ExitInterrupted || earlier && code == workflow.ExitRefused
	w.mu.Unlock()
	p.mu.Lock()
	changes, interrupted := p.changes, p.interrupted
	p.mu.Unlock()
	if interrupted && code == workflow.ExitFailed {
		w.broken(9, "%s was interrupted, and ends with exit 1: %s", p.name, text)
	}
	lacks := append(w.nodeLacks(p), w.leftovers(p)...)
	model := w.modelNow()
	w.checkModel(p, model)
	w.checkOrigin(p, model)
	w.checkRollback(p, model)
	w.checkOriginal(p)
	w.checkTags(p)
	w.checkVersions(p, model)
	if code == workflow.ExitFailed && w.story.Cannot == "" && w.onlyPassing() {
		w.broken(10, "%s ends with exit 1 although what it met passes: %s", p.name, text)
	}
	switch code {
	case workflow.ExitDone, workflow.ExitFailed:
		for _, l := range lacks {
			w.broken(l.invariant, "%s ends with exit %d, and %s %s: %s", p.name, code, l.name, l.what, text)
		}
		if j := w.journal(); j != nil && j.Ended == nil {
			w.broken(11, "%s ends with exit %d, and %s is open in the journal", p.name, code, j.Name)
		}
	case workflow.ExitRefused:
		if !earlier && changes > 0 {
			w.broken(9, "%s is refused, and changed something %d times: %s", p.name, changes, text)
		}
		for _, l := range lacks {
			if !earlier {
				w.broken(l.invariant, "%s is refused, and %s %s: %s", p.name, l.name, l.what, text)
			}
		}
	case workflow.ExitNeedsPerson:
		for _, l := range lacks {
			if !strings.Contains(text, l.name) && (l.also == "" || !strings.Contains(text, l.also)) {
				w.broken(l.invariant, "%s ends with exit 4, which does not name %s (%s): %s", p.name, l.name, l.what, text)
			}
		}
	case workflow.ExitInterrupted:
		rival := slices.ContainsFunc(w.story.Happen, func(e Event) bool { return strings.Contains(e.What, "another ortet") })
		if !earlier && !interrupted && !rival && !strings.Contains(text, "preflight") {
			w.broken(9, "%s ends with exit 5, and was not interrupted: %s", p.name, text)
		}
		for _, l := range lacks {
			if l.invariant == 1 && (strings.Contains(text, "is in service as it was found") || interrupted && w.happened == 1) {
				w.broken(1, "%s is interrupted, and %s %s: %s", p.name, l.name, l.what, text)
			}
		}
	}
	if code == workflow.ExitDone {
		w.mu.Lock()
		w.model = model
		w.capacity = model.capacity
		w.mu.Unlock()
	}
}

// onlyPassing reports whether something happened, and all of it faults after which a
// request is repeated with success.
func (w *world) onlyPassing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	passing := []string{"throttled", "conflict", "changed meanwhile", "server error", "server error after the effect", "lost answer", "proxy page", "slow",
		"not found yet", "deletion without effect", "list still has it"}
	return w.happened == 1 && len(w.story.Happen) == 1 && slices.Contains(passing, w.story.Happen[0].What)
}

// nodeLacks lists what of nodes and instances is not as others have it.
func (w *world) nodeLacks(p *process) (all []lack) {
	w.mu.Lock()
	names := slices.Sorted(maps.Keys(w.nodes))
	w.mu.Unlock()
	for _, name := range names {
		if w.isTouched(name) {
			continue
		}
		invariant := 3
		switch {
		case name == nodeName(p.ask.Node) && p.ask.Do == "capture":
			invariant = 1
		case w.wasWorkbench(name):
			invariant = 2
		}
		c := w.computerOf(name)
		if c == nil || w.kube.Node(name) == nil {
			all = append(all, lack{invariant, name, "is gone", ""})
			continue
		}
		w.mu.Lock()
		was := w.nodes[name]
		w.mu.Unlock()
		add := func(format string, args ...any) {
			all = append(all, lack{invariant, name, fmt.Sprintf(format, args...), c.ResourceID})
		}
		now := w.stateOf(name)
		if now.unschedulable != was.unschedulable {
			add("has unschedulable=%t", now.unschedulable)
		}
		if !maps.Equal(now.annotations, was.annotations) {
			add("is annotated %v, and was %v", now.annotations, was.annotations)
		}
		if !maps.Equal(now.machine, was.machine) {
			add("has a Machine annotated %v, and had %v", now.machine, was.machine)
		}
		if now.scaleIn != was.scaleIn || now.actions != was.actions {
			add("is protected from scale-in=%t and actions=%t", now.scaleIn, now.actions)
		}
		if !w.isOn(c, 0) {
			add("is off")
		}
	}
	return all
}

func (w *world) wasWorkbench(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.workbenches[name]
}

// leftovers lists what a capture makes for the time of its work, and is there.
func (w *world) leftovers(p *process) (all []lack) {
	w.azure.View(func(v *azsim.View) {
		add := func(id string, tags map[string]*string) {
			// What an earlier capture left is deleted by the next that succeeds.
			if of := tags[fleet.TagCapture]; of != nil && (*of != w.earlier || p.code() == workflow.ExitDone) {
				all = append(all, lack{7, fleet.ResourceID(id).Name(), "is left", ""})
			}
		}
		v.Each("Microsoft.Compute/snapshots", func(id string, body any) { add(id, body.(*armcompute.Snapshot).Tags) })
		v.Each("Microsoft.Compute/disks", func(id string, body any) { add(id, body.(*armcompute.Disk).Tags) })
	})
	for id, version := range w.versions() {
		if s := stateOf(version); s == "Failed" || s == "Creating" {
			all = append(all, lack{7, fleet.ResourceID(id).Name(), "is a version in state " + s, ""})
		}
	}
	if c := w.workbench(); c != nil {
		all = append(all, lack{7, c.node(), "has a copy attached", c.ResourceID})
	}
	w.kube.Peek("pods", func(o runtime.Object) bool {
		if pod := o.(*corev1.Pod); pod.Namespace == namespace && pod.DeletionTimestamp == nil {
			all = append(all, lack{7, pod.Name, "is left", ""})
		}
		return true
	})
	// One that the API server is away for runs out by itself.
	if holder, lease := w.holder(); !w.isDown("kube") && strings.HasPrefix(holder, p.name+"/") {
		all = append(all, lack{7, lease, "is a Lease that is still locked", ""})
	}
	if d := w.kube.DaemonSet("kube-system", "kured"); d != nil && strings.Contains(d.Annotations[kuredLock], "ortet/") {
		all = append(all, lack{7, "kured", "is locked", ""})
	}
	return all
}

func stateOf(v *armcompute.GalleryImageVersion) string {
	if v.Properties == nil || v.Properties.ProvisioningState == nil {
		return ""
	}
	return string(*v.Properties.ProvisioningState)
}

// holder is the process that locks the pool, "" for none.
func (w *world) holder() (holder, lease string) {
	w.kube.Peek("leases", func(o runtime.Object) bool {
		l, _ := o.(*coordinationv1.Lease)
		if l != nil && l.Namespace == namespace && l.Spec.HolderIdentity != nil && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil &&
			time.Now().Before(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second)) {
			holder, lease = *l.Spec.HolderIdentity, l.Name
		}
		return true
	})
	return holder, lease
}

func (w *world) checkModel(p *process, now model) {
	w.mu.Lock()
	was, capacity := w.model, w.capacity
	w.mu.Unlock()
	code, text := p.code(), fmt.Sprint(p.err)
	if now.rest != was.rest {
		w.broken(4, "%s changed what of the model is not its own: %s, and was %s", p.name, now.rest, was.rest)
	}
	same := strings.EqualFold(now.image, was.image) && now.customData == was.customData && slices.Equal(now.extensions, was.extensions)
	nothing := p.capture.NothingToDo || p.rollback.NothingToDo
	touched := w.isTouched("model")
	switch {
	case touched && code == workflow.ExitFailed && !strings.EqualFold(now.image, was.image):
		w.broken(4, "%s ends with exit 1, and the model has %s, and others chose %s: %s", p.name, now.image, was.image, text)
	case touched:
	case code == workflow.ExitFailed && !same:
		w.broken(4, "%s ends with exit 1, and the model has %s, %v, and had %s, %v: %s", p.name, now.image, now.extensions, was.image, was.extensions, text)
	case code == workflow.ExitDone:
		version := p.capture.Version
		if p.ask.Do == "rollback" {
			version = p.rollback.To
		}
		if p.rollback.Original == nil && !fleet.ResourceID(now.image).Equal(version) && !strings.EqualFold(now.image, string(w.names.Definition)) {
			w.broken(4, "%s reports %s, and the model uses %s", p.name, version, now.image)
		}
		if p.ask.Do == "capture" && !p.ask.KeepExtensions && slices.Contains(now.extensions, "vmssCSE") {
			w.broken(4, "%s ends with exit 0, and vmssCSE is in the model", p.name)
		}
	}
	grown := capacity
	if code == workflow.ExitDone && p.ask.Do == "capture" {
		grown += p.ask.Grow
	}
	// Where neighbours delete instances while it grows, they may race; where they deleted the
	// model's version, no instance can be made.
	raced := now.capacity > grown && w.isTouched("capacity") || now.capacity < grown && w.anyTouched("/versions/")
	if now.capacity != grown && !raced && !(nothing && now.capacity == capacity) && (code == workflow.ExitDone || code == workflow.ExitFailed) {
		w.broken(8, "%s ends with exit %d and capacity %d, expected %d", p.name, code, now.capacity, grown)
	}
}

// checkOrigin: what a command reports is what it was asked for.
func (w *world) checkOrigin(p *process, now model) {
	version := w.versions()[low(now.image)]
	if p.code() != workflow.ExitDone || version == nil || w.isTouched("model", now.image) {
		return
	}
	if was := w.before[low(now.image)]; was != nil {
		if was.Tags[fleet.TagRolledBack] != nil && p.ask.To == "" {
			w.broken(4, "%s ended, and the model uses %s, which was rolled back before", p.name, now.image)
		}
		return
	}
	w.mu.Lock()
	d := w.disks[azsim.Volume(low(now.image))]
	w.mu.Unlock()
	if donor := nodeName(p.ask.Node); p.ask.Do == "capture" && !p.capture.NothingToDo && d != nil && d.of != donor {
		w.broken(5, "%s captured %s, and version %s is of the disk of %q", p.name, donor, now.image, d.of)
	}
}

// checkTags: a version keeps its tags, but for those that a rollback sets and removes.
func (w *world) checkTags(p *process) {
	versions := w.versions()
	for id, was := range w.before {
		now := versions[id]
		for tag := range was.Tags {
			if now != nil && now.Tags[tag] == nil && tag != fleet.TagRolledBack && !w.isTouched(id) {
				w.broken(6, "%s removed tag %s of version %s", p.name, tag, id)
			}
		}
	}
}

// checkVersions: the model's version succeeded, and none is gone that is in use or of the history.
func (w *world) checkVersions(p *process, now model) {
	versions := w.versions()
	if strings.Contains(low(now.image), "/versions/") && !w.isTouched(now.image) {
		v := versions[low(now.image)]
		if v == nil || stateOf(v) != prototype.Succeeded && stateOf(v) != "Updating" {
			w.broken(4, "%s ended, and the model uses %s, which is no version that succeeded", p.name, now.image)
		} else if p.code() == workflow.ExitDone && v.Tags[fleet.TagRolledBack] != nil && !w.isTouched("model") {
			w.broken(4, "%s ended, and the model uses %s, which is tagged as rolled back", p.name, now.image)
		} else if sum := sha256.Sum256([]byte(now.customData)); v.Tags[fleet.TagCustomData] != nil && hex.EncodeToString(sum[:]) != *v.Tags[fleet.TagCustomData] && !w.isTouched("model") {
			w.broken(5, "%s ended, and the model has customData %q, which is not that of its version's tag", p.name, now.customData)
		}
	}
	succeeded, good := 0, 0
	for _, v := range versions {
		if stateOf(v) == prototype.Succeeded {
			succeeded++
			if v.Tags[fleet.TagRolledBack] == nil {
				good++
			}
		}
	}
	history := 3
	if p.ask.History > 0 {
		history = p.ask.History
	}
	for id, was := range w.before {
		if w.isTouched(id) {
			continue
		}
		if now := versions[id]; now != nil {
			if stateOf(was) == prototype.Succeeded && !reflect.DeepEqual(was.Tags[fleet.TagCapture], now.Tags[fleet.TagCapture]) {
				w.broken(6, "%s replaced version %s, which was complete", p.name, id)
			}
			continue
		}
		if good < 2 && !w.anyTouched("/versions/") {
			w.broken(6, "%s pruned %s, and %d versions are left that were not rolled back from", p.name, id, good)
		}
		if succeeded < history && !w.anyTouched("/versions/") {
			w.broken(6, "%s pruned %s, and %d versions are left", p.name, id, succeeded)
		}
		w.azure.View(func(v *azsim.View) {
			v.Each(memberType, func(member string, _ any) {
				if i, ok := v.Instance(member); ok && strings.EqualFold(i.Image, id) {
					w.violations = append(w.violations, fmt.Sprintf("invariant 6: %s deleted %s, which %s uses", p.name, id, member))
				}
			})
		})
	}
}

func (w *world) anyTouched(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.touched {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// checkOver looks once more when everything has ended.
func (w *world) checkOver() {
	if len(w.processes) == 0 {
		return
	}
	p := w.processes[len(w.processes)-1]
	if c := p.code(); c == workflow.ExitDone || c == workflow.ExitFailed {
		for _, l := range append(w.nodeLacks(p), w.leftovers(p)...) {
			w.broken(l.invariant, "an hour after the end %s %s", l.name, l.what)
		}
	}
}
