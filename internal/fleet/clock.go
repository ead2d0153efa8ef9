package fleet

import (
	"net/http"
	"sync"
	"time"
)

// ClockPrecision is how far behind its server a Clock may be: Date has whole seconds.
const ClockPrecision = time.Second

// A Clock is that of a server, by the Date of its last answer and the time since. What a server
// wrote is compared with its own clock: this machine's may be wrong, and measures durations only.
// The zero value is this machine's clock until the first answer. It is safe for concurrent use.
// Times that are passed in are time.Now's, with its monotonic reading.
type Clock struct {
	mu             sync.Mutex
	date, answered time.Time
}

// Observe reads the Date of an answer that came at a time. Ignored are answers without one, those
// that a proxy may have made, as errors, or kept, and dates that are no later than the last.
func (c *Clock) Observe(answer *http.Response, at time.Time) {
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil || answer.StatusCode >= http.StatusBadRequest || answer.Header.Get("Age") != "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if date.After(c.date) {
		c.date, c.answered = date, at
	}
}

// At returns the server's time at one of this machine's.
func (c *Clock) At(local time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return local
	}
	return c.date.Add(local.Sub(c.answered))
}
