// Package schedule is when work on a pool may begin, and how much of it at a time: windows, as
// Karpenter's budgets and kured have them, and budgets of nodes. It decides by the times that it is
// given.
package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Bounds of how long a window is.
const (
	MinDuration = time.Minute
	MaxDuration = 31 * 24 * time.Hour
)

// DefaultZone is where a schedule is read that names no time zone.
const DefaultZone = "UTC"

const (
	maxText = 256 // bytes of a schedule

	// firstYear is before a leap year, so that all dates of a calendar are within what cron searches.
	firstYear = 2001
	checked   = 2000 // begins that are compared with the duration: five years of a daily schedule
	adjoining = 7 * 24 * time.Hour
)

// A Window is a recurring time. The zero Window is always open.
type Window struct {
	begins   *cron.SpecSchedule // in UTC, which stands for what a clock of zone shows; nil: always open
	zone     *time.Location
	duration time.Duration
	text     string
}

// Parse reads a cron schedule of five fields (minute, hour, day of month, month, day of week) or
// @hourly, @daily, @weekly, @monthly, @yearly. Each of its times opens the window for duration, which
// is elapsed time: a night in which clocks change gives neither more nor less of it. zone is an IANA
// name; "" is UTC. All empty is the zero Window.
//
// A time that clocks skip opens no window on that day, as with Kubernetes' CronJobs; one that they
// show twice opens the first time.
func Parse(schedule string, duration time.Duration, zone string) (Window, error) {
	schedule = strings.TrimSpace(schedule)
	switch {
	case schedule == "" && duration == 0 && zone == "":
		return Window{}, nil
	case schedule == "" && duration != 0:
		return Window{}, errors.New("a duration without a schedule: name when the window opens, such as \"0 1 * * 6\"")
	case schedule == "":
		return Window{}, errors.New("a time zone without a schedule: name when the window opens, such as \"0 1 * * 6\"")
	case duration == 0:
		return Window{}, errors.New("a schedule without a duration: say how long the window stays open, such as 5h")
	case duration < MinDuration || duration > MaxDuration:
		return Window{}, fmt.Errorf("the window is open for %s: want %s to %s", text(duration), text(MinDuration), text(MaxDuration))
	}
	location, zone, err := location(zone)
	if err != nil {
		return Window{}, err
	}
	spec, err := parse(schedule)
	if err != nil {
		return Window{}, fmt.Errorf("the schedule %q cannot be read: %w", schedule, err)
	}
	spec.Location = time.UTC
	if err := check(spec, duration); err != nil {
		return Window{}, fmt.Errorf("the schedule %q %w", schedule, err)
	}
	return Window{spec, location, duration, fmt.Sprintf("%q (%s) for %s", schedule, zone, text(duration))}, nil
}

func location(zone string) (*time.Location, string, error) {
	if zone == "" {
		zone = DefaultZone
	}
	at, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" { // which the computer decides that reads it
		return nil, "", fmt.Errorf("unknown time zone %q: want a name of the IANA database, such as Europe/Berlin or UTC", zone)
	}
	return at, zone, nil
}

// parse refuses what robfig/cron reads beside a schedule: a time zone, which has a place of its own
// here, and @every, whose times depend on when the program was started.
func parse(schedule string) (*cron.SpecSchedule, error) {
	const fields = "want minute, hour, day of month, month and day of week (0 is Sunday, 6 Saturday), such as \"0 1 * * 6\", or @daily"
	switch {
	case len(schedule) > maxText:
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(schedule), maxText)
	case strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ="):
		return nil, errors.New("it names a time zone: give that beside it, not in it")
	}
	read, err := cron.ParseStandard(schedule)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, fields)
	}
	spec, is := read.(*cron.SpecSchedule)
	if !is {
		return nil, errors.New("@every counts from the start of a program; " + fields)
	}
	return spec, nil
}

// check refuses a schedule without times, and a window that is still open when the next one opens:
// that is most often a mistake in one of the two.
func check(spec *cron.SpecSchedule, duration time.Duration) error {
	at := spec.Next(time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC))
	if at.IsZero() {
		return errors.New("never comes: no month that it names has that day")
	}
	for range checked {
		next := spec.Next(at)
		if next.IsZero() {
			return nil
		}
		if gap := next.Sub(at); gap < duration {
			return fmt.Errorf("comes %[1]s after the time before, and the window is open for %[2]s: "+
				"want a duration of at most %[1]s, or a schedule that comes less often", text(gap), text(duration))
		}
		at = next
	}
	return nil
}

// onClock is what a clock of t's zone shows, as a time in UTC.
func onClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// Always reports whether the window is the zero Window.
func (w Window) Always() bool { return w.begins == nil }

// Open reports whether the window is open, and until when: the zero time is for ever. Windows that
// adjoin are one, for a week at most.
func (w Window) Open(now time.Time) (until time.Time, open bool) {
	if w.Always() {
		return time.Time{}, true
	}
	begin := w.next(now.Add(-w.duration))
	if begin.IsZero() || begin.After(now) {
		return time.Time{}, false
	}
	for until.Sub(now) < adjoining && !begin.IsZero() && !begin.After(cmp.Or(until, begin)) {
		until = begin.Add(w.duration)
		begin = w.next(begin)
	}
	return until, true
}

// Next returns when the window opens next after now: now, if it is always open. The zero time means
// not within five years.
func (w Window) Next(now time.Time) time.Time {
	if w.Always() {
		return now
	}
	return w.next(now)
}

// next does not leave clocks that change to cron, which opens twice in the hour that comes twice, and
// passes over a day whose midnight is skipped.
func (w Window) next(after time.Time) time.Time {
	shown := onClock(after.In(w.zone))
	for {
		if shown = w.begins.Next(shown); shown.IsZero() {
			return shown
		}
		at := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), 0, 0, w.zone)
		_, offset := at.Zone()
		_, before := at.Add(-24 * time.Hour).Zone()
		if first := at.Add(time.Duration(offset-before) * time.Second); onClock(first).Equal(shown) {
			at = first
		}
		if onClock(at).Equal(shown) && at.After(after) {
			return at
		}
	}
}

// String is the window in words; "always" for the zero Window.
func (w Window) String() string {
	if w.Always() {
		return "always"
	}
	return w.text
}

// text is a duration without the zeros that Go shows: 5h, not 5h0m0s.
func text(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
