package attest

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// How often certificates of unknown names are fetched for who brings a document: it may
// be a stranger, who makes up as many names as it likes.
const (
	fetchEvery = time.Second / 2 // refills one of all
	fetchBurst = 64
	eachEvery  = 15 * time.Second // refills one of each
	eachBurst  = maxHops
	maxAskers  = 1024
)

// pace bounds fetches, by all and by each who asks. The lower half of what all may have
// is for those who had hardly anything lately: who asks on and on, from a few addresses,
// leaves it to the others.
type pace struct {
	all *rate.Limiter

	mu sync.Mutex
	by *lru.Cache // of *rate.Limiter, by who asks, those who asked last
}

func newPace() *pace {
	return &pace{all: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst), by: lru.New(maxAskers)}
}

// take tells whether one may be fetched for who asks.
func (p *pace) take(from string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.by.Get(from)
	if !ok {
		known = rate.NewLimiter(rate.Every(eachEvery), eachBurst)
		p.by.Add(from, known)
	}
	own := known.(*rate.Limiter)
	if lately := own.TokensAt(now) <= eachBurst/2; lately && p.all.TokensAt(now) < fetchBurst/2 {
		return false
	}
	return own.AllowN(now, 1) && p.all.AllowN(now, 1)
}
