package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// maxParallel bounds what is drained or awaited at once.
const maxParallel = 8

// Scale changes how many machines a pool has. New ones are awaited until their Nodes
// are Ready. For fewer, whole machines are chosen, drained and deleted by their
// instance ids, since Azure would choose without a look at the Nodes; then their Nodes
// go. A tag keeps the number: up makes Spot machines again that are evicted from it.
func (c *Control) Scale(ctx context.Context, name string, want int64) error {
	pool, _, err := c.load(ctx, name)
	if err == nil {
		err = podsDecide("scale pool "+name, pool)
	}
	if err != nil {
		return err
	}
	if err := azure.MergeTags(ctx, c.ARM, pool.ID, map[string]string{recipe.TagScaled: strconv.FormatInt(want, 10)}); err != nil {
		return err
	}
	if want > pool.Capacity {
		c.report(name, "scaling from %d to %d", pool.Capacity, want)
		// Where others scaled further meanwhile, Azure must not choose which machines go.
		if err := c.setCapacity(ctx, pool.ID, func(now int64) int64 { return max(now, want) }); err != nil {
			return err
		}
		if pool, _, err = c.load(ctx, name); err != nil {
			return err
		}
	}
	if want < pool.Capacity {
		return c.Lower(ctx, name, want)
	}
	return c.awaitPool(ctx, name)
}

// CodeAutoscaled is the code of a change that is refused before it begins, since
// cluster-autoscaler scales the pool.
const CodeAutoscaled = "Autoscaled"

// podsDecide refuses to change the number of agents of a pool that cluster-autoscaler scales.
func podsDecide(op string, pool fleet.Pool) error {
	if !(recipe.Live{Applied: pool.Tags[recipe.TagApplied]}).ByPods() {
		return nil
	}
	return &fleet.Error{Op: op, Resource: string(pool.ID), Kind: fleet.KindInvalid, Code: CodeAutoscaled, Err: errors.New("cluster-autoscaler decides how many agents the pool has"),
		Remedy: "drain an agent with kubectl, and cluster-autoscaler deletes it; or give the pool count in cluster.yaml, then ortet cluster up"}
}

// Lower drains and deletes machines of a pool until it has want; one with fewer stays.
func (c *Control) Lower(ctx context.Context, name string, want int64) error {
	pool, machines, err := c.load(ctx, name)
	if err != nil || want >= pool.Capacity {
		return err
	}
	victims, err := c.choose(ctx, pool, machines, int(pool.Capacity-want))
	if err != nil {
		return err
	}
	return c.remove(ctx, pool, victims, nil)
}

// awaitPool waits until Azure has made all machines of a pool, as after an interrupted scale-up, and
// those that run have a Ready Node, and uncordons what an interrupted command cordoned.
func (c *Control) awaitPool(ctx context.Context, name string) error {
	var machines []Machine
	for deadline := c.Now().Add(c.ReadyTimeout); ; {
		pool, list, err := c.load(ctx, name)
		if err != nil {
			return err
		}
		if machines = list; int64(len(machines)) >= pool.Capacity {
			break
		}
		if c.Now().After(deadline) {
			return &fleet.Error{Op: "wait for the machines of pool " + name, Resource: string(pool.ID), Kind: fleet.KindTimedOut,
				Err: fmt.Errorf("pool has %d of %d", len(machines), pool.Capacity), Remedy: "run the same command again, or ortet cluster scale to fewer"}
		}
		if err := azure.Sleep(ctx, azure.RestInterval); err != nil {
			return err
		}
	}
	return each(ctx, machines, maxParallel, func(ctx context.Context, m Machine) error {
		if m.Power == "deallocated" || m.Power == "stopped" {
			return nil
		}
		return c.back(ctx, m, "")
	})
}

// remove drains machines, deletes them, and then their Nodes. The scale set has the tags before
// it deletes.
func (c *Control) remove(ctx context.Context, pool fleet.Pool, victims []Machine, tags map[string]string) error {
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
	if len(tags) > 0 {
		if err := azure.MergeTags(ctx, c.ARM, pool.ID, tags); err != nil {
			return err
		}
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
		switch node := nodes[m.InstanceID]; {
		case refused[m.InstanceID] != nil:
			rank[m.InstanceID] = 4
		case node.Name == "":
		case !node.Ready:
			rank[m.InstanceID] = 1
		case node.Unschedulable:
			rank[m.InstanceID] = 2
		default:
			rank[m.InstanceID] = 3
		}
	}
	list := slices.Clone(machines)
	slices.SortFunc(list, func(a, b Machine) int {
		order := b.number() - a.number()
		if pool.ScaleIn == "OldestVM" {
			order = -order
		}
		return cmp.Or(rank[a.InstanceID]-rank[b.InstanceID], order)
	})
	return list[:min(n, len(list))], nil
}

// TagReplace is a tag of a scale set while the replacement of an agent is unfinished: the names of
// its machine and its Node, and the capacity of before.
const TagReplace = "ortet.io_replace"

// replaced returns the agent that a scale set's TagReplace names, and the capacity of before.
func replaced(pool fleet.Pool) (m Machine, capacity int64) {
	_, _ = fmt.Sscan(pool.Tags[TagReplace], &m.Name, &m.Node, &capacity) // what is no such value names no agent
	return m, capacity
}

// Replace deletes one agent and lets the pool make another in its place. Interrupted, the same
// call goes on, also with an agent that is deleted already.
func (c *Control) Replace(ctx context.Context, name string) error {
	pool, m, err := c.Find(ctx, name)
	if err != nil {
		return err
	}
	if err := podsDecide("replace agent "+name, pool); err != nil {
		return err
	}
	_, capacity := replaced(pool)
	if m.ID != "" {
		capacity = pool.Capacity
		begun := map[string]string{TagReplace: fmt.Sprint(m.Name, " ", m.Node, " ", capacity)}
		if err := c.remove(ctx, pool, []Machine{m}, begun); err != nil {
			return err
		}
	}
	// Deleting by id took one off the capacity; whoever scaled meanwhile counts.
	if err := c.setCapacity(ctx, pool.ID, func(now int64) int64 { return now + max(0, min(1, capacity-now)) }); err != nil {
		return err
	}
	if err := c.awaitPool(ctx, pool.Name); err != nil {
		return err
	}
	if m.ID == "" { // deleted by an interrupted call, which may have left the Node
		n, err := c.Nodes.Node(ctx, m.Node)
		if err == nil {
			err = c.Nodes.Forget(ctx, m.Node, n.UID)
		}
		if fleet.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return azure.DeleteTags(ctx, c.ARM, pool.ID, map[string]string{TagReplace: fmt.Sprint(m.Name, " ", m.Node, " ", capacity)})
}
