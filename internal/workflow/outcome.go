package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// Exit codes of a run.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitRefused     = 3
	ExitNeedsPerson = 4
	ExitInterrupted = 5
)

// ExitCode returns the exit code for what a run returned.
func ExitCode(err error) int {
	var outcome *Outcome
	var refused *Refused
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &outcome):
		return outcome.Exit
	case errors.As(err, &refused):
		return ExitRefused
	}
	return ExitFailed
}

// Refused means that nothing was begun: all reasons at once.
type Refused struct { //nolint:errname // an outcome
	Problems []fleet.Problem
	Undone   string // kind of an open record that was undone before; "" for none
}

// Heading says how many reasons there are, and what was changed.
func (e *Refused) Heading() string {
	changed := "nothing was changed"
	if e.Undone != "" {
		changed = "the open " + e.Undone + " was undone, nothing else was changed"
	}
	return "refused for " + fleet.Count(len(e.Problems), "reason") + ", " + changed
}

func (e *Refused) Error() string {
	s := e.Heading()
	for _, p := range e.Problems {
		s += "\n  - " + p.String()
	}
	return s
}

// NewRefused returns a *Refused, nil without problems.
func NewRefused(problems []fleet.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Refused{Problems: problems}
}

// RefusedFor reports a refusal for a problem with this code.
func RefusedFor(err error, code string) bool {
	refused := new(Refused)
	return errors.As(err, &refused) && slices.ContainsFunc(refused.Problems, func(p fleet.Problem) bool { return p.Code == code })
}

// CodeHeld is the problem of a pool whose lock another process has.
const CodeHeld = "Held"

// Held refuses a pool whose lock another process has.
func Held(pool string, by cluster.Holding) *Refused {
	return &Refused{Problems: []fleet.Problem{{
		Code: CodeHeld, On: pool, What: by.Holder + " has had the pool lock since " + by.Since.UTC().Format(time.RFC3339),
		WayOut: "wait until it has ended, or if it died, until its Lease expires" + expiry(by) + "; ortet status shows its progress",
	}}}
}

// expiry says when a hold ends that is not renewed; "" where that is not known.
func expiry(h cluster.Holding) string {
	return SkipIf(!h.Until.IsZero(), " ("+h.Until.UTC().Format(time.RFC3339)+" unless it is renewed)")
}

// OpenRun says what becomes of an open record before anything else; why is why it is not
// resumed, "" if it is.
func OpenRun(r journal.Record, t Table, why string) string {
	text := fmt.Sprintf("an open %s of %s (", r.Kind, cmp.Or(r.Subject, fleet.ResourceID(r.Pool).Name()))
	running := slices.DeleteFunc(slices.Sorted(maps.Keys(r.Steps)), func(id string) bool { return r.Steps[id].State != journal.Running })
	if len(running) > 0 {
		text += "step " + strings.Join(running, ", ") + ", "
	}
	text += "begun " + r.Begun.UTC().Format(time.RFC3339) + ")"
	r.Phase = journal.Undo
	switch {
	case why == "":
		return text + " is resumed"
	case len(Remaining(t, r)) > 0:
		return text + " is undone first: " + why
	}
	return text + " is ended first: " + why
}

// PreviewOpen is OpenRun of a workflow that does not run now. others returns the workflow of
// another kind.
func PreviewOpen(r journal.Record, w Workflow, others func(kind string) (Workflow, error)) (note string, resumes bool, err error) {
	_, t, why, err := ownerOf(r, w, others)
	return OpenRun(r, t, why), err == nil && why == "", err
}

// ownerOf returns the workflow of an open record, its rows, and why w does not resume it.
func ownerOf(r journal.Record, w Workflow, others func(kind string) (Workflow, error)) (owner Workflow, t Table, why string, err error) {
	if r.Kind == w.Kind() {
		t, why, err = w.Restore(r)
		return w, t, why, err
	}
	if owner, err = others(r.Kind); err == nil {
		t, _, err = owner.Restore(r)
	}
	return owner, t, "a " + w.Kind() + " does not resume a " + r.Kind, err
}

// An Outcome is the end of an incomplete run. ExitFailed: all changes were undone;
// ExitNeedsPerson: something remains that Ortet cannot mend; ExitInterrupted: the same command
// resumes.
type Outcome struct { //nolint:errname // an outcome
	Exit  int
	Step  string   // "" if all steps are done
	Left  []string // what is left, each with what to do
	Ended string   // how things are now; "" is what Exit says
	Err   error
}

func (e *Outcome) Error() string {
	s := fmt.Sprintf("%v; ", e.Err)
	if e.Step != "" {
		s = "step " + e.Step + ": " + s
	}
	s += cmp.Or(e.Ended, map[int]string{ExitFailed: "all changes were undone", ExitNeedsPerson: "this needs a person",
		ExitInterrupted: "interrupted, run the same command to resume"}[e.Exit])
	return strings.Join(append([]string{s}, e.Left...), "\n  - ")
}

// Unwrap returns the cause.
func (e *Outcome) Unwrap() error { return e.Err }

// outcome says how the run ended, and closes the record unless something is left that
// the same command tries again.
func (x *run) outcome() error {
	rec := x.record()
	out := &Outcome{Step: x.failed, Err: cmp.Or(x.failure, errors.New(rec.Why))}
	committed := false
	var open []string // steps that did not run, or not to their end
	for _, s := range x.table {
		st := rec.Steps[s.ID].State
		committed = committed || s.Commits && (st == journal.Done || st == journal.Skipped)
		if s.ID != x.failed && (st == journal.Pending || st == journal.Running) {
			open = append(open, "step "+s.ID+" is not done: "+s.Title)
		}
		if out.Step == "" && (st == journal.Pending || st == journal.Running) {
			out.Step = s.ID // where an interruption met it
		}
	}
	left := Remaining(x.table, rec)
	named := left
	if len(left) > 0 && rec.Phase == journal.Suspend { // with what is kept
		named = Remaining(x.table, journal.Record{Phase: journal.Undo, Steps: rec.Steps})
	}
	for _, s := range named {
		text := s.Undo.ID + " is not done: " + cmp.Or(rec.Steps[s.ID].Error, "the same command can use what is there")
		if s.Undo.Manual != nil {
			manual := s.Undo.Manual()
			if manual == "" {
				continue
			}
			text += "; " + manual
		}
		out.Left = append(out.Left, text)
	}
	switch {
	case rec.Phase == journal.Forward && len(left)+len(x.left) > 0:
		out = needsPerson(append(out.Left, x.left...))
		rec.Why = out.Err.Error()
	case len(left) > 0 || rec.Phase == journal.Undo && committed:
		out.Exit = ExitNeedsPerson
		if committed {
			out.Left = append(append(out.Left, open...), x.left...)
		}
	case rec.Phase == journal.Suspend:
		out.Exit = ExitInterrupted
	case rec.Phase == journal.Undo:
		out.Exit = ExitFailed
	}
	if len(left) == 0 && rec.Phase != journal.Suspend {
		x.update(func(r *journal.Record) { r.Ended = &journal.End{At: x.Now(), Exit: out.Exit, Message: rec.Why} })
	}
	switch err := x.save(x.ctx); {
	case x.ctx.Err() != nil:
		out.Exit, out.Err = ExitInterrupted, cmp.Or(err, context.Cause(x.ctx))
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

// The kinds of events.
const (
	EventBegun    = "begun"
	EventProgress = "progress"
	EventDone     = "done"
	EventFailed   = "failed"
	EventSkipped  = "skipped" // Message says why
	EventNote     = "note"
)

// FailureText is an EventFailed's Message. A request that was interrupted has nothing to add.
func FailureText(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}

// An Event is progress to show.
type Event struct {
	At                         time.Time
	Kind, Step, Title, Message string
	Percent                    int32 // -1: unknown
	Elapsed, Usual             time.Duration
}

// A Summary is what a result reports of a run's events. It may be used from several
// goroutines.
type Summary struct {
	mu    sync.Mutex
	notes []string
	steps []StepTiming
}

// A StepTiming is that of one step or undo that ended.
type StepTiming struct {
	Step    string    `json:"step"`
	Begin   time.Time `json:"begin"`
	End     time.Time `json:"end"`
	Failure string    `json:"-"`
}

// Reporter returns a Runner's Report, which records each event and passes it to next, if that is
// set.
func (s *Summary) Reporter(next func(Event)) func(Event) {
	return func(e Event) {
		switch e.Kind {
		case EventNote:
			s.Note("%s", e.Message)
		case EventDone, EventFailed:
			s.mu.Lock()
			s.steps = append(s.steps, StepTiming{e.Step, e.At.Add(-e.Elapsed), e.At, e.Message})
			s.mu.Unlock()
		}
		if next != nil {
			next(e)
		}
	}
}

// Note adds a note, once. An empty one is none.
func (s *Summary) Note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := fmt.Sprintf(format, args...); text != "" && !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// Recorded returns the notes, and the steps in the order of their ends.
func (s *Summary) Recorded() (notes []string, steps []StepTiming) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notes), slices.Clone(s.steps)
}
