package workflow

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

var (
	// errLost ends a run: another process works on the pool.
	errLost = errors.New("another process took the pool lock")
	// errLapsed cancels a pass whose lock is not renewed in time. The pass is repeated.
	errLapsed = errors.New("the pool lock is not renewed")
)

// renewals is how often the lock is renewed before it would expire.
const renewals = 3

// A lock keeps other processes off a pool. While it cannot be renewed the run waits,
// since a Lease that no other process took can be renewed late.
type lock struct {
	leases       cluster.Leases
	name, holder string
	ttl          time.Duration
	now          func() time.Time
	log          *slog.Logger
	back         func(away time.Duration) // the lock had lapsed and is valid again
	waits        func(holder string)      // for another process to renew or lose the lock

	mu      sync.Mutex
	expires time.Time
	renewed chan struct{}   // closed at the next renewal
	valid   context.Context // canceled when the lock lapses
	lapse   context.CancelCauseFunc
	lost    context.Context // canceled once another has the lock, and at release
	lose    context.CancelCauseFunc
	renewer sync.WaitGroup
}

// hold asks for the Lease once.
func (l *lock) hold(ctx context.Context) (cluster.Holding, error) {
	asked := l.now()
	holding, err := l.leases.Hold(ctx, l.name, l.holder, l.ttl)
	if err != nil {
		return holding, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if away := asked.Sub(l.expires); l.valid != nil && away > 0 {
		l.back(away) // before a pass can go on
	}
	if l.valid == nil || l.valid.Err() != nil {
		l.valid, l.lapse = context.WithCancelCause(context.WithoutCancel(ctx))
	}
	if l.renewed != nil {
		close(l.renewed)
	}
	l.expires, l.renewed = asked.Add(l.ttl), make(chan struct{})
	return holding, nil
}

// acquire takes the lock and keeps it until release. A lock that is not renewed is waited
// for until it expires; if its holder renews it, the pool is Refused.
func (l *lock) acquire(ctx context.Context) error {
	begun := l.now()
	var first cluster.Holding
	for failures := 1; ; failures++ {
		holding, err := l.hold(ctx)
		if err == nil {
			break
		}
		pause, again := retry(err, false, false, failures, l.now().Sub(begun))
		switch busy := fleet.Is(err, fleet.KindHeld); {
		case busy && first.Holder != holding.Holder:
			first, pause = holding, time.Second
			l.waits(holding.Holder)
		case busy && holding.Renewed.After(first.Renewed):
			return &Refused{[]fleet.Problem{{
				Code: "Held", On: l.name, What: holding.Holder + " has the pool lock since " + holding.Since.UTC().Format(time.RFC3339),
				WayOut: "wait until it has ended; ortet status shows its progress",
			}}}
		case busy:
			pause = time.Second
		case !again || l.now().Sub(begun) > planDeadline:
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
	l.renewer.Go(l.renew)
	return nil
}

func (l *lock) renew() {
	every := l.ttl / renewals
	for pause := every; sleep(l.lost, pause) == nil; {
		pause = every
		try, cancel := context.WithTimeout(l.lost, every)
		_, err := l.hold(try)
		cancel()
		switch {
		case err == nil || l.lost.Err() != nil:
		case fleet.Is(err, fleet.KindHeld):
			l.lose(errors.Join(errLost, err))
		default:
			pause = every / renewals
			l.log.Warn("cannot renew the pool lock", "lease", l.name, "error", err)
			if ok, _ := l.state(); !ok {
				l.lapse(errLapsed)
			}
		}
	}
}

// state reports whether the lock is valid, by the monotonic clock and by the wall clock,
// since the first stands still while a machine sleeps.
func (l *lock) state() (ok bool, renewed <-chan struct{}) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.expires) && now.Round(0).Before(l.expires.Round(0)), l.renewed
}

// wait returns once the lock is valid.
func (l *lock) wait(ctx context.Context) error {
	for {
		ok, renewed := l.state()
		switch {
		case l.lost.Err() != nil:
			return context.Cause(l.lost)
		case ok:
			return nil
		}
		select {
		case <-renewed:
		case <-l.lost.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// context gives a context that ends when the lock lapses.
func (l *lock) context(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	unhook := context.AfterFunc(l.valid, func() { cancel(errLapsed) })
	return ctx, func() { unhook(); cancel(nil) }
}

// release gives the lock up, unless another has it. Failing to is logged alone: it
// expires by itself.
func (l *lock) release() {
	lost := l.lost.Err() != nil
	l.lose(nil)
	l.renewer.Wait()
	if lost || l.valid == nil {
		return
	}
	l.lapse(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.lost), l.ttl)
	defer cancel()
	for failures := 1; ; failures++ {
		err := l.leases.Release(ctx, l.name, l.holder)
		if err == nil || sleep(ctx, backoff(failures)) != nil {
			if err != nil {
				l.log.Warn("cannot release the pool lock", "lease", l.name, "error", err)
			}
			return
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
