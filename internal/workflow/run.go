package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// A Workflow is what the Runner runs: a capture or a rollback. Its methods are called from
// several goroutines at once.
type Workflow interface {
	Kind() string
	// Restore loads request and state from an open record, without observing. It returns
	// the rows, and why this workflow does not resume the run, which is then undone; "" if
	// it does.
	Restore(r journal.Record) (t Table, why string, err error)
	// Plan observes Azure and the cluster. It returns the rows, with those to skip, and
	// all problems. r is the open record; if none is open, the last one, which is closed.
	Plan(ctx context.Context, r journal.Record) (Plan, error)
	// State returns what is saved with the record. If the record is closed, it leaves out
	// what must not outlive the run, such as a key.
	State(closed bool) any
}

// A Plan is what a workflow does.
type Plan struct {
	Name, Subject string // of the record
	Request       any
	Table         Table
	Problems      []fleet.Problem
	// Undoes has the open record undone where there are problems: what it began is of no use any more.
	Undoes bool
	// Left is what the run leaves for a person, each with what to do: it then ends with
	// ExitNeedsPerson.
	Left []string
}

// A Runner runs workflows. Its fields are set before the first use.
type Runner struct {
	Cloud    azure.Changer
	Journal  journal.Store
	Locks    cluster.Leases
	LockFor  time.Duration // duration of the Lease; a third of it passes between renewals
	Holder   string        // unique for the run
	Now      func() time.Time
	Report   func(Event) // from several goroutines; it must not block
	Log      *slog.Logger
	Workflow func(kind string) (Workflow, error) // for an open record of another kind
	// Claim, if not nil, is called while the lock is valid, before the first step, and again if the
	// lock lapses meanwhile. Its error ends the run.
	Claim func(ctx context.Context, pool fleet.ResourceID) error
}

// A run is one call of a Runner.
type run struct {
	*Runner
	pool     fleet.ResourceID
	workflow Workflow
	table    Table
	lock     *lock
	ctx      context.Context // ends when the lock is lost, not when the caller's context does

	saving   chan struct{} // full while a write is under way
	written  string        // by the last
	mu       sync.Mutex    // of rec
	rec      journal.Record
	inFlight map[string]bool // rows
	plans    int             // that were made, but for those of Continue
	undoes   bool            // of the plan
	undone   string          // kind of the open record that was undone first
	left     []string        // of the plan
	failed   string          // the step that ended the phase forward
	failure  error
}

// Run runs a workflow on a pool to its end. When ctx ends, it undoes what must not stay.
// The error is *Refused, *Outcome, or the error of a cluster that does not answer.
func (r *Runner) Run(ctx context.Context, pool fleet.ResourceID, w Workflow) error {
	x := &run{Runner: r, pool: pool, workflow: w, saving: make(chan struct{}, 1), inFlight: map[string]bool{}}
	x.lock = r.lockOf(ctx, pool)
	x.ctx = x.lock.lost
	defer x.lock.release()
	err := x.lock.acquire(ctx)
	if err == nil {
		err = repeat(ctx, r.Now, false, func() (err error) {
			x.rec, err = r.Journal.Load(ctx, x.lock.name)
			x.rec.Unreleased = x.rec.Writer != "" && x.rec.Writer == x.lock.from
			return fleet.IgnoreNotFound(err)
		})
	}
	if err != nil {
		if fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut, fleet.KindStale, fleet.KindConflict) {
			return &Outcome{Exit: ExitInterrupted, Step: "preflight", Err: err} // a record may be open
		}
		// Missing permissions are one problem of several: Plan reports all of them at once.
		if plan, planErr := w.Plan(ctx, journal.Record{}); ExitCode(err) != ExitRefused && planErr == nil && len(plan.Problems) > 0 {
			return &Refused{Problems: plan.Problems}
		}
		return x.unbegun(ctx, err)
	}
	if x.rec.Open() {
		if err := x.recover(ctx); err != nil {
			return err
		}
	}
	for x.plans = 1; ; {
		begun, err := x.plan(ctx)
		switch refused := new(Refused); {
		case (x.failure != nil || x.undoes) && errors.As(err, &refused): // what was begun fails, and is undone
			x.failure = x.refusedLater(refused.Problems)
			x.update(func(r *journal.Record) { r.Phase, r.Why = journal.Undo, x.failure.Error() })
			x.walk(ctx)
			return x.outcome()
		case !begun:
			return x.unbegun(ctx, err)
		}
		x.failed, x.failure = "", nil
		x.walk(ctx)
		rec := x.record()
		if !errors.Is(x.failure, ErrReplan) || rec.Phase != journal.Suspend || ctx.Err() != nil || len(Remaining(x.table, rec)) > 0 {
			return x.outcome()
		}
		if !continues(x.failure) {
			x.plans++
			x.report(Action{}, EventNote, rec.Why+": the run was planned again", -1)
		}
	}
}

// refusedLater is the failure of a run that has begun and cannot be planned now.
func (x *run) refusedLater(problems []fleet.Problem) error {
	why := fmt.Errorf("the run cannot go on: %s", strings.Join(fleet.Each(problems, fleet.Problem.String), "; "))
	if x.failure != nil && !continues(x.failure) {
		why = fmt.Errorf("%w; planned again: %s", x.failure, problems[0])
	}
	return why
}

// unbegun returns the error of a run that failed before its first step.
func (x *run) unbegun(ctx context.Context, err error) error {
	if err != nil && (ctx.Err() != nil || x.ctx.Err() != nil || x.record().Open()) {
		return &Outcome{Exit: ExitInterrupted, Step: "preflight", Err: err}
	}
	return err
}

// recover undoes what the run before has left, so that the donor is back before
// anything else. An error ends the run.
func (x *run) recover(ctx context.Context) (err error) {
	w := x.workflow
	owner, table, why, err := ownerOf(x.rec, w, x.Workflow)
	if err != nil {
		return &Outcome{Exit: ExitNeedsPerson, Step: "journal",
			Err: fmt.Errorf("cannot read the state of %s %s: %w", x.rec.Kind, x.rec.Name, err)}
	}
	x.workflow, x.table = owner, table
	phase := journal.Undo
	if why == "" {
		phase = journal.Suspend
	}
	x.report(Action{}, EventNote, OpenRun(x.rec, x.table, why), -1)
	undoes := len(Remaining(x.table, journal.Record{Phase: journal.Undo, Steps: x.rec.Steps})) > 0
	x.update(func(r *journal.Record) { *r = Recover(*r, phase, fmt.Sprintf("%s %s did not finish", r.Kind, r.Name)) })
	x.walk(ctx)
	rec := x.record()
	if x.ctx.Err() != nil || rec.Phase != journal.Undo && ctx.Err() != nil || len(Remaining(x.table, rec)) > 0 {
		return x.outcome()
	}
	if rec.Phase == journal.Undo {
		x.update(func(r *journal.Record) {
			r.Ended = &journal.End{At: x.Now(), Exit: ExitFailed, Message: r.Why + ", and was undone"}
		})
		err = x.save(x.ctx)
	}
	x.workflow, x.undone = w, SkipIf(undoes && rec.Phase == journal.Undo, rec.Kind)
	return x.unbegun(ctx, cmp.Or(err, context.Cause(ctx)))
}

// plan makes the plan and begins the record, unless nothing is to be done.
func (x *run) plan(ctx context.Context) (begun bool, err error) {
	plan, err := x.workflow.Plan(ctx, x.record())
	request, encodeErr := json.Marshal(plan.Request)
	x.undoes = plan.Undoes && x.record().Open()
	switch {
	case err != nil || encodeErr != nil:
		return false, cmp.Or(err, encodeErr)
	case len(plan.Problems) > 0:
		return false, &Refused{Problems: plan.Problems, Undone: x.undone}
	case x.record().Open() || slices.ContainsFunc(plan.Table, func(s Step) bool { return s.Skip == "" || s.EffectMayExist }):
	case len(plan.Left) > 0:
		return false, needsPerson(plan.Left)
	default:
		return false, nil
	}
	if err := x.claim(ctx); err != nil {
		return false, err
	}
	x.table, x.left = plan.Table, plan.Left
	x.update(func(r *journal.Record) {
		if !r.Open() {
			*r = journal.Record{
				Revision: r.Revision, Kind: x.workflow.Kind(), Name: plan.Name, Pool: x.lock.name, Subject: plan.Subject,
				Begun: x.Now(), Request: request,
			}
		}
		*r = Resume(plan.Table, *r)
	})
	for _, s := range plan.Table {
		if s.Skip != "" {
			x.report(Action{Step: s}, EventSkipped, s.Skip, -1)
		}
	}
	return true, nil
}

// claim calls Claim while the lock is valid, and again if it lapsed meanwhile: a machine may have
// slept since the lock was taken, and another process may have it.
func (x *run) claim(ctx context.Context) error {
	for x.Claim != nil {
		if err := x.lock.wait(ctx); err != nil {
			return err
		}
		locked, end := x.lock.context(ctx)
		err := x.Claim(locked, x.pool)
		lapsed := locked.Err() != nil && ctx.Err() == nil
		if end(); err == nil || !lapsed {
			return err
		}
	}
	return nil
}

// walk carries out actions until none may begin and none is in flight. When ctx ends, the
// phase forward becomes suspend.
func (x *run) walk(ctx context.Context) {
	ends := make(chan func())
	doing, stop := context.WithCancel(x.ctx) // of each Do
	defer stop()
	interrupt := ctx.Done()
	for {
		for _, a := range Next(x.table, x.record(), x.inFlight) {
			if x.ctx.Err() != nil {
				break
			}
			x.inFlight[a.Step.ID] = true
			actCtx := doing
			if a.Undo {
				actCtx = x.ctx
			}
			go func() {
				err := x.carryOut(actCtx, a)
				ends <- func() { x.finish(a, err) }
			}()
		}
		if len(x.inFlight) == 0 {
			return
		}
		select {
		case <-interrupt:
			interrupt = nil
			x.update(func(r *journal.Record) { *r = EndForward(*r, journal.Suspend, context.Cause(ctx).Error()) })
		case finish := <-ends:
			finish()
		}
		if x.record().Phase != journal.Forward {
			stop()
		}
	}
}

// finish records the end of an action, unless the lock was lost.
func (x *run) finish(a Action, err error) {
	delete(x.inFlight, a.Step.ID)
	ended := err
	if continues(err) {
		ended = nil
	}
	switch {
	case ended == nil:
		x.report(a, EventDone, "", -1)
	case x.ctx.Err() != nil:
		return
	default:
		x.report(a, EventFailed, FailureText(err), -1)
	}
	x.update(func(r *journal.Record) {
		was := r.Phase
		if errors.Is(err, ErrReplan) && (ended == nil || x.plans < maxPlans) {
			*r = EndForward(*r, journal.Suspend, "step "+a.ID()+": "+err.Error())
		}
		if *r = Ended(x.table, *r, a, ended); r.Phase != was {
			x.failed, x.failure = a.ID(), err
		} else if x.failed == "" && !a.Undo && errors.Is(err, context.Canceled) {
			x.failed = a.ID() // the step that was interrupted
		}
	})
}

// carryOut repeats passes of an action until it is done or has failed.
func (x *run) carryOut(ctx context.Context, a Action) error {
	x.report(a, EventBegun, "", -1)
	for {
		wait, err := x.once(ctx, a)
		if err != nil || wait.RequeueAfter == 0 {
			return err
		}
		if azure.Sleep(ctx, wait.RequeueAfter) != nil {
			return context.Canceled
		}
	}
}

// once makes one pass: the zero Wait says that the action is done, an error that it has
// failed, and context.Canceled that it was canceled.
func (x *run) once(ctx context.Context, a Action) (Wait, error) {
	if x.lock.wait(ctx) != nil {
		return Wait{}, context.Canceled
	}
	x.update(func(r *journal.Record) { *r = Started(*r, a, x.lock.clock()) })
	p, row := &Pass{x, a}, a.row()
	passCtx, end := x.lock.context(ctx)
	defer end()
	wait, err := row.Do(passCtx, p)
	switch {
	case err != nil && ctx.Err() != nil:
		return Wait{}, context.Canceled
	case err != nil && passCtx.Err() != nil:
		return Wait{RequeueAfter: time.Millisecond}, nil // waits for the lock
	case err == nil && wait.RequeueAfter == 0:
		return Wait{}, nil
	case err == nil:
		p.set(func(st *journal.Step) { st.Failures = 0 })
		if row.Every > 0 {
			wait.RequeueAfter = min(wait.RequeueAfter, row.Every)
		}
	default:
		wait = Wait{Percent: -1, Status: err.Error()}
		p.set(func(st *journal.Step) { st.Failures, st.Error = st.Failures+1, wait.Status })
		var again bool
		if wait.RequeueAfter, again = retry(err, a.Undo, true, p.step().Failures, p.Since()); !again {
			return Wait{}, err
		}
	}
	if deadline := cmp.Or(row.Deadline, DefaultDeadline); p.Since() >= deadline {
		return Wait{}, &fleet.Error{Op: row.ID, Kind: fleet.KindTimedOut, Err: fmt.Errorf("not done within %s: %s", deadline, wait.Status)}
	}
	x.report(a, EventProgress, wait.Status, wait.Percent)
	return wait, nil
}

func (x *run) record() journal.Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rec
}

// update changes the record. The next save writes it.
func (x *run) update(change func(*journal.Record)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(&x.rec)
}

// save writes the record, unless that is what the last save wrote, and returns once the
// lock is valid. The write outlives ctx, so that what was begun is written down.
func (x *run) save(ctx context.Context) error {
	if err := x.write(); err != nil {
		return err
	}
	return x.lock.wait(ctx)
}

func (x *run) write() error {
	x.saving <- struct{}{}
	defer func() { <-x.saving }()
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
			case fleet.IgnoreNotFound(loadErr) != nil:
				return loadErr
			case loadErr == nil && there.Writer != rec.Writer && there.Revision != rec.Revision:
				x.lock.lose(fmt.Errorf("%w: %w", errLost, err))
			}
			rec.Revision = there.Revision // our own write, whose answer was lost, or "" if the record was deleted
		}
		if err == nil {
			x.written = string(data)
			x.update(func(r *journal.Record) { r.Revision, r.State = stored.Revision, state })
		}
		return err
	})
}

func (x *run) report(a Action, kind, message string, percent int32) {
	row := a.row()
	e := Event{At: x.Now(), Kind: kind, Step: row.ID, Title: row.Title, Message: message, Percent: percent, Usual: row.Usual}
	if begun := x.record().Steps[a.Step.ID].Begun; !begun.IsZero() {
		e.Elapsed = x.lock.clock().Sub(begun)
	}
	x.Report(e)
}
