package cluster

import (
	"context"

	"github.com/ortet/ortet/internal/fleet"
)

// A Cordoner takes Nodes out of service, and returns them.
type Cordoner interface {
	Drainer
	// Annotate and SetUnschedulable are those of Nodes.
	Annotate(ctx context.Context, node string, annotations map[string]*string) error
	SetUnschedulable(ctx context.Context, node string, unschedulable bool) error
}

// DrainReady evicts the pods of a cordoned Node, and reports which of them block it. Of a Node that is not
// Ready none are evicted: its kubelet would not confirm that they ended. The UID of options is the Node's.
func DrainReady(ctx context.Context, d Drainer, n fleet.Node, options DrainOptions, report func(string)) error {
	if !n.Ready {
		report("not drained: its Node is not Ready")
		return nil
	}
	report("drain it")
	options.UID = n.UID
	return d.Drain(ctx, n.Name, options, func(e DrainEvent) {
		if e.What == "blocked" {
			report("pod " + e.Pod + " is blocked by " + e.Because)
		}
	})
}

// Uncordon uncordons a Node, and removes the annotations that say who cordoned it. They go last: who is
// interrupted finds them again.
func Uncordon(ctx context.Context, c Cordoner, node string, marks ...string) error {
	none := map[string]*string{}
	for _, mark := range marks {
		none[mark] = nil
	}
	err := c.SetUnschedulable(ctx, node, false)
	if err == nil {
		err = c.Annotate(ctx, node, none)
	}
	return err
}
