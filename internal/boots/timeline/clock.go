package timeline

import (
	"fmt"
	"sort"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const (
	second = wire.Micros(1e6)
	// stepAtLeast and driftOf define which change of the offset between two readings is a
	// step: a disciplined clock drifts by up to 500 ppm, and is then read a moment after
	// the other.
	stepAtLeast = second / 10
	driftOf     = 500
	// synchronised is how far apart clocks may be that are called synchronised.
	synchronised = second
	// unbelievable is by how much a known order may contradict synchronised clocks
	// before the order is doubted and not the clocks.
	unbelievable = 60 * second
)

// axis brings times of each clock to the kernel's start.
type axis struct {
	readings []wire.ClockReading
	runs     []run // between two steps of the wall clock; none: there is no reading
	// offset is what the wall clock, or what it was in the end, showed at 0.
	offset  wire.Micros
	about   wire.Micros // uncertainty of offset
	known   bool
	guessed bool // the kernel's start is unknown, and 0 is the first time in the report
	how     string
	cloud   shift
	cluster shift
}

// run is a stretch of readings without a step: those of readings[from:to].
type run struct{ from, to int }

// shift is by how much a clock is ahead of the node's synchronised one, within
// bounds that known orders narrow.
type shift struct {
	low, high wire.Micros
	by, about wire.Micros
	narrowed  int
	broken    bool
}

func newAxis(r *wire.BootReport) *axis {
	a := &axis{readings: r.Clocks}
	for i := range a.readings {
		if i == 0 || stepped(a.readings[i-1], a.readings[i]) {
			a.runs = append(a.runs, run{i, i})
		}
		a.runs[len(a.runs)-1].to = i + 1
	}
	switch {
	case len(a.readings) > 0:
		last := a.readings[len(a.readings)-1]
		a.offset, a.known, a.how = last.Wall-last.Monotonic, true, fmt.Sprintf("%d readings of both clocks", len(a.readings))
		first := a.readings[a.runs[len(a.runs)-1].from]
		a.about = abs(first.Wall - first.Monotonic - a.offset)
	default:
		a.anchor(r)
	}
	a.cloud = shift{low: -synchronised, high: synchronised}
	a.cluster = a.cloud
	return a
}

func stepped(a, b wire.ClockReading) bool {
	return abs((b.Wall-b.Monotonic)-(a.Wall-a.Monotonic)) > stepAtLeast+(b.Monotonic-a.Monotonic)/driftOf
}

// anchor finds the wall clock's offset without readings: what ran in a unit ran
// between the unit's beginning and end.
func (a *axis) anchor(r *wire.BootReport) {
	low, high, n := -maxTime, maxTime, 0
	first := maxTime
	units := make(map[string]*wire.BootUnit, len(r.Units))
	for i := range r.Units {
		units[r.Units[i].Name] = &r.Units[i]
	}
	for i := range r.Spans {
		s := &r.Spans[i]
		if s.Clock != wire.ClockWall {
			continue
		}
		first = min(first, s.Start)
		name := unitOf(s, func(name string) bool { return units[name] != nil })
		u := units[name]
		if u == nil || u.Activating == 0 {
			continue
		}
		l, h := -maxTime, s.Start+s.Grain-u.Activating
		if end, ok := done(u); ok && end > u.Activating {
			l = s.End - end - u.Grain
		}
		if l > high || h < low || l > h { // another boot's, or the clock was set: the later one counts
			low, high = l, h
		} else {
			low, high = max(low, l), min(high, h)
		}
		n++
	}
	switch {
	case n > 0 && low > -maxTime:
		a.offset, a.about, a.known = low+(high-low)/2, (high-low+1)/2, true
		a.how = fmt.Sprintf("no reading of both clocks: what ran in a unit is held to have run between its beginning and its end (%d times)", n)
	case n > 0:
		a.offset, a.about, a.known = high, synchronised, true
		a.how = "no reading of both clocks: what ran in a unit is held to have begun with it"
	case first < maxTime && len(r.Units) == 0:
		a.offset, a.known, a.guessed = first, true, r.System == wire.SystemTimes{} && !counts(r)
		a.how = "no reading of both clocks, and nothing else that counts from the kernel's start: the first time that is told is taken for it"
	}
}

// counts reports whether anything in a report counts from the kernel's start.
func counts(r *wire.BootReport) bool {
	for i := range r.Spans {
		if r.Spans[i].Clock == wire.ClockMonotonic {
			return true
		}
	}
	return false
}

// maxTime is beyond all times of a valid report.
const maxTime = wire.Micros(1) << 60

// wall is a time of the node's wall clock on the axis. Of several meanings the one
// between low and high is taken.
func (a *axis) wall(w, low, high wire.Micros) (at, about wire.Micros, ok bool) {
	if !a.known {
		return 0, 0, false
	}
	if len(a.runs) == 0 {
		return w - a.offset, a.about, true
	}
	var best wire.Micros
	score, found, spread := -1, 0, wire.Micros(0)
	for k, r := range a.runs {
		m := w - a.offsetIn(r, w)
		if k > 0 && m < a.readings[r.from-1].Monotonic || k < len(a.runs)-1 && m > a.readings[r.to].Monotonic {
			continue
		}
		s, sure := 1, true
		if k > 0 && m < a.readings[r.from].Monotonic {
			sure, spread = false, max(spread, a.stepBefore(k))
		}
		if k < len(a.runs)-1 && m > a.readings[r.to-1].Monotonic {
			sure, spread = false, max(spread, a.stepBefore(k+1))
		}
		if sure {
			s = 2
		}
		if low > -maxTime && m >= low && m <= high {
			s += 4
		}
		if found++; found > 1 {
			spread = max(spread, abs(m-best))
		}
		if s >= score { // of equals the later: after it was set
			best, score = m, s
		}
	}
	if found > 0 {
		if score >= 6 { // in what it ran in, and sure of the run
			spread = 0
		}
		return best, spread, true
	}
	// It fell into a gap that setting the clock forward left.
	for k := 1; k < len(a.runs); k++ {
		before, after := a.readings[a.runs[k].from-1], a.readings[a.runs[k].from]
		if w >= before.Wall && w <= after.Wall {
			return after.Monotonic, a.stepBefore(k), true
		}
	}
	return w - a.offset, a.stepBefore(len(a.runs) - 1), true
}

// offsetIn is the wall clock's offset at w, between the readings of one run.
func (a *axis) offsetIn(r run, w wire.Micros) wire.Micros {
	in := a.readings[r.from:r.to]
	i := sort.Search(len(in), func(i int) bool { return in[i].Wall >= w })
	switch {
	case i == 0:
		return in[0].Wall - in[0].Monotonic
	case i == len(in):
		return in[i-1].Wall - in[i-1].Monotonic
	}
	before, after := in[i-1], in[i]
	from, to := before.Wall-before.Monotonic, after.Wall-after.Monotonic
	span := after.Wall - before.Wall
	if span <= 0 {
		return from
	}
	return from + wire.Micros(float64(to-from)*float64(w-before.Wall)/float64(span))
}

// stepBefore is how wide the step before a run is; 0 before the first.
func (a *axis) stepBefore(k int) wire.Micros {
	if k <= 0 || k >= len(a.runs) {
		return 0
	}
	i := a.runs[k].from
	x, y := a.readings[i-1], a.readings[i]
	return abs((y.Wall - y.Monotonic) - (x.Wall - x.Monotonic))
}

// raw is a time of Azure's or the API server's clock, as if it were the node's.
func (a *axis) raw(t wire.Micros) wire.Micros { return t - a.offset }

// notBefore and notAfter narrow a shift: what its clock calls at (raw) was really
// not before, or not after, the other.
func (s *shift) notBefore(at, grain, other wire.Micros) {
	if bound := at + grain - other; bound > -unbelievable { // by = clock − true ≤ at+grain − other
		s.high, s.narrowed = min(s.high, bound), s.narrowed+1
	} else {
		s.broken = true
	}
}

func (s *shift) notAfter(at, other wire.Micros) {
	if bound := at - other; bound < unbelievable { // by ≥ at − other
		s.low, s.narrowed = max(s.low, bound), s.narrowed+1
	} else {
		s.broken = true
	}
}

// settle chooses the shift that is nearest to none.
func (s *shift) settle() {
	switch {
	case s.low > s.high: // further off than believed, or orders that contradict each other
		s.by = s.high
		if s.low > synchronised {
			s.by = s.low
		}
		s.about = max(synchronised, abs(s.low-s.high))
	default:
		s.by = min(max(0, s.low), s.high)
		s.about = max(s.by-s.low, s.high-s.by)
	}
}

func (s *shift) how() string {
	how := "the node's clock, once set, is assumed to be right to the second"
	if s.narrowed > 0 {
		how += fmt.Sprintf("; narrowed by %d known orders", s.narrowed)
	}
	if s.broken {
		how += "; contradicted by a known order, which is left out"
	}
	return how
}

// clocks are the clocks that were brought to the axis.
func (a *axis) clocks(cloud, cluster bool) []Clock {
	if !a.known {
		return nil
	}
	wall := Clock{Kind: wire.ClockWall, Offset: a.offset, Uncertainty: a.about, How: a.how}
	for k := 1; k < len(a.runs); k++ {
		i := a.runs[k].from
		x, y := a.readings[i-1], a.readings[i]
		wall.Steps = append(wall.Steps, ClockStep{At: y.Monotonic, By: (y.Wall - y.Monotonic) - (x.Wall - x.Monotonic)})
	}
	out := []Clock{wall}
	if cloud {
		out = append(out, Clock{Kind: wire.ClockCloud, Offset: a.offset + a.cloud.by, Uncertainty: a.about + a.cloud.about, How: a.cloud.how()})
	}
	if cluster {
		out = append(out, Clock{Kind: wire.ClockCluster, Offset: a.offset + a.cluster.by, Uncertainty: a.about + a.cluster.about, How: a.cluster.how()})
	}
	return out
}

// start is the kernel's start by the node's clock; zero where that is unknown.
func (a *axis) start() time.Time {
	if !a.known {
		return time.Time{}
	}
	return time.UnixMicro(int64(a.offset)).UTC()
}

func micros(t time.Time) wire.Micros { return wire.Micros(t.UnixMicro()) }

func abs(m wire.Micros) wire.Micros {
	if m < 0 {
		return -m
	}
	return m
}
