package azsim

import (
	"context"
	"sync"
	"time"
)

// pause lets d pass, or less if ctx ends, whose error it then returns.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each does do for all of the list at once, and returns the first error in its
// order.
func each[T any](list []T, do func(T) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() { errs[i] = do(e) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
