package capture

import (
	"context"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// extensions deletes what bootstrapped the donor, dependents first, until the scale set
// as it is read then has none of them.
func (c *capture) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.extension == "" {
		pool, err := c.Cloud.Pool(ctx, c.get().Pool)
		if err != nil {
			return done, err
		}
		c.pool = pool
		toDelete, kept := c.req.Extensions.Doomed(pool.Model.Extensions)
		if len(kept) > 0 {
			return done, invalid("delete extensions", string(pool.ID), "", "%s", strings.Join(kept, "; "))
		}
		if len(toDelete) == 0 {
			return done, nil
		}
		c.extension = toDelete[0].Name
	}
	name := c.extension
	change := func(pool fleet.Pool) fleet.Change { return fleet.DeleteExtension{Pool: pool.ID, Name: name} }
	is := func(pool fleet.Pool) bool { return !hasExtension(pool.Model.Extensions, name) }
	w, err := c.changePool(ctx, p, "extensions", change, is, func(context.Context, fleet.Pool) error { return nil })
	if err != nil || w.In > 0 {
		return w, err
	}
	c.extension = ""
	return in(time.Millisecond, "deleted extension %s", name), nil
}

func hasExtension(extensions []fleet.Extension, name string) bool {
	for _, e := range extensions {
		if strings.EqualFold(e.Name, name) {
			return true
		}
	}
	return false
}
