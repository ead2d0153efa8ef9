package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

func (x *run) record() journal.Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rec
}

// update changes the record. The next save writes it.
func (x *run) update(change func(journal.Record) journal.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec = change(x.rec)
}

// save writes the record, unless that is what the last save wrote, and returns once the
// lock is valid. The write outlives ctx, so that what was begun is written down.
func (x *run) save(ctx context.Context) error {
	x.saving <- struct{}{}
	err := x.write()
	<-x.saving
	if err != nil {
		return err
	}
	return x.lock.wait(ctx)
}

func (x *run) write() error {
	rec := x.record()
	state, err := json.Marshal(x.workflow.State(!rec.Open()))
	if err != nil {
		return fmt.Errorf("encode the workflow's state: %w", err)
	}
	rec.State, rec.Writer = state, x.Holder
	data, err := journal.Encode(rec)
	if err != nil || string(data) == x.written {
		return err
	}
	return repeat(x.ctx, x.Now, true, func() error {
		stored, err := x.Journal.Save(x.ctx, rec)
		if fleet.Is(err, fleet.KindConflict) {
			there, loadErr := x.Journal.Load(x.ctx, rec.Pool)
			switch {
			case fleet.Is(loadErr, fleet.KindNotFound): // it was deleted
				rec.Revision = ""
			case loadErr != nil:
				return loadErr
			case there.Writer != rec.Writer && there.Revision != rec.Revision:
				x.lock.lose(fmt.Errorf("%w: %w", errLost, err))
			default: // our own write, whose answer was lost
				rec.Revision = there.Revision
			}
		}
		if err == nil {
			x.written = string(data)
			x.update(func(r journal.Record) journal.Record {
				r.Revision, r.State = stored.Revision, state
				return r
			})
		}
		return err
	})
}

// close ends the record.
func (x *run) close(exit int, message string) error {
	x.update(func(r journal.Record) journal.Record {
		r.Ended = &journal.End{At: x.Now(), Exit: exit, Message: message}
		return r
	})
	return x.save(x.ctx)
}

// outcome says how the run ended, and closes the record unless something is left that
// the same command tries again.
func (x *run) outcome() error {
	rec := x.record()
	out := &Outcome{Step: x.failed, Err: cmp.Or(x.failure, errors.New(rec.Why))}
	committed := false
	for _, s := range x.table {
		st := rec.Steps[s.ID].State
		committed = committed || s.Commits && (st == journal.Done || st == journal.Skipped)
		if out.Step == "" && (st == journal.Pending || st == journal.Running) {
			out.Step = s.ID // where an interruption met it
		}
	}
	left := Remaining(x.table, rec)
	for _, s := range left {
		text := s.Undo.ID + " is not done: " + rec.Steps[s.ID].Error
		if s.Undo.Manual != nil {
			text += "; " + s.Undo.Manual()
		}
		out.Left = append(out.Left, text)
	}
	err := context.Cause(x.ctx)
	switch {
	case err != nil:
	case rec.Phase == journal.Forward && len(left)+len(x.left) > 0:
		out = needsPerson(append(out.Left, x.left...))
		rec.Why = out.Err.Error()
	case len(left) > 0 || rec.Phase == journal.Undo && committed:
		out.Exit = ExitNeedsPerson
	case rec.Phase == journal.Suspend:
		out.Exit = ExitInterrupted
	case rec.Phase == journal.Undo:
		out.Exit = ExitFailed
	}
	switch {
	case err != nil:
	case len(left) > 0 || rec.Phase == journal.Suspend:
		err = x.save(x.ctx)
	default:
		err = x.close(out.Exit, rec.Why)
	}
	switch {
	case x.ctx.Err() != nil:
		out.Exit, out.Err = ExitInterrupted, err
	case err != nil:
		out.Exit, out.Step, out.Err = ExitNeedsPerson, "journal", err
	case out.Exit == ExitDone:
		return nil
	}
	return out
}

// needsPerson is the end of a run that did all that it planned.
func needsPerson(left []string) *Outcome {
	return &Outcome{Exit: ExitNeedsPerson, Left: left, Err: errors.New("all steps are done, but something is left")}
}

func (x *run) report(a Action, kind, message string, percent int32) {
	if x.Report == nil {
		return
	}
	row := a.row()
	e := Event{At: x.Now(), Kind: kind, Step: row.ID, Title: row.Title, Message: message, Percent: percent, Usual: row.Usual}
	if begun := x.record().Steps[a.Step.ID].Begun; !begun.IsZero() {
		e.Elapsed = x.lock.clock().Sub(begun)
	}
	x.Report(e)
}
