package timeline

import "github.com/ortet/ortet/internal/wire"

func (b *boot) advise(g *graph, t *Timeline) []Advice { return nil }

// replay is when the end would have come, had the items that without names taken
// no time. With none it is when it came.
func (g *graph) replay(without func(item int32) bool) wire.Micros {
	times := make([]wire.Micros, len(g.moments))
	for i := range g.moments {
		m := &g.moments[i]
		if m.last < 0 {
			times[i] = m.at
			continue
		}
		at := -maxTime
		for _, c := range g.causes[m.from:m.to] {
			// A cause may be told a little after what it caused.
			at = max(at, times[c]-max(0, g.moments[c].at-m.at))
		}
		lag := m.lag
		if without != nil && (m.owner >= 0 && without(m.owner) || m.owner < 0 && without(m.item)) {
			lag = 0
		}
		times[i] = at + lag
	}
	return times[g.end]
}
