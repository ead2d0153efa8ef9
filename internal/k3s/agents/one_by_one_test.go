package agents_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/agents"
)

// What goes from agent to agent ends at the first that does not come up: all others were neither
// drained nor restarted.
func TestOutcomeFirstAgentThatStaysAwayEndsIt(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *agents.Control) error{
		"resize":  func(ctx context.Context, c *agents.Control) error { return c.Resize(ctx, "agents", "Standard_D4s_v5") },
		"reimage": func(ctx context.Context, c *agents.Control) error { return c.Reimage(ctx, "agents", 1, false) },
		"chaos": func(ctx context.Context, c *agents.Control) error {
			return c.Chaos(ctx, "agents", func(int, func(i, j int)) {})
		},
	} {
		play(t, 3, func(w *world) {
			w.sick = "agents000000"
			boots := map[string]string{}
			for node, n := range w.nodes {
				boots[node] = n.BootID
			}
			err := do(w.t.Context(), w.control)
			others := slices.DeleteFunc(slices.Clone(w.drained), func(name string) bool { return name == w.sick })
			for node, n := range w.nodes { // an upgrade boots all of them here
				if node != w.sick && (n.Unschedulable || name == "chaos" && n.BootID != boots[node]) {
					others = append(others, node)
				}
			}
			if !fleet.Is(err, fleet.KindTimedOut) || len(others) > 0 {
				t.Errorf("%s: %v; it went on with %q", name, err, others)
			}
			time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
		})
	}
}

// Beside an agent that is deallocated by hand, commands end well for all others, and leave it so.
func TestOutcomeStoppedAgentIsNotAwaited(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *agents.Control) error{
		"scale": func(ctx context.Context, c *agents.Control) error { return c.Scale(ctx, "agents", 3) },
		"resize twice": func(ctx context.Context, c *agents.Control) error {
			if err := c.Resize(ctx, "agents", "Standard_D4s_v5"); err != nil {
				return err
			}
			return c.Resize(ctx, "agents", "Standard_D4s_v5")
		},
		"chaos": func(ctx context.Context, c *agents.Control) error {
			return c.Chaos(ctx, "agents", func(int, func(i, j int)) {})
		},
	} {
		play(t, 2, func(w *world) {
			stopped := w.machines()[0]
			w.send("POST", "/virtualMachines/"+stopped.InstanceID+"/deallocate", "{}")
			time.Sleep(10 * time.Minute) // until it is
			w.mu.Lock()
			w.sick, w.nodes[stopped.Node].Ready = stopped.Node, false
			w.mu.Unlock()
			err := do(w.t.Context(), w.control)
			if now := w.machines()[0]; err != nil || now.Power != "deallocated" {
				t.Errorf("%s: %v; the agent that was deallocated is %s", name, err, now.Power)
			}
			time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
		})
	}
}

// Of agents that are Ready those that are cordoned go first, and --force deletes pods past a budget.
func TestOutcomeCordonedAgentGoesFirst(t *testing.T) {
	play(t, 3, func(w *world) {
		w.nodes["agents000000"].Unschedulable, w.blocked = true, "agents000000"
		if err := w.control.Scale(w.t.Context(), "agents", 2); !fleet.Is(err, fleet.KindBlocked) {
			t.Errorf("the cordoned agent is not drained: %v", err)
		}
		w.control.Force = true
		if err := w.control.Scale(w.t.Context(), "agents", 2); err != nil || !slices.Equal(w.names(), []string{"agents000001", "agents000002"}) {
			t.Errorf("--force: %v; Nodes %q", err, w.names())
		}
		time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
	})
}
