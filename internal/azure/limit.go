package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ortet/ortet/internal/fleet"
)

// Limits bound the requests to one subscription. Azure Resource Manager gives
// each principal and region a bucket per subscription: 250 reads, refilled by 25
// a second; 200 writes, by 10; 200 deletes, by 10 (documentation of ARM request
// limits, the limits since 2024). The cluster's own cloud provider may use the
// same principal, so the zero value takes a part of them.
type Limits struct {
	// Concurrent is how many requests may be under way at once; 0 means 16.
	Concurrent int
	// Reads and Changes are how many a second; 0 means 10 and 2.
	Reads, Changes float64
	// Burst is how many may go at once after a quiet time; 0 means 40 reads and
	// 20 changes. It must be at least 1 where it is set.
	ReadBurst, ChangeBurst int
	// One scale set, instance or virtual machine has limits of its own in Compute: 36 reads at
	// once, refilled by 12 a minute, and 12 changes, by 4 (documentation of Compute
	// throttling limits). Half of that is taken, so that two processes, or a cluster
	// autoscaler beside one, stay below it. These say how many a minute, and at
	// once; 0 means 6, 18, 2 and 6.
	EachReads       float64
	EachReadBurst   int
	EachChanges     float64
	EachChangeBurst int
}

func (l Limits) withDefaults() Limits {
	if l.Concurrent <= 0 {
		l.Concurrent = 16
	}
	if l.Reads <= 0 {
		l.Reads = 10
	}
	if l.Changes <= 0 {
		l.Changes = 2
	}
	if l.ReadBurst <= 0 {
		l.ReadBurst = 40
	}
	if l.ChangeBurst <= 0 {
		l.ChangeBurst = 20
	}
	if l.EachReads <= 0 {
		l.EachReads = 6
	}
	if l.EachReadBurst <= 0 {
		l.EachReadBurst = 18
	}
	if l.EachChanges <= 0 {
		l.EachChanges = 2
	}
	if l.EachChangeBurst <= 0 {
		l.EachChangeBurst = 6
	}
	return l
}

// Limit keeps below Azure's limits by waiting before a request. It belongs
// below Retry, so that tries count. A request whose turn cannot come before
// ctx's deadline fails at once with fleet.KindThrottled.
//
// A read that Azure throttled has the other reads of the same scale set or instance, or
// of everything else, wait for its Retry-After, too.
//
// A list counts as one read though it has a request per page: its pages follow
// each other, and lists are rare.
func Limit(cloud Cloud, limits Limits) Cloud {
	return around{cloud, newLimiter(limits)}
}

func newLimiter(limits Limits) *limiter {
	l := limits.withDefaults()
	return &limiter{
		slots:  make(chan struct{}, l.Concurrent),
		limits: l,
		all:    newShare(l.Reads, l.ReadBurst, l.Changes, l.ChangeBurst),
		each:   map[string]*share{},
	}
}

type limiter struct {
	slots  chan struct{}
	limits Limits
	all    *share

	mu   sync.Mutex
	each map[string]*share // of one scale set or instance
}

// A share is what may be asked of one scale set or instance, or of the subscription.
type share struct {
	reads, changes *rate.Limiter
	after          time.Time // no read goes before; limiter.mu guards it
}

func newShare(reads float64, readBurst int, changes float64, changeBurst int) *share {
	return &share{reads: rate.NewLimiter(rate.Limit(reads), readBurst), changes: rate.NewLimiter(rate.Limit(changes), changeBurst)}
}

// unused reports whether the share is as a new one.
func (s *share) unused(now time.Time) bool {
	return s.reads.TokensAt(now) >= float64(s.reads.Burst()) && s.changes.TokensAt(now) >= float64(s.changes.Burst()) && now.After(s.after)
}

// maxEach is when shares that are as new again are forgotten: instances come and go for
// as long as the process lives.
const maxEach = 4096

// share is that of the scale set or instance, or of the subscription where on is "".
func (l *limiter) share(on fleet.ResourceID) *share {
	if on == "" {
		return l.all
	}
	key := strings.ToLower(string(on))
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.each[key]; s != nil {
		return s
	}
	if len(l.each) >= maxEach {
		now := time.Now()
		maps.DeleteFunc(l.each, func(_ string, s *share) bool { return s.unused(now) })
	}
	s := newShare(l.limits.EachReads/60, l.limits.EachReadBurst, l.limits.EachChanges/60, l.limits.EachChangeBurst)
	l.each[key] = s
	return s
}

func (l *limiter) around(ctx context.Context, c request, do func(context.Context) error) error {
	share := l.share(c.on)
	reads := c.change == nil && !c.changes
	limits := []*rate.Limiter{share.reads, l.all.reads}
	if !reads {
		limits = []*rate.Limiter{share.changes, l.all.changes}
	}
	if c.on == "" {
		limits = limits[1:]
	}
	for _, limit := range limits {
		turn := limit.Reserve()
		if d := turn.Delay(); d > 0 && !sleep(ctx, d) {
			turn.Cancel()
			return l.late(ctx, c, d)
		}
	}
	alike := reads && c.poll == nil // others may ask for the same
	if alike {
		for d := l.throttled(share); d > 0; d = l.throttled(share) {
			if !sleep(ctx, d) {
				return l.late(ctx, c, d)
			}
		}
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return l.late(ctx, c, 0)
	}
	defer func() { <-l.slots }()
	err := do(ctx)
	if alike && fleet.Is(err, fleet.KindThrottled) {
		l.throttle(share, RetryAfter(err))
	}
	return err
}

// throttle has the share's reads wait: another caller may ask for the same as the one
// that Azure answered, in another way.
func (l *limiter) throttle(s *share, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after := time.Now().Add(d); after.After(s.after) {
		s.after = after
	}
}

// throttled returns for how long Azure wants no read of the share.
func (l *limiter) throttled(s *share) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(s.after)
}

// ErrTurn is in the error of a request that was not sent, since Limit would have
// let it through only after its deadline. It says nothing of the cloud.
var ErrTurn = errors.New("client-side rate limit would delay the request")

func (l *limiter) late(ctx context.Context, c request, d time.Duration) error {
	e := &fleet.Error{Op: c.name, Resource: string(c.on), Kind: fleet.KindThrottled, RetryAfter: d,
		Err: fmt.Errorf("%w by %s, past its deadline", ErrTurn, d.Round(time.Second))}
	if c.change != nil {
		e.Resource = string(c.change.Target())
	}
	if err := ctx.Err(); err != nil {
		e.Kind, e.Err = fleet.KindUnknown, err
		if errors.Is(err, context.DeadlineExceeded) {
			e.Kind = fleet.KindTimedOut
		}
	}
	return e
}
