package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// A run is one capture or rollback under way.
type run struct {
	e    *Engine
	hold *hold
	// holder is this run's name for the Lease: no two runs have the same, also in
	// one process.
	holder string
	// caller is the caller's context.
	caller context.Context
	// care lasts until the pool is lost to somebody else; work ends with the
	// caller's context, too, and with the first failure.
	care context.Context
	work context.Context
	stop context.CancelCauseFunc // of work
	// giveUp ends care.
	giveUp context.CancelCauseFunc

	// writing is taken, by sending, for as long as the journal is written; seq is the
	// number of the last write that was tried, and is the writer's.
	writing chan struct{}
	seq     int64

	mu     sync.Mutex
	record journal.Record
	facts  facts
	// unsaved is true where they were amended since they were saved; under mu.
	unsaved bool

	timing   Timing
	timingMu sync.Mutex
	node     fleet.Node // the donor, for Events

	// lookLeft is the pod that looked and is still there; under mu.
	lookLeft string
	// nothingOpen is true once the journal was seen to have no record that has
	// not ended; under mu.
	nothingOpen bool
	// startEnded is true once the walk's start step has ended, startErr how; under mu.
	startEnded bool
	startErr   error
	// interrupted is true once a failure was seen to be the caller's; under mu.
	interrupted bool
	// swept is true once the end has tried to take away what is left; under mu.
	swept bool
	// spent has the tokens of changes that were seen done, by their keys: the next
	// write leaves them out; under mu.
	spent map[string]string
	// What is told at the end; under mu.
	notes, pruned, kept []string
}

// settled reports whether no earlier run is known to have left something.
func (r *run) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nothingOpen
}

// ended reports whether nothing is open in the journal, as far as this run knows.
func (r *run) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nothingOpen || r.record.Ended != nil
}

// An act carries a step out.
type act func(ctx context.Context, t *task) error

// A task is a step under way.
type task struct {
	r     *run
	step  prototype.Step
	begun time.Time

	// percent says how far a change is where its operation does not; may be nil.
	percent func(ctx context.Context) int32
	// asked is true once a change of this task was begun, or may have been; begins
	// counts them.
	asked  bool
	begins int
	// restless is since when the pool was seen to be changed by others, in this task.
	restless time.Time

	mu     sync.Mutex
	timing StepTiming
	// trouble is why what is asked again and again fails; nil once it works.
	trouble error
}

func (t *task) setTrouble(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = err
}

// troubled gives why what is asked fails, or the error where nothing did.
func (t *task) troubled(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trouble != nil {
		return t.trouble
	}
	return err
}

func (r *run) task(step prototype.Step) *task {
	now := r.e.now()
	return &task{r: r, step: step, begun: now, timing: StepTiming{Step: step.ID, After: step.After, Begin: now}}
}

// report tells what became of the step.
func (t *task) report(state State, percent int32, message string) {
	now := t.r.e.now()
	t.r.e.reporter.Report(Event{
		At: now, Step: t.step.ID, Title: t.step.Title, State: state, Message: message,
		Percent: percent, Elapsed: now.Sub(t.begun), Usual: t.step.Usual,
	})
}

// progress tells what is going on; percent is -1 where nobody knows.
func (t *task) progress(percent int32, format string, args ...any) {
	t.report(StepProgress, percent, fmt.Sprintf(format, args...))
}

// note keeps what is worth telling at the end.
func (r *run) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

func (r *run) noteAll(texts []string) {
	for _, text := range texts {
		r.note("%s", text)
	}
}

// event tells the cluster's users what happens to the donor.
func (r *run) event(warning bool, reason, message string) {
	if r.node.Name != "" {
		r.e.cluster.Event(r.care, r.node, warning, reason, message)
	}
}

// fence gives an error where the pool may be somebody else's by now: nothing
// may be begun then.
func (r *run) fence(ctx context.Context) error {
	if err := context.Cause(r.care); err != nil {
		return err
	}
	if r.hold != nil && !r.hold.valid(r.e.now()) {
		return errLost
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// needless is what an act returns that found nothing to do, with the reason.
type needless string

func (n needless) Error() string { return string(n) }

// carry carries one step out, within its deadline.
func (r *run) carry(ctx context.Context, step prototype.Step, what act) error {
	ctx, cancel := context.WithTimeout(ctx, step.Deadline)
	defer cancel()
	t := r.task(step)
	t.report(StepStarted, -1, "")
	err := r.fence(ctx)
	if err == nil {
		err = what(ctx, t)
	}
	t.mu.Lock()
	t.timing.End = r.e.now()
	timing := t.timing
	t.mu.Unlock()
	r.timingMu.Lock()
	r.timing.Steps = append(r.timing.Steps, timing)
	r.timingMu.Unlock()
	var not needless
	if errors.As(err, &not) {
		t.report(StepSkipped, -1, string(not))
		return nil
	}
	if err != nil {
		err = t.late(ctx, err)
		t.report(StepFailed, -1, err.Error())
		return err
	}
	t.report(StepDone, 100, "")
	return nil
}

// outcome is how a walk over the steps ended.
type outcome struct {
	step   string // the first that failed; "" where none did
	err    error
	lost   error    // why the donor does not come back; nil where it does
	tidied []string // steps that failed and hold nothing up
	left   []string // what a person has to put right
}

type result struct {
	step prototype.Step
	err  error
}

// walk carries the steps out, each as soon as those before it are done. At the
// first failure nothing more is begun but what gives the donor back and what
// puts the rest back (tidy), both at once. Where the donor comes back later than
// tidy gave up, what was in its way may be gone, so that it is tried once more.
// tolerated are steps whose failure holds nothing up.
func (r *run) walk(steps []prototype.Step, acts map[string]act, tolerated []string, tidy func(ctx context.Context) []string) outcome {
	var (
		out     outcome
		settled = map[string]bool{} // done, skipped, or not to be waited for
		begun   = map[string]bool{}
		running = map[string]bool{}
		results = make(chan result)
		tidying bool
		sooner  bool     // tidy ended before the donor was back
		untidy  []string // what tidy left; read only after its result
	)
	r.starts(false, nil)
	launch := func(s prototype.Step) {
		begun[s.ID] = true
		if s.Skip != "" || acts[s.ID] == nil {
			if s.Skip != "" {
				r.task(s).report(StepSkipped, -1, s.Skip)
			}
			settled[s.ID] = true
			return
		}
		ctx := r.work
		if s.GivesBack {
			ctx = r.care
		}
		running[s.ID] = true
		go func() { results <- result{s, r.carry(ctx, s, acts[s.ID])} }()
	}
	ready := func(s prototype.Step) bool {
		for _, a := range s.After {
			if !settled[a] && (out.err == nil || givesBack(steps, a)) {
				return false
			}
		}
		return true
	}
	for {
		failed := out.err != nil
		others := 0
		for id := range running {
			if id != "tidy" && !givesBack(steps, id) {
				others++
			}
		}
		for again := true; again; {
			again = false
			for _, s := range steps {
				switch {
				case begun[s.ID] || !ready(s):
				case failed && (!s.GivesBack || others > 0 || out.skips(s) || !r.donorOut()):
					if s.GivesBack && others == 0 { // nothing to give back
						begun[s.ID], settled[s.ID], again = true, true, true
					}
				case failed && s.Skip == "" || !failed:
					launch(s)
					again = again || settled[s.ID]
				default:
					begun[s.ID], settled[s.ID], again = true, true, true
				}
			}
		}
		if failed && !tidying && others == 0 && tidy != nil {
			tidying = true
			running["tidy"] = true
			go func() {
				untidy = tidy(r.care)
				results <- result{step: prototype.Step{ID: "tidy"}}
			}()
		}
		if len(running) == 0 {
			if sooner && len(untidy) > 0 && !r.donorOut() {
				untidy = tidy(r.care)
			}
			out.left = append(out.left, untidy...)
			return out
		}
		res := <-results
		delete(running, res.step.ID)
		if res.step.ID == "tidy" {
			sooner = len(running) > 0
		}
		switch {
		case res.err == nil:
			settled[res.step.ID] = true
			if res.step.ID == prototype.StepReady {
				out.lost = nil // whatever became of the start
			}
		case slices.Contains(tolerated, res.step.ID) && r.work.Err() == nil:
			out.tidied = append(out.tidied, res.step.ID)
			settled[res.step.ID] = true
			r.note("step %s: %v", res.step.ID, res.err)
		default:
			if res.step.GivesBack {
				settled[res.step.ID] = true
				if out.lost == nil && !errors.Is(res.err, errDonorGone) && (res.step.ID == prototype.StepStart || res.step.ID == prototype.StepReady) {
					out.lost = res.err
				}
				if res.step.ID == prototype.StepUncordon || res.step.ID == prototype.StepUnprotect {
					out.left = append(out.left, fmt.Sprintf("%s: %v", res.step.Title, res.err))
				}
			}
			if out.err == nil {
				out.step, out.err = res.step.ID, res.err
				r.stop(&meanwhile{res.step.ID, res.err})
			}
		}
	}
}

// A meanwhile is why a step ends early: another one failed. It hides which kind of error
// that is: what the other did not find is no answer to what this one asks for.
type meanwhile struct {
	step string
	err  error
}

func (m *meanwhile) Error() string { return fmt.Sprintf("step %s failed meanwhile: %v", m.step, m.err) }

// skips reports whether a step that gives the donor back is left out, since
// the donor did not come back: it stays cordoned, and is unprotected.
func (o *outcome) skips(s prototype.Step) bool {
	return o.lost != nil && (s.ID == prototype.StepReady || s.ID == prototype.StepUncordon)
}

func givesBack(steps []prototype.Step, id string) bool {
	return slices.ContainsFunc(steps, func(s prototype.Step) bool { return s.ID == id && s.GivesBack })
}
