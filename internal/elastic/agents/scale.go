package agents

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/fleet"
)

// maxParallel bounds what is drained or awaited at once.
const maxParallel = 8

// Scale changes how many machines a pool has. New ones are awaited until their Nodes
// are Ready. For fewer, whole machines are chosen, drained and deleted by their
// instance ids, since Azure would choose without a look at the Nodes; then their Nodes
// go.
func (c *Control) Scale(ctx context.Context, name string, want int) error {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return err
	}
	if want < pool.Capacity {
		return c.scaleIn(ctx, pool, pool.Capacity-want)
	}
	if want > pool.Capacity {
		c.report(name, "scaling from %d to %d", pool.Capacity, want)
		if err := c.setCapacity(ctx, pool, want); err != nil {
			return err
		}
	}
	return c.awaitPool(ctx, pool)
}

func (c *Control) setCapacity(ctx context.Context, pool Pool, n int) error {
	return c.patch(ctx, fmt.Sprintf("scale to %d", n), pool, map[string]any{"sku": map[string]any{"name": pool.Size, "tier": "Standard", "capacity": n}})
}

// awaitPool waits until all running machines of a pool have a Ready Node.
func (c *Control) awaitPool(ctx context.Context, pool Pool) error {
	machines, err := c.Machines(ctx, pool)
	if err != nil {
		return err
	}
	return each(machines, func(m Machine) error {
		if m.Power == "deallocated" || m.Power == "stopped" {
			return nil
		}
		n, err := c.awaitReady(ctx, m, nil)
		if err == nil {
			c.report(n.Name, "Ready")
		}
		return err
	})
}

func (c *Control) scaleIn(ctx context.Context, pool Pool, n int) error {
	machines, err := c.Machines(ctx, pool)
	if err != nil {
		return err
	}
	victims, err := c.choose(ctx, pool, machines, n)
	if err != nil {
		return err
	}
	return c.remove(ctx, pool, victims)
}

// remove drains machines, deletes them, and then their Nodes.
func (c *Control) remove(ctx context.Context, pool Pool, victims []Machine) error {
	uids := make([]string, len(victims))
	if err := each(indexes(victims), func(i int) error {
		node, _, err := c.drain(ctx, victims[i], false)
		uids[i] = node.UID
		return err
	}); err != nil {
		return err
	}
	for _, m := range victims {
		c.report(m.Node, "deleting %s", m.Name)
	}
	if err := c.act(ctx, pool.ID, "delete", instances(victims)); err != nil {
		return err
	}
	for i, m := range victims {
		if uids[i] == "" {
			continue
		}
		if err := c.Nodes.Forget(ctx, m.Node, uids[i]); err != nil {
			return err
		}
		c.report(m.Node, "deleted")
	}
	return nil
}

// choose picks the machines to delete: those without a Ready Node first, then those
// that are cordoned already (by an earlier try, for instance), then by the pool's
// scale-in policy, of which Default is taken as the newest.
func (c *Control) choose(ctx context.Context, pool Pool, machines []Machine, n int) ([]Machine, error) {
	rank := map[string]int{}
	for _, m := range machines {
		node, err := c.Nodes.Node(ctx, m.Node)
		switch {
		case fleet.Is(err, fleet.KindNotFound):
		case err != nil:
			return nil, err
		case !node.Ready:
			rank[m.Instance] = 1
		case node.Unschedulable:
			rank[m.Instance] = 2
		default:
			rank[m.Instance] = 3
		}
	}
	list := slices.Clone(machines)
	slices.SortFunc(list, func(a, b Machine) int {
		if d := rank[a.Instance] - rank[b.Instance]; d != 0 {
			return d
		}
		if pool.ScaleIn == "OldestVM" {
			return number(a.Instance) - number(b.Instance)
		}
		return number(b.Instance) - number(a.Instance)
	})
	return list[:min(n, len(list))], nil
}

// Replace deletes one agent and lets the pool make another in its place.
func (c *Control) Replace(ctx context.Context, name string) error {
	pool, m, err := c.Find(ctx, name)
	if err != nil {
		return err
	}
	if err := c.remove(ctx, pool, []Machine{m}); err != nil {
		return err
	}
	// Deleting by id took one off the capacity; whoever scaled meanwhile counts.
	now, err := c.Pool(ctx, pool.Name)
	if err != nil {
		return err
	}
	if now.Capacity < pool.Capacity {
		if err := c.setCapacity(ctx, now, now.Capacity+1); err != nil {
			return err
		}
	}
	return c.awaitPool(ctx, now)
}

func indexes[T any](list []T) []int {
	out := make([]int, len(list))
	for i := range list {
		out[i] = i
	}
	return out
}

// each does something with each item, some at a time, and gives the first error.
func each[T any](list []T, do func(T) error) error {
	var g errgroup.Group
	g.SetLimit(maxParallel)
	for _, v := range list {
		g.Go(func() error { return do(v) })
	}
	return g.Wait()
}
