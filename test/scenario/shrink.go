package scenario

import (
	"slices"
	"time"
)

// ShrinkCalls is how often Shrink plays a scenario at most.
const ShrinkCalls = 2000

// Shrink gives a simpler scenario that still fails: with as few happenings as it
// can (none of those that are left can go alone), fewer asks, settings nearer to
// their defaults, and simpler arguments. s is one that fails and lists what
// happens; one that does not fail is given back as it is. The seed and the
// comment stay; expectations go with the ask that they are about.
//
// fails says whether a scenario fails in the way that matters: it should look
// for the same violation, lest another one is found. It is called at most
// ShrinkCalls times, never twice with the same scenario; where that does not
// suffice, or where fails says false because its time is up, the result is
// simpler, but not the simplest.
func Shrink(s Scenario, fails func(Scenario) bool) Scenario {
	r := shrinker{best: s.clone(), fails: fails, tried: map[string]bool{}, left: ShrinkCalls}
	if !r.try(s.clone()) {
		return s
	}
	// Simpler settings may let a happening go, and the other way round.
	for before := ""; before != r.best.String(); {
		before = r.best.String()
		r.events()
		r.asks()
		r.settings()
		r.args()
	}
	return r.best
}

type shrinker struct {
	best  Scenario // it fails
	fails func(Scenario) bool
	tried map[string]bool
	left  int // calls
}

// try makes a scenario the best one where it fails.
func (r *shrinker) try(s Scenario) bool {
	text := s.String()
	if r.tried[text] || r.left == 0 {
		return false
	}
	r.tried[text] = true
	r.left--
	if !r.fails(s.clone()) {
		return false
	}
	r.best = s.clone()
	return true
}

// events drops all, halves, quarters… and single ones until none can go.
func (r *shrinker) events() {
	for size := len(r.best.Events); size > 0; {
		dropped := false
		for i := 0; i < len(r.best.Events); {
			s := r.best.clone()
			s.Events = slices.Delete(s.Events, i, min(i+size, len(s.Events)))
			if r.try(s) {
				dropped = true
			} else {
				i += size
			}
		}
		if size > 1 || !dropped {
			size /= 2
		}
	}
}

// asks drops those that can go, the last first.
func (r *shrinker) asks() {
	for i := len(r.best.Asks) - 1; i >= 0 && len(r.best.Asks) > 1; i-- {
		s := r.best.clone()
		s.Asks = slices.Delete(s.Asks, i, i+1)
		s.Expect = slices.DeleteFunc(s.Expect, func(e Expectation) bool { return e.Ask == i })
		for j := range s.Expect {
			if s.Expect[j].Ask > i {
				s.Expect[j].Ask--
			}
		}
		r.try(s)
	}
}

func (r *shrinker) settings() {
	simplify(r, chanceSettings(), func(s *Scenario) *Chance { return &s.Chance })
	simplify(r, poolSettings(), func(s *Scenario) *Pool { return &s.Pool })
	simplify(r, donorSettings(), func(s *Scenario) *Donor { return &s.Donor })
	for i := range r.best.Asks {
		if r.best.Asks[i].Verb == Wait {
			for _, d := range []time.Duration{newAsk(Wait).For, minWait} {
				if s := r.best.clone(); s.Asks[i].For > d {
					s.Asks[i].For = d
					r.try(s)
				}
			}
			continue
		}
		simplify(r, settingsOf(r.best.Asks[i].Verb), func(s *Scenario) *Ask { return &s.Asks[i] })
	}
}

// simplify brings settings to their defaults: all at once, or else each, or else
// nearer to it.
func simplify[T any](r *shrinker, settings []setting[T], at func(*Scenario) *T) {
	s := r.best.clone()
	reset(at(&s), settings)
	if r.try(s) {
		return
	}
	for _, set := range settings {
		now := set.get(at(&r.best))
		if now == set.def {
			continue
		}
		values := []string{set.def}
		if set.simpler != nil {
			values = append(values, set.simpler(now)...)
		}
		for _, v := range values {
			s := r.best.clone()
			if set.set(at(&s), v) == nil && r.try(s) {
				break
			}
		}
	}
}

// args makes happenings' arguments simpler.
func (r *shrinker) args() {
	all := happenings()
	for i := range r.best.Events {
		h, ok := named(all, r.best.Events[i].What)
		if !ok {
			continue
		}
		if h.what == Error && len(r.best.Events[i].Args) > 1 {
			s := r.best.clone()
			s.Events[i].Args = s.Events[i].Args[:1]
			if !twice(s.Events, i) {
				r.try(s)
			}
		}
		for j := range r.best.Events[i].Args {
			simpler := h.args[j].simpler
			if simpler == nil {
				continue
			}
			for _, v := range simpler(r.best.Events[i].Args[j]) {
				s := r.best.clone()
				checked, err := h.args[j].check(v)
				if err != nil {
					continue
				}
				s.Events[i].Args[j] = checked
				if !twice(s.Events, i) && r.try(s) {
					break
				}
			}
		}
	}
}

// twice says whether the i-th happening is there once more, which no text may say.
func twice(all []Event, i int) bool {
	line := all[i].String()
	for j, e := range all {
		if j != i && e.String() == line {
			return true
		}
	}
	return false
}

// clone gives a copy that shares nothing. Lists that are empty are nil in it, as
// Parse gives them.
func (s Scenario) clone() Scenario {
	s.Comment = copied(s.Comment)
	s.Pool.Extensions = copied(s.Pool.Extensions)
	s.Asks = copied(s.Asks)
	s.Events = copied(s.Events)
	for i := range s.Events {
		s.Events[i].Args = copied(s.Events[i].Args)
	}
	s.Expect = copied(s.Expect)
	return s
}

func copied[T any](list []T) []T {
	return append([]T(nil), list...)
}
