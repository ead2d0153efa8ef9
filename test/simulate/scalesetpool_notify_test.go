package simulate

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/operator/notify"
)

// A hook is what is posted to.
type hook struct {
	mu     sync.Mutex
	bodies []string
}

// RoundTrip implements http.RoundTripper: the first request of each event fails.
func (h *hook) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = append(h.bodies, string(body))
	code := http.StatusOK
	if n := len(h.bodies); n == 1 || h.bodies[n-2] != string(body) {
		code = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// A bad version is news once, to a receiver that fails at first, though operators follow each other.
func TestOperatorNotifies(t *testing.T) {
	withOperator(t, with(func(p *Pool) { p.Bad = "no join" }), func(w *operating) {
		h := &hook{}
		w.notify = notify.New(notify.Config{URL: "https://hooks.invalid/", Log: slog.New(slog.DiscardHandler), Transport: h})
		ctx, end := context.WithCancel(w.ctx)
		sent := make(chan struct{})
		go func() { w.notify.Run(ctx); close(sent) }()
		was := w.live()
		stop := w.beginLead()
		w.objects.put(w.spec(func(s *v1alpha1.ScaleSetPoolSpec) { s.Capture.MaxImageAge.Duration = 5 * day }))
		w.until("watched", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool { return runs("watch")(s) && w.live() != was })
		bad := w.live()
		w.scaleOut(2)
		w.until("taken back", 3*time.Hour, func(s v1alpha1.ScaleSetPoolStatus) bool {
			return s.LastRun != nil && s.LastRun.Kind == "watch" && s.LastRun.Exit == 1 && s.Image == was
		})
		stop()
		if families, err := w.metrics.Gather(); err != nil || len(families) > 0 {
			t.Errorf("who leads no more shows %v, %v", families, err)
		}
		again := w.beginLead()
		time.Sleep(2 * time.Hour)
		again()
		end()
		<-sent
		news := map[string]int{}
		for _, body := range h.bodies {
			var e notify.Event
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatal(err)
			}
			news[e.Event+" "+e.Version]++
			if e.Pool != poolName || !strings.Contains(e.Message, "join") {
				t.Errorf("%s", body)
			}
		}
		if len(news) != 2 || news["VersionQuarantined "+bad] != 2 || news["VersionTakenBack "+bad] != 2 {
			t.Errorf("posted, each with the try that failed: %v\n%s", news, strings.Join(h.bodies, "\n"))
		}
	})
}
