package kube

import (
	"net/http"
	"time"

	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

// dated reads the API server's clock from its answers.
type dated struct {
	next  http.RoundTripper
	clock *fleet.Clock
}

// RoundTrip implements http.RoundTripper.
func (d dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(request)
	if err == nil {
		d.clock.Observe(response, time.Now())
	}
	return response, err
}

// WrappedRoundTripper lets client-go reach the transport beneath.
func (d dated) WrappedRoundTripper() http.RoundTripper { return d.next }

// readAgain sends a GET again that failed in passing: the connection broke, or a
// load balancer or starting API server answered 502, 503 or 504 without saying
// when to come back. Where Retry-After says so, client-go itself waits. Writes
// are never repeated here: their effect may have happened.
type readAgain struct {
	next  http.RoundTripper
	tries int
}

// firstPause doubles with every try.
const firstPause = 100 * time.Millisecond

// RoundTrip implements http.RoundTripper.
func (r *readAgain) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	wait := firstPause
	for try := 0; ; try++ {
		response, err := r.next.RoundTrip(request)
		if request.Method != http.MethodGet || request.Body != nil || try == r.tries || ctx.Err() != nil || !passing(response, err) {
			return response, err
		}
		if response != nil {
			if err := response.Body.Close(); err != nil {
				return nil, err
			}
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		wait *= 2
	}
}

// WrappedRoundTripper lets client-go reach the transport beneath.
func (r *readAgain) WrappedRoundTripper() http.RoundTripper { return r.next }

func passing(response *http.Response, err error) bool {
	if err != nil {
		return apierror.Passing(err)
	}
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return response.Header.Get("Retry-After") == ""
	}
	return false
}
