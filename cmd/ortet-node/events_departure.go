package main

import (
	"context"
	"time"

	"github.com/ortet/ortet/internal/node/join"
)

// departure is the admission server, and this machine's units, as package events
// needs them. Leave and Back are the client's.
type departure struct {
	*join.Client
	agent string // the unit of the kubelet, k3s or RKE2
}

const (
	// joinUnit makes a node of the machine.
	joinUnit = "ortet-join.service"
	// leftWithin is how long telling the server may take where the time is up.
	leftWithin = 2 * time.Second
)

// newDeparture knows which unit the distribution's agent is.
func newDeparture(c *join.Client, distribution string) departure {
	return departure{c, join.AgentUnit(distribution)}
}

// Depart implements events.Server. The node is drained, as far as it can be: that is
// not asked for again.
func (d departure) Depart(ctx context.Context, cause string) error {
	if err := join.StopUnit(ctx, d.agent); err != nil {
		return err
	}
	within := leftWithin
	if end, ok := ctx.Deadline(); ok {
		within = max(within, time.Until(end))
	}
	return d.Client.Depart(ctx, join.Departure{Cause: cause, Within: within, Part: join.LeftPart})
}

// Rejoin implements events.Server.
func (d departure) Rejoin(ctx context.Context) error {
	for _, unit := range []string{joinUnit, d.agent} {
		if err := join.RestartUnit(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}
