package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/fleet"
)

// refusal is an error with a reason. Err is for the audit log: the node gets the reason's
// own text.
type refusal struct {
	reason Reason
	err    error
	after  time.Duration // 0: the reason's own
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.reason, r.err) }

func (r *refusal) Unwrap() error { return r.err }

func refuse(reason Reason, err error) error { return &refusal{reason: reason, err: err} }

// refusalOf finds the reason of any error; one without is Internal.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	var a *attest.Error
	if errors.As(err, &a) {
		return &refusal{reason: Reason(a.Reason), err: a.Err}
	}
	return &refusal{reason: Internal, err: err}
}

// ofPort adds the reason to a port's error: why it was unavailable, and how long to wait.
func ofPort(ctx context.Context, unavailable Reason, err error) error {
	var r *refusal
	switch {
	case err == nil, errors.As(err, &r):
		return err
	case errors.Is(context.Cause(ctx), context.Canceled):
		return refuse(Canceled, err)
	}
	if unavailable == ClusterUnavailable && fleet.Is(err, fleet.KindConflict) {
		unavailable = ClusterChanged // the cluster is well, and others write to it
	}
	return &refusal{reason: unavailable, err: err, after: retryAfter(err)}
}

// retryAfter is the wait that a port's error requests; 0 if none.
func retryAfter(err error) time.Duration {
	var f *fleet.Error
	if errors.As(err, &f) {
		return f.RetryAfter
	}
	return 0
}

// wait is how long a refused node is asked to wait: what a port said, or what fits
// the status. It is spread, so that who was refused at once does not come back at
// once.
func (r *refusal) wait(status int, jitter func() float64) time.Duration {
	switch {
	case r.after > 0:
		return min(r.after, time.Hour)
	case status == http.StatusTooManyRequests, r.reason == Overloaded, r.reason == ClusterChanged, r.reason == Canceled:
		return time.Second + time.Duration(jitter()*float64(4*time.Second))
	case status == http.StatusServiceUnavailable, r.reason == NodeReady, r.reason == NameTaken, r.reason == InstanceGone:
		return 5*time.Second + time.Duration(jitter()*float64(10*time.Second))
	}
	return 0
}
