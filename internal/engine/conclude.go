package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// A leftover is what the end could not put away.
type leftover struct{ left []string }

func (e *leftover) Error() string { return "not all that was temporary could be taken away" }

// end takes away what is still there and closes the journal.
func end(ctx context.Context, t *task) error {
	if left := t.r.tidy(ctx, spent...); len(left) > 0 {
		t.r.mu.Lock()
		t.r.swept = true
		t.r.mu.Unlock()
		return &leftover{left}
	}
	return t.r.close(0, "done")
}

// close ends the journal's record.
func (r *run) close(exit int, message string) error {
	err := r.write(func(rec *journal.Record, f *facts) {
		rec.Ended = &journal.End{At: r.e.now(), Exit: exit, Message: message}
		f.PrivateKey = nil
	})
	if err == nil {
		r.mu.Lock()
		r.nothingOpen = true
		r.mu.Unlock()
	}
	return err
}

// onFailure puts back what a failure or an interruption leaves behind.
func (r *run) onFailure(ctx context.Context) []string {
	f := r.get()
	interrupted := r.caller.Err() != nil
	r.mu.Lock()
	swept := r.swept
	r.interrupted = interrupted
	r.mu.Unlock()
	switch {
	case swept:
		return nil // tried a moment ago, and told in the error
	case f.ModelChanged:
		return r.tidy(ctx, spent...)
	case interrupted:
		return r.tidy(ctx, r.unfinished()...)
	}
	err := r.write(func(_ *journal.Record, f *facts) { f.Undoing = "a step failed" })
	if err != nil {
		r.e.log.Warn("cannot write down that all is put back", "error", err)
	}
	return r.tidy(ctx)
}

// unbegun is the error of what failed before this run changed anything. Where an
// earlier one may have left something, it is Interrupted: only the same command
// can put that right.
func (r *run) unbegun(step string, err error) error {
	var (
		refused     *Refused
		needsPerson *NeedsPerson
	)
	switch {
	case errors.As(err, &refused), errors.As(err, &needsPerson):
		return err
	case r.caller.Err() != nil, errors.Is(err, errLost), errors.Is(context.Cause(r.work), errLost), fleet.Is(err, fleet.KindHeld), !r.settled():
		return &Interrupted{Step: step, Err: err}
	}
	return &Failed{Step: step, Err: err, unbegun: true}
}

// unheld is unbegun where the pool's Lease could not be taken: another process may have
// opened a record since this one read the journal.
func (r *run) unheld(t *task, pool fleet.ResourceID, err error) error {
	if refused := new(Refused); !errors.As(err, &refused) {
		ctx, cancel := context.WithTimeout(r.work, preflightDeadline)
		defer cancel()
		if _, _, lookErr := r.loadHeld(ctx, t, pool); lookErr != nil {
			r.e.log.Warn("cannot read whether a record is open", "pool", pool, "error", lookErr)
		}
	}
	return r.unbegun(prototype.StepHold, err)
}

// givenUp is an error once all is let go, which takes a while: where nothing was begun
// and the caller gave up meanwhile, that is what ended the run.
func (r *run) givenUp(err error) error {
	if failed := new(Failed); errors.As(err, &failed) && failed.unbegun && r.caller.Err() != nil {
		return &Interrupted{Step: failed.Step, Err: failed.Err}
	}
	return err
}

// conclude says how a walk ended, and ends the record where it has ended.
func (r *run) conclude(out outcome) error {
	f := r.get()
	donor := r.donorName()
	var (
		rest    *leftover
		refused *Refused
	)
	if errors.As(out.err, &rest) {
		out.left = append(out.left, rest.left...)
	}
	person := func() error {
		if names := r.remains(); len(names) > 0 {
			out.left = append(out.left, "the journal still has, for the same command to go on with or take away: "+strings.Join(names, ", "))
		}
		return &NeedsPerson{Step: out.step, Left: out.left, Err: out.err}
	}
	switch {
	case out.err == nil:
		return nil
	case context.Cause(r.care) != nil:
		state := ""
		if donor != "" && r.donorOut() {
			state = "node " + donor + " is out of service"
		}
		return &Interrupted{Step: out.step, Donor: state, Err: context.Cause(r.care)}
	case errors.As(out.err, &refused):
		return refused
	case out.lost != nil:
		out.left = append([]string{fmt.Sprintf(
			"node %s did not come back (%v): it is left cordoned, and %s; look at the instance %s in Azure (az vmss get-instance-view), and start or replace it; then run the same command again, or kubectl uncordon %s",
			donor, out.lost, r.protection(), f.Instance, donor)}, out.left...)
		r.event(true, "CaptureDonorLost", "did not come back after its disk was captured: "+out.lost.Error())
		return person()
	case r.interrupted || r.caller.Err() != nil:
		state := ""
		switch {
		case donor == "":
		case !r.donorOut() && len(out.left) > 0:
			state = "node " + donor + " is in service, but not all is undone: " + strings.Join(out.left, "; ")
		case !r.donorOut():
			state = "node " + donor + " is in service as it was found"
		default:
			state = "node " + donor + " is not yet as it was found: " + strings.Join(out.left, "; ")
		}
		return &Interrupted{Step: out.step, Donor: state, Err: out.err}
	case f.ModelChanged:
		uses := f.Names.Version.Name()
		if f.Return != nil {
			uses = f.Return.back().Name()
		}
		out.left = append(out.left, fmt.Sprintf("the model uses %s, but step %s is not done: see why, and run the same command again", uses, out.step))
		return person()
	case len(out.left) > 0 || r.donorOut():
		if len(out.left) == 0 {
			out.left = []string{"node " + donor + " is not as it was found: see kubectl describe node " + donor}
		}
		return person()
	}
	if err := r.close(ExitFailed, out.err.Error()); err != nil {
		return &NeedsPerson{Step: out.step, Err: out.err, Left: []string{fmt.Sprintf("all is put back, but the journal cannot be closed (%v): run the same command again", err)}}
	}
	r.event(true, "CaptureFailed", "its disk was not captured; step "+out.step+": "+out.err.Error())
	return &Failed{Step: out.step, Err: out.err}
}

// protection says whether a donor that did not come back is still protected, and
// how it is not: Azure may refuse to change an instance that it works on.
func (r *run) protection() string {
	entry, there := r.undo(undoProtection)
	if !there {
		return "is not protected any more"
	}
	id := r.get().Instance
	var before fleet.Protection
	if err := json.Unmarshal(entry.What, &before); err != nil {
		return "is still protected from scale-in and from scale set actions"
	}
	return fmt.Sprintf("is still protected from scale-in and from scale set actions, which the same command takes off later, or az vmss update -g %s -n %s --instance-id %s --protect-from-scale-in %t --protect-from-scale-set-actions %t",
		id.Group().Name(), id.Parent().Name(), id.Name(), before.ScaleIn, before.ScaleSetActions)
}
