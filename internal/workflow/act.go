package workflow

import (
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// In returns the Wait of an act that is not done.
func In(d time.Duration, format string, args ...any) Wait {
	return Wait{RequeueAfter: d, Percent: -1, Status: fmt.Sprintf(format, args...)}
}

// Gone returns whether a resource is; one that is kept counts as gone.
func Gone[T any](get func(context.Context, fleet.ResourceID) (T, error), id fleet.ResourceID,
	kept func(T) bool) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		x, err := get(ctx, id)
		return fleet.Is(err, fleet.KindNotFound) || err == nil && kept != nil && kept(x), fleet.IgnoreNotFound(err)
	}
}

// GoOn makes another pass after a change that is not the last one.
func GoOn(w Wait, err error) (Wait, error) {
	if err == nil && w.RequeueAfter == 0 {
		w = In(time.Millisecond, "going on")
	}
	return w, err
}
