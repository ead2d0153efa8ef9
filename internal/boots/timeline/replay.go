package timeline

import "github.com/ortet/ortet/internal/wire"

// change is what is different in a replay.
type change struct {
	without []bool // by item: took no time; what it waited before it is kept, without evidence that this was its own
	started int32  // the moment that comes after nothing but the time below; -1: none
	at      wire.Micros
	unheld  func(m *moment) bool // began as soon as what it came after had ended
}

// replay is when the end would have come with a change. Without one it is when it
// came: each moment keeps its distance from the last of its causes. With one it
// is never later.
func (g *graph) replay(c change, times []wire.Micros) wire.Micros {
	times = times[:0]
	for i := range g.moments {
		m := &g.moments[i]
		if c.started == int32(i) {
			times = append(times, min(m.at, c.at))
			continue
		}
		if m.last < 0 {
			times = append(times, m.at)
			continue
		}
		at := -maxTime
		for _, cause := range g.causes[m.from:m.to] {
			// A cause may be logged a little after its effect.
			at = max(at, times[cause]-max(0, g.moments[cause].at-m.at))
		}
		lag := m.lag
		switch {
		case c.without != nil && m.owner >= 0 && c.without[m.owner]:
			lag = 0
		case c.unheld != nil && m.owner < 0 && c.unheld(m):
			lag = 0
		}
		times = append(times, at+lag)
	}
	if len(times) == 0 {
		return 0
	}
	return times[g.end]
}
