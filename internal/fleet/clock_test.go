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
		c.Observe(&http.Response{Header: http.Header{"Date": {server.Format(http.TimeFormat)}}}, time.Now())
		time.Sleep(90 * time.Second)
		for _, answer := range []http.Header{nil, {"Date": {"noon"}}} {
			c.Observe(&http.Response{Header: answer}, time.Now())
			if now := c.At(time.Now()); !now.Equal(server.Add(90 * time.Second)) {
				t.Errorf("%s after 90s", now)
			}
		}
	})
}

// TestOutcomeStaleDatesMoveNoClock has answers of others than the server, and old copies of its own.
func TestOutcomeStaleDatesMoveNoClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
		answer := func(status int, at time.Time, header ...string) *http.Response {
			h := http.Header{"Date": {at.Format(http.TimeFormat)}}
			for _, name := range header {
				h.Set(name, "3600")
			}
			return &http.Response{StatusCode: status, Header: h}
		}
		var c fleet.Clock
		c.Observe(answer(200, server), time.Now())
		for _, stale := range []*http.Response{
			answer(200, server), answer(200, server.Add(-time.Hour)), answer(200, server.Add(time.Hour), "Age"),
			answer(502, server.Add(time.Hour)), answer(407, server.Add(time.Hour)),
		} {
			time.Sleep(time.Minute)
			server = server.Add(time.Minute)
			if c.Observe(stale, time.Now()); !c.At(time.Now()).Equal(server) {
				t.Errorf("%d %v moves the clock to %s at %s", stale.StatusCode, stale.Header, c.At(time.Now()), server)
			}
		}
	})
}
