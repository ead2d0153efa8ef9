package kube_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(code int) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// reach returns what Reach says of an API server, after how long, and what it said
// meanwhile.
func reach(t *testing.T, server tripper) (after time.Duration, said []error, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err = kube.Reach(t.Context(), &rest.Config{Host: "https://api.example:6443", Transport: server}, func(why error) { said = append(said, why) })
		after = time.Since(began)
	})
	return after, said, err
}

func TestReachGivesUpWithinSeconds(t *testing.T) {
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	for name, c := range map[string]struct {
		server tripper
		says   string
		waits  bool // and says what for
	}{
		"refused":       {func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }, "connection refused", true},
		"silent":        {hang, "no answer within 3s; nothing answered", true},
		"load balancer": {func(*http.Request) (*http.Response, error) { return answer(http.StatusServiceUnavailable) }, "nothing answered", true},
	} {
		t.Run(name, func(t *testing.T) {
			after, said, err := reach(t, c.server)
			if after < 7*time.Second || after > 9*time.Second {
				t.Errorf("it gave up after %s, want 8 s", after)
			}
			if !fleet.Is(err, fleet.KindTimedOut) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "api.example:6443") || !strings.Contains(err.Error(), "--kubeconfig") {
				t.Errorf("%v; want %s, the address and what to do", err, c.says)
			}
			if strings.Contains(err.Error(), "timeout=") || strings.Contains(err.Error(), "deadline") {
				t.Errorf("in the words of a program: %v", err)
			}
			if (len(said) == 1) != c.waits || len(said) > 1 {
				t.Errorf("meanwhile it said %v", said)
			}
		})
	}
}

func TestReachOutlastsAShortOutage(t *testing.T) {
	began := time.Time{}
	after, said, err := reach(t, func(*http.Request) (*http.Response, error) {
		if began.IsZero() {
			began = time.Now()
		}
		if time.Since(began) < 5*time.Second {
			return nil, syscall.ECONNREFUSED
		}
		return answer(http.StatusForbidden) // an answer all the same
	})
	if err != nil || after > 6*time.Second || len(said) != 1 {
		t.Errorf("%v after %s, said %v", err, after, said)
	}
}
