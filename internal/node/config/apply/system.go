package apply

import (
	"context"
	"time"
)

// System is what is done to the machine beside its files.
type System interface {
	// Verify returns systemd-analyze's complaints of units, with a folder of units that come
	// before the machine's own; "" for none.
	Verify(ctx context.Context, stage string, units []string) ([]string, error)
	// Reload has systemd read unit files again.
	Reload(ctx context.Context) error
	// Control starts, stops or restarts a unit; without wait it only queues the job.
	Control(ctx context.Context, verb Verb, unit string, wait bool) error
	// Unit returns a unit's state.
	Unit(ctx context.Context, unit string) (UnitState, error)
	// Journal returns the last lines of a unit's log, not redacted.
	Journal(ctx context.Context, unit string) []string
	// Sysctl reads a kernel parameter, SetSysctl writes one.
	Sysctl(key string) (string, error)
	SetSysctl(key, value string) error
	// UpdateCACertificates rebuilds the machine's trusted certificates.
	UpdateCACertificates(ctx context.Context) error
	// Command returns the command line of a unit's main process; nil where none runs.
	Command(ctx context.Context, unit string) ([]string, error)
	// Healthz asks the kubelet at 127.0.0.1 for its health.
	Healthz(ctx context.Context, port int) error
	// Wait waits, or gives the context's error.
	Wait(ctx context.Context, d time.Duration) error
}

// A Verb is what systemctl does to a unit.
type Verb string

// The verbs of System.Control.
const (
	Start   Verb = "start"
	Stop    Verb = "stop"
	Restart Verb = "restart"
)

// UnitState is a unit's state, as `systemctl show` has it.
type UnitState struct {
	Active   string    // ActiveState: "active", "activating", "inactive", "failed", …
	Done     bool      // a oneshot service that is not active: it ended well, or never ran
	Restarts int       // NRestarts: by systemd, since the unit was started
	Since    time.Time // it is active; zero if it is not
}

// up says whether the unit is as a start should leave it.
func (s UnitState) up() bool { return s.Active == "active" || s.Active == "reloading" || s.Done }

// down says whether stopping it changes nothing.
func (s UnitState) down() bool { return s.Active == "inactive" || s.Active == "failed" }
