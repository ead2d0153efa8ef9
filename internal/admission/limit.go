package admission

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxAddresses is of how many addresses the rates are known, the last that asked.
const maxAddresses = 4096

// rates limits how often is asked, by each address and by all.
type rates struct {
	all   *rate.Limiter
	each  rate.Limit
	burst int

	mu      sync.Mutex
	by      map[netip.Prefix]*list.Element
	recency *list.List // of *asker, the last one first
}

type asker struct {
	address netip.Prefix
	limiter *rate.Limiter
	told    time.Time // when the audit log was last told that it asks too often
}

// tellEvery is how often the audit log is told of an address that asks too often:
// the metrics count them all.
const tellEvery = 10 * time.Second

func newRates(l Limits) *rates {
	return &rates{all: rate.NewLimiter(rate.Limit(l.Rate), l.Burst), each: rate.Limit(l.AddressRate), burst: l.AddressBurst, by: map[netip.Prefix]*list.Element{}, recency: list.New()}
}

// take tells whether a request may be worked on now, and if not, whether that is
// worth a line in the audit log.
func (r *rates) take(from netip.Addr, now time.Time) (ok, tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.asker(from)
	if a.limiter.AllowN(now, 1) && r.all.AllowN(now, 1) {
		return true, false
	}
	if now.Sub(a.told) < tellEvery {
		return false, false
	}
	a.told = now
	return false, true
}

// networkOf is what counts as one address: of IPv6 a network of 64 bits, which a
// machine has all of. What is no address is the zero Prefix.
func networkOf(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	network, err := from.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}

func (r *rates) asker(from netip.Addr) *asker {
	network := networkOf(from)
	if e, ok := r.by[network]; ok {
		r.recency.MoveToFront(e)
		return e.Value.(*asker)
	}
	if r.recency.Len() >= maxAddresses {
		last := r.recency.Back()
		delete(r.by, last.Value.(*asker).address)
		r.recency.Remove(last)
	}
	a := &asker{address: network, limiter: rate.NewLimiter(r.each, r.burst)}
	r.by[network] = r.recency.PushFront(a)
	return a
}

// share is how many requests of a kind are worked on at once, and for how long
// others wait for a place.
type share struct {
	name   string
	places chan struct{}
	wait   time.Duration
	// first is that a place is taken before the body is read: bodies are large.
	first bool
}

func newShare(name string, most int, wait time.Duration) *share {
	return &share{name: name, places: make(chan struct{}, most), wait: wait}
}

// enter takes a place until what it gives is called; false where none became free.
func (s *share) enter(ctx context.Context) (func(), bool) {
	leave := func() { <-s.places }
	select {
	case s.places <- struct{}{}:
		return leave, true
	default:
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	select {
	case s.places <- struct{}{}:
		return leave, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}

// few bounds how much of one key is under way at once: an address's connections, a
// node's drains.
type few[K comparable] struct {
	most int

	mu sync.Mutex
	by map[K]int
}

func newFew[K comparable](most int) *few[K] { return &few[K]{most: most, by: map[K]int{}} }

// begin takes one until what it gives is called; false where the key has too many.
func (f *few[K]) begin(key K) (end func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[key] >= f.most {
		return nil, false
	}
	f.by[key]++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.by[key]--; f.by[key] == 0 {
			delete(f.by, key)
		}
	}), true
}

// partOf is how much of something one address may have: as large a part as of the
// rate, so that who is let ask as often as all together, since a load balancer hides
// the addresses, may have it all.
func (l Limits) partOf(all, least int) int {
	return min(max(int(float64(all)*l.AddressRate/l.Rate), least), all)
}
