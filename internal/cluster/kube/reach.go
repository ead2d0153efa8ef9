package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	// reachPatience is how long a command waits at its start for the API server's
	// first answer.
	reachPatience = 8 * time.Second
	// reachTry is how long one try may take.
	reachTry = 3 * time.Second
	// reachAgain is the pause between two tries.
	reachAgain = 500 * time.Millisecond
)

// Reach returns once the API server answers anything, also that it refuses these
// credentials. Where nothing answers for reachPatience, or where no later try can
// succeed, it says why. waiting is called once, with the first failure.
func Reach(ctx context.Context, config *rest.Config, waiting func(error)) error {
	a := act{op: "reach the Kubernetes API server", on: config.Host}
	config = rest.CopyConfig(config)
	config.Timeout = reachTry
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: err}
	}
	limited, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	var last error
	for {
		err := client.Discovery().RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(limited).Error()
		if answered(err) {
			return nil
		}
		if limited.Err() == nil {
			first := last == nil
			last = a.fail(limited, err)
			if !fleet.Is(last, fleet.KindTransient) {
				return last
			}
			if first {
				waiting(reachCause(err))
			}
		}
		if pause(limited, reachAgain) == nil {
			continue
		}
		if ctx.Err() != nil {
			return a.fail(ctx, context.Cause(ctx))
		}
		why := errors.New("no answer")
		if e := (*fleet.Error)(nil); errors.As(last, &e) {
			why = reachCause(e.Err)
		}
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindTimedOut, Err: fmt.Errorf("%w; nothing answered for %s", why, reachPatience),
			Remedy: "see whether it runs, and whether --kubeconfig and --context name it"}
	}
}

// reachCause returns why a try got no answer, without the request, whose address is
// named beside it, and in the same words whichever of its clocks ended it.
func reachCause(err error) error {
	var request *url.Error
	switch {
	case !errors.As(err, &request):
		return err
	case request.Timeout():
		return fmt.Errorf("no answer within %s", reachTry)
	}
	return request.Err
}

// answered reports whether an API server gave an answer, and not a load balancer in
// front of it.
func answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err == nil
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}
