package workflow

import (
	"context"
	"fmt"
	"sync"
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

// A Part is a piece of a workflow's state that belongs to some of its rows. Rows run at the same
// time, and the state is saved meanwhile: all parts of one state have its lock.
type Part[S any] struct {
	mu *sync.Mutex
	at *S
}

// PartOf makes a Part of the state that has the lock.
func PartOf[S any](mu *sync.Mutex, at *S) Part[S] { return Part[S]{mu, at} }

// Get returns a copy.
func (p Part[S]) Get() S {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.at
}

// Set changes the part. The next save of the record writes it.
func (p Part[S]) Set(change func(*S)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.at)
}
