package draw

import (
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// Duration writes how long something took as sentences of a timeline do.
func Duration(d time.Duration) string { return timeline.Duration(d) }

func took(from, to wire.Micros) string { return Duration((to - from).Duration()) }

// tickLabel is a round time on an axis: "0s", "500ms", "1m30s".
func tickLabel(at, step wire.Micros) string {
	d := at.Duration()
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d == 0:
		return "0s"
	case step < 1000:
		return sign + fmt.Sprintf("%gms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return sign + fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return sign + fmt.Sprintf("%gs", float64(d.Milliseconds())/1000)
	case d < time.Hour && d%time.Minute == 0:
		return sign + fmt.Sprintf("%dm", d/time.Minute)
	case d < time.Hour:
		return sign + fmt.Sprintf("%dm%gs", d/time.Minute, float64((d%time.Minute).Milliseconds())/1000)
	case d%time.Hour == 0:
		return sign + fmt.Sprintf("%dh", d/time.Hour)
	}
	return sign + fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// tickStep is the least round step of which n or fewer lie in length.
func tickStep(length wire.Micros, n int) wire.Micros {
	n = max(n, 1)
	for unit := wire.Micros(1); unit < 10_000_000; unit *= 10 {
		for _, m := range []wire.Micros{1, 2, 5} {
			if length/(m*unit) <= wire.Micros(n) {
				return m * unit
			}
		}
	}
	const second = wire.Micros(1_000_000)
	for _, s := range []wire.Micros{10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200} {
		if length/(s*second) <= wire.Micros(n) {
			return s * second
		}
	}
	day := 86400 * second
	return (length/wire.Micros(n)/day + 1) * day
}
