package play

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A line is one line of the trace.
type line struct {
	at   time.Duration // since the world began
	text string
}

// write adds a line to the trace.
func (w *world) write(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line{time.Since(w.begin), fmt.Sprintf(format, args...)})
}

// text is the trace: by time, and within an instant by the alphabet, since what
// happens in one instant has no order. The caller holds the lock.
func (w *world) text() string {
	slices.SortStableFunc(w.lines, func(a, b line) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	var b strings.Builder
	for _, l := range w.lines {
		fmt.Fprintf(&b, "%14s %s\n", l.at.Round(time.Microsecond), l.text)
	}
	return b.String()
}
