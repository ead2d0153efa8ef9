package main

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/node/join"
)

// departure is the admission server, and this machine's units, as package events
// needs them. Leave, Back, Hold and Release are the client's.
type departure struct {
	*join.Client
	agent string // the unit of the kubelet, k3s or RKE2
}

// leftWithin is how long telling the server may take where the time is up.
const leftWithin = 2 * time.Second

// newDeparture knows which unit the distribution's agent is.
func newDeparture(c *join.Client, distribution string) departure {
	return departure{c, join.AgentUnit(distribution)}
}

// Depart implements events.Server. The node is drained, as far as it can be: that is
// not asked for again. From here on nothing of this machine joins.
func (d departure) Depart(ctx context.Context, cause string) error {
	held := d.Hold()
	// The join last: an agent that waits for it would begin when it ends.
	for _, unit := range []string{d.agent, join.JoinUnit} {
		if err := join.StopUnit(ctx, unit); err != nil {
			return errors.Join(held, err)
		}
	}
	within := leftWithin
	if end, ok := ctx.Deadline(); ok {
		within = max(within, time.Until(end))
	}
	return errors.Join(held, d.Client.Depart(ctx, join.Departure{Cause: cause, Within: within, Part: join.LeftPart}))
}

// Rejoin implements events.Server.
func (d departure) Rejoin(ctx context.Context) error {
	if err := d.Release(); err != nil {
		return err
	}
	for _, unit := range []string{join.JoinUnit, d.agent} {
		if err := join.RestartUnit(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}
