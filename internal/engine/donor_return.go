package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// donorWaits reports whether the donor is out of service for as long as this step's
// operation is not seen done. The start's is not one: the donor is back when its Node is
// Ready, which is looked at by itself.
func (t *task) donorWaits() bool {
	switch t.step.ID {
	case prototype.StepStop, prototype.StepSnapshot:
		_, out := t.r.undo(undoStop)
		return out
	}
	return false
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

// start powers the donor on where we stopped it, or may have. A start that fails
// beside a Node that is Ready after a new boot has done what it was for.
func start(ctx context.Context, t *task) error {
	r := t.r
	err := t.gone(ctx, startDonor(ctx, t))
	var not needless
	if err != nil && !errors.As(err, &not) && r.care.Err() == nil {
		look, cancel := context.WithTimeout(r.care, lookFor)
		node, readErr := r.e.cluster.Node(look, r.donorName())
		cancel()
		_, out := r.undo(undoStop)
		if back := !out && !errors.Is(err, errDonorGone); back || readErr == nil && node.Ready && r.get().booted(node) {
			r.note("Azure reports that the start of %s failed (%v); its node is Ready after a new boot", r.donorName(), err)
			err = nil
		}
	}
	r.starts(true, err)
	return err
}

// starts sets what is known of the end of the donor's start.
func (r *run) starts(ended bool, err error) {
	var not needless
	if errors.As(err, &not) {
		err = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startEnded, r.startErr = ended, err
}

// booted reports whether the donor's Node is of a boot since the stop.
func (f facts) booted(node fleet.Node) bool { return f.Stopped && node.BootID != f.BootID }

func startDonor(ctx context.Context, t *task) error {
	r := t.r
	if _, ours := r.undo(undoStop); !ours {
		return needless("it was not stopped")
	}
	f := r.get()
	power := fleet.StartInstance{Instance: f.Instance}
	begunStop := r.intended(prototype.StepStop)
	if begunStop && !f.Stopped {
		// The stop may still be under way, or may have been carried out by now.
		if i, err := t.instance(ctx, f.Instance); err == nil && down(i) {
			if err := t.donorStopped(ctx); err != nil {
				r.e.log.Warn("cannot write down that the donor is stopped", "error", err)
			}
		} else {
			// A start queues behind a stop that is under way, and is nothing on
			// an instance that runs.
			_, err := ask(ctx, t, func(ctx context.Context) (string, error) { return t.begin(ctx, prototype.StepStart, power) })
			switch {
			case err != nil && ctx.Err() != nil:
				return t.ended(ctx, power, err)
			case err != nil:
				return err
			}
		}
	}
	return t.change(ctx, prototype.StepStart, power, func(ctx context.Context) (bool, error) {
		i, err := t.instance(ctx, f.Instance)
		return err == nil && i.Power == fleet.PowerRunning, err
	})
}

// settle is how long a node has to stay Ready where it is not known whether its
// stop took place: longer than Kubernetes takes to notice that a kubelet is
// gone (node-monitor-grace-period, 50 s).
const settle = 60 * time.Second

// donorIsBack notes that what undid the stop is done with.
func donorIsBack(rec *journal.Record, f *facts) {
	dropUndo(rec, undoStop)
	stopAgain(rec, f)
}

// stopAgain has whoever takes the capture up again, without a snapshot, drain and stop
// the donor again.
func stopAgain(rec *journal.Record, f *facts) {
	f.Stopped, f.Drained = false, false
	delete(rec.Intents, prototype.StepStop)
	delete(rec.Intents, prototype.StepStart)
}

// ready waits until the donor has booted and is Ready. It does not wait for the
// start's operation, which in Azure ends a minute later, but where it is not known
// whether the donor was ever stopped.
func ready(ctx context.Context, t *task) error {
	r := t.r
	if _, ours := r.undo(undoStop); !ours {
		return needless("it was not stopped")
	}
	maybe := r.intended(prototype.StepStop)
	why, said := "", ""
	var settling time.Time // since the start ended
	for {
		r.mu.Lock()
		started, startErr := r.startEnded, r.startErr
		r.mu.Unlock()
		if started && settling.IsZero() {
			settling = r.e.now()
		}
		f := r.get()
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
		case f.booted(node), started && (node.BootID != f.BootID || !maybe):
			// What undid the stop is done with: the donor booted, or never went. A start that
			// goes on may ask again, and keeps its intent.
			return r.amend(func(rec *journal.Record, f *facts) {
				start, begun := rec.Intents[prototype.StepStart]
				donorIsBack(rec, f)
				if begun && !started {
					rec.Intents[prototype.StepStart] = start
				}
			})
		case f.Stopped:
			why = "has not said that it booted"
		case started && r.e.now().Sub(settling) >= settle:
			return r.amend(donorIsBack)
		default:
			why = "is Ready; making sure that it stays so"
		}
		if startErr != nil {
			return startErr
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
	err := t.onNode(ctx, t.r.donorName(), func(ctx context.Context) error {
		return t.r.e.cluster.SetUnschedulable(ctx, t.r.donorName(), false)
	})
	if err != nil {
		return err
	}
	// At once: who uncordons again might undo another's cordon.
	if err := t.r.write(func(rec *journal.Record, _ *facts) { dropUndo(rec, undoCordon) }); err != nil {
		t.r.e.log.Warn("cannot write to the journal that the donor is uncordoned", "error", err)
	}
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
	if err := t.restoreProtection(ctx, prototype.StepUnprotect, t.r.get().Instance, before); err != nil {
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
	err := t.onNode(ctx, r.donorName(), func(ctx context.Context) error { return r.e.cluster.Annotate(ctx, r.donorName(), back) })
	if err != nil {
		return err
	}
	r.drop(undoMark, undoScaleDown)
	r.event(false, "CaptureGaveBack", "returned to service after its disk was captured ("+r.captureName()+")")
	return nil
}
