package admission

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxAddresses is of how many addresses the rates are known, and maxMachines of how
// many machines: the last that asked.
const (
	maxAddresses = 4096
	maxMachines  = 4096
)

// The rate limit of a proven machine. A node that joins, reports and leaves sends some ten
// requests in all, and a refused one retries after seconds; but each costs calls of Azure,
// for a client that may claim to be any instance. It is below what Azure answers of one
// instance (azure.LimitMembers), beyond which a read waits, and with it all who wait for
// the same scale set.
const (
	machineEvery = 12 * time.Second // refills one
	machineBurst = 16
)

// failedPart limits invalid documents and client certificates to this part of an
// address's request rate: to find that out costs more than anything else that a stranger can ask for.
const failedPart = 10

// rates limits how often is asked, by each address and by all. Ten addresses that ask as
// often as each may would leave nothing to the others: so once half of what all may have
// at once is used up, an address gets as small a part of its own rate as that is of all.
type rates struct {
	all    *rate.Limiter
	each   *each[netip.Prefix]
	modest *each[netip.Prefix]
	scarce float64 // of all's tokens
}

func newRates(l Limits) *rates {
	part := min(l.AddressRate/l.Rate, 1)
	return &rates{
		all:    rate.NewLimiter(rate.Limit(l.Rate), l.Burst),
		each:   newEach[netip.Prefix](rate.Limit(l.AddressRate), l.AddressBurst, maxAddresses),
		modest: newEach[netip.Prefix](rate.Limit(l.AddressRate*part), l.partOf(l.AddressBurst, leastModest), maxAddresses),
		scarce: float64(l.Burst) / 2,
	}
}

// leastModest is how many requests an address may send at once in any case: a node joins
// with two, and tries again.
const leastModest = 10

// take reports whether a request may be worked on now.
func (r *rates) take(from netip.Addr, now time.Time) bool {
	address := networkOf(from)
	if !r.each.take(address, now) {
		return false
	}
	if modest := r.modest.take(address, now); !modest && r.all.TokensAt(now) < r.scarce {
		return false
	}
	return r.all.AllowN(now, 1)
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

// each is a per-key rate limit, for a limited number of the last used keys.
type each[K comparable] struct {
	limit rate.Limit
	burst int

	mu sync.Mutex
	by *lru.Cache // of *rate.Limiter
}

func newEach[K comparable](limit rate.Limit, burst, most int) *each[K] {
	return &each[K]{limit: limit, burst: burst, by: lru.New(most)}
}

// take reports whether a key may be used now.
func (e *each[K]) take(key K, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.by.Get(key)
	if !ok {
		known = rate.NewLimiter(e.limit, e.burst)
		e.by.Add(key, known)
	}
	return known.(*rate.Limiter).AllowN(now, 1)
}

// left reports whether a key may be used now, without using it.
func (e *each[K]) left(key K, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.by.Get(key)
	return !ok || known.(*rate.Limiter).TokensAt(now) >= 1
}

// share is how many requests of a kind are worked on at once, and for how long
// others wait for a place. Of one address they are a part, and that part of the part
// where half of all are taken.
type share struct {
	name           string
	places         chan struct{}
	wait           time.Duration
	parts          *few[netip.Prefix]
	scarce, modest int
	// first is that a place is taken before the body is read: bodies are large.
	first bool
}

// newShare makes a quota of most places, of which an address may have least in any case.
func newShare(name string, most, least int, l Limits) *share {
	part := l.partOf(most, least)
	return &share{name: name, places: make(chan struct{}, most), wait: placeFor, parts: newFew[netip.Prefix](part), scarce: (most + 1) / 2, modest: l.partOf(part, max(least/4, 1))}
}

// enter takes a place until leave is called. It counts as its address's until then, or
// until known is called, of one that has proven who it is and has limits of its own.
func (s *share) enter(ctx context.Context, from netip.Prefix) (leave, known func(), err error) {
	known, ok := s.parts.beginOf(from, s.scarce, s.modest)
	if !ok {
		return nil, nil, refuse(RateLimited, fmt.Errorf("%d requests of the address are worked on, or %d while there are many", s.parts.most, s.modest))
	}
	leave = func() { <-s.places; known() }
	select {
	case s.places <- struct{}{}:
		return leave, known, nil
	default:
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	select {
	case s.places <- struct{}{}:
		return leave, known, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	known()
	return nil, nil, refuse(Overloaded, fmt.Errorf("no place among %d became free within %s", cap(s.places), s.wait))
}

// few bounds how much of one key is under way at once: an address's connections, a
// node's drains.
type few[K comparable] struct {
	most int

	mu  sync.Mutex
	by  map[K]int
	all int
}

func newFew[K comparable](most int) *few[K] { return &few[K]{most: most, by: map[K]int{}} }

// begin takes one until the returned function is called; false where the key has too many.
func (f *few[K]) begin(key K) (end func(), ok bool) {
	return f.beginOf(key, math.MaxInt, f.most)
}

// beginOf is begin, but that a key may have no more than modest once there are as many
// as scarce of all.
func (f *few[K]) beginOf(key K, scarce, modest int) (end func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[key] >= f.most || f.all >= scarce && f.by[key] >= modest {
		return nil, false
	}
	f.by[key]++
	f.all++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
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
