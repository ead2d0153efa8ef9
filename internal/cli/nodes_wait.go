package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/workflow"
)

// defaultPollEvery is the pause between two observations of --wait.
const defaultPollEvery = 10 * time.Second

// waitForVerdicts observes until each instance has a verdict, or the time is over, and says what
// it waits for.
func (o *options) waitForVerdicts(ctx context.Context, v *survey.Surveyor, within time.Duration) (survey.Survey, error) {
	s, err := v.Wait(ctx, within, cmp.Or(o.process.pollEvery, defaultPollEvery), func(text string) {
		paragraph(o.process.Err, columnsOf(o.process.Err), "", "  ", "Waiting for "+text)
	})
	if errors.Is(err, survey.ErrNothingRead) {
		err = fmt.Errorf("nothing was read within %s (--wait)", durationText(within))
	}
	return s, err
}

// printWaited shows what waitForVerdicts found. Exit codes are those of --failed, and
// ExitFailed if not all have a verdict.
func (o *options) printWaited(s survey.Survey, f nodesFlags) error {
	failed := false
	for _, n := range s.Stories {
		failed = failed || s.Failed(n) && !n.Before(s.Since)
	}
	text := s.MissingVerdicts()
	err := o.printNodes(s.Young(), f.failed)
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
