package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

// departure is the admission server, and this machine's units, as package events
// needs them.
type departure struct {
	*join.Client
	agent string // the unit of the kubelet, k3s or RKE2
	root  string
}

// joinUnit makes a node of the machine.
const joinUnit = "ortet-join.service"

// newDeparture knows which unit the distribution's agent is.
func newDeparture(c *join.Client, distribution, root string) departure {
	unit := "kubelet.service"
	switch distribution {
	case wire.K3s:
		unit = "k3s-agent.service"
	case wire.RKE2:
		unit = "rke2-agent.service"
	}
	return departure{Client: c, agent: unit, root: root}
}

// Depart implements events.Server.
func (d departure) Depart(ctx context.Context, cause string) error {
	if err := d.order(ctx, "StopUnit", d.agent); err != nil {
		return fmt.Errorf("stopping %s: %w", d.agent, err)
	}
	return d.Left(ctx, cause)
}

// Back implements events.Server.
func (d departure) Back(ctx context.Context) error {
	if c, ok := any(d.Client).(interface{ Back(context.Context) error }); ok {
		return c.Back(ctx)
	}
	return errors.ErrUnsupported
}

// Rejoin implements events.Server.
func (d departure) Rejoin(ctx context.Context) error {
	for _, unit := range []string{joinUnit, d.agent} {
		if err := d.order(ctx, "RestartUnit", unit); err != nil {
			return fmt.Errorf("starting %s: %w", unit, err)
		}
	}
	return nil
}

// order has systemd do something about a unit, and waits until it is done.
func (d departure) order(ctx context.Context, member, unit string) error {
	bus, err := systemd.Dial(ctx, 10*time.Second, systemd.Address{Path: bootstrap.Under(d.root, systemd.OwnSocket)})
	if err != nil {
		return err
	}
	hangUp := context.AfterFunc(ctx, bus.Close)
	defer func() {
		hangUp()
		bus.Close()
	}()
	if _, err := bus.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Manager, Member: member, Args: []string{unit, "replace"}}); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		state, err := activeState(bus, unit)
		if err != nil {
			return err
		}
		switch state {
		case "active":
			if member != "StopUnit" {
				return nil
			}
		case "inactive", "failed":
			if member == "StopUnit" {
				return nil
			}
			if state == "failed" {
				return errors.New("it failed")
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is %s: %w", state, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// activeState is a unit's, as "active" or "deactivating".
func activeState(bus *systemd.Bus, unit string) (string, error) {
	r, err := bus.Ask(systemd.Call{Path: systemd.ObjectPath(unit), Iface: systemd.Properties, Member: "Get", Args: []string{systemd.Unit, "ActiveState"}})
	if err != nil {
		return "", err
	}
	r.Variant()
	return string(r.Body.Text()), nil
}
