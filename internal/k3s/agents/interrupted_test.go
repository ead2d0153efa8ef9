package agents_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/agents"
)

// A mortal world ends a command after so many of its changes of Nodes: nothing arrives after that.
type mortal struct {
	*world
	left *int
	end  func()
}

func (m mortal) change(ctx context.Context, do func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := do()
	if *m.left--; *m.left == 0 {
		m.end()
	}
	return err
}

func (m mortal) Annotate(ctx context.Context, node string, annotations map[string]*string) error {
	return m.change(ctx, func() error { return m.world.Annotate(ctx, node, annotations) })
}

func (m mortal) SetUnschedulable(ctx context.Context, node string, is bool) error {
	return m.change(ctx, func() error { return m.world.SetUnschedulable(ctx, node, is) })
}

func (m mortal) Forget(ctx context.Context, name, uid string) error {
	return m.change(ctx, func() error { return m.world.Forget(ctx, name, uid) })
}

// A command that ends between any two of its changes of Nodes leaves none cordoned once it is given again.
func TestEndedBetweenChangesOfNodes(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *agents.Control) error{
		"resize":  func(ctx context.Context, c *agents.Control) error { return c.Resize(ctx, "agents", "Standard_D4s_v5") },
		"reimage": func(ctx context.Context, c *agents.Control) error { return c.Reimage(ctx, "agents", 1, false) },
		"replace": func(ctx context.Context, c *agents.Control) error { return c.Replace(ctx, "agents_0") },
		"stop and start": func(ctx context.Context, c *agents.Control) error {
			if err := c.Stop(ctx, "agents"); err != nil {
				return err
			}
			return c.Start(ctx, "agents")
		},
	} {
		for after, ended := 1, false; !ended && !t.Failed(); after++ {
			t.Run(fmt.Sprint(name, " ends after ", after), func(t *testing.T) {
				play(t, 2, func(w *world) {
					ctx, cancel := context.WithCancel(w.t.Context())
					defer cancel()
					left := after
					w.control.Nodes = mortal{w, &left, cancel}
					err := do(ctx, w.control)
					if ended = left > 0; err == nil && !ended {
						err = errors.Join(ctx.Err()) // by its last change
					}
					w.control.Nodes = w
					if err != nil {
						err = do(w.t.Context(), w.control)
					}
					if err != nil {
						t.Error(err)
					}
					time.Sleep(5 * time.Minute) // until new machines have joined
					for node, n := range w.nodes {
						if n.Unschedulable || n.Annotations[agents.AnnotationCordon] != "" {
							t.Errorf("%s is cordoned: %t, with %v", node, n.Unschedulable, n.Annotations)
						}
					}
				})
			})
		}
	}
}
