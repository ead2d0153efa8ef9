package fault

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ortet/ortet/test/scenario"
)

// A Transport is a way to an API server on which a scenario's happenings come.
// It counts requests as they come, and does to them what the Chooser has.
type Transport struct {
	Next    http.RoundTripper
	Chooser *scenario.Chooser
	Now     func() time.Time // nil means time.Now
	// Served, which may be nil, is told of each request when it is over: its
	// name and count, what it met, nil for nothing, an outage where that began
	// there, and 0 for no answer.
	Served func(name string, count int, met *scenario.Event, status int)

	faults Faults
	mu     sync.Mutex
	counts map[string]int
	until  time.Time // connections are refused
}

// Supports says why a Transport cannot do what the event says, or nil: it knows
// the faults of Kubernetes' and its outages, and neither processes nor people.
func Supports(e scenario.Event) error {
	switch e.What {
	case scenario.Throttle, scenario.Error, scenario.DropBefore, scenario.DropAfter, scenario.Hang, scenario.ReportFailure,
		scenario.Stale, scenario.ExpireToken, scenario.Conflict, scenario.ProxyBefore, scenario.ProxyAfter, scenario.KubeOutage:
		if e.Side == scenario.Kube {
			return nil
		}
	}
	return fmt.Errorf("%s at %s is no fault on the way to Kubernetes", e.What, e.Side)
}

// RoundTrip implements http.RoundTripper. A connection that breaks is a
// *net.OpError, as it is from the network.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r = r.Clone(r.Context()) // Name may put another body in
	}
	name := Name(r)
	n, met, err := t.meets(name, r)
	var answer *http.Response
	if err == nil {
		answer, err = t.faults.Serve(met, r, t.Next.RoundTrip)
	} else if closing := closed(r); closing != nil {
		err = errors.Join(err, closing)
	}
	if errors.Is(err, ErrDropped) {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	if t.Served != nil {
		status := 0
		if err == nil {
			status = answer.StatusCode
		}
		t.Served(name, n, met, status)
	}
	return answer, err
}

// WrappedRoundTripper lets client-go reach the transport beneath.
func (t *Transport) WrappedRoundTripper() http.RoundTripper { return t.Next }

// meets counts a request and says what it meets.
func (t *Transport) meets(name string, r *http.Request) (n int, met *scenario.Event, err error) {
	now := time.Now
	if t.Now != nil {
		now = t.Now
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[name]++
	n = t.counts[name]
	var begins *scenario.Event
	for _, e := range t.Chooser.At(scenario.Kube, name, n, r.Method == http.MethodGet) {
		if err := Supports(e); err != nil {
			return n, nil, err
		}
		if e.What == scenario.KubeOutage {
			t.until = later(t.until, now().Add(Outage(e)))
			begins = &e
			continue
		}
		met = &e
	}
	if now().Before(t.until) {
		return n, begins, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return n, met, nil
}

// Outage is how long an outage lasts.
func Outage(e scenario.Event) time.Duration {
	return time.Duration(max(1, number(e))) * time.Second
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
