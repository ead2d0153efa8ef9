package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// unjudged returns the instances that may still get a verdict, and how many there are of
// pools that do not have all instances yet.
func (s Survey) unjudged() (names []string, toCome int64) {
	have := map[fleet.Key]int64{}
	for _, n := range s.Stories {
		if n.Gone || n.State == assess.Deleting {
			continue
		}
		if n.Boot != nil { // a Node alone may outlive its machine
			have[fleet.KeyOf(n.Pool)]++
		}
		switch n.State {
		case assess.Booting, assess.Unclear, "":
			if !n.Before(s.Since) {
				names = append(names, n.Title())
			}
		}
	}
	for _, p := range s.Pools {
		toCome += max(0, p.Capacity-have[fleet.KeyOf(p.ID)])
	}
	return names, toCome
}

// MissingVerdicts says what has no verdict yet; "" if all have one.
func (s Survey) MissingVerdicts() string {
	const most = 5
	names, toCome := s.unjudged()
	var parts []string
	if n := len(names); n > 0 {
		text := fleet.Count(n, "instance") + " without a verdict: " + strings.Join(names[:min(n, most)], ", ")
		if n > most {
			text += fmt.Sprintf(" and %d more", n-most)
		}
		parts = append(parts, text)
	}
	if toCome > 0 {
		parts = append(parts, fleet.Count(int(toCome), "instance")+" that the scale set's capacity has and Azure does not list yet")
	}
	return strings.Join(parts, "; ")
}

// Before reports whether what is known of an instance is from before a time.
func (n Story) Before(since time.Time) bool {
	at := n.Created
	if at.IsZero() {
		at = n.Since
	}
	return !at.IsZero() && at.Before(since)
}

// Wait observes until each instance has a verdict, or the time is over; say is called with what
// has none yet, whenever that changes. What cannot be read at the begin ends it at once; later it
// may be a passing outage.
func (v *Surveyor) Wait(ctx context.Context, within, every time.Duration, say func(string)) (Survey, error) {
	// Not a deadline: the rate limit of client-go would end requests long before it.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(within, cancel).Stop()
	said := ""
	var last Survey
	for begun := false; ; begun = true {
		s, err := v.Observe(limited, "")
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case !begun && limited.Err() != nil:
			return s, ErrNothingRead
		case !begun && (err != nil || len(s.Unread)+len(s.Missing) > 0):
			return s, err
		case limited.Err() != nil: // it may have been cut short
			return last, nil
		case err != nil:
			last.Unread = []string{err.Error()}
		default:
			last = s
		}
		text := last.MissingVerdicts()
		if text == "" && len(last.Unread) == 0 {
			return last, nil
		}
		if len(last.Unread) > 0 {
			text = "what cannot be read now: " + strings.Join(last.Unread, "; ")
		}
		if text != said {
			said = text
			say(text)
		}
		if azure.Sleep(limited, every) != nil && ctx.Err() == nil {
			return last, nil
		}
	}
}

// ErrNothingRead is that the time of Wait was over before the first observation.
var ErrNothingRead = errors.New("nothing was read in time")

// Young leaves out what is older than since.
func (s Survey) Young() Survey {
	s.Stories = slices.DeleteFunc(s.Stories, func(n Story) bool { return n.Before(s.Since) })
	return s
}

// Failed reports whether an instance did not come up well. One without a verdict has not, unless
// what would give one could not be read.
func (s Survey) Failed(n Story) bool {
	return !n.Well() && (n.State != "" || len(s.Unread) == 0)
}

// Well reports a node that came up, or may come up yet.
func (n Story) Well() bool {
	return n.State == assess.Succeeded || n.State == assess.Booting || n.State == assess.Stopped || n.State == assess.Deleting
}
