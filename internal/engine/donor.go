package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// The value of the annotations that keep autoscalers and health checks away.
const annotationYes = "true"

// donor reads the donor afresh.
func (t *task) donor(ctx context.Context) (fleet.Node, error) {
	return ask(ctx, t, func(ctx context.Context) (fleet.Node, error) { return t.r.e.cluster.Node(ctx, t.r.donorName()) })
}

func (r *run) donorName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Donor
}

func (t *task) instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	return surely(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, id) })
}

// protect keeps autoscalers, health checks and upgrades off the donor. What was
// there before is written down first; what others set already stays theirs.
func protect(ctx context.Context, t *task) error {
	r := t.r
	// Our marks are there for as long as the undo list has them.
	node, err := fresh(ctx, t, undoMark, t.donor, func(n fleet.Node) string { return n.Annotations[fleet.AnnotationCapture] })
	if err != nil {
		return err
	}
	f := r.get()
	if by := prototype.UsedBy(node, f.Pool); by != "" {
		return &fleet.Error{Op: "protect", Resource: "node " + node.Name, Kind: fleet.KindInvalid, Err: fmt.Errorf("a capture of %s uses it as its workbench", by)}
	}
	instance, err := t.instance(ctx, f.Instance)
	if err != nil {
		return err
	}
	hasMachine := false
	machine, err := fresh(ctx, t, undoMachine, func(ctx context.Context) (a map[string]string, err error) {
		a, hasMachine, err = t.machine(ctx, node)
		return a, err
	}, func(a map[string]string) string { return a[fleet.AnnotationCapture] })
	if err != nil {
		return err
	}
	capture := r.captureName()
	skip, skipped := machine[fleet.AnnotationSkipRemediation]
	ourMachine := machine[fleet.AnnotationCapture] == capture
	scaleDown, guarded := node.Annotations[fleet.AnnotationScaleDownDisabled]
	mark := node.Annotations[fleet.AnnotationCapture]
	full := fleet.Protection{ScaleIn: true, ScaleSetActions: true}
	ourMark := mark == capture
	err = r.write(func(rec *journal.Record, f *facts) {
		// As they are now, also where an earlier process began here: the donor may
		// have booted since, and from another disk, as Azure replaces it.
		if instance.OSDisk != "" {
			f.Disk = instance.OSDisk
		}
		if f.BootID == "" || !hasUndo(rec, undoStop) {
			f.BootID = node.BootID
		}
		f.meet(rec, node)
		addUndo(rec, undoMark, capture)
		// The mark is set together with the annotation: where the mark is ours,
		// so is the annotation, whatever it was before.
		if !ourMark && scaleDown != annotationYes {
			addUndo(rec, undoScaleDown, optional(scaleDown, guarded))
		}
		if instance.Protection != full {
			addUndo(rec, undoProtection, instance.Protection)
		}
		if hasMachine && !ourMachine {
			addUndo(rec, undoMachine, optional(skip, skipped))
			f.Machine = map[string]string{}
			for _, k := range []string{fleet.AnnotationCapiMachine, fleet.AnnotationCapiNamespace} {
				f.Machine[k] = node.Annotations[k]
			}
		}
	})
	if err != nil {
		return err
	}
	if hasMachine && skipped && !ourMachine {
		r.note("the Machine of %s had %s before, and still has", node.Name, fleet.AnnotationSkipRemediation)
	}
	if scaleDown == annotationYes && !ourMark {
		r.note("node %s had %s=true before, and still has", node.Name, fleet.AnnotationScaleDownDisabled)
	}
	yes := annotationYes
	if err := do(ctx, t, func(ctx context.Context) error {
		return r.e.cluster.Annotate(ctx, node.Name, map[string]*string{fleet.AnnotationCapture: &capture, fleet.AnnotationScaleDownDisabled: &yes})
	}); err != nil {
		return err
	}
	if hasMachine {
		if err := t.annotateMachine(ctx, node, &yes, &capture); err != nil {
			return err
		}
	}
	return t.setProtection(ctx, prototype.StepProtect, f.Instance, full)
}

// An earlier capture's mark is believed only when so many answers in a row show it.
const earlierMarks = 3

// fresh is ask for what bears a mark of this capture only while the undo list has the
// named entry: otherwise the answer is of before an earlier process undid that. An
// earlier capture's mark may be such an answer, too, or stayed since nobody undid it.
func fresh[T any](ctx context.Context, t *task, undo string, read func(ctx context.Context) (T, error), mark func(T) string) (T, error) {
	earlier := 0
	return ask(ctx, t, func(ctx context.Context) (T, error) {
		v, err := read(ctx)
		if err != nil {
			return v, err
		}
		_, there := t.r.undo(undo)
		old := !there && mark(v) == t.r.captureName()
		if mark(v) != "" && mark(v) != t.r.captureName() {
			earlier++
			old = earlier < earlierMarks
		}
		if old {
			err = &fleet.Error{Op: "protect", Resource: "node " + t.r.donorName(), Kind: fleet.KindTransient,
				Err: errors.New("the answer shows a mark that was removed")}
		}
		return v, err
	})
}

// optional is a value that may be missing.
func optional(value string, there bool) *string {
	if !there {
		return nil
	}
	return &value
}

// machine reads the annotations of the donor's Machine. That a Node which names one has
// none has been said twice.
func (t *task) machine(ctx context.Context, node fleet.Node) (annotations map[string]string, known bool, err error) {
	read := func(ctx context.Context) (a map[string]string, err error) {
		a, known, err = t.r.e.cluster.Machine(ctx, node)
		return a, err
	}
	annotations, err = ask(ctx, t, read)
	if err != nil || known || node.Annotations[fleet.AnnotationCapiMachine] == "" {
		return annotations, known, err
	}
	if err := t.wait(ctx, lookAgain, forOwn); err != nil {
		return nil, false, err
	}
	annotations, err = ask(ctx, t, read)
	return annotations, known, err
}

// annotateMachine sets or removes what keeps a MachineHealthCheck from replacing
// the donor while it is stopped, and our own mark beside it. That the Machine is not
// known any more is believed only where it cannot be read either.
func (t *task) annotateMachine(ctx context.Context, node fleet.Node, skip, mark *string) error {
	return do(ctx, t, func(ctx context.Context) error {
		_, known, err := t.r.e.cluster.AnnotateMachine(ctx, node, map[string]*string{
			fleet.AnnotationSkipRemediation: skip, fleet.AnnotationCapture: mark,
		})
		if err != nil || known {
			return err
		}
		if _, known, err = t.r.e.cluster.Machine(ctx, node); err != nil || !known {
			return err
		}
		return &fleet.Error{Op: "annotate machine", Resource: "the Machine of node " + node.Name, Kind: fleet.KindTransient,
			Err: errors.New("it is there, and was said not to be")}
	})
}

func (t *task) setProtection(ctx context.Context, key string, id fleet.ResourceID, want fleet.Protection) error {
	return t.change(ctx, key, fleet.ProtectInstance{Instance: id, Protection: want}, func(ctx context.Context) (bool, error) {
		i, err := surely(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, id) })
		return err == nil && i.Protection == want, err
	})
}

func cordon(ctx context.Context, t *task) error {
	// The Node is read at each try: between two it may be made anew.
	return do(ctx, t, func(ctx context.Context) error {
		node, err := t.r.e.cluster.Node(ctx, t.r.donorName())
		if err != nil {
			return err
		}
		f := t.r.get()
		_, ours := t.r.undo(undoCordon)
		if ours = ours && !f.madeAnew(node, t.r.captureName()); node.Unschedulable && !ours {
			t.r.note("node %s was cordoned before, and still is", node.Name)
			return needless("it is cordoned already, and stays so")
		}
		if !ours {
			err := t.r.write(func(rec *journal.Record, f *facts) {
				f.meet(rec, node)
				addUndo(rec, undoCordon, false)
			})
			if err != nil {
				return err
			}
		}
		return t.r.e.cluster.SetUnschedulable(ctx, node.Name, true)
	})
}

func drain(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	if f.Drained {
		i, err := t.instance(ctx, f.Instance)
		if err != nil {
			return err
		}
		if i.Power != fleet.PowerRunning {
			return needless("it is drained, and " + string(i.Power))
		}
	}
	var o prototype.Options
	r.look(func(rec *journal.Record, _ *facts) { o = optionsOf(*rec) })
	begun := r.e.now()
	err := r.e.cluster.Drain(ctx, r.donorName(), cluster.DrainOptions{
		GracePeriod: o.GracePeriod, Deadline: 3 * o.GracePeriod, Force: o.ForceDrain, Leave: []string{lookName(f.Pool)},
	}, func(e cluster.DrainEvent) {
		text := e.What + " " + e.Pod
		if e.Because != "" {
			text += " (" + e.Because + ")"
		}
		t.progress(-1, "%s, %d to go", text, e.Left)
	})
	t.mu.Lock()
	t.timing.World += r.e.now().Sub(begun)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return r.amend(func(_ *journal.Record, f *facts) { f.Drained = true })
}

// down reports whether an instance does not run, its memory gone.
func down(i fleet.Instance) bool {
	return i.Power == fleet.PowerStopped || i.Power == fleet.PowerDeallocated
}

func stop(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	var o prototype.Options
	r.look(func(rec *journal.Record, _ *facts) { o = optionsOf(*rec) })
	if f.SnapshotTaken {
		return needless("the snapshot is taken")
	}
	if _, begun := r.undo(undoSnapshot); begun {
		// Begun by a process that died. Where the donor runs again, nobody knows
		// what of that is in it.
		i, err := t.instance(ctx, f.Instance)
		if err != nil {
			return err
		}
		if !down(i) {
			if err := deleteDonorSnapshot(ctx, t); err != nil {
				return err
			}
			if err := r.amend(stopAgain); err != nil {
				return err
			}
		}
	}
	if err := r.amend(func(rec *journal.Record, _ *facts) { addUndo(rec, undoStop, nil) }); err != nil {
		return err
	}
	disk := f.Disk
	err := t.change(ctx, prototype.StepStop, fleet.StopInstance{Instance: f.Instance, Deallocate: o.Deallocate}, func(ctx context.Context) (bool, error) {
		i, err := t.instance(ctx, f.Instance)
		if err == nil && i.OSDisk != "" {
			disk = i.OSDisk
		}
		return err == nil && down(i) && (!o.Deallocate || i.Power == fleet.PowerDeallocated), err
	})
	if err != nil {
		return err
	}
	if disk != f.Disk {
		// Azure replaced it until the donor was protected: the set was being upgraded.
		if err := r.amend(func(_ *journal.Record, f *facts) { f.Disk = disk }); err != nil {
			return err
		}
	}
	return t.donorStopped(ctx)
}

// donorStopped notes that the donor was seen stopped, and which boot its Node showed
// last: any other one is of a boot since the stop.
func (t *task) donorStopped(ctx context.Context) error {
	node, there, err := found(ctx, t, func(ctx context.Context) (fleet.Node, error) { return t.r.e.cluster.Node(ctx, t.r.donorName()) })
	if err != nil {
		return err
	}
	return t.r.amend(func(_ *journal.Record, f *facts) {
		f.Stopped = true
		if there && node.BootID != "" {
			f.BootID = node.BootID
		}
	})
}
