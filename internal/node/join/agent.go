package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Agent is the node's kubelet, k3s or RKE2 as a service.
type Agent interface {
	// Stop stops a unit and returns once it stands still. One that does not run, or
	// does not exist, stands still.
	Stop(ctx context.Context, unit string) error
	// Runs reports whether a unit runs, or is about to start or to stop.
	Runs(ctx context.Context, unit string) (bool, error)
}

// JoinUnit runs ortet-node join.
const JoinUnit = "ortet-join.service"

// AgentUnit is the agent's unit of a distribution, as its own packages name it.
func AgentUnit(distribution string) string {
	if distribution == wire.Kubelet {
		return "kubelet.service"
	}
	return distribution + "-agent.service"
}

// systemctl is the program. It speaks to systemd itself, so it serves in a shutdown
// too, when the message bus has ended.
type systemctl string

// ask runs it, and returns its output.
func (s systemctl) ask(ctx context.Context, args ...string) (string, error) {
	said, err := exec.CommandContext(ctx, string(s), append([]string{"--no-ask-password"}, args...)...).CombinedOutput()
	text := string(bytes.TrimSpace(said))
	if err != nil {
		return text, fmt.Errorf("systemctl %s: %w: %.200q", strings.Join(args, " "), err, text)
	}
	return text, nil
}

// noSuchUnit is the exit code for a unit that does not exist. Source: systemctl(1),
// "Exit status".
const noSuchUnit = 5

// StopUnit has systemd stop a unit and returns once it stands still. One that does not
// exist stands still.
func StopUnit(ctx context.Context, name string) error { return systemctl("systemctl").Stop(ctx, name) }

// RestartUnit has systemd start a unit, or stop and start it, and returns once that is
// done.
func RestartUnit(ctx context.Context, name string) error {
	_, err := systemctl("systemctl").ask(ctx, "restart", name)
	return err
}

// Stop has systemd stop a unit.
func (s systemctl) Stop(ctx context.Context, name string) error {
	_, err := s.ask(ctx, "stop", name)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == noSuchUnit {
		return nil
	}
	return err
}

// Runs asks systemd. A unit that does not exist is inactive.
func (s systemctl) Runs(ctx context.Context, name string) (bool, error) {
	state, err := s.ask(ctx, "show", "--property=ActiveState", "--value", name)
	return state != "inactive" && state != "failed", err
}

// PoweringOff reports whether this machine is being powered off: not restarted, and not
// only one of its units stopped. Azure ends a deleted machine and a deallocated one in the
// same way, so the machine cannot know which it is.
func PoweringOff(ctx context.Context) (bool, error) { return systemctl("systemctl").poweringOff(ctx) }

// poweringOff searches for the shutdown's job, which is done last of all.
func (s systemctl) poweringOff(ctx context.Context) (bool, error) {
	jobs, err := s.ask(ctx, "list-jobs", "--full", "--plain", "--no-legend", "--no-pager")
	for line := range strings.Lines(jobs) {
		// Its number, the unit, what is done with it, and how far that is.
		if f := strings.Fields(line); len(f) > 2 && (f[1] == "poweroff.target" || f[1] == "halt.target") && f[2] == "start" {
			return true, err
		}
	}
	return false, err
}
