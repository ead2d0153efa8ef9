package agents

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/ortet/ortet/internal/fleet"
)

// maxParallel bounds what is drained or awaited at once.
const maxParallel = 8

// Scale changes how many machines a pool has. New ones are awaited until their Nodes
// are Ready. For fewer, whole machines are chosen, drained and deleted by their
// instance ids, since Azure would choose without a look at the Nodes; then their Nodes
// go.
func (c *Control) Scale(ctx context.Context, name string, want int64) error {
	pool, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	if want > pool.Capacity {
		c.report(name, "scaling from %d to %d", pool.Capacity, want)
		// Where others scaled further meanwhile, Azure must not choose which machines go.
		if err := c.setCapacity(ctx, pool.ID, func(now int64) int64 { return max(now, want) }); err != nil {
			return err
		}
		if pool, machines, err = c.load(ctx, name); err != nil {
			return err
		}
	}
	if want < pool.Capacity {
		victims, err := c.choose(ctx, pool, machines, int(pool.Capacity-want))
		if err != nil {
			return err
		}
		return c.remove(ctx, pool, victims)
	}
	return c.awaitPool(ctx, name)
}

// awaitPool waits until all running machines of a pool have a Ready Node, and uncordons
// what an interrupted command cordoned.
func (c *Control) awaitPool(ctx context.Context, name string) error {
	_, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	return each(ctx, machines, maxParallel, func(ctx context.Context, m Machine) error {
		if m.Power == "deallocated" || m.Power == "stopped" {
			return nil
		}
		return c.back(ctx, m, fleet.Node{})
	})
}

// remove drains machines, deletes them, and then their Nodes.
func (c *Control) remove(ctx context.Context, pool fleet.Pool, victims []Machine) error {
	var mu sync.Mutex
	uids := map[string]string{}
	if err := each(ctx, victims, maxParallel, func(ctx context.Context, m Machine) error {
		node, err := c.drain(ctx, m, false)
		mu.Lock()
		defer mu.Unlock()
		uids[m.Node] = node.UID
		return err
	}); err != nil {
		return err
	}
	for _, m := range victims {
		c.report(m.Node, "deleting %s", m.Name)
	}
	var unread error
	if _, err := c.writer().ScaleSet(ctx, pool.ID, func(fleet.Pool) fleet.Change {
		there, err := c.Machines(ctx, pool.ID)
		// Azure deletes none of them if one is gone, by an autoscaler or an earlier try.
		left := slices.DeleteFunc(slices.Clone(victims), func(v Machine) bool {
			return !slices.ContainsFunc(there, func(m Machine) bool { return m.ID.Equal(v.ID) })
		})
		if unread = err; err != nil || len(left) == 0 {
			return nil
		}
		return fleet.DeleteInstances{Pool: pool.ID, Instances: instances(left)}
	}, nil); cmp.Or(unread, err) != nil {
		return cmp.Or(unread, err)
	}
	for _, m := range victims {
		if uids[m.Node] == "" {
			continue
		}
		if err := c.Nodes.Forget(ctx, m.Node, uids[m.Node]); err != nil {
			return err
		}
		c.report(m.Node, "deleted")
	}
	return nil
}

// choose picks the machines to delete: those without a Ready Node first, then those
// that are cordoned already (by an earlier try, for instance), then by the pool's
// scale-in policy, of which Default is taken as the newest. Those that may not be drained go last:
// a Node that claims one of them does not keep the others.
func (c *Control) choose(ctx context.Context, pool fleet.Pool, machines []Machine, n int) ([]Machine, error) {
	rank := map[string]int{}
	nodes, refused, err := c.nodes(ctx, machines...)
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		switch node := nodes[m.Instance]; {
		case refused[m.Instance] != nil:
			rank[m.Instance] = 4
		case node.Name == "":
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
		order := b.Number - a.Number
		if pool.ScaleIn == "OldestVM" {
			order = -order
		}
		return cmp.Or(rank[a.Instance]-rank[b.Instance], order)
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
	if err := c.setCapacity(ctx, pool.ID, func(now int64) int64 { return now + max(0, min(1, pool.Capacity-now)) }); err != nil {
		return err
	}
	return c.awaitPool(ctx, pool.Name)
}
