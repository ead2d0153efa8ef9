package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

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
	// One scale set or instance has limits of its own in Compute: 36 reads at
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
// A list counts as one read though it has a request per page: its pages follow
// each other, and lists are rare.
func Limit(cloud Cloud, limits Limits) Cloud {
	return around{cloud, newLimiter(limits)}
}

func newLimiter(limits Limits) *limiter {
	l := limits.withDefaults()
	return &limiter{
		slots:   make(chan struct{}, l.Concurrent),
		reads:   newBucket(l.Reads, l.ReadBurst),
		changes: newBucket(l.Changes, l.ChangeBurst),
		limits:  l,
		each:    map[string]*bucket{},
	}
}

type limiter struct {
	slots          chan struct{}
	reads, changes *bucket
	limits         Limits

	mu   sync.Mutex
	each map[string]*bucket // of one scale set or instance
}

// maxEach is when buckets that have filled up again are forgotten: a new one is as
// full, and instances come and go for as long as the process lives.
const maxEach = 4096

// buckets are those that the request takes from.
func (l *limiter) buckets(c request) []*bucket {
	all, what, rate, burst := l.reads, "read ", l.limits.EachReads, l.limits.EachReadBurst
	if c.change != nil || c.changes {
		all, what, rate, burst = l.changes, "change ", l.limits.EachChanges, l.limits.EachChangeBurst
	}
	if c.on == "" {
		return []*bucket{all}
	}
	key := what + strings.ToLower(string(c.on))
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.each[key]
	if one == nil {
		if len(l.each) >= maxEach {
			now := time.Now()
			maps.DeleteFunc(l.each, func(_ string, b *bucket) bool { return b.full(now) })
		}
		one = newBucket(rate/60, burst)
		l.each[key] = one
	}
	return []*bucket{one, all}
}

func (l *limiter) around(ctx context.Context, c request, do func(context.Context) error) error {
	for _, b := range l.buckets(c) {
		if d := b.take(time.Now()); d > 0 {
			if !sleep(ctx, d) {
				b.giveBack()
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
	return do(ctx)
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

// A bucket lets rate a second through, and burst at once.
type bucket struct {
	mu          sync.Mutex
	rate, burst float64
	level       float64 // may be negative: turns that are promised
	at          time.Time
}

func newBucket(rate float64, burst int) *bucket {
	return &bucket{rate: rate, burst: float64(burst), level: float64(burst)}
}

// take gives how long to wait for the turn that it hands out.
func (b *bucket) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() && now.After(b.at) {
		b.level = min(b.burst, b.level+b.rate*now.Sub(b.at).Seconds())
	}
	if b.at.IsZero() || now.After(b.at) {
		b.at = now
	}
	b.level--
	if b.level >= 0 {
		return 0
	}
	return time.Duration(-b.level / b.rate * float64(time.Second))
}

// full reports whether the bucket is as a new one.
func (b *bucket) full(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at.IsZero() || b.level+b.rate*now.Sub(b.at).Seconds() >= b.burst
}

// giveBack returns a turn that was not used.
func (b *bucket) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.level = min(b.burst, b.level+1)
}
