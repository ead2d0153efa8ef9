package admission

import (
	"cmp"
	"container/list"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits of audit lines that anybody can cause: the first few of each address and reason,
// one more at an interval, and a limit for all. The rest is counted, and the counts are
// written.
const (
	linesEvery      = 10 * time.Second // refills one of each
	linesBurst      = 5
	allLinesEvery   = time.Second / 20 // refills one of all
	allLinesBurst   = 200
	maxOmissions    = 1024             // addresses with reasons that are known
	omissionsEvery  = 30 * time.Second // counts are written
	omissionsAtOnce = 64               // maximum of separate counts, the rest by reason
)

// omissionKey is what is counted together.
type omissionKey struct {
	from   netip.Prefix
	reason Reason
}

// omissions are the lines that were not written.
type omissions struct {
	all *rate.Limiter

	mu      sync.Mutex
	by      map[omissionKey]*list.Element
	recency *list.List     // of *omission, the last one first
	others  map[Reason]int // of addresses that are not known any more
}

type omission struct {
	key     omissionKey
	limiter *rate.Limiter
	count   int
}

func newOmissions() *omissions {
	return &omissions{all: rate.NewLimiter(rate.Every(allLinesEvery), allLinesBurst), by: map[omissionKey]*list.Element{}, recency: list.New(), others: map[Reason]int{}}
}

// take reports whether a line is written, and how many before it were not.
func (o *omissions) take(key omissionKey, now time.Time) (tell bool, before int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.of(key)
	if !one.limiter.AllowN(now, 1) || !o.all.AllowN(now, 1) {
		one.count++
		return false, 0
	}
	before, one.count = one.count, 0
	return true, before
}

func (o *omissions) of(key omissionKey) *omission {
	if e, ok := o.by[key]; ok {
		o.recency.MoveToFront(e)
		return e.Value.(*omission)
	}
	if o.recency.Len() >= maxOmissions {
		last := o.recency.Back()
		if gone := last.Value.(*omission); gone.count > 0 {
			o.others[gone.key.reason] += gone.count
		}
		delete(o.by, last.Value.(*omission).key)
		o.recency.Remove(last)
	}
	burst := linesBurst
	if key.reason == RateLimited { // one is as good as five
		burst = 1
	}
	one := &omission{key: key, limiter: rate.NewLimiter(rate.Every(linesEvery), burst)}
	o.by[key] = o.recency.PushFront(one)
	return one
}

// drain returns the counts since the last time, the largest first; addresses without a
// count of their own are together, with the zero Prefix.
func (o *omissions) drain() []omission {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []omission
	for e := o.recency.Front(); e != nil; e = e.Next() {
		if one := e.Value.(*omission); one.count > 0 {
			all = append(all, omission{key: one.key, count: one.count})
			one.count = 0
		}
	}
	slices.SortFunc(all, func(a, b omission) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.key.reason, b.key.reason), cmp.Compare(a.key.from.String(), b.key.from.String()))
	})
	for _, more := range all[min(len(all), omissionsAtOnce):] {
		o.others[more.key.reason] += more.count
	}
	all = all[:min(len(all), omissionsAtOnce)]
	for _, m := range Reasons() {
		if n := o.others[m.Reason]; n > 0 {
			all = append(all, omission{key: omissionKey{reason: m.Reason}, count: n})
		}
	}
	clear(o.others)
	return all
}

// tellOmissions writes the counts until ctx ends, and then a last time.
func (s *Server) tellOmissions(ctx context.Context) {
	ticker := time.NewTicker(omissionsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.writeOmissions(ctx)
		case <-ctx.Done():
			s.writeOmissions(ctx)
			return
		}
	}
}

func (s *Server) writeOmissions(ctx context.Context) {
	for _, one := range s.omissions.drain() {
		remote := "others"
		if one.key.from.IsValid() {
			remote = one.key.from.String()
		}
		s.config.Audit.LogAttrs(ctx, slog.LevelWarn, "omitted", slog.String("decision", "refused"), slog.String("reason", string(one.key.reason)), slog.String("remote", remote), slog.Int("omitted", one.count))
	}
}
