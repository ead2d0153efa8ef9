package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// planDeadline bounds how long the lock is asked for before anything is done.
const planDeadline = 5 * time.Minute

// A Workflow is what capture and rollback are to the runner. It is used from several
// goroutines at once.
type Workflow interface {
	Kind() string
	// Restore takes up the request and state of an open record, without observing. It
	// gives the rows, and whether this workflow can resume the run; if not, the run is
	// undone.
	Restore(r journal.Record) (t Table, resumable bool, err error)
	// Plan observes the world and gives the rows with what can be skipped, and all
	// problems. r is the open record, or the last, which ended.
	Plan(ctx context.Context, r journal.Record) (Plan, error)
	// State is saved with the record. What must not outlive the run, such as a key, is
	// left out once it is closed.
	State(closed bool) any
}

// A Plan is what a workflow does.
type Plan struct {
	Name, Subject string // of the record
	Request       any
	Table         Table
	Problems      []fleet.Problem
	// Left is what the run leaves for a person, each with what to do: it then ends with
	// ExitNeedsPerson.
	Left []string
}

// A Runner runs workflows. Its fields are set before the first use.
type Runner struct {
	Cloud    azure.Changer
	Journal  journal.Store
	Locks    cluster.Leases
	LockFor  time.Duration // of the Lease, renewed three times in it
	Holder   string        // unique for the process
	Now      func() time.Time
	Report   func(Event) // from several goroutines; it must not block
	Log      *slog.Logger
	Workflow func(kind string) (Workflow, error) // for an open record of another kind

	runs atomic.Int64
}

// The kinds of events.
const (
	EventBegun    = "begun"
	EventProgress = "progress"
	EventDone     = "done"
	EventFailed   = "failed"
	EventSkipped  = "skipped" // Message says why
	EventNote     = "note"
)

// An Event is progress to show.
type Event struct {
	At                         time.Time
	Kind, Step, Title, Message string
	Percent                    int32 // -1: unknown
	Elapsed, Usual             time.Duration
}

// A run is one call of a Runner.
type run struct {
	*Runner
	workflow Workflow
	table    Table
	lock     *lock
	ctx      context.Context // ends when the lock is lost, not with the caller

	saving   chan struct{} // full while a write is under way
	mu       sync.Mutex
	rec      journal.Record
	changes  int // of rec
	saved    int // the changes that are written
	inFlight map[string]bool
	left     []string // of the plan
	failed   string   // the step that ended the phase forward
	failure  error
}

func (r *Runner) newRun(ctx context.Context, pool fleet.ResourceID, holder string, w Workflow) *run {
	x := &run{Runner: r, workflow: w, saving: make(chan struct{}, 1), inFlight: map[string]bool{}}
	x.lock = &lock{leases: r.Locks, name: strings.ToLower(string(pool)), holder: holder, ttl: r.LockFor, now: r.Now, log: r.Log, back: x.extend}
	x.lock.lost, x.lock.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	x.ctx = x.lock.lost
	return x
}

// Run runs a workflow on a pool to its end. When ctx ends, it undoes what may not be
// left. The error is *Refused, *Outcome, or that of a cluster that cannot be asked.
func (r *Runner) Run(ctx context.Context, pool fleet.ResourceID, w Workflow) error {
	x := r.newRun(ctx, pool, fmt.Sprintf("%s/%d", r.Holder, r.runs.Add(1)), w)
	defer x.lock.release()
	err := x.lock.acquire(ctx)
	if err == nil {
		x.rec, err = x.load(ctx)
	}
	if err != nil {
		refused := new(Refused)
		// What the credentials lack is reported at once, with all other problems.
		if plan, planErr := w.Plan(ctx, journal.Record{}); !errors.As(err, &refused) && planErr == nil && len(plan.Problems) > 0 {
			return &Refused{plan.Problems}
		}
		return x.unbegun(ctx, err)
	}
	if x.rec.Open() {
		if over, err := x.recover(ctx); over || err != nil {
			return err
		}
	}
	if nothing, err := x.plan(ctx); err != nil || nothing && len(x.left) == 0 {
		return x.unbegun(ctx, err)
	} else if nothing {
		return needsPerson(x.left)
	}
	x.walk(ctx)
	return x.outcome(ctx)
}

// load reads the record, and waits for an API server that is away.
func (x *run) load(ctx context.Context) (journal.Record, error) {
	begun := x.Now()
	for failures := 1; ; failures++ {
		rec, err := x.Journal.Load(ctx, x.lock.name)
		if err == nil || fleet.Is(err, fleet.KindNotFound) {
			return rec, nil
		}
		since := x.Now().Sub(begun)
		pause, again := retry(err, false, false, failures, since)
		if !again || since > planDeadline {
			return rec, err
		}
		if err := sleep(ctx, pause); err != nil {
			return rec, err
		}
	}
}

// unbegun is the outcome of what failed before this run began a step.
func (x *run) unbegun(ctx context.Context, err error) error {
	if err != nil && (ctx.Err() != nil || x.ctx.Err() != nil || x.record().Open()) {
		return &Outcome{Exit: ExitInterrupted, Step: "preflight", Err: err}
	}
	return err
}

// recover undoes what the run before has left, so that the donor is back before
// anything else, and reports whether that was all.
func (x *run) recover(ctx context.Context) (over bool, err error) {
	w := x.workflow
	if x.rec.Kind != w.Kind() {
		x.workflow, err = x.Workflow(x.rec.Kind)
	}
	resumable := false
	if err == nil {
		x.table, resumable, err = x.workflow.Restore(x.rec)
	}
	if err != nil {
		return true, &Outcome{Exit: ExitNeedsPerson, Step: "journal", Err: fmt.Errorf("cannot read the state of %s %s: %w", x.rec.Kind, x.rec.Name, err)}
	}
	phase := journal.Undo
	if resumable && x.workflow == w {
		phase = journal.Suspend
	}
	x.update(func(r journal.Record) journal.Record {
		return Recover(r, phase, fmt.Sprintf("%s %s did not finish", r.Kind, r.Name))
	})
	x.walk(ctx)
	rec := x.record()
	if x.ctx.Err() != nil || ctx.Err() != nil || len(Remaining(x.table, rec)) > 0 {
		return true, x.outcome(ctx)
	}
	if rec.Phase == journal.Undo {
		err = x.close(ExitFailed, rec.Why)
	}
	x.workflow = w
	return false, x.unbegun(ctx, err)
}

// plan makes the plan and begins the record, or reports that nothing is to be done.
func (x *run) plan(ctx context.Context) (nothing bool, err error) {
	plan, err := x.workflow.Plan(ctx, x.record())
	if err == nil && len(plan.Problems) > 0 {
		err = &Refused{plan.Problems}
	}
	if err != nil {
		return false, err
	}
	request, err := json.Marshal(plan.Request)
	if err != nil {
		return false, fmt.Errorf("encode the request: %w", err)
	}
	x.table, x.left = plan.Table, plan.Left
	nothing = !slices.ContainsFunc(plan.Table, func(s Step) bool { return s.Skip == "" || s.Taken }) && !x.record().Open()
	if nothing {
		return true, nil
	}
	x.update(func(r journal.Record) journal.Record {
		if !r.Open() {
			r = journal.Record{
				Revision: r.Revision, Schema: journal.Schema, Kind: x.workflow.Kind(), Name: plan.Name,
				Pool: x.lock.name, Subject: plan.Subject, Begun: x.Now(), Request: request,
			}
		}
		return Resume(plan.Table, r)
	})
	for _, s := range plan.Table {
		if s.Skip != "" {
			x.report(Action{Step: s}, EventSkipped, s.Skip, -1)
		}
	}
	return false, nil
}

// walk carries out actions until none is open in any phase. When ctx ends, the phase
// forward ends with it.
func (x *run) walk(ctx context.Context) {
	type end struct {
		Action
		err error
	}
	ends := make(chan end)
	cancels := map[string]context.CancelFunc{} // of Dos
	interrupt := ctx.Done()
	for {
		x.mu.Lock()
		var open []Action
		if x.ctx.Err() == nil {
			open = Next(x.table, x.rec, x.inFlight)
		}
		for _, a := range open {
			x.inFlight[a.Step.ID] = true
		}
		working := len(x.inFlight)
		x.mu.Unlock()
		for _, a := range open {
			actCtx, cancel := context.WithCancel(x.ctx)
			if !a.Undo {
				cancels[a.Step.ID] = cancel
			}
			go func() {
				defer cancel()
				ends <- end{a, x.carryOut(actCtx, a)}
			}()
		}
		if working == 0 {
			return
		}
		select {
		case <-interrupt:
			interrupt = nil
			x.update(func(r journal.Record) journal.Record {
				return GoBack(r, journal.Suspend, context.Cause(ctx).Error())
			})
		case e := <-ends:
			if !e.Undo {
				delete(cancels, e.Step.ID)
			}
			x.finish(e.Action, e.err)
		}
		rec := x.record()
		for id, cancel := range cancels {
			if rec.Phase != journal.Forward || slices.Contains(rec.Redo, id) {
				cancel()
			}
		}
	}
}

// finish books the end of an action, unless the lock was lost.
func (x *run) finish(a Action, err error) {
	x.mu.Lock()
	delete(x.inFlight, a.Step.ID)
	inFlight := maps.Clone(x.inFlight)
	x.mu.Unlock()
	if err != nil && x.ctx.Err() != nil {
		return
	}
	switch {
	case err == nil:
		x.report(a, EventDone, "", -1)
	case errors.Is(err, context.Canceled):
		x.report(a, EventFailed, "interrupted", -1)
	default:
		x.report(a, EventFailed, err.Error(), -1)
	}
	x.update(func(r journal.Record) journal.Record {
		next := Ended(x.table, r, a, err, inFlight)
		if r.Phase != next.Phase {
			x.failed, x.failure = a.ID(), err
		} else if x.failed == "" && next.Phase == journal.Suspend && !a.Undo && errors.Is(err, context.Canceled) {
			x.failed = a.ID() // where an interruption met it
		}
		return next
	})
}

// carryOut repeats passes of an action until it is done or has failed.
func (x *run) carryOut(ctx context.Context, a Action) error {
	x.start(a)
	x.report(a, EventBegun, "", -1)
	for {
		wait, err := x.once(ctx, a)
		if err != nil || wait.In == 0 {
			return err
		}
		if sleep(ctx, wait.In) != nil {
			return context.Canceled
		}
	}
}

func (x *run) start(a Action) {
	x.update(func(r journal.Record) journal.Record {
		r = Started(r, a)
		st := r.Steps[a.Step.ID]
		if st.Begun.IsZero() {
			st.Begun = x.Now()
		}
		return with(r, a.Step.ID, st)
	})
}

// once makes one pass: the zero Wait says that the action is done, an error that it has
// failed, and context.Canceled that it was canceled.
func (x *run) once(ctx context.Context, a Action) (Wait, error) {
	if x.lock.wait(ctx) != nil {
		return Wait{}, context.Canceled
	}
	act, every, deadline := a.Step.Do, a.Step.Every, a.Step.Deadline
	if a.Undo {
		act, every, deadline = a.Step.Undo.Do, a.Step.Undo.Every, a.Step.Undo.Deadline
	}
	if deadline == 0 {
		deadline = DefaultDeadline
	}
	p := &Pass{x, a}
	passCtx, end := x.lock.context(ctx)
	defer end()
	wait, err := act(passCtx, p)
	switch {
	case err != nil && ctx.Err() != nil:
		return Wait{}, context.Canceled
	case err != nil && passCtx.Err() != nil:
		return Wait{In: time.Millisecond}, nil // waits for the lock
	case err == nil && wait.In == 0:
		return Wait{}, nil
	}
	status, late := wait.Status, p.Since() >= deadline
	if err != nil {
		status, wait.Percent = err.Error(), -1
		p.set(func(st *journal.Step) {
			st.Failures++
			if !fleet.Is(err, fleet.KindStale) { // the operation's error before it says more
				st.Error = status
			}
		})
		in, again := retry(err, a.Undo, true, p.step().Failures, p.Since())
		if !again {
			return Wait{}, err
		}
		wait.In = in
	} else {
		p.set(func(st *journal.Step) { st.Failures = 0 })
		if every > 0 {
			wait.In = min(wait.In, every)
		}
	}
	if late {
		return Wait{}, &fleet.Error{Op: a.ID(), Kind: fleet.KindTimedOut, Err: fmt.Errorf("not done within %s: %s", deadline, status)}
	}
	x.report(a, EventProgress, status, wait.Percent)
	return wait, nil
}
