package controller

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// DefaultReads is how many requests a minute Azure Resource Manager is asked at
// most. It allows a principal 250 at once and 25 a second in a subscription and
// region (documentation of its request limits), which other controllers use too.
const DefaultReads = 60

// A Budget is how many requests may be sent: never more than so many in any
// minute, as long as who spends asks before. A fifth of them may go at once, after
// a quiet time.
type Budget struct {
	now func() time.Time

	mu       sync.Mutex
	rate     float64 // a second
	burst    float64
	level    float64 // below 0 where more was spent than was there
	reserved float64 // for what is under way
	at       time.Time
	spent    int64
	blocked  time.Time // until then nothing is sent
}

// NewBudget makes a budget of so many requests a minute, 0 being DefaultReads; at
// least 5.
func NewBudget(perMinute int, now func() time.Time) *Budget {
	if perMinute <= 0 {
		perMinute = DefaultReads
	}
	perMinute = max(perMinute, 5)
	burst := float64(perMinute) / 5
	return &Budget{now: now, rate: (float64(perMinute) - burst) / 60, burst: burst, level: burst, at: now()}
}

func (b *Budget) fill() time.Time {
	now := b.now()
	if now.After(b.at) {
		b.level = min(b.burst, b.level+b.rate*now.Sub(b.at).Seconds())
		b.at = now
	}
	return now
}

// reserve reserves a number of requests, or returns how long to wait for them. What costs
// more than the burst is reserved as soon as nothing else is under way.
func (b *Budget) reserve(cost int) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.fill()
	if wait := b.blocked.Sub(now); wait > 0 {
		return wait
	}
	need := float64(cost) + b.reserved
	if b.reserved == 0 {
		need = min(need, b.burst)
	}
	if lack := need - b.level; lack > 0 {
		return max(time.Millisecond, time.Duration(lack/b.rate*float64(time.Second)))
	}
	b.reserved += float64(cost)
	return 0
}

// release ends a reservation; its requests have been counted by spend meanwhile.
func (b *Budget) release(cost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved = max(0, b.reserved-float64(cost))
}

func (b *Budget) spend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.level--
	b.spent++
}

// block stops everything for a while: somebody upstream asked for it.
func (b *Budget) block(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := b.fill().Add(d); until.After(b.blocked) {
		b.blocked = until
	}
}

// Spent is how many requests were sent.
func (b *Budget) Spent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

// Meter counts the requests to a host (of Azure Resource Manager) against the
// budget: each page of a list, each try. It delays none.
func (b *Budget) Meter(next http.RoundTripper, host string) http.RoundTripper {
	return meter{b, next, host}
}

type meter struct {
	budget *Budget
	next   http.RoundTripper
	host   string
}

func (m meter) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.EqualFold(r.URL.Host, m.host) {
		m.budget.spend()
	}
	return m.next.RoundTrip(r)
}
