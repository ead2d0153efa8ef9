package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/plan"
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
	return ask(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, id) })
}

// protect keeps autoscalers, health checks and upgrades off the donor. What was
// there before is written down first; what others set already stays theirs.
func protect(ctx context.Context, t *task) error {
	r := t.r
	node, err := t.donor(ctx)
	if err != nil {
		return err
	}
	f := r.get()
	instance, err := t.instance(ctx, f.Instance)
	if err != nil {
		return err
	}
	machine, hasMachine, err := t.machine(ctx, node)
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
	return t.setProtection(ctx, plan.StepProtect, f.Instance, full)
}

// optional is a value that may be missing.
func optional(value string, there bool) *string {
	if !there {
		return nil
	}
	return &value
}

// machine reads the annotations of the donor's Machine.
func (t *task) machine(ctx context.Context, node fleet.Node) (annotations map[string]string, known bool, err error) {
	annotations, err = ask(ctx, t, func(ctx context.Context) (a map[string]string, err error) {
		a, known, err = t.r.e.cluster.Machine(ctx, node)
		return a, err
	})
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
	var o plan.Options
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
	return r.write(func(_ *journal.Record, f *facts) { f.Drained = true })
}

// down reports whether an instance does not run, its memory gone.
func down(i fleet.Instance) bool {
	return i.Power == fleet.PowerStopped || i.Power == fleet.PowerDeallocated
}

func stop(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	var o plan.Options
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
		}
	}
	if err := r.write(func(rec *journal.Record, _ *facts) { addUndo(rec, undoStop, nil) }); err != nil {
		return err
	}
	err := t.change(ctx, plan.StepStop, fleet.StopInstance{Instance: f.Instance, Deallocate: o.Deallocate}, func(ctx context.Context) (bool, error) {
		i, err := t.instance(ctx, f.Instance)
		return err == nil && down(i) && (!o.Deallocate || i.Power == fleet.PowerDeallocated), err
	})
	if err != nil {
		return err
	}
	return r.write(func(_ *journal.Record, f *facts) { f.Stopped = true })
}

// errDonorGone is a donor that somebody deleted: nothing of it is left to give back.
var errDonorGone = errors.New("the donor was deleted meanwhile")

// gone turns what was not found into errDonorGone where the instance is not in
// its scale set any more. It takes the stop off the undo list, so that the pool
// is not held up by it for ever.
func (t *task) gone(ctx context.Context, err error) error {
	if !fleet.Is(err, fleet.KindNotFound) {
		return err
	}
	f := t.r.get()
	if _, poolErr := t.pool(ctx, f.Pool); poolErr != nil {
		return err
	}
	_, there, readErr := found(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, f.Instance) })
	if there || readErr != nil {
		return err
	}
	if writeErr := t.r.write(func(rec *journal.Record, _ *facts) { dropUndo(rec, undoStop) }); writeErr != nil {
		return writeErr
	}
	return fmt.Errorf("%w: %w", errDonorGone, err)
}

// start powers the donor on where we stopped it, or may have.
func start(ctx context.Context, t *task) error {
	return t.gone(ctx, startDonor(ctx, t))
}

func startDonor(ctx context.Context, t *task) error {
	r := t.r
	if _, ours := r.undo(undoStop); !ours {
		return needless("it was not stopped")
	}
	f := r.get()
	begunStop := r.intended(plan.StepStop)
	if begunStop && !f.Stopped {
		// The stop may still be under way, or may have been carried out by now.
		if i, err := t.instance(ctx, f.Instance); err == nil && down(i) {
			if err := r.write(func(_ *journal.Record, f *facts) { f.Stopped = true }); err != nil {
				r.e.log.Warn("cannot write down that the donor is stopped", "error", err)
			}
		} else {
			// A start queues behind a stop that is under way, and is nothing on
			// an instance that runs.
			if _, err := t.begin(ctx, plan.StepStart, fleet.StartInstance{Instance: f.Instance}); err != nil && !passing(err) {
				return err
			}
		}
	}
	return t.change(ctx, plan.StepStart, fleet.StartInstance{Instance: f.Instance}, func(ctx context.Context) (bool, error) {
		i, err := t.instance(ctx, f.Instance)
		return err == nil && i.Power == fleet.PowerRunning, err
	})
}

// settle is how long a node has to stay Ready where it is not known whether its
// stop took place: longer than Kubernetes takes to notice that a kubelet is
// gone (node-monitor-grace-period, 50 s).
const settle = 60 * time.Second

// donorIsBack notes that what undid the stop is done with. Whoever takes the
// capture up again, without a snapshot, has to drain and stop the donor anew.
func donorIsBack(rec *journal.Record, f *facts) {
	dropUndo(rec, undoStop)
	f.Stopped, f.Drained = false, false
	delete(rec.Intents, plan.StepStop)
	delete(rec.Intents, plan.StepStart)
}

// ready waits until the donor has booted and is Ready.
func ready(ctx context.Context, t *task) error {
	r := t.r
	if _, ours := r.undo(undoStop); !ours {
		return needless("it was not stopped")
	}
	f := r.get()
	stopped, begun := f.Stopped, r.e.now()
	maybe := r.intended(plan.StepStop)
	why, said := "", ""
	for {
		node, err := t.donor(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return t.timedOut(ctx, "wait until the donor is Ready", "node "+r.donorName(), errors.New(first(why, err.Error())))
		case fleet.Is(err, fleet.KindNotFound):
			why = "the node is gone from the cluster"
			if err := t.gone(ctx, err); errors.Is(err, errDonorGone) {
				return err
			}
		case err != nil:
			return err
		case !node.Ready:
			why = "not Ready: " + node.NotReadyWhy
		case node.BootID != f.BootID || !maybe:
			// What undid the stop is done with: the donor booted, or never went.
			return r.write(donorIsBack)
		case stopped:
			why = "has not said that it booted"
		case r.e.now().Sub(begun) >= settle:
			return r.write(donorIsBack)
		default:
			why = "is Ready; making sure that it stays so"
		}
		if why != said {
			t.progress(-1, "node %s: %s", r.donorName(), why)
			said = why
		}
		if err := t.wait(ctx, lookEvery, forWorld); err != nil {
			return t.timedOut(ctx, "wait until the donor is Ready", "node "+r.donorName(), errors.New(why))
		}
	}
}

// onNode are what we change of the donor's Node object. It is gone with it: the
// one that a kubelet makes anew is others' as it is.
var onNode = []string{undoCordon, undoMark, undoScaleDown}

// madeAnew reports whether the Node is another than the one that we changed, and
// bears no mark of ours.
func (f *facts) madeAnew(node fleet.Node, capture string) bool {
	return f.NodeUID != "" && node.UID != f.NodeUID && node.Annotations[fleet.AnnotationCapture] != capture
}

// meet remembers the Node that is about to be changed.
func (f *facts) meet(rec *journal.Record, node fleet.Node) {
	if f.madeAnew(node, rec.Capture) {
		dropUndo(rec, onNode...)
	}
	f.NodeUID = node.UID
}

func uncordon(ctx context.Context, t *task) error {
	if err := t.forgetOldNode(ctx); err != nil {
		return err
	}
	if _, ours := t.r.undo(undoCordon); !ours {
		return needless("we did not cordon it")
	}
	err := t.onDonor(ctx, func(ctx context.Context) error {
		if flawCordon {
			return nil
		}
		return t.r.e.cluster.SetUnschedulable(ctx, t.r.donorName(), false)
	})
	if err != nil {
		return err
	}
	t.r.drop(undoCordon)
	return nil
}

// forgetOldNode takes what we changed of the donor's Node off the undo list where
// that was deleted, and made anew since.
func (t *task) forgetOldNode(ctx context.Context) error {
	r := t.r
	r.mu.Lock()
	there := hasUndo(&r.record, onNode...)
	r.mu.Unlock()
	if !there {
		return nil
	}
	node, err := t.donor(ctx)
	if err != nil {
		return ignoreMissing(err)
	}
	if f := r.get(); !f.madeAnew(node, r.captureName()) {
		return nil
	}
	r.note("node %s was deleted meanwhile, and made anew by its kubelet: it is left as it is", node.Name)
	return r.write(func(rec *journal.Record, _ *facts) { dropUndo(rec, onNode...) })
}

// unprotect puts back what protect changed, each as it was. One that fails does
// not keep the others, and does not use up their time.
func unprotect(ctx context.Context, t *task) error {
	var failed []error
	within := func(what string, part time.Duration, act func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, part)
		defer cancel()
		if err := act(ctx); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	within("Machine", t.step.Deadline/4, t.unprotectMachine)
	within("annotations", t.step.Deadline/4, t.unmark)
	within("instance protection", t.step.Deadline, t.unprotectInstance)
	return errors.Join(failed...)
}

func (t *task) unprotectInstance(ctx context.Context) error {
	entry, ours := t.r.undo(undoProtection)
	if !ours {
		return nil
	}
	var before fleet.Protection
	if err := json.Unmarshal(entry.What, &before); err != nil {
		return err
	}
	if err := ignoreMissing(t.setProtection(ctx, plan.StepUnprotect, t.r.get().Instance, before)); err != nil {
		return err
	}
	t.r.drop(undoProtection)
	return nil
}

func (t *task) unprotectMachine(ctx context.Context) error {
	r := t.r
	entry, ours := r.undo(undoMachine)
	if !ours {
		return nil
	}
	var before *string
	if err := json.Unmarshal(entry.What, &before); err != nil {
		return err
	}
	// The node may be gone by now; its Machine is found by what it said.
	node := fleet.Node{Name: r.donorName(), Annotations: r.get().Machine}
	if err := t.annotateMachine(ctx, node, before, nil); err != nil {
		return err
	}
	r.drop(undoMachine)
	return nil
}

func (t *task) unmark(ctx context.Context) error {
	r := t.r
	scaleDown, oursToo := r.undo(undoScaleDown)
	if _, ours := r.undo(undoMark); !ours && !oursToo {
		return nil
	}
	back := map[string]*string{fleet.AnnotationCapture: nil}
	if oursToo {
		var before *string
		if err := json.Unmarshal(scaleDown.What, &before); err != nil {
			return err
		}
		back[fleet.AnnotationScaleDownDisabled] = before
	}
	err := t.onDonor(ctx, func(ctx context.Context) error { return r.e.cluster.Annotate(ctx, r.donorName(), back) })
	if err != nil {
		return err
	}
	r.drop(undoMark, undoScaleDown)
	r.event(false, "CaptureGaveBack", "given back after its disk was captured ("+r.captureName()+")")
	return nil
}
