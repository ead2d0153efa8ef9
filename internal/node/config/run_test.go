package config_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/wire"
)

// play runs the agent in virtual time.
func play(t *testing.T, prepare func(w *world), story func(t *testing.T, w *world)) {
	t.Helper()
	var at atomic.Pointer[world]
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) { at.Load().ServeHTTP(out, q) }))
	defer s.Close()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 'a')
		at.Store(w)
		prepare(w)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			config.Run(ctx, w.options(s.URL))
		}()
		synctest.Wait()
		story(t, w)
		end()
		<-done
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) answered(want string) {
	w.t.Helper()
	if got := short(w.last()); got != want {
		w.t.Errorf("the Node says %q, want %q", got, want)
	}
}

func TestSignalIsAnsweredAtTheNode(t *testing.T) {
	play(t, func(w *world) { w.push(document(1), 'a') }, func(t *testing.T, w *world) {
		w.answered("Applied  1/1")
		w.push(document(2), 'a')
		pass(time.Minute)
		w.answered("Applied  1/1")
		w.signal(func() { w.wanted = "2" })
		synctest.Wait()
		w.answered("Applied  2/2")
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.answers) > 5 { // the first may be written twice, before the watch shows it
			t.Errorf("%d answers", len(w.answers))
		}
		var states []string
		for _, a := range w.answers {
			states = append(states, string(a.State))
		}
		if !slices.Equal(slices.Compact(states), []string{"Applying", "Applied", "Applying", "Applied"}) {
			t.Errorf("answers %v", states)
		}
		for i, want := range []string{`"status":"Unknown"`, `"status":"True"`} {
			if s := w.status[len(w.status)-2+i]; !strings.Contains(s, want) || !strings.Contains(s, `"type":"ConfigurationApplied"`) {
				t.Errorf("status patch %s, want %s", s, want)
			}
		}
	})
}

// The metadata service may show the userData later than its PUT was answered.
func TestUserDataLags(t *testing.T) {
	play(t, func(w *world) {}, func(t *testing.T, w *world) {
		w.signal(func() { w.wanted = "4" })
		pass(30 * time.Second)
		w.answered("")
		w.push(document(4), 'a')
		pass(time.Second)
		w.answered("Applied  4/4")
		w.signal(func() { w.wanted = "5" })
		pass(2*time.Minute + 2*time.Second)
		w.answered("Waiting UserDataOld 4/5")
		before, _, _ := w.count()
		pass(10 * time.Minute)
		if reads, _, _ := w.count(); reads-before < 8 || reads-before > 12 {
			t.Errorf("%d readings in 10 minutes of waiting", reads-before)
		}
		w.push(document(5), 'a')
		pass(2 * time.Minute)
		w.answered("Applied  5/5")
	})
}

// The condition changes its status when that changes, and not with each reason.
func TestTransitionIsOfTheStatus(t *testing.T) {
	play(t, func(w *world) { w.push(document(1), 'b') }, func(t *testing.T, w *world) {
		w.answered("Refused SignatureInvalid 0/1")
		pass(2 * time.Second)
		d := document(2)
		d.Pool += "x"
		w.push(d, 'a')
		w.signal(func() { w.wanted = "2" })
		synctest.Wait()
		w.answered("Refused OtherPool 0/2")
		w.push(document(3), 'a')
		pass(2 * time.Second)
		w.signal(func() { w.wanted = "3" })
		synctest.Wait()
		w.answered("Applied  3/3")
		w.mu.Lock()
		defer w.mu.Unlock()
		var at []string
		for _, s := range w.status {
			_, s, _ = strings.Cut(s, `"lastTransitionTime":"`)
			at = append(at, s[17:19])
		}
		if at = slices.Compact(at); !slices.Equal(at, []string{"00", "04"}) {
			t.Errorf("transitions at second %v", at)
		}
	})
}

// A wanted generation without a document is refused once the time is up, also where the
// watch shows it again and again.
func TestForgedSignalCostsLittle(t *testing.T) {
	play(t, func(w *world) { w.wanted = "99999" }, func(t *testing.T, w *world) {
		pass(3 * time.Minute)
		w.answered("Refused NoDocument 0/99999")
		before, _, _ := w.count()
		for range 50 {
			w.signal(func() {})
			pass(time.Second)
		}
		if reads, _, _ := w.count(); reads != before {
			t.Errorf("%d readings more", reads-before)
		}
	})
}

func TestWatchBreaksAndComesBack(t *testing.T) {
	play(t, func(w *world) { w.push(document(1), 'a') }, func(t *testing.T, w *world) {
		pass(time.Hour)
		reads, watches, _ := w.count()
		t.Logf("config/metadata-idle-hour\t%d\trequests\t8\tok", reads) // for bench, with the request at the start
		if reads > 8 || watches != 1 {
			t.Errorf("%d readings and %d watches in an idle hour", reads, watches)
		}
		w.signal(func() { w.broken = true })
		w.push(document(2), 'a')
		pass(90 * time.Second)
		w.answered("Applied  2/2")
		w.mu.Lock()
		w.broken = false
		w.mu.Unlock()
		pass(2 * time.Minute)
		w.push(document(3), 'a')
		w.signal(func() { w.wanted = "3" })
		synctest.Wait()
		w.answered("Applied  3/3")
	})
}

// The answer is written until it is there, and again to a Node that was made again.
func TestAnswerIsWrittenUntilItIsThere(t *testing.T) {
	play(t, func(w *world) {
		w.push(document(1), 'a')
		w.refusals = 6
	}, func(t *testing.T, w *world) {
		w.answered("")
		pass(5 * time.Minute)
		w.answered("Applied  1/1")
		w.signal(func() { w.answers, w.status = nil, nil })
		pass(time.Second)
		w.answered("Applied  1/1")
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.status) != 1 || len(w.answers) != 1 {
			t.Errorf("%d conditions and %d annotations written", len(w.status), len(w.answers))
		}
	})
}

func TestWithoutAClusterTheAgentPolls(t *testing.T) {
	play(t, func(w *world) { w.alone = true }, func(t *testing.T, w *world) {
		w.push(document(1), 'a')
		pass(2 * time.Minute)
		w.push(document(2), 'a')
		pass(2 * time.Minute)
		if _, _, applied := w.count(); !slices.Equal(applied, []int64{1, 2}) {
			t.Errorf("applied %v", applied)
		}
	})
}

// What boot left open is ended first, and its failure is answered with its own reason.
func TestDaemonSettlesWhatBootLeft(t *testing.T) {
	for state, want := range map[wire.ConfigurationState]string{wire.ConfigurationApplied: "Applied  3/3", wire.ConfigurationFailed: "Failed Unhealthy 0/3"} {
		play(t, func(w *world) {
			w.push(document(3), 'a')
			w.outcome.State = wire.ConfigurationApplying
			w.pending, w.opened = true, []byte(w.userData)
			w.settle = wire.ConfigurationAnswer{State: state}
			if state == wire.ConfigurationFailed {
				w.settle.Reason = wire.ReasonUnhealthy
			} else {
				w.settle.Generation, w.record = 3, []byte(w.userData)
			}
		}, func(t *testing.T, w *world) {
			pass(30 * time.Minute)
			w.answered(want)
			if _, _, applied := w.count(); len(applied) > 0 {
				t.Errorf("applied %v", applied)
			}
		})
	}
}

func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	now := time.Unix(1, 0)
	heartbeat := config.Heartbeat(w, func() time.Time { return now })
	if ready, at, err := heartbeat(t.Context()); !ready || at.Format(time.RFC3339) != "2026-11-21T10:00:00Z" || err != nil {
		t.Errorf("%t, %s, %v", ready, at, err)
	}
	w.refusals = 1
	if ready, _, err := heartbeat(t.Context()); ready || err == nil {
		t.Errorf("an API server that does not answer: %t, %v", ready, err)
	}
	w.alone = true
	if ready, at, err := heartbeat(t.Context()); !ready || !at.Equal(now) || err != nil {
		t.Errorf("no cluster: %t, %s, %v", ready, at, err)
	}
}
