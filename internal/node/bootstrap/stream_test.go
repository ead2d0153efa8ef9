package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A watch gives each line as it comes, and ends by the server, by silence, by its caller
// or by the context.
func TestWatchOfTheAPIServer(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	r := newRoot(t)
	s.login(r, "system:node:pool1000003")
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Accept") != "application/json" || q.TLS.PeerCertificates[0].Subject.CommonName != "system:node:pool1000003" {
			http.Error(w, `{"message":"who are you"}`, http.StatusForbidden)
			return
		}
		for i := range 3 {
			// A reader that has seen enough hangs up in the middle; what it got, it counts.
			if _, err := fmt.Fprintf(w, "{\"n\":%d}\n", i); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
		switch q.URL.Query().Get("then") {
		case "silence":
			<-q.Context().Done()
		case "a long line":
			for range 3 << 4 {
				if _, err := w.Write([]byte(strings.Repeat("x", 64<<10))); err != nil {
					return
				}
			}
		}
	})
	stop := errors.New("seen enough")
	for name, c := range map[string]struct {
		then, accept, wrong string
		lines               int
		stop, end           bool
	}{
		"the server ends it":   {accept: "application/json", lines: 3},
		"silence":              {then: "silence", accept: "application/json", lines: 3, wrong: "silent for too long"},
		"the caller ends it":   {then: "silence", accept: "application/json", lines: 1, stop: true, wrong: "seen enough"},
		"the context ends":     {then: "silence", accept: "application/json", lines: 3, end: true, wrong: "context canceled"},
		"a line without end":   {then: "a+long+line", accept: "application/json", lines: 3, wrong: "too long"},
		"it is not allowed to": {accept: "text/plain", wrong: "403 Forbidden: who are you"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n, idle := 0, time.Minute
			if c.then == "silence" && !c.end {
				idle = 5 * time.Second
			}
			err := APIServer(r.dir).Watch(ctx, func(node string) string { return "/api/v1/nodes?node=" + node + "&then=" + c.then }, c.accept, idle, func(line []byte) error {
				if string(line) != fmt.Sprintf(`{"n":%d}`, n) {
					t.Errorf("line %d is %q", n, line)
				}
				n++
				if c.stop {
					return stop
				}
				if c.end && n == 3 {
					cancel()
				}
				return nil
			})
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) || n != c.lines {
				t.Errorf("%d lines, %v; want %d, %q", n, err, c.lines, c.wrong)
			}
		})
	}
}
