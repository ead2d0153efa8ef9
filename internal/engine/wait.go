package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// waits says who asked for a wait.
type waits int

const (
	forCloud waits = iota // Retry-After
	forWorld              // a node boots, a pod works
	forOwn                // nobody: we back off
)

// lookEvery is how often a node or pod is looked at that is being waited for.
// The port has no watch; one GET of one object twice a second is cheaper for an
// API server than a watch with its own connection, and wastes a quarter of a
// second on average.
const lookEvery = 500 * time.Millisecond

// lookAfter is the pause before the next look at a pod that has worked for so
// long: an eighth of that, at least lookEvery and at most two seconds. A look
// also reads the pod's log through the kubelet, and a disk takes minutes.
func lookAfter(worked time.Duration) time.Duration {
	return min(max(worked/8, lookEvery), 2*time.Second)
}

// preflightDeadline bounds what is looked at before anything is done.
const preflightDeadline = 5 * time.Minute

// sleep is the only place where the engine sleeps.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait sleeps and books the time.
func (t *task) wait(ctx context.Context, d time.Duration, who waits) error {
	begin := t.r.e.now()
	err := sleep(ctx, d)
	slept := min(max(t.r.e.now().Sub(begin), 0), d)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch who {
	case forCloud:
		t.timing.Cloud += slept
	case forWorld:
		t.timing.World += slept
	case forOwn:
		t.timing.Own += slept
	}
	return err
}

// backoff waits before the n-th repeat, counted from 0: as long as the service
// asked, or else 1 s, 2 s, 4 s … 30 s.
func (t *task) backoff(ctx context.Context, n int, err error) error {
	if d := azure.RetryAfter(err); d > 0 {
		return t.wait(ctx, d, forCloud)
	}
	return t.wait(ctx, min(time.Second<<min(n, 5), 30*time.Second), forOwn)
}

// passing reports whether an error may be gone at the next try.
func passing(err error) bool {
	switch fleet.KindOf(err) {
	case fleet.KindTransient, fleet.KindThrottled, fleet.KindConflict, fleet.KindTimedOut:
		return true
	}
	return false
}

// ask repeats a read, or something else that may be repeated, for as long as
// its errors may pass and ctx lasts.
func ask[T any](ctx context.Context, t *task, read func(ctx context.Context) (T, error)) (T, error) {
	for n := 0; ; n++ {
		v, err := read(ctx)
		if err == nil || !passing(err) && !t.patient(err, n) || ctx.Err() != nil {
			if err == nil && n > 0 {
				t.setTrouble(nil)
			}
			return v, err
		}
		ours := errors.Is(err, azure.ErrTurn)
		if !ours {
			t.setTrouble(err)
		}
		if waitErr := t.backoff(ctx, n, err); waitErr != nil {
			if ours { // what used up the time is the cause, and not our own limit
				err = t.troubled(waitErr)
			}
			return v, err
		}
	}
}

// rotation is how many tries, a minute in all, credentials are given to be
// renewed.
const rotation = 6

// refusals is how often what undoes a change is asked for again that was refused.
const refusals = 3

// patient reports whether refused credentials are waited out at the n-th try:
// they are rotated and renewed, and a donor's return is worth any wait. So is what
// is built already, as with a service that does not answer, where the donor is back
// and nothing else waits. Before anything is begun, a person who mistyped them waits.
// No single refusal keeps what was changed from being undone.
func (t *task) patient(err error, n int) bool {
	if t.step.GivesBack && (fleet.Is(err, fleet.KindInvalid) || fleet.Is(err, fleet.KindDenied)) {
		return n < refusals
	}
	if !fleet.Is(err, fleet.KindUnauthenticated) {
		return false
	}
	if n < rotation {
		return true
	}
	patient := t.step.GivesBack || t.r.holdsNothingUp()
	if patient && n == rotation {
		t.progress(-1, "the credentials are refused: waiting until they are renewed (%v)", err)
	}
	return patient
}

// do is ask for what gives nothing back.
func do(ctx context.Context, t *task, act func(ctx context.Context) error) error {
	_, err := ask(ctx, t, func(ctx context.Context) (struct{}, error) { return struct{}{}, act(ctx) })
	return err
}

// found turns a read's KindNotFound into false.
func found[T any](ctx context.Context, t *task, read func(ctx context.Context) (T, error)) (T, bool, error) {
	v, err := ask(ctx, t, read)
	if fleet.Is(err, fleet.KindNotFound) {
		return v, false, nil
	}
	return v, err == nil, err
}
