package azure

import (
	"context"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A RetryPolicy bounds what Retry does. Its zero value is the default.
type RetryPolicy struct {
	// Tries is how often something is tried in all; 0 means 5.
	Tries int
	// First is the wait before the second try, doubled each time; 0 means 1 s.
	First time.Duration
	// Longest bounds one wait, RetryAfter too: what asks for more is given back
	// to the caller. 0 means 2 min.
	Longest time.Duration
	// Jitter gives a number in [0, 1): each wait is lengthened by up to a half
	// of itself, so that many clients do not come back at once. nil means none.
	Jitter func() float64
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Tries <= 0 {
		p.Tries = 5
	}
	if p.First <= 0 {
		p.First = time.Second
	}
	if p.Longest <= 0 {
		p.Longest = 2 * time.Minute
	}
	return p
}

// wait is how long to wait before the next try, and whether to try again.
func (p RetryPolicy) wait(try int, err error, asked time.Duration) (time.Duration, bool) {
	if try >= p.Tries {
		return 0, false
	}
	switch fleet.KindOf(err) {
	case fleet.KindTransient, fleet.KindThrottled:
	default:
		return 0, false
	}
	d := p.First << min(try-1, 20)
	if d <= 0 || d > p.Longest {
		d = p.Longest
	}
	if p.Jitter != nil {
		d += time.Duration(float64(d) * p.Jitter() / 2)
	}
	if asked > p.Longest {
		return 0, false
	}
	return max(min(d, p.Longest), asked), true
}

// Retry tries again what failed for a passing reason: KindTransient, and
// KindThrottled after what the service asks for.
//
// Reads and Poll are always safe to repeat. So is Begin: repeating a fleet.Change whose
// effect is there changes nothing, but for a reimage or restart, which is done again, and
// a repeated creation joins the first. What a Begin may not hide is
// that its first try had an effect in spite of its error; the error of the last
// try says so by its kind, and the caller observes. KindStale, KindConflict and a refusal
// would not: after a try whose answer was lost, that try's error is returned instead, since
// its effect may come. A Begin that the service asks to repeat later is given back:
// whether the change may still be made then is the caller's to decide.
func Retry(cloud Cloud, policy RetryPolicy) Cloud {
	return around{cloud, &retrier{policy.withDefaults()}}
}

type retrier struct{ policy RetryPolicy }

func (r *retrier) around(ctx context.Context, c request, do func(context.Context) error) error {
	var lost error // of a try that may have had an effect
	for try := 1; ; try++ {
		err := do(ctx)
		if err == nil || c.ended() {
			return err
		}
		if lost != nil && c.change != nil && fleet.Is(err, fleet.KindThrottled) { // this try alone had no effect
			err = &fleet.Error{Op: c.change.Verb(), Resource: string(c.change.Target()), Kind: fleet.KindTransient, RetryAfter: RetryAfter(err), Err: lost}
		}
		switch {
		case c.change != nil && RetryAfter(err) > 0:
			return err
		case fleet.Is(err, fleet.KindTransient):
			lost = err
		case lost != nil && (c.change != nil && !fleet.Is(err, fleet.KindThrottled) || fleet.Is(err, fleet.KindStale) || fleet.Is(err, fleet.KindConflict) || fleet.Is(err, fleet.KindNotFound)):
			return lost
		}
		d, again := r.policy.wait(try, err, RetryAfter(err))
		if !again || !sleep(ctx, d) {
			return err
		}
	}
}

// RetryAfter finds for how long the service asked to wait, anywhere in err's chain; 0
// where it did not.
func RetryAfter(err error) time.Duration {
	var longest time.Duration
	for err != nil {
		if e, ok := err.(*fleet.Error); ok { //nolint:errorlint // every error of the chain is looked at
			longest = max(longest, e.RetryAfter)
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return longest
		}
		err = u.Unwrap()
	}
	return longest
}

// sleep waits, and reports whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false // the wait could not end before the caller's deadline
	}
	return Sleep(ctx, d) == nil
}

// Sleep waits, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
