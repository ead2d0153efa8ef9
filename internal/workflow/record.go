package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

func (x *run) now() time.Time { return x.Now() }

func contains(ids []string, id string) bool { return slices.Contains(ids, id) }

func (x *run) record() journal.Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rec
}

// update changes the record. It is written with the next save.
func (x *run) update(change func(journal.Record) journal.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec = change(x.rec)
	x.changes++
}

// changed reports whether the run may have changed the world.
func (x *run) changed() bool {
	for _, st := range x.record().Steps {
		if st.State != journal.Pending && st.State != journal.Skipped && (st.State != journal.Running || st.Change != "" || st.Before != nil) {
			return true
		}
	}
	return false
}

// extend has the deadlines not count the time for which the lock had lapsed.
func (x *run) extend(away time.Duration) {
	x.update(func(r journal.Record) journal.Record {
		for id, st := range r.Steps {
			if !st.Begun.IsZero() {
				st.Begun = st.Begun.Add(away)
				r = with(r, id, st)
			}
		}
		return r
	})
}

// save writes the record unless another save has written it, and returns once the pool
// lock is valid. The write outlives ctx, so that what was begun is written down.
func (x *run) save(ctx context.Context) error {
	x.mu.Lock()
	want := x.changes
	x.mu.Unlock()
	x.saving <- struct{}{}
	err := x.write(want)
	<-x.saving
	if err != nil {
		return err
	}
	return x.lock.wait(ctx)
}

func (x *run) write(want int) error {
	state, err := json.Marshal(x.workflow.State(!x.record().Open()))
	if err != nil {
		return fmt.Errorf("encode the workflow's state: %w", err)
	}
	x.mu.Lock()
	if x.saved >= want && string(x.rec.State) == string(state) {
		x.mu.Unlock()
		return nil
	}
	x.rec.State, x.rec.Writer = state, x.writer
	rec, changes := x.rec, x.changes
	x.mu.Unlock()
	for failures := 1; ; failures++ {
		stored, err := x.Journal.Save(x.ctx, rec)
		if err == nil {
			x.mu.Lock()
			x.rec.Revision, x.saved = stored.Revision, changes
			x.mu.Unlock()
			return nil
		}
		if x.ctx.Err() != nil {
			return context.Cause(x.ctx)
		}
		if fleet.Is(err, fleet.KindConflict) {
			if rec.Revision, err = x.reclaim(rec, err); err == nil {
				continue
			}
			if errors.Is(err, errLost) {
				x.lock.lose(err)
				return err
			}
		}
		pause, again := retry(err, false, true, failures, 0)
		if !again {
			return err
		}
		if err := sleep(x.ctx, pause); err != nil {
			return err
		}
	}
}

// reclaim gives the revision to write over after a conflict: of a write of ours whose
// answer was lost, or none if the record was deleted. Another writer ends the run.
func (x *run) reclaim(rec journal.Record, conflict error) (string, error) {
	there, err := x.Journal.Load(x.ctx, rec.Pool)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return "", nil
	case err != nil:
		return rec.Revision, err
	case there.Writer != x.writer:
		return "", fmt.Errorf("%w: %w", errLost, conflict)
	}
	return there.Revision, nil
}

// close ends the record.
func (x *run) close(exit int, message string) error {
	x.update(func(r journal.Record) journal.Record {
		r.Ended = &journal.End{At: x.now(), Exit: exit, Message: message}
		return r
	})
	err := x.save(x.ctx)
	if err != nil {
		x.update(func(r journal.Record) journal.Record { r.Ended = nil; return r })
	}
	return err
}

// outcome says how the run ended, and closes the record unless something is left for
// the same command.
func (x *run) outcome(ctx context.Context) error {
	rec := x.record()
	step, cause := x.failed, x.failure
	if cause == nil {
		cause = errors.New(rec.Why)
	}
	if x.ctx.Err() != nil {
		return &Interrupted{Step: x.current(), Err: context.Cause(x.ctx), Left: []string{"another process goes on from the journal"}}
	}
	var left []string
	for _, s := range Remaining(x.table, rec) {
		text := s.Undo.ID + " is not done"
		if st := rec.Steps[s.ID]; st.Error != "" {
			text += ": " + st.Error
		}
		if s.Undo.Manual != nil {
			text += "; " + s.Undo.Manual()
		}
		left = append(left, text)
	}
	committed := ""
	for _, s := range x.table {
		if s.Commits && rec.Steps[s.ID].State == journal.Done {
			committed = s.ID
		}
	}
	exit, message, result := ExitDone, "done", error(nil)
	switch {
	case rec.Phase == journal.Suspend, ctx.Err() != nil && committed == "":
		if rec.Phase == journal.Suspend || len(left) > 0 {
			if err := x.save(x.ctx); err != nil {
				left = append(left, "the journal is not written: "+err.Error())
			}
			return &Interrupted{Step: x.current(), Err: cause, Left: left}
		}
		exit, message, result = ExitInterrupted, rec.Why, &Interrupted{Step: step, Err: cause}
	case rec.Phase == journal.Forward && len(left) == 0:
	case len(left) > 0 || committed != "":
		if rec.Phase == journal.Forward {
			step, cause = Remaining(x.table, rec)[0].Undo.ID, errors.New("not all is undone")
		}
		exit, message, result = ExitNeedsPerson, rec.Why, &NeedsPerson{Step: step, Err: cause, Left: left}
	default:
		exit, message, result = ExitFailed, rec.Why, &Failed{Step: step, Err: cause}
	}
	save := func() error { return x.close(exit, message) }
	if len(left) > 0 { // stays open: the next run tries it first
		save = func() error { return x.save(x.ctx) }
	}
	if err := save(); err != nil && x.ctx.Err() != nil {
		return &Interrupted{Step: "journal", Err: context.Cause(x.ctx)}
	} else if err != nil {
		return &NeedsPerson{Step: "journal", Err: err, Left: append(left, "the record is not closed: run the same command again")}
	}
	return result
}

// current names the rows that are at work, or were when the run stopped.
func (x *run) current() string {
	rec := x.record()
	if x.failed != "" {
		return x.failed
	}
	for _, s := range x.table {
		if st := rec.Steps[s.ID].State; st == journal.Running || st == journal.Pending {
			return s.ID
		}
	}
	return "end"
}

func (x *run) report(a Action, kind, message string, percent int32) {
	if x.Report == nil {
		return
	}
	e := Event{Kind: kind, Step: a.ID(), Title: a.Step.Title, Message: message, Percent: percent, Usual: a.Step.Usual}
	if a.Undo {
		e.Title, e.Usual = a.Step.Undo.Title, a.Step.Undo.Usual
	}
	if begun := x.record().Steps[a.Step.ID].Begun; !begun.IsZero() {
		e.Elapsed = x.now().Sub(begun)
	}
	x.Report(e)
}
