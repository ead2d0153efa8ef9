package capture

import (
	"context"
	"fmt"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// grow adds new nodes, once: the capacity to reach is saved ahead. If an autoscaler
// changed the set before that, the capacity is computed again.
func (c *capture) grow(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if s.GrowTo == 0 {
		c.pool = fleet.Pool{}
	}
	if err := c.readPool(ctx, s.Pool); err != nil {
		return done, err
	}
	if s.GrowTo == 0 {
		s.GrowFrom, s.GrowTo = c.pool.Capacity, c.pool.Capacity+c.req.NewNodes
		c.set(func(now *state) { now.GrowFrom, now.GrowTo = s.GrowFrom, s.GrowTo })
	}
	change := func(pool fleet.Pool) fleet.Change {
		return fleet.SetCapacity{Pool: pool.ID, Capacity: s.GrowTo, Etag: pool.Etag}
	}
	// It was asked for, and this may be what came of it, or an autoscaler decided since.
	is := func(pool fleet.Pool) bool { return c.grew && pool.Capacity != s.GrowFrom }
	w, err := c.Change(ctx, p, s.Pool, "grow", change, is, func(_ context.Context, pool fleet.Pool) error {
		if pool.Capacity != s.GrowFrom {
			return &fleet.Error{Op: "set capacity", Resource: string(pool.ID), Kind: fleet.KindStale, Err: fmt.Errorf("it was changed from %d to %d", s.GrowFrom, pool.Capacity)}
		}
		c.grew = true
		return nil
	})
	switch {
	case fleet.Is(err, fleet.KindStale): // it had no effect
		c.grew = false
		c.set(func(s *state) { s.GrowTo = 0 })
	case err == nil && w.In == 0 && c.pool.Capacity < s.GrowTo:
		p.Note("the capacity was changed to %d by others", c.pool.Capacity)
	}
	return w, err
}
