package scenario

import (
	"slices"
	"time"
)

// withReturns is the share of seeds, in percent, that are about rollbacks.
const withReturns = 15

// generateReturns replaces what is asked by rollbacks, after captures or without any. A
// pool that has a reason to refuse keeps its asks.
func generateReturns(d dice, s *Scenario) {
	if !d.percent(withReturns) || s.Pool.Refuses != "none" || s.Asks[0].Verb != Capture {
		return
	}
	base := s.Asks[0]
	base.Rival, base.Again = -1, false
	rollback := func() Ask {
		a := newAsk(Rollback)
		mild(d, s, &a)
		a.Node = d.n(s.Pool.Instances)
		a.To = pick(d, []weighted[string]{{7, ""}, {2, "previous"}, {3, Oldest}, {3, Newest}, {4, Left}, {3, "original"}})
		if d.percent(6) {
			a.Rival = d.n(s.Pool.Instances)
		}
		return a
	}
	var captures []Ask
	if d.percent(45) {
		// Most of what a seed takes is its captures: without them, more can happen.
		s.Pool.Versions = max(s.Pool.Versions, d.in(2, 5))
	} else {
		captures = generateCaptures(d, base)
	}
	if s.Pool.Versions > 1 && d.percent(40) {
		s.Pool.CustomData = true
	}
	asks := slices.Clone(captures)
	for range d.in(1, 3) {
		asks = append(asks, rollback())
	}
	if len(captures) > 0 && d.percent(30) {
		w := newAsk(Wait)
		w.For = time.Duration(d.spread(1, 48)) * time.Hour
		asks = append(asks, w, bootstrapped(d, base))
	}
	if last := len(asks) - 1; asks[last].Verb == Capture && d.percent(50) || len(captures) > 0 && d.percent(15) {
		i := slices.IndexFunc(asks, func(a Ask) bool { return a.Verb == Capture })
		if d.percent(70) && asks[last].Verb == Capture {
			i = last
		}
		asks[i].Rival, asks[i].RivalRollback = asks[i].Node, true
	}
	s.Asks = asks
	if d.percent(60) {
		s.Chance.After = len(captures)
	}
	if s.Chance.After == len(captures) { // a rollback changes Azure some three times
		for _, rate := range []*int{&s.Chance.Rate, &s.Chance.Death, &s.Chance.World} {
			*rate = min(4**rate, million/10)
		}
	}
}

// generateCaptures gives one to three captures, a day apart, of which each may be baked
// or made with --again.
func generateCaptures(d dice, base Ask) (asks []Ask) {
	for i := range pick(d, []weighted[int]{{3, 1}, {4, 2}, {1, 3}}) {
		a := bootstrapped(d, base)
		if i > 0 {
			if d.percent(25) {
				a.Again = true
			} else {
				asks = append(asks, newAsk(Wait))
			}
		}
		asks = append(asks, a)
	}
	return asks
}

// bootstrapped is a capture whose nodes need customData, or none.
func bootstrapped(d dice, base Ask) Ask {
	base.Bake = d.percent(40)
	return base
}
