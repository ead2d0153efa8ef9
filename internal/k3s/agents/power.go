package agents

import (
	"context"
	"errors"
	"slices"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// Stop drains all machines of a pool, as far as there is time, and deallocates them:
// what is only powered off is still billed. Pods that nothing else can run wait. Beside a machine that
// refuses it, all others are stopped.
func (c *Control) Stop(ctx context.Context, name string) error {
	pool, machines, err := c.load(ctx, name)
	if err != nil || len(machines) == 0 {
		return err
	}
	_, refused, err := c.nodes(ctx, slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { return m.Power != "running" })...)
	if err != nil {
		return err
	}
	stops := fleet.DeallocateScaleSet{Pool: pool.ID}
	own := slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { return refused[m.InstanceID] != nil })
	if err := each(ctx, own, maxParallel, func(ctx context.Context, m Machine) error {
		if m.Power != "running" {
			return nil
		}
		_, err := c.drain(ctx, m, true)
		return err
	}); err != nil {
		return err
	}
	if len(refused) > 0 {
		stops.Instances = instances(own)
	}
	if len(own) > 0 {
		c.report(name, "deallocating %d machines", len(own))
		_, err = c.writer().ScaleSet(ctx, pool.ID, once(stops), nil)
	}
	for _, m := range machines {
		err = errors.Join(err, refused[m.InstanceID])
	}
	return err
}

// Start starts all machines of a pool, waits until their Nodes are Ready, and uncordons
// those that Stop cordoned.
func (c *Control) Start(ctx context.Context, name string) error {
	pool, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	boots := map[string]string{} // of machines that do not run
	for _, m := range machines {
		if m.Power == "running" {
			continue
		}
		n, err := c.node(ctx, m)
		if err != nil && !fleet.Is(err, fleet.KindInvalid) {
			return err
		}
		boots[m.Node] = n.BootID
	}
	c.report(name, "starting")
	if _, err := c.writer().ScaleSet(ctx, pool.ID, once(fleet.StartScaleSet{Pool: pool.ID}), nil); err != nil {
		return err
	}
	// A later start of the whole cluster is not to start what is stopped by itself until then.
	if value := pool.Tags[recipe.TagStopped]; value != "" {
		if err := azure.DeleteTags(ctx, c.ARM, pool.ID, map[string]string{recipe.TagStopped: value}); err != nil {
			return err
		}
	}
	return each(ctx, machines, maxParallel, func(ctx context.Context, m Machine) error { return c.back(ctx, m, boots[m.Node]) })
}

// Chaos restarts all running machines of a pool one after the other, without a drain,
// in the order that shuffle makes, and waits for each to be Ready again.
func (c *Control) Chaos(ctx context.Context, name string, shuffle func(n int, swap func(i, j int))) error {
	_, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	return c.eachOwn(ctx, machines, 1, func(ctx context.Context, m Machine) error {
		if m.Power != "running" {
			return nil
		}
		before, err := c.own(ctx, m)
		if err != nil {
			return err
		}
		c.report(m.Node, "restarting")
		if err := c.writer().Do(ctx, fleet.RestartInstance{Instance: m.ID}); err != nil {
			return err
		}
		return c.back(ctx, m, before.BootID)
	})
}
