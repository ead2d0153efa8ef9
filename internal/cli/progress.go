package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/ortet/ortet/internal/workflow"
)

// progress shows a person what happens: on a terminal, finished steps scroll
// away above and the running ones are redrawn below; elsewhere, plain lines.
// It is safe for concurrent use and never blocks on anything but its writer.
type progress struct {
	out  io.Writer
	live bool
	size func() int // columns

	mu      sync.Mutex
	running []*runningStep
	drawn   int // lines that the running steps take on the screen
	frame   int
	closed  bool
	quit    chan struct{}
	ended   chan struct{}
}

type runningStep struct {
	event   workflow.Event
	since   time.Time
	printed time.Time // when a plain line was last written
}

// newProgress shows on out.
func newProgress(out io.Writer, getenv func(string) string) *progress {
	p := &progress{out: out, size: func() int { return columnsOf(out) }, quit: make(chan struct{}), ended: make(chan struct{})}
	if columnsOf(out) > 0 && getenv("TERM") != "dumb" {
		p.live = true
		go p.animate()
	} else {
		close(p.ended)
	}
	return p
}

// newProgress shows on standard error, also what the command waits for.
func (o *options) newProgress() *progress {
	p := newProgress(o.process.Err, o.process.Getenv)
	o.waits.through(p.Say)
	return p
}

// columnsOf is how wide a terminal is; 0 for what is none.
func columnsOf(out io.Writer) int {
	if r, ok := out.(*resultWriter); ok {
		out = r.to
	}
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

const (
	frameEvery = 200 * time.Millisecond
	// plainEvery is how often a running step is mentioned where nothing is redrawn.
	plainEvery = 30 * time.Second
)

func (p *progress) animate() {
	defer close(p.ended)
	t := time.NewTicker(frameEvery)
	defer t.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-t.C:
			p.mu.Lock()
			p.frame++
			p.redraw("")
			p.mu.Unlock()
		}
	}
}

// Close ends the display and leaves what was shown on the screen. It may be
// called more than once.
func (p *progress) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	close(p.quit)
	p.mu.Unlock()
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		p.running = nil
		p.redraw("")
	}
}

// Say writes a line among the steps.
func (p *progress) Say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && !p.closed {
		p.redraw(line + "\n")
		return
	}
	fmt.Fprintln(p.out, line)
}

// preflight is what a run does before its first step, which the runner does not report.
const preflight = "preflight"

// Preflight shows that a run begins. It lasts until the first step, or until ended is
// called with the run's error.
func (p *progress) Preflight() (ended func(error)) {
	p.Report(workflow.Event{At: time.Now(), Kind: workflow.EventBegun, Step: preflight, Title: "Acquire the pool lock, and run preflight checks", Percent: -1})
	return func(err error) {
		out := new(workflow.Outcome)
		switch {
		case workflow.ExitCode(err) == workflow.ExitRefused:
			p.endPreflight(time.Now(), workflow.EventFailed, "refused")
		case errors.As(err, &out) && stopped(out.Err):
			p.endPreflight(time.Now(), workflow.EventFailed, "interrupted")
		case err != nil && (!errors.As(err, &out) || out.Step != ""): // else all steps were done before
			p.endPreflight(time.Now(), workflow.EventFailed, err.Error())
		}
		p.endPreflight(time.Now(), workflow.EventDone, "")
	}
}

func (p *progress) endPreflight(at time.Time, kind, message string) {
	p.mu.Lock()
	s := p.step(preflight)
	p.mu.Unlock()
	if s != nil {
		p.Report(workflow.Event{At: at, Kind: kind, Step: preflight, Title: s.event.Title, Message: message, Percent: -1, Elapsed: at.Sub(s.since)})
	}
}

// Report shows an event.
func (p *progress) Report(e workflow.Event) {
	e.Title, e.Message = plain(e.Title), plain(e.Message)
	if e.Step != preflight {
		p.endPreflight(e.At, workflow.EventDone, "")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	step := p.step(e.Step)
	switch e.Kind {
	case workflow.EventBegun, workflow.EventProgress:
		if step == nil {
			step = &runningStep{since: e.At.Add(-e.Elapsed)}
			p.running = append(p.running, step)
		}
		fresh := step.event.Message != e.Message && e.Message != ""
		if e.Message == "" {
			e.Message = step.event.Message
		}
		e.Title, e.Elapsed = first(e.Title, step.event.Title), max(e.Elapsed, e.At.Sub(step.since))
		step.event = e
		if p.live {
			p.redraw("")
			return
		}
		if e.Kind == workflow.EventBegun || fresh && (e.Step == preflight || e.At.Sub(step.printed) >= time.Second) || e.At.Sub(step.printed) >= plainEvery {
			step.printed = e.At
			fmt.Fprintln(p.out, plainLine(e))
		}
	default:
		if e.Elapsed == 0 && step != nil {
			e.Elapsed = e.At.Sub(step.since)
		}
		if e.Kind != workflow.EventNote {
			p.running = slices.DeleteFunc(p.running, func(s *runningStep) bool { return s == step })
		}
		switch {
		case p.live && e.Step == "": // a note of the run, in full
			var note strings.Builder
			paragraph(&note, p.size()-1, " "+mark(e.Kind)+" ", "   ", e.Message)
			p.redraw(note.String())
		case p.live:
			p.redraw(endedLine(e, p.size()) + "\n")
		default:
			fmt.Fprintln(p.out, plainLine(e))
		}
	}
}

func (p *progress) step(id string) *runningStep {
	for _, s := range p.running {
		if s.event.Step == id {
			return s
		}
	}
	return nil
}

// redraw puts text above the running steps and draws these anew, in one write,
// so that nothing flickers.
func (p *progress) redraw(text string) {
	if !p.live {
		return
	}
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	b.WriteString("\r\x1b[J")
	b.WriteString(text)
	width := p.size()
	for _, s := range p.running {
		b.WriteString(runningLine(s, p.frame, width) + "\n")
	}
	p.drawn = len(p.running)
	_, _ = io.WriteString(p.out, b.String())
}

func mark(kind string) string {
	switch kind {
	case workflow.EventDone:
		return "✓"
	case workflow.EventFailed:
		return "✗"
	}
	return "-"
}

const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

func runningLine(s *runningStep, frame, width int) string {
	frames := []rune(spinner)
	elapsed := s.event.Elapsed
	if passed := time.Since(s.event.At); passed > 0 {
		elapsed += passed
	}
	right := duration(elapsed)
	if s.event.Usual > 0 {
		right += " of ~" + duration(s.event.Usual)
	}
	return columns(string(frames[frame%len(frames)]), s.event.Step, text(s.event), right, width)
}

func endedLine(e workflow.Event, width int) string {
	right := ""
	if e.Elapsed >= 100*time.Millisecond {
		right = duration(e.Elapsed)
	}
	return columns(mark(e.Kind), e.Step, text(e), right, width)
}

// text is what the event says, or else what the step is about: the first line,
// since the end tells the rest.
func text(e workflow.Event) string {
	t, _, _ := strings.Cut(strings.TrimSpace(e.Message), "\n")
	if t == "" {
		t = e.Title
	}
	if e.Percent > 0 && e.Kind == workflow.EventProgress {
		t = fmt.Sprintf("%d %%, %s", e.Percent, t)
	}
	return strings.Join(strings.Fields(t), " ")
}

// columns lays one line out: sign, step, what it does, time at the right edge.
// A line never reaches the last column, where some terminals would wrap.
func columns(sign, step, what, right string, width int) string {
	const stepWidth = 20 // that of all ids but delete-generalized-snapshot
	if width < 40 {
		width = 40
	}
	left := fmt.Sprintf(" %s %-*s ", sign, stepWidth, step)
	room := width - 2 - len([]rune(left)) - len([]rune(right))
	if r := []rune(what); len(r) > room {
		what = string(r[:max(0, room-1)]) + "…"
	}
	pad := room - len([]rune(what)) + 1
	return left + what + strings.Repeat(" ", max(1, pad)) + right
}

func plainLine(e workflow.Event) string {
	at := e.At.UTC().Format("15:04:05")
	if e.Step == "" {
		return at + " " + e.Kind + ": " + text(e)
	}
	took := ""
	if e.Elapsed >= 100*time.Millisecond {
		took = " after " + duration(e.Elapsed)
	}
	switch e.Kind {
	case workflow.EventBegun:
		usual := ""
		if e.Usual > 0 {
			usual = " (usually " + duration(e.Usual) + ")"
		}
		return fmt.Sprintf("%s %s: %s%s", at, e.Step, text(e), usual)
	case workflow.EventProgress:
		return fmt.Sprintf("%s %s: %s, %s", at, e.Step, text(e), duration(e.Elapsed))
	}
	return fmt.Sprintf("%s %s: %s%s: %s", at, e.Step, e.Kind, took, text(e))
}
