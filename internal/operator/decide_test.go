package operator_test

import (
	"testing"
	"time"

	"github.com/ortet/ortet/internal/operator"
)

// daily opens at 02:00 for four hours; always is never closed.
type (
	daily  struct{}
	always struct{}
)

func (daily) Next(now time.Time) time.Time {
	at := now.Truncate(24 * time.Hour).Add(2 * time.Hour)
	if !at.After(now) {
		at = at.Add(24 * time.Hour)
	}
	return at
}

func (d daily) Open(now time.Time) (time.Time, bool) {
	until := d.Next(now.Add(-4 * time.Hour)).Add(4 * time.Hour)
	return until, !d.Next(now.Add(-4 * time.Hour)).After(now)
}

func (always) Next(now time.Time) time.Time         { return now }
func (always) Open(time.Time) (_ time.Time, _ bool) { return time.Time{}, true }

// TestDecide has each row of the table, in its order: what is below a row holds too.
func TestDecide(t *testing.T) {
	night := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	all := operator.Seen{Canary: true, Unproven: true, Due: true, Outdated: 3, Tried: night.Add(-24 * time.Hour)}
	wants := operator.Want{Watches: true, Capture: daily{}, Rollout: []operator.Window{always{}}}
	seen := func(change func(*operator.Seen)) operator.Seen { s := all; change(&s); return s }
	want := func(change func(*operator.Want)) operator.Want { w := wants; change(&w); return w }
	last := func(do operator.Do, ago time.Duration, exit int) operator.Run {
		return operator.Run{Do: do, Ended: night.Add(-ago), Exit: exit}
	}
	proven := func(s *operator.Seen) { s.Canary, s.Unproven = false, false }
	for name, c := range map[string]struct {
		want  operator.Want
		seen  operator.Seen
		now   time.Duration // after 03:00
		do    operator.Do
		looks time.Duration // from now, where nothing is done
	}{
		"only observes":                        {want: want(func(w *operator.Want) { w.Observes = true }), seen: seen(func(s *operator.Seen) { s.Open = "capture" }), looks: operator.Idle},
		"held by another":                      {want: wants, seen: seen(func(s *operator.Seen) { s.Held, s.Open = "laptop/1", "capture" }), looks: operator.Running},
		"a record is open":                     {want: want(func(w *operator.Want) { w.Suspend = true }), seen: seen(func(s *operator.Seen) { s.Open = "capture" }), do: operator.Resume},
		"a record that could not be ended":     {want: wants, seen: seen(func(s *operator.Seen) { s.Open, s.Last = "capture", last(operator.Capture, 12*time.Minute, 4) }), looks: 3 * time.Minute},
		"a record that was interrupted":        {want: wants, seen: seen(func(s *operator.Seen) { s.Open, s.Last = "capture", last(operator.Capture, time.Second, 5) }), do: operator.Resume},
		"suspended":                            {want: want(func(w *operator.Want) { w.Suspend = true }), seen: all, looks: operator.Idle},
		"an expired canary":                    {want: wants, seen: all, do: operator.DeleteCanary},
		"a canary that cannot be deleted":      {want: wants, seen: seen(func(s *operator.Seen) { s.Last = last(operator.DeleteCanary, time.Minute, 1) }), do: operator.Watch},
		"an unproven version":                  {want: wants, seen: seen(func(s *operator.Seen) { s.Canary = false }), do: operator.Watch},
		"a version that no node proves":        {want: wants, seen: seen(func(s *operator.Seen) { s.Canary, s.Last = false, last(operator.Watch, time.Minute, 0) }), do: operator.Capture},
		"unproven, and no window":              {want: wants, now: 9 * time.Hour, seen: seen(func(s *operator.Seen) { s.Canary = false; s.Last = last(operator.Watch, -9*time.Hour, 0) }), looks: operator.Idle},
		"an unproven version, not watched":     {want: want(func(w *operator.Want) { w.Watches = false }), seen: seen(func(s *operator.Seen) { s.Canary = false }), do: operator.Capture},
		"unproven, not watched, not due":       {want: want(func(w *operator.Want) { w.Watches = false }), seen: seen(func(s *operator.Seen) { s.Canary, s.Due = false, false }), looks: operator.Idle},
		"due, in the window":                   {want: wants, seen: seen(proven), do: operator.Capture},
		"due, before the window":               {want: want(func(w *operator.Want) { w.Rollout = nil }), now: -62 * time.Minute, seen: seen(proven), looks: 2 * time.Minute},
		"due, after the window":                {want: want(func(w *operator.Want) { w.Rollout = nil }), now: 3 * time.Hour, seen: seen(proven), looks: operator.Idle},
		"due, and tried in this window":        {want: wants, seen: seen(func(s *operator.Seen) { proven(s); s.Tried = night.Add(-time.Minute) }), do: operator.Rollout},
		"due, and tried the night before":      {want: wants, seen: seen(func(s *operator.Seen) { proven(s); s.Tried = night.Add(-22 * time.Hour) }), do: operator.Capture},
		"due, and no capture wanted":           {want: want(func(w *operator.Want) { w.Capture = nil }), seen: seen(proven), do: operator.Rollout},
		"not due":                              {want: wants, seen: seen(func(s *operator.Seen) { proven(s); s.Due = false }), do: operator.Rollout},
		"outdated, window closed":              {want: want(func(w *operator.Want) { w.Rollout = []operator.Window{daily{}} }), now: 9 * time.Hour, seen: seen(proven), looks: operator.Idle},
		"outdated, one of two windows is open": {want: want(func(w *operator.Want) { w.Rollout = []operator.Window{daily{}, always{}} }), now: 9 * time.Hour, seen: seen(proven), do: operator.Rollout},
		"begun, window closed":                 {want: want(func(w *operator.Want) { w.Rollout = []operator.Window{daily{}} }), now: 9 * time.Hour, seen: seen(func(s *operator.Seen) { proven(s); s.Outdated, s.Begun = 0, true }), do: operator.Rollout},
		"begun, no rollout":                    {want: want(func(w *operator.Want) { w.Rollout, w.Capture = nil, nil }), seen: seen(func(s *operator.Seen) { proven(s); s.Begun = true }), looks: operator.Idle},
		"outdated, and unproven": {want: want(func(w *operator.Want) { w.Capture = nil }), seen: seen(func(s *operator.Seen) { s.Canary, s.Last = false, last(operator.Watch, 11*time.Minute, 0) }),
			looks: 4 * time.Minute},
		"a rollout that stopped":                     {want: want(func(w *operator.Want) { w.Capture = nil }), seen: seen(func(s *operator.Seen) { proven(s); s.Last = last(operator.Rollout, 14*time.Minute, 4) }), looks: time.Minute},
		"a rollout that stopped a while ago":         {want: want(func(w *operator.Want) { w.Capture = nil }), seen: seen(func(s *operator.Seen) { proven(s); s.Last = last(operator.Rollout, 15*time.Minute, 4) }), do: operator.Rollout},
		"all is as wanted":                           {want: wants, seen: operator.Seen{Tried: night}, looks: operator.Idle},
		"a schedule that is always open, just tried": {want: operator.Want{Capture: always{}}, seen: seen(func(s *operator.Seen) { proven(s); s.Last = last(operator.Capture, 10*time.Minute, 3) }), looks: 5 * time.Minute},
	} {
		now := night.Add(c.now)
		do, next := operator.Decide(c.want, c.seen, now)
		if do != c.do || do == operator.Nothing && next.Sub(now) != c.looks {
			t.Errorf("%s: %q, looks in %s; want %q, %s", name, do, next.Sub(now), c.do, c.looks)
		}
	}
}
