package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// errLost ends a run: another process works on the pool.
var errLost = errors.New("another process took the pool lock")

// ErrLapsed is the cause of a context that ended since the pool lock could not be renewed in time.
var ErrLapsed = fmt.Errorf("the pool lock lapsed: %w", context.Canceled)

// Locked calls f while it has the pool's lock; if that lapsed, and no other process took it meanwhile,
// again once it has it back. Errors are those of f, *Refused where another process has the lock, and
// *Outcome (ExitInterrupted) where one took it.
func (r *Runner) Locked(ctx context.Context, pool fleet.ResourceID, f func(context.Context) error) error {
	l := r.lockOf(ctx, pool)
	defer l.release()
	if err := l.acquire(ctx); err != nil {
		return err
	}
	for {
		err := l.wait(ctx)
		if errors.Is(err, errLost) {
			return &Outcome{Exit: ExitInterrupted, Err: err}
		}
		held, end := l.context(ctx)
		if err == nil && r.Claim != nil {
			err = r.Claim(held, pool)
		}
		if err == nil {
			err = f(held)
		}
		lapsed := errors.Is(context.Cause(held), ErrLapsed)
		if end(); !lapsed {
			return err
		}
	}
}

func (r *Runner) lockOf(ctx context.Context, pool fleet.ResourceID) *lock {
	l := &lock{Runner: r, name: strings.ToLower(string(pool))}
	l.lost, l.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// A lock keeps other processes off a pool. While it cannot be renewed the run waits,
// since a Lease that no other process took can be renewed late.
type lock struct {
	*Runner
	name string

	mu      sync.Mutex
	since   time.Time // when it was taken
	expires time.Time
	lapsed  time.Duration   // in all, while others could have taken it
	from    string          // holder that did not release it; "" for none
	lost    context.Context // canceled once another has the lock, and at release
	lose    context.CancelCauseFunc
	renewer sync.WaitGroup
}

// hold asks for the Lease once.
func (l *lock) hold(ctx context.Context) (cluster.Holding, error) {
	asked := l.Now()
	holding, err := l.Locks.Hold(ctx, l.name, l.Holder, l.LockFor)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && !l.expires.IsZero() {
		l.lapsed += max(0, asked.Sub(l.expires))
	}
	switch {
	case err != nil:
	case l.since.IsZero() || l.since.Equal(holding.Since):
		l.since, l.expires, l.from = holding.Since, asked.Add(l.LockFor), cmp.Or(holding.TookFrom, l.from)
	default: // a new Lease: another process may have worked, while this one's machine slept
		err = &fleet.Error{Op: "renew the pool lock", Resource: l.name, Kind: fleet.KindHeld, Err: errors.New("it was taken or deleted since")}
	}
	return holding, err
}

// acquire takes the lock and keeps it until release. A lock that is not renewed is waited
// for until it expires; if its holder renews or releases it, the pool is Refused.
func (l *lock) acquire(ctx context.Context) error {
	var first cluster.Holding
	err := repeat(ctx, l.Now, false, func() error {
		holding, err := l.hold(ctx)
		switch {
		case err == nil && first.Holder != "" && holding.TookFrom == "":
			return Held(l.name, first)
		case !fleet.Is(err, fleet.KindHeld):
		case first.Holder != holding.Holder:
			first = holding
			l.Report(Event{At: l.Now(), Kind: EventProgress, Step: "preflight", Message: "waiting for the pool lock of " + holding.Holder + expiry(holding),
				Percent: -1})
		case holding.Renewed.After(first.Renewed):
			return Held(l.name, holding)
		}
		return err
	})
	if err == nil {
		l.renewer.Go(l.renew)
	}
	return err
}

func (l *lock) renew() {
	every := l.LockFor / 3
	for pause := every; azure.Sleep(l.lost, pause) == nil; {
		pause = every
		try, cancel := context.WithTimeout(l.lost, every)
		_, err := l.hold(try)
		cancel()
		switch {
		case err == nil || l.lost.Err() != nil:
		case fleet.Is(err, fleet.KindHeld):
			l.lose(errors.Join(errLost, err))
		default:
			pause = every / 3
			l.Log.Warn("cannot renew the pool lock", "lease", l.name, "error", err)
		}
	}
}

// ok reports whether the lock is valid, by the monotonic clock and by the wall clock,
// since the first stands still while a machine sleeps.
func (l *lock) ok() bool {
	now := l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.expires) && now.Round(0).Before(l.expires.Round(0))
}

// clock stands still while the lock has lapsed: deadlines are by it.
func (l *lock) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Now().Add(-l.lapsed)
}

// wait returns once the lock is valid.
func (l *lock) wait(ctx context.Context) error {
	for {
		if err := context.Cause(l.lost); err != nil || l.ok() {
			return err
		}
		if err := azure.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// context returns a context that ends when the lock lapses.
func (l *lock) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer cancel(ErrLapsed)
		for l.ok() && azure.Sleep(ctx, time.Second) == nil {
		}
	}()
	return ctx, func() { cancel(nil) }
}

// release gives the lock up, unless another has it. Failing to is logged alone: it
// expires by itself.
func (l *lock) release() {
	l.lose(nil)
	l.renewer.Wait()
	if l.expires.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.lost), l.LockFor)
	defer cancel()
	if err := repeat(ctx, l.Now, true, func() error { return l.Locks.Release(ctx, l.name, l.Holder) }); err != nil {
		l.Log.Warn("cannot release the pool lock", "lease", l.name, "error", err)
	}
}
