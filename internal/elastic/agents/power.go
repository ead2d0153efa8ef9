package agents

import (
	"context"
	"fmt"

	"github.com/ortet/ortet/internal/fleet"
)

// Stop drains all machines of a pool, as far as there is time, and deallocates them:
// what is only powered off is still billed. Pods that nothing else can run wait.
func (c *Control) Stop(ctx context.Context, name string) error {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return err
	}
	machines, err := c.Machines(ctx, pool)
	if err != nil {
		return err
	}
	if len(machines) == 0 {
		return nil
	}
	if err := each(machines, func(m Machine) error {
		if m.Power != "running" {
			return nil
		}
		_, _, err := c.drain(ctx, m, true)
		return err
	}); err != nil {
		return err
	}
	c.report(name, "deallocating %d machines", len(machines))
	return c.act(ctx, pool.ID, "deallocate", nil)
}

// Start starts all machines of a pool, waits until their Nodes are Ready, and uncordons
// those that Stop cordoned.
func (c *Control) Start(ctx context.Context, name string) error {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return err
	}
	machines, err := c.Machines(ctx, pool)
	if err != nil {
		return err
	}
	before := map[string]string{} // boot ids of machines that do not run
	for _, m := range machines {
		n, err := c.Nodes.Node(ctx, m.Node)
		if err != nil && !fleet.Is(err, fleet.KindNotFound) {
			return err
		}
		if m.Power != "running" {
			before[m.Node] = n.BootID
		}
	}
	c.report(name, "starting")
	if err := c.act(ctx, pool.ID, "start", nil); err != nil {
		return err
	}
	return each(machines, func(m Machine) error { return c.back(ctx, m, fleet.Node{BootID: before[m.Node]}) })
}

// Chaos restarts all running machines of a pool one after the other, without a drain,
// in the order that shuffle makes, and waits for each to be Ready again.
func (c *Control) Chaos(ctx context.Context, name string, shuffle func(n int, swap func(i, j int))) error {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return err
	}
	machines, err := c.Machines(ctx, pool)
	if err != nil {
		return err
	}
	shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	for _, m := range machines {
		if m.Power != "running" {
			continue
		}
		n, err := c.Nodes.Node(ctx, m.Node)
		if err != nil && !fleet.Is(err, fleet.KindNotFound) {
			return err
		}
		c.report(m.Node, "restarting")
		if err := c.act(ctx, m.ID, "restart", nil); err != nil {
			return err
		}
		if _, err := c.awaitReady(ctx, m, func(now fleet.Node) bool { return n.BootID == "" || now.BootID != n.BootID }); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		c.report(m.Node, "Ready")
	}
	return nil
}
