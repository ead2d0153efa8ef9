package fleet_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// TestClock has a server of another time answer, and answers that say nothing.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c fleet.Clock
		if d := time.Since(c.At(time.Now())); d != 0 {
			t.Errorf("%s off before the first answer", d)
		}
		server := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
		c.Observe(http.Header{"Date": {server.Format(http.TimeFormat)}}, time.Now())
		time.Sleep(90 * time.Second)
		for _, answer := range []http.Header{nil, {"Date": {"noon"}}} {
			c.Observe(answer, time.Now())
			if now := c.At(time.Now()); !now.Equal(server.Add(90 * time.Second)) {
				t.Errorf("%s after 90s", now)
			}
		}
	})
}
