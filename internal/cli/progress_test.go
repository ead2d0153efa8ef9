package cli

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/workflow"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func event(step, title, kind string, after time.Duration, message string) workflow.Event {
	return workflow.Event{At: noon.Add(after), Step: step, Title: title, Kind: kind, Message: message, Percent: -1, Elapsed: after}
}

func TestPlainProgress(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b, func(string) string { return "" })
	stop := func(kind string, after time.Duration, message string) workflow.Event {
		return event("stop", "Power off n", kind, after, message)
	}
	begun := stop(workflow.EventBegun, 0, "")
	begun.Usual = 150 * time.Second
	p.Report(begun)
	p.Report(stop(workflow.EventProgress, 500*time.Millisecond, "Azure: stop instance: InProgress"))  // within a second of the last line
	p.Report(stop(workflow.EventProgress, 2*time.Second, "Azure: stop instance: InProgress"))         // no news
	p.Report(stop(workflow.EventProgress, 32*time.Second, "Azure: stop instance: InProgress"))        // a sign of life
	p.Report(stop(workflow.EventProgress, 33500*time.Millisecond, "Azure: stop instance: Succeeded")) // news
	version := event("version", "Build image version 2026.11.21", workflow.EventProgress, 40*time.Second, "Azure: create image version: InProgress")
	version.Percent = 29
	p.Report(version)
	p.Report(stop(workflow.EventDone, 95*time.Second, ""))
	p.Report(event("hold-reboots", "Block kured reboots", workflow.EventSkipped, 10*time.Millisecond, "there is no kured"))
	p.Report(event("drain", "Drain n", workflow.EventFailed, time.Minute, "pods are left\n  - a/b"))
	p.Report(event("drain", "Drain n", workflow.EventNote, time.Minute, "pod a/b is left"))
	p.Report(event("", "", workflow.EventNote, 0, "an open capture of n (step stop) is resumed"))
	p.Close()
	p.Report(stop(workflow.EventDone, time.Hour, "after the end")) // is not shown
	want := `12:00:00 stop: Power off n (usually 2m30s)
12:00:32 stop: Azure: stop instance: InProgress, 32s
12:00:33 stop: Azure: stop instance: Succeeded, 33s
12:00:40 version: 29 %, Azure: create image version: InProgress, 40s
12:01:35 stop: done after 1m35s: Power off n
12:00:00 hold-reboots: skipped: there is no kured
12:01:00 drain: failed after 1m00s: pods are left
12:01:00 drain: note after 1m00s: pod a/b is left
12:00:00 note: an open capture of n (step stop) is resumed
`
	if b.String() != want {
		t.Errorf("shown:\n%s\nwant:\n%s", b.String(), want)
	}
}

// Preflight is shown until the first step, or until the run ends without one.
func TestPreflight(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b, func(string) string { return "" })
	ended := p.Preflight()
	p.Report(event("drain", "Drain n", workflow.EventBegun, time.Hour, ""))
	ended(errors.New("it failed"))
	p.Preflight()(errors.New("refused"))
	p.Preflight()(nil)
	var shown []string
	for l := range strings.Lines(b.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(l), " ")
		begin, _, _ := strings.Cut(text, " after ")
		shown = append(shown, begin)
	}
	const begun = "preflight: Acquire the pool lock, and run preflight checks"
	want := []string{begun, "preflight: done", "drain: Drain n", begun, "preflight: failed: refused", begun, "preflight: done: Acquire the pool lock, and run preflight checks"}
	if len(shown) != len(want) {
		t.Fatalf("shown:\n%s", b.String())
	}
	for i := range want {
		if !strings.HasPrefix(shown[i], want[i]) {
			t.Errorf("line %d is %q, want %q", i, shown[i], want[i])
		}
	}
}

// screen is what a terminal shows that got the output, if no line wraps.
func screen(output string) []string {
	lines := []string{""}
	row := 0
	for len(output) > 0 {
		switch {
		case strings.HasPrefix(output, "\x1b["):
			n, end := 0, 2
			for output[end] >= '0' && output[end] <= '9' {
				n = n*10 + int(output[end]-'0')
				end++
			}
			switch output[end] {
			case 'A':
				row -= n
			case 'J':
				lines = append(lines[:row], "")
			}
			output = output[end+1:]
			continue
		case output[0] == '\n':
			row++
			if row == len(lines) {
				lines = append(lines, "")
			}
		case output[0] == '\r':
		default:
			lines[row] += output[:1]
		}
		output = output[1:]
	}
	return lines
}

// On a terminal, what ended stays above, and what runs is drawn below it, once.
func TestLiveProgress(t *testing.T) {
	const columns = 80
	var b strings.Builder
	p := &progress{out: &b, live: true, size: func() int { return columns }, quit: make(chan struct{}), ended: make(chan struct{})}
	close(p.ended) // nothing animates
	now := time.Now()
	at := func(e workflow.Event) workflow.Event { e.At = now; return e }
	long := strings.Repeat("Azure says a great deal ", 20)
	start := event("start", "Start n", workflow.EventBegun, 0, "")
	start.Usual = time.Minute
	p.Report(at(start))
	p.Report(at(event("work-disk", "Make a copy", workflow.EventBegun, 0, "")))
	going := event("start", "Start n", workflow.EventProgress, time.Second, long)
	going.Usual = time.Minute
	p.Report(at(going))
	p.Report(at(event("work-disk", "Make a copy", workflow.EventDone, 9*time.Second, "")))
	p.Report(at(event("hold-reboots", "Hold", workflow.EventSkipped, 0, "there is no kured")))
	p.Say("Interrupted.")
	p.Report(at(event("generalized-snapshot", "Take a snapshot", workflow.EventBegun, 0, "")))

	shown := screen(b.String())
	for i, begins := range []string{" ✓ work-disk ", " - hold-reboots ", "Interrupted.", " ⠋ start ", " ⠋ generalized-snapshot "} {
		if i >= len(shown) || !strings.HasPrefix(shown[i], begins) {
			t.Fatalf("line %d does not begin with %q:\n%s", i, begins, strings.Join(shown, "\n"))
		}
	}
	if !strings.Contains(shown[3], "…") || !strings.Contains(shown[3], " of ~1m00s") {
		t.Errorf("a long message is not cut, or hides the time: %s", shown[3])
	}
	for l := range strings.SplitSeq(b.String(), "\n") {
		if n := utf8.RuneCountInString(strings.TrimLeft(l, "\r\x1b[0123456789AJ")); n >= columns {
			t.Errorf("%d columns would wrap: %q", n, l)
		}
	}
	p.Close()
	shown = screen(b.String())
	if all := strings.Join(shown, "\n"); strings.Contains(all, "start ") || !strings.Contains(all, "work-disk") {
		t.Errorf("at the end what ran is still there, or what ended is gone:\n%s", all)
	}
	p.Close() // again
}

func TestDurations(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0.0s": 0, "9.9s": 9900 * time.Millisecond, "10s": 10500 * time.Millisecond, "59s": 59*time.Second + 999*time.Millisecond,
		"1m00s": time.Minute, "59m59s": time.Hour - time.Second, "1h00m": time.Hour, "8h30m": 8*time.Hour + 30*time.Minute + 30*time.Second,
	} {
		if got := duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
