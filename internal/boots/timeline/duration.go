package timeline

import (
	"fmt"
	"math"
	"time"
)

// Duration writes how long something took, to the millisecond, the same
// wherever a boot is shown: "412µs", "78ms", "2.286s", "16m40.410s", "1h02m03s", "5d04h".
func Duration(d time.Duration) string {
	if d < 0 {
		if d == math.MinInt64 {
			d++
		}
		return "-" + Duration(-d)
	}
	switch {
	case d == 0:
		return "0s"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d.Round(time.Millisecond) < time.Second:
		return fmt.Sprintf("%dms", d.Round(time.Millisecond).Milliseconds())
	}
	d = d.Round(time.Millisecond)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.3fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%06.3fs", d/time.Minute, (d % time.Minute).Seconds())
	}
	d = d.Round(time.Second)
	if d >= 100*time.Hour {
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	return fmt.Sprintf("%dh%02dm%02ds", d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second)
}
