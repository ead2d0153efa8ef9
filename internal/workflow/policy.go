package workflow

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	firstPause, longestPause = time.Second, 30 * time.Second
	// credentialWait is how long refused credentials are tried before anything is changed.
	credentialWait = time.Minute
	// planDeadline bounds how long lock and record are asked for before that.
	planDeadline = 5 * time.Minute
)

// retry is the only policy that repeats a pass: it gives the pause before the next one,
// 1 s, 2 s, 4 s … 30 s, or false if the action has failed. failures counts passes that
// failed in a row, err's among them; changed says that the run has changed something.
func retry(err error, undo, changed bool, failures int, since time.Duration) (time.Duration, bool) {
	pause := max(min(firstPause<<min(failures-1, 5), longestPause), azure.RetryAfter(err))
	if again := new(Again); errors.As(err, &again) {
		return 0, false
	}
	switch fleet.KindOf(err) {
	case fleet.KindStale:
		if failures == 1 {
			pause = time.Millisecond
		}
		return pause, true
	case fleet.KindTransient, fleet.KindThrottled, fleet.KindConflict, fleet.KindTimedOut:
		return pause, true
	case fleet.KindUnauthenticated:
		return pause, undo || changed || since+pause <= credentialWait
	}
	return pause, undo
}

// repeat calls try until it succeeds, or has failed by the same policy.
func repeat(ctx context.Context, now func() time.Time, changed bool, try func() error) error {
	var begun time.Time // of the failures: a try may wait long for another process
	for failures := 1; ; failures++ {
		err := try()
		if err == nil {
			return nil
		}
		if failures == 1 {
			begun = now()
		}
		since := now().Sub(begun)
		pause, again := retry(err, false, changed, failures, since)
		if !again || !changed && since > planDeadline {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// sleep waits, or gives the cause of ctx's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
