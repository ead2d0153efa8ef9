package attest

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

	mu      sync.Mutex
	by      map[string]*list.Element
	recency *list.List // of *asker, the last one first
}

type asker struct {
	from    string
	limiter *rate.Limiter
}

func newPace() *pace {
	return &pace{all: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst), by: map[string]*list.Element{}, recency: list.New()}
}

// take tells whether one may be fetched for who asks.
func (p *pace) take(from string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.asker(from)
	if lately := a.limiter.TokensAt(now) <= eachBurst/2; lately && p.all.TokensAt(now) < fetchBurst/2 {
		return false
	}
	return a.limiter.AllowN(now, 1) && p.all.AllowN(now, 1)
}

func (p *pace) asker(from string) *asker {
	if e, ok := p.by[from]; ok {
		p.recency.MoveToFront(e)
		return e.Value.(*asker)
	}
	if p.recency.Len() >= maxAskers {
		last := p.recency.Back()
		delete(p.by, last.Value.(*asker).from)
		p.recency.Remove(last)
	}
	a := &asker{from: from, limiter: rate.NewLimiter(rate.Every(eachEvery), eachBurst)}
	p.by[from] = p.recency.PushFront(a)
	return a
}
