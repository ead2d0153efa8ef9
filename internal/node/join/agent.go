package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

// Agent is the node's kubelet, k3s or RKE2 as a service.
type Agent interface {
	// Stop stops a unit and returns once it stands still. One that does not run, or
	// does not exist, stands still.
	Stop(ctx context.Context, unit string) error
	// Runs says whether a unit runs, or is about to start or to stop.
	Runs(ctx context.Context, unit string) (bool, error)
}

// unit is the agent's of a distribution, as its own packages name it.
func unit(distribution string) string {
	if distribution == wire.Kubelet {
		return "kubelet.service"
	}
	return distribution + "-agent.service"
}

const (
	busTimeout  = 5 * time.Second
	agentPause  = 200 * time.Millisecond
	stateActive = "ActiveState"
)

// units is systemd's.
type units struct {
	addresses []systemd.Address
	wait      func(ctx context.Context, d time.Duration) error
}

// systemSockets are where systemd is asked: its own is there also when the message
// bus has ended, as in a shutdown.
func systemSockets() []systemd.Address {
	return []systemd.Address{{Path: systemd.OwnSocket}, {Path: systemd.SharedSocket, Shared: true}}
}

// Stop has systemd stop a unit.
func (u units) Stop(ctx context.Context, name string) error {
	b, err := systemd.Dial(ctx, busTimeout, u.addresses...)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Manager, Member: "StopUnit", Args: []string{name, "replace"}})
	if err != nil {
		if strings.HasPrefix(err.Error(), systemd.Name+".NoSuchUnit:") {
			return nil
		}
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	for {
		state, err := activeState(b, name)
		if err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
		if !moves(state) {
			return nil
		}
		if err := u.wait(ctx, agentPause); err != nil {
			return fmt.Errorf("stopping %s: it is %s still: %w", name, state, err)
		}
	}
}

// Runs asks systemd.
func (u units) Runs(ctx context.Context, name string) (bool, error) {
	b, err := systemd.Dial(ctx, busTimeout, u.addresses...)
	if err != nil {
		return false, err
	}
	defer b.Close()
	state, err := activeState(b, name)
	return moves(state), err
}

func moves(state string) bool { return state != "inactive" && state != "failed" }

// activeState is a unit's; of one that does not exist it is "inactive".
func activeState(b *systemd.Bus, name string) (string, error) {
	r, err := b.Ask(systemd.Call{Path: systemd.ObjectPath(name), Iface: systemd.Properties, Member: "Get", Args: []string{systemd.Unit, stateActive}})
	if err != nil {
		return "", fmt.Errorf("asking for the state of %s: %w", name, err)
	}
	if r.Variant() != "s" {
		return "", fmt.Errorf("asking for the state of %s: an answer of another type", name)
	}
	state := string(r.Body.Text())
	return state, r.Body.Err()
}

// PoweringOff says whether this machine is being powered off: not restarted, and not
// only one of its units stopped. Azure ends a machine that is deleted and one that
// is deallocated in the same way; which of the two it is, nobody on it can know.
func PoweringOff(ctx context.Context) (bool, error) {
	return poweringOff(ctx, systemSockets())
}

func poweringOff(ctx context.Context, addresses []systemd.Address) (bool, error) {
	b, err := systemd.Dial(ctx, busTimeout, addresses...)
	if err != nil {
		return false, err
	}
	defer b.Close()
	for _, target := range []string{"poweroff.target", "halt.target"} {
		// A shutdown is a job of its target, which is done last of all.
		r, err := b.Ask(systemd.Call{Path: systemd.ObjectPath(target), Iface: systemd.Properties, Member: "Get", Args: []string{systemd.Unit, "Job"}})
		if err != nil {
			return false, fmt.Errorf("asking whether the machine is being powered off: %w", err)
		}
		if r.Variant() != "(uo)" {
			return false, fmt.Errorf("asking whether the machine is being powered off: an answer of another type")
		}
		r.Body.Struct()
		if job := r.Body.U32(); job != 0 {
			return true, r.Body.Err()
		}
	}
	return false, nil
}
