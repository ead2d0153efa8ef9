package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// defaultPollEvery is the pause between two observations of --wait.
const defaultPollEvery = 10 * time.Second

// unjudged returns the instances that may still get a verdict, and how many there are of
// pools that do not have all instances yet.
func (s survey) unjudged() (names []string, toCome int64) {
	have := map[fleet.Key]int64{}
	for _, n := range s.stories {
		if n.Gone || n.State == assess.Deleting {
			continue
		}
		if n.Boot != nil { // a Node alone may outlive its machine
			have[fleet.KeyOf(n.Pool)]++
		}
		switch n.State {
		case assess.Booting, assess.Unclear, "":
			if !n.before(s.since) {
				names = append(names, n.title())
			}
		}
	}
	for _, p := range s.pools {
		toCome += max(0, p.Capacity-have[fleet.KeyOf(p.ID)])
	}
	return names, toCome
}

// missingVerdicts says what has no verdict yet; "" if all have one.
func (s survey) missingVerdicts() string {
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

// before reports whether what is known of an instance is from before a time.
func (n nodeStory) before(since time.Time) bool {
	at := n.Created
	if at.IsZero() {
		at = n.Since
	}
	return !at.IsZero() && at.Before(since)
}

// waitForVerdicts observes until each instance has a verdict, or the time is over. What
// cannot be read at the begin ends it at once; later it may be a passing outage.
func (v *surveyor) waitForVerdicts(ctx context.Context, within time.Duration) (survey, error) {
	// Not a deadline: the rate limit of client-go would end requests long before it.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(within, cancel).Stop()
	every := v.o.process.pollEvery
	if every <= 0 {
		every = defaultPollEvery
	}
	said := ""
	var last survey
	for begun := false; ; begun = true {
		s, err := v.observe(limited, "")
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case !begun && limited.Err() != nil:
			return s, fmt.Errorf("nothing was read within %s (--wait)", durationText(within))
		case !begun && (err != nil || len(s.unread)+len(s.missing) > 0):
			return s, err
		case limited.Err() != nil: // it may have been cut short
			return last, nil
		case err != nil:
			last.unread = []string{err.Error()}
		default:
			last = s
		}
		text := last.missingVerdicts()
		if text == "" && len(last.unread) == 0 {
			return last, nil
		}
		if len(last.unread) > 0 {
			text = "what cannot be read now: " + strings.Join(last.unread, "; ")
		}
		if text != said {
			said = text
			paragraph(v.o.process.Err, columnsOf(v.o.process.Err), "", "  ", "Waiting for "+text)
		}
		if azure.Sleep(limited, every) != nil && ctx.Err() == nil {
			return last, nil
		}
	}
}

// printWaited shows what waitForVerdicts found. Exit codes are those of --failed, and
// ExitFailed if not all have a verdict.
func (o *options) printWaited(s survey, f nodesFlags) error {
	failed := false
	for _, n := range s.stories {
		failed = failed || s.failed(n) && !n.before(s.since)
	}
	text := s.missingVerdicts()
	err := o.printNodes(s.young(), f.failed)
	if failed && !errors.As(err, new(exitError)) {
		if err != nil {
			writeError(o.process.Err, err)
		}
		return exitError(workflow.ExitNeedsPerson)
	}
	if err == nil && text != "" {
		return fmt.Errorf("not all came up within %s (--wait): %s", f.wait, text)
	}
	return err
}

func (f nodesFlags) check(cmd *cobra.Command, args []string) error {
	for _, pool := range f.pools {
		if err := checkPool(pool); err != nil {
			return fmt.Errorf("--pool %w", err)
		}
	}
	switch {
	case f.wait < 0 || f.wait == 0 && cmd.Flags().Changed("wait"):
		return usagef("--wait %s: want more than 0s", f.wait)
	case f.since < 0:
		return usagef("--since %s: want 0s (any age) or more", f.since)
	case len(args) > 0 && (f.wait > 0 || f.since > 0):
		return usagef("--wait and --since: only without NAME; --pool names what to wait for")
	}
	return nil
}

// young leaves out what is older than since.
func (s survey) young() survey {
	s.stories = slices.DeleteFunc(s.stories, func(n nodeStory) bool { return n.before(s.since) })
	return s
}

// failed reports whether an instance did not come up well. One without a verdict has not, unless
// what would give one could not be read.
func (s survey) failed(n nodeStory) bool {
	return !n.well() && (n.State != "" || len(s.unread) == 0)
}

// well says what --failed leaves out.
func (n nodeStory) well() bool {
	return n.State == assess.Succeeded || n.State == assess.Booting || n.State == assess.Stopped || n.State == assess.Deleting
}
