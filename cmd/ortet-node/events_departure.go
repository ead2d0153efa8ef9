package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/verdict"
	"github.com/ortet/ortet/internal/wire"
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
	if distribution == wire.Kubelet {
		return departure{c, "kubelet.service"}
	}
	return departure{c, distribution + "-agent.service"}
}

// Depart implements events.Server. The node is drained, as far as it can be: that is
// not asked for again.
func (d departure) Depart(ctx context.Context, cause string) error {
	if err := order(ctx, "stop", d.agent); err != nil {
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
		if err := order(ctx, "restart", unit); err != nil {
			return err
		}
	}
	return nil
}

// order has systemd stop or restart a unit, and waits until that is done. One that
// does not exist stands still.
func order(ctx context.Context, what, unit string) error {
	said, err := exec.CommandContext(ctx, "systemctl", "--no-ask-password", what, unit).CombinedOutput()
	// Source of fact: systemctl(1), "Exit status".
	const noSuchUnit = 5
	var exit *exec.ExitError
	if err == nil || what == "stop" && errors.As(err, &exit) && exit.ExitCode() == noSuchUnit {
		return nil
	}
	return fmt.Errorf("systemctl %s %s: %w: %s", what, unit, err, verdict.Plain(string(said), 200))
}
