package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/node/systemd"
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

	orderTimeout = 5 * time.Second
	orderPause   = 100 * time.Millisecond
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
	if err := order(ctx, "StopUnit", d.agent); err != nil {
		return fmt.Errorf("stopping %s: %w", d.agent, err)
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
		if err := order(ctx, "RestartUnit", unit); err != nil {
			return fmt.Errorf("starting %s: %w", unit, err)
		}
	}
	return nil
}

// order has systemd stop or restart a unit, and waits until it stands still or runs.
// One that does not exist stands still.
func order(ctx context.Context, member, unit string) error {
	// Its own socket is there also when the message bus has ended.
	bus, err := systemd.Dial(ctx, orderTimeout, systemd.Address{Path: systemd.OwnSocket}, systemd.Address{Path: systemd.SharedSocket, Shared: true})
	if err != nil {
		return err
	}
	hangUp := context.AfterFunc(ctx, bus.Close)
	defer func() {
		hangUp()
		bus.Close()
	}()
	stops := member == "StopUnit"
	if _, err := bus.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Manager, Member: member, Args: []string{unit, "replace"}}); err != nil {
		if stops && strings.HasPrefix(err.Error(), systemd.Name+".NoSuchUnit:") {
			return nil
		}
		return err
	}
	tick := time.NewTicker(orderPause)
	defer tick.Stop()
	for {
		r, err := bus.Ask(systemd.Call{Path: systemd.ObjectPath(unit), Iface: systemd.Properties, Member: "Get", Args: []string{systemd.Unit, "ActiveState"}})
		if err != nil {
			return err
		}
		if r.Variant() != "s" {
			return errors.New("its state is an answer of another type")
		}
		// A restart passes inactive on its way; a oneshot ends there.
		switch state := string(r.Body.Text()); {
		case stops && (state == "inactive" || state == "failed"), !stops && state == "active":
			return nil
		case !stops && state == "failed":
			return errors.New("it failed")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not done: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
