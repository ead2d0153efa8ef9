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

// errLost ends a run: another process works on the pool.
var errLost = errors.New("another process took the pool lock")

// errLapsed cancels a pass whose lock is not renewed in time. It is repeated.
var errLapsed = errors.New("the pool lock is not renewed")

// renewals is how often the lock is renewed before it would expire.
const renewals = 3

// A lock keeps other processes off a pool. While it cannot be renewed it has lapsed and
// the run waits, since a Lease that nobody else takes can be renewed late; only another
// holder ends the run.
type lock struct {
	leases       cluster.Leases
	name, holder string
	ttl          time.Duration
	now          func() time.Time
	log          *slog.Logger
	back         func(away time.Duration) // the lock is valid again

	mu      sync.Mutex
	expires time.Time
	renewed chan struct{}   // closed at the next renewal
	valid   context.Context // canceled when the lock lapses
	lapse   context.CancelCauseFunc
	timer   *time.Timer
	lost    context.Context // canceled once another has the lock
	lose    context.CancelCauseFunc
	stop    context.CancelFunc
	done    chan struct{}
}

// hold asks for the Lease once.
func (l *lock) hold(ctx context.Context) (cluster.Holding, error) {
	asked := l.now()
	holding, err := l.leases.Hold(ctx, l.name, l.holder, l.ttl)
	if err != nil {
		return holding, err
	}
	l.mu.Lock()
	away := asked.Sub(l.expires)
	again := l.valid != nil && (l.valid.Err() != nil || away > 0)
	l.expires = asked.Add(l.ttl)
	if l.valid == nil || again {
		if l.lapse != nil {
			l.lapse(errLapsed)
		}
		l.valid, l.lapse = context.WithCancelCause(context.Background())
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	lapse := l.lapse
	l.timer = time.AfterFunc(l.expires.Sub(l.now()), func() { lapse(errLapsed) })
	if l.renewed != nil {
		close(l.renewed)
	}
	l.renewed = make(chan struct{})
	l.mu.Unlock()
	if again && l.back != nil {
		l.back(max(away, 0))
	}
	return holding, nil
}

// acquire takes the lock: one that nobody renews is waited for until it expires; if its
// holder renews it, the pool is Refused.
func (l *lock) acquire(ctx context.Context) error {
	begun := l.now()
	var first cluster.Holding
	for failures := 0; ; {
		holding, err := l.hold(ctx)
		if err == nil {
			return nil
		}
		pause := time.Second
		if fleet.Is(err, fleet.KindHeld) {
			if first.Holder == holding.Holder && holding.Renewed.After(first.Renewed) {
				return &Refused{Problems: []Problem{{
					Code: "Held", On: l.name, What: holding.Holder + " has the pool lock since " + holding.Since.UTC().Format(time.RFC3339),
					WayOut: "wait until it has ended; ortet status shows its progress",
				}}}
			}
			if first.Holder != holding.Holder {
				first = holding
			}
		} else {
			var again bool
			failures++
			if pause, again = retry(err, false, false, failures, l.now().Sub(begun)); !again || l.now().Sub(begun) > planDeadline {
				return err
			}
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// keep renews the lock until release.
func (l *lock) keep() {
	ctx, stop := context.WithCancel(l.lost)
	l.stop, l.done = stop, make(chan struct{})
	every := l.ttl / renewals
	go func() {
		defer close(l.done)
		for pause := every; sleep(ctx, pause) == nil; {
			pause = every
			try, cancel := context.WithTimeout(ctx, every)
			_, err := l.hold(try)
			cancel()
			switch {
			case err == nil || ctx.Err() != nil:
			case fleet.Is(err, fleet.KindHeld):
				l.lose(errors.Join(errLost, err))
			default:
				pause = every / renewals
				l.log.Warn("cannot renew the pool lock", "lease", l.name, "error", err)
			}
		}
	}()
}

// wait returns once the lock is valid, by the monotonic clock and by the wall clock: the
// first stands still while a machine sleeps.
func (l *lock) wait(ctx context.Context) error {
	for {
		now := l.now()
		l.mu.Lock()
		ok, renewed := now.Before(l.expires) && now.Round(0).Before(l.expires.Round(0)), l.renewed
		l.mu.Unlock()
		if l.lost.Err() != nil {
			return context.Cause(l.lost)
		}
		if ok {
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

// context gives one that ends when the lock lapses.
func (l *lock) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	unhook := context.AfterFunc(l.valid, func() { cancel(errLapsed) })
	l.mu.Unlock()
	return ctx, func() { unhook(); cancel(nil) }
}

// release ends renewing and gives the Lease up. Failing to is logged alone: it expires.
func (l *lock) release() {
	if l.stop != nil {
		l.stop()
		<-l.done
	}
	lost := l.lost.Err() != nil
	l.end()
	if lost {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.lost), l.ttl)
	defer cancel()
	for failures := 1; ; failures++ {
		err := l.leases.Release(ctx, l.name, l.holder)
		if err == nil {
			return
		}
		pause, again := retry(err, false, true, failures, 0)
		if !again || sleep(ctx, pause) != nil {
			l.log.Warn("cannot release the pool lock: it expires by itself", "lease", l.name, "error", err)
			return
		}
	}
}

// end ends all contexts of the lock.
func (l *lock) end() {
	if l.timer != nil {
		l.timer.Stop()
		l.lapse(errLapsed)
	}
	l.lose(nil)
}

// sleep waits, or gives the cause of ctx's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
