package play

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// found is a node as others have it: what has to be there in the end.
type found struct {
	unschedulable bool
	either        bool // others cordoned or uncordoned it while we had it cordoned
	uncordoned    bool // by others, at any time
	annotations   map[string]string
	protection    fleet.Protection
	skip          string // its Machine's skip-remediation
}

// remember looks how everything is before anything is asked.
func (w *world) remember() {
	for _, name := range w.nodeNames() {
		n := w.kube.Get("nodes", "", name).(*corev1.Node)
		f := found{unschedulable: n.Spec.Unschedulable, annotations: maps.Clone(n.Annotations)}
		if c := w.computerOf(name); c != nil {
			f.protection = w.protectionOf(fleet.ResourceID(c.ResourceID))
		}
		w.found[name] = f
	}
	donor := w.found[w.nodeOf(0)]
	if w.story.Donor.Skip && w.story.Pool.Machines {
		donor.skip = "true"
	}
	w.found[w.nodeOf(0)] = donor
	w.model0, _, w.capacity0 = w.modelNow()
	w.setModel0()
	w.original = w.pointed0
}

func (w *world) setAsk(a scenario.Ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.force = a.Force
}

// checkModel: the model always points at an image that exists and succeeded.
func (w *world) checkModel() {
	id := w.model()
	if id == "" {
		return
	}
	w.mu.Lock()
	theirs := w.othersGone[low(id)]
	w.mu.Unlock()
	if state := w.stateOf(id); state != prototype.Succeeded && state != "Updating" && !theirs {
		w.broken("the model uses image version %s, which is %q", id.Name(), state)
	}
}

// busy reports whether another process is at work.
func (w *world) busy(but *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p == but {
			continue
		}
		p.mu.Lock()
		at := !p.ended && !p.cut
		p.mu.Unlock()
		if at {
			return true
		}
	}
	return false
}

// outlived reports whether another process began and died between the end of a process's
// record and its own: it was suspended there, and what is left is the other's. So it is
// where this one was interrupted, and was suspended once it had given its hold back.
func (w *world) outlived(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recorded.Ended != nil || p.owns(w.recorded.Facts.Writer) {
		return false
	}
	p.mu.Lock()
	at := p.interruptedAt
	p.mu.Unlock()
	return slices.ContainsFunc(w.closers, p.owns) || !at.IsZero() && slices.ContainsFunc(w.processes, func(other *process) bool {
		return other != p && other.owns(w.recorded.Facts.Writer) && other.began.After(at)
	})
}

// unfinished reports whether an earlier process left something open.
func (w *world) unfinished(but *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p != but && (p.isCut() || p.wasInterrupted() || engine.ExitCode(p.err) == engine.ExitNeedsPerson || engine.ExitCode(p.err) == engine.ExitInterrupted) {
			return true
		}
	}
	return false
}

// checkEnd looks at the world when a process has ended: what it says has to be
// what the world shows.
func (w *world) checkEnd(p *process) {
	w.checkVolumes(p)
	code := engine.ExitCode(p.err)
	w.mu.Lock()
	switch code {
	case engine.ExitRefused:
		w.stats.Refused++
	case engine.ExitFailed:
		w.stats.GaveBack++
	case engine.ExitNeedsPerson:
		w.stats.Person++
	}
	w.mu.Unlock()
	if w.busy(p) || w.outlived(p) {
		return
	}
	w.checkUnchanged(p)
	w.checkRefusal(p)
	w.checkCtrlC(p)
	w.checkDenied(p)
	w.checkFailureTold(p)
	w.checkKeyGone(p)
	switch code {
	case engine.ExitDone:
		w.checkDone(p)
		w.checkVersions(p)
		w.checkReturn(p)
		w.checkEvents(p)
		w.checkLostBench(p)
		w.checkClosed(p)
		w.whole(p)
		w.clean(p)
	case engine.ExitFailed:
		w.checkClosed(p)
		w.whole(p)
		w.clean(p)
	case engine.ExitRefused:
		p.mu.Lock()
		changes := p.changes
		p.mu.Unlock()
		if !w.unfinished(p) {
			if changes > 0 {
				w.broken("%s was refused, and changed something %d times: %v", p.name, changes, p.err)
			}
			w.whole(p)
			w.clean(p)
		}
	case engine.ExitNeedsPerson:
		w.checkLost(p)
		w.checkUses(p)
		for _, l := range append(w.hurt(), w.litter(p)...) {
			if !strings.Contains(p.err.Error(), l.name) && !(l.instance != "" && strings.Contains(p.err.Error(), l.instance)) {
				w.broken("%s ends with exit 4 and does not name %s (%s): %v", p.name, l.name, l.what, p.err)
			}
		}
	case engine.ExitInterrupted:
		if strings.Contains(p.err.Error(), "is in service as it was found") {
			w.whole(p)
		}
		w.checkInterrupted(p)
	}
}

// checkDone: what a success reports.
func (w *world) checkDone(p *process) {
	w.checkReported(p)
	if p.rollback.Original != nil {
		return
	}
	version := p.capture.Version
	if p.ask.Verb == scenario.Rollback {
		version = p.rollback.To
	}
	w.mu.Lock()
	theirs := w.othersGone[low(version)]
	w.mu.Unlock()
	if state := w.stateOf(version); state != prototype.Succeeded && state != "Updating" && !theirs {
		w.broken("%s reports version %s, which is %q", p.name, version.Name(), state)
	}
	p.mu.Lock()
	changes := p.changes
	p.mu.Unlock()
	nothing := p.capture.NothingToDo || p.rollback.NothingToDo
	if nothing && changes > 0 {
		w.broken("%s reports that there was nothing to do, and changed something %d times", p.name, changes)
	}
	for _, name := range p.capture.Pruned {
		if state := w.stateOf(w.names.Definition.Child("versions", name)); state != "" {
			w.broken("%s reports that version %s is pruned, and it is %s", p.name, name, state)
		}
	}
	if p.ask.Verb == scenario.Capture && !nothing {
		w.checkGrown(p)
		w.mu.Lock()
		w.stats.Captures++
		w.mu.Unlock()
	}
}

// A lack is something that is not as it has to be.
type lack struct {
	name, what string
	instance   string // that name is the node of, where that may be named instead
}

// whole: every node is as others have it.
func (w *world) whole(p *process) {
	for _, l := range w.hurt() {
		w.broken("%s ended with exit %d, and %s is %s; it says: %v", p.name, engine.ExitCode(p.err), l.name, l.what, p.err)
	}
}

// hurt lists what is not as others have it, of nodes and instances.
func (w *world) hurt() (all []lack) {
	for _, name := range w.nodeNames() {
		n, ok := w.kube.Get("nodes", "", name).(*corev1.Node)
		if !ok {
			continue
		}
		w.mu.Lock()
		f := w.found[name]
		w.mu.Unlock()
		if n.Spec.Unschedulable != f.unschedulable && !f.either {
			all = append(all, lack{name: name, what: fmt.Sprintf("unschedulable=%t, and was %t", n.Spec.Unschedulable, f.unschedulable)})
		}
		for k, v := range n.Annotations {
			if old, there := f.annotations[k]; (!there || old != v) && !strings.HasPrefix(k, "cluster.x-k8s.io/") {
				all = append(all, lack{name: name, what: fmt.Sprintf("annotated %s=%s", k, v)})
			}
		}
		for k := range f.annotations {
			if _, there := n.Annotations[k]; !there {
				all = append(all, lack{name: name, what: "without the annotation " + k + ", which others set"})
			}
		}
		if m, ok := w.kube.Get("machines", work, name).(*unstructured.Unstructured); ok {
			a := m.GetAnnotations()
			if a[fleet.AnnotationSkipRemediation] != f.skip || a[fleet.AnnotationCapture] != "" {
				all = append(all, lack{name: name, what: fmt.Sprintf("of a Machine annotated %v", a)})
			}
		}
	}
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/virtualMachineScaleSets/virtualMachines", func(id string, body any) {
			i, ok := body.(*armcompute.VirtualMachineScaleSetVM)
			if !ok || i.Properties == nil {
				return
			}
			w.mu.Lock()
			c := w.computers[strings.ToLower(id)]
			var f found
			node, running, touched := "", false, false
			if c != nil {
				node, running = strings.ToLower(c.HostName), c.running
				f, touched = w.found[node], w.touched[node]
			}
			w.mu.Unlock()
			if c == nil || v.Running(id) && touched {
				return
			}
			var p fleet.Protection
			if policy := i.Properties.ProtectionPolicy; policy != nil {
				p.ScaleIn = policy.ProtectFromScaleIn != nil && *policy.ProtectFromScaleIn
				p.ScaleSetActions = policy.ProtectFromScaleSetActions != nil && *policy.ProtectFromScaleSetActions
			}
			if p != f.protection {
				all = append(all, lack{name: node, what: fmt.Sprintf("protected as %+v, and was %+v", p, f.protection)})
			}
			if !running && !touched {
				all = append(all, lack{name: node, what: "stopped"})
			}
		})
	})
	return append(all, w.hurtModel()...)
}

// clean: nothing of ours is left.
func (w *world) clean(p *process) {
	for _, l := range w.litter(p) {
		w.broken("%s ended with exit %d, and %s is left: %s; it says: %v", p.name, engine.ExitCode(p.err), l.name, l.what, p.err)
	}
}

// litter lists what captures make for the time of their work, and is there.
func (w *world) litter(p *process) (all []lack) {
	w.azure.View(func(v *azsim.View) {
		temporary := func(id string, tags map[string]*string) {
			// What was left before is no fault of a capture that did not succeed.
			earlier := tags[fleet.TagCapture] != nil && *tags[fleet.TagCapture] == leftBy &&
				(p.err != nil || p.ask.Verb != scenario.Capture || p.capture.NothingToDo)
			if tags[fleet.TagCapture] != nil && !earlier {
				all = append(all, lack{name: fleet.ResourceID(id).Name(), what: "a temporary resource"})
			}
		}
		v.Each("Microsoft.Compute/snapshots", func(id string, body any) { temporary(id, body.(*armcompute.Snapshot).Tags) })
		v.Each("Microsoft.Compute/disks", func(id string, body any) { temporary(id, body.(*armcompute.Disk).Tags) })
	})
	// A version whose update failed was said to be whole, or its gallery is others' to delete.
	unknown := func(version string) bool {
		return slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
			return e.What == scenario.DeleteGallery || e.What == scenario.Stale && strings.HasSuffix(strings.ToLower(e.Request), "/versions/"+version)
		})
	}
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(id string, body any) {
			r, ok := body.(*armcompute.GalleryImageVersion)
			if ok && r.Properties != nil && r.Properties.ProvisioningState != nil && *r.Properties.ProvisioningState == armcompute.GalleryProvisioningStateFailed && !unknown(fleet.ResourceID(id).Name()) {
				all = append(all, lack{name: fleet.ResourceID(id).Name(), what: "a half-made version"})
			}
		})
	})
	w.mu.Lock()
	for _, c := range w.computers {
		if len(c.luns) > 0 {
			all = append(all, lack{name: strings.ToLower(c.HostName), what: "a disk is attached to it", instance: c.ResourceID})
		}
	}
	w.mu.Unlock()
	w.kube.Each("pods", func(o runtime.Object) bool {
		pod := o.(*corev1.Pod)
		// One that looked for a process which died, or which told that it could not
		// take it away, has ended by itself, and goes when a capture holds the pool next.
		looked := strings.HasSuffix(pod.Name, "-look") && (p.err != nil || p.ask.Verb == scenario.Rollback) && (w.unfinished(p) || w.named(pod.Name))
		if pod.Namespace == namespace && pod.DeletionTimestamp == nil && !looked && !names(p, pod.Name) {
			all = append(all, lack{name: pod.Name, what: "a pod of ours"})
		}
		return true
	})
	w.kube.Each("leases", func(o runtime.Object) bool {
		l := o.(*coordinationv1.Lease)
		if h := l.Spec.HolderIdentity; h != nil && strings.HasPrefix(*h, p.name+"/") && !w.kubeIsDown() && !w.runsOut() {
			all = append(all, lack{name: l.Name, what: "a Lease that is held by " + *h})
		}
		return true
	})
	if d, ok := w.kube.Get("daemonsets", "kube-system", "kured").(*appsv1.DaemonSet); ok {
		for k, v := range d.Annotations {
			if strings.Contains(v, "ortet/") {
				all = append(all, lack{name: "kured", what: "its lock " + k + "=" + v})
			}
		}
	}
	return all
}

// names reports whether a process told of a thing, beside its error.
func names(p *process, thing string) bool {
	return slices.ContainsFunc(p.capture.Notes, func(note string) bool { return strings.Contains(note, thing) })
}

// named reports whether any process did.
func (w *world) named(thing string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.ended && names(p, thing)
	})
}

// runsOut reports whether something kept a process from releasing its Lease,
// which then runs out by itself.
func (w *world) runsOut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool {
		return e.What == scenario.KubeOutage || e.Side == scenario.Kube && strings.Contains(e.Request, "/leases/")
	})
}

func (w *world) kubeIsDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, down := w.down[scenario.Kube]
	return down && time.Now().Before(o.until)
}

// checkOver looks when all is over, and all that went on has ended.
func (w *world) checkOver() {
	if len(w.processes) == 0 {
		return
	}
	p := w.processes[len(w.processes)-1]
	switch engine.ExitCode(p.err) {
	case engine.ExitDone, engine.ExitFailed:
		if p.isCut() {
			return
		}
		time.Sleep(time.Hour)
		w.whole(p)
		w.clean(p)
		w.checkModel()
		w.checkStays()
	}
}
