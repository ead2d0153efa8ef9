package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

func TestLookAfter(t *testing.T) {
	for _, c := range []struct{ worked, want time.Duration }{
		{-time.Hour, lookEvery}, // a clock that was put back
		{0, lookEvery},
		{4 * time.Second, lookEvery},
		{8 * time.Second, time.Second},
		{time.Hour, 2 * time.Second},
	} {
		if got := lookAfter(c.worked); got != c.want {
			t.Errorf("after %s: %s, want %s", c.worked, got, c.want)
		}
	}
}

// TestOwnRateLimitIsNoCause: that our own limiter would have delayed a request past the
// step's deadline does not explain why the step took that long.
func TestOwnRateLimitIsNoCause(t *testing.T) {
	limited := &fleet.Error{Op: "get instance", Kind: fleet.KindThrottled, RetryAfter: 5 * time.Second, Err: fmt.Errorf("%w by 5s", azure.ErrTurn)}
	for name, wait := range map[string]func(ctx context.Context, task *task) error{
		"read": func(ctx context.Context, task *task) error {
			_, err := ask(ctx, task, func(context.Context) (int, error) { return 0, limited })
			return err
		},
		"change": func(ctx context.Context, task *task) error {
			return task.change(ctx, "key", fleet.StartInstance{Instance: instanceID(0)}, func(ctx context.Context) (bool, error) {
				_, err := ask(ctx, task, func(context.Context) (int, error) { return 0, limited })
				return false, err
			})
		},
		"operation": func(ctx context.Context, task *task) error {
			<-ctx.Done()
			return task.ended(ctx, fleet.StartInstance{Instance: instanceID(0)}, limited)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e, _, ctx, _ := w.process(t, "a", 0)
			r, done := e.begin(ctx)
			defer done()
			err := r.carry(r.work, prototype.Step{ID: prototype.StepStart, Deadline: 3 * time.Second}, wait)
			if err == nil || strings.Contains(err.Error(), "rate limit") || !strings.Contains(err.Error(), "not done within 3s") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
