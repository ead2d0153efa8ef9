package bootstrap

import (
	"context"
	"sync"
	"time"
)

// question is asked in the background, one at a time, since an answer may take long. Its
// zero value has no poke, and is not ready.
type question struct {
	poke func() // called when there is an answer

	mu     sync.Mutex
	busy   bool
	asked  time.Time // when the last answer came
	asking sync.WaitGroup
}

// start asks, unless that is under way. What ask returns keeps the answer; it is
// called under the lock.
func (q *question) start(ctx context.Context, ask func(context.Context) (keep func())) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		return
	}
	q.busy = true
	q.asking.Go(func() {
		keep := ask(ctx)
		q.mu.Lock()
		keep()
		q.busy, q.asked = false, time.Now()
		q.mu.Unlock()
		q.poke()
	})
}

// wait returns when no question is under way.
func (q *question) wait() { q.asking.Wait() }
