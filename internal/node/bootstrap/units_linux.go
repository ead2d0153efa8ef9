package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/node/systemd"
)

// busTimeout limits each call: a bus that hangs must not keep the rest from going
// on.
const busTimeout = 5 * time.Second

// busUnits reports units by systemd's signals. Without a bus it reports nothing, and
// connects on retry.
type busUnits struct {
	addresses []systemd.Address
	names     []string
	poke      func()
	log       *slog.Logger

	again chan struct{}
	stop  context.CancelFunc
	done  chan struct{}

	mu    sync.Mutex
	units map[string]unitSeen // nil while not connected
}

func watchUnits(o Options, names []string, poke func(), log *slog.Logger) unitSource {
	ctx, stop := context.WithCancel(context.Background())
	b := &busUnits{
		// systemd's own socket is the second choice: it sends every unit's signals,
		// and each would wake us.
		addresses: []systemd.Address{{Path: o.under(busSocket), Shared: true}, {Path: o.under(systemd.OwnSocket)}},
		names:     names, poke: poke, log: log, again: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	go b.run(ctx)
	return b
}

func (b *busUnits) look() (map[string]unitSeen, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.units == nil {
		return nil, false
	}
	units := make(map[string]unitSeen, len(b.units))
	for name, u := range b.units {
		units[name] = u
	}
	return units, true
}

func (b *busUnits) retry() {
	select {
	case b.again <- struct{}{}:
	default:
	}
}

func (b *busUnits) close() {
	b.stop()
	<-b.done
}

// run connects whenever it may be worth it, and follows the signals until the
// connection is lost.
func (b *busUnits) run(ctx context.Context) {
	defer close(b.done)
	for {
		if err := b.follow(ctx); err != nil && ctx.Err() == nil {
			b.log.Debug("units cannot be watched at present", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-b.again:
		}
	}
}

// dial connects to the first socket that is there and lets us.
func (b *busUnits) dial(ctx context.Context) (*systemd.Bus, error) {
	var there []systemd.Address
	var problems []error
	for _, a := range b.addresses {
		if _, err := os.Stat(a.Path); err != nil {
			problems = append(problems, err)
			continue
		}
		there = append(there, a)
	}
	if len(there) == 0 {
		return nil, errors.Join(problems...)
	}
	return systemd.Dial(ctx, busTimeout, there...)
}

func (b *busUnits) follow(ctx context.Context) error {
	bus, err := b.dial(ctx)
	if err != nil {
		return err
	}
	hangUp := context.AfterFunc(ctx, bus.Close)
	defer func() {
		hangUp()
		bus.Close() // it was lost, or is of no use any more
		b.mu.Lock()
		lost := b.units != nil
		b.units = nil
		b.mu.Unlock()
		if lost {
			b.poke()
		}
	}()
	if err := bus.Follow(b.names); err != nil {
		return fmt.Errorf("subscribing to systemd's signals: %w", err)
	}
	// Look after subscribing: what happened before shows in the properties.
	units, paths := map[string]unitSeen{}, map[dbus.ObjectPath]string{}
	for _, name := range b.names {
		paths[systemd.ObjectPath(name)] = name
		units[name] = b.read(ctx, bus, name)
	}
	b.set(units)
	b.log.Debug("units are watched", "units", len(units))
	for {
		signal, err := bus.Next()
		if err != nil {
			return fmt.Errorf("the connection to systemd was lost: %w", err)
		}
		name := paths[signal.Path]
		if name == "" {
			continue
		}
		u := withSignal(b.read(ctx, bus, name), signal)
		b.mu.Lock()
		b.units[name] = u
		b.mu.Unlock()
		b.poke()
	}
}

func (b *busUnits) set(units map[string]unitSeen) {
	b.mu.Lock()
	b.units = units
	b.mu.Unlock()
	b.poke()
}

// withSignal takes over the number of restarts where the signal knows more: two
// changes in a row may show as the latter only.
func withSignal(u unitSeen, s systemd.Signal) unitSeen {
	u.Restarts = max(u.Restarts, bounded(s.Restarts))
	return u
}

func bounded(n uint32) int { return int(min(n, 1<<20)) }

// read asks for a unit's properties.
func (b *busUnits) read(ctx context.Context, bus *systemd.Bus, name string) unitSeen {
	u := unitSeen{Unit: verdict.Unit{Name: name}}
	var load string
	var loadError struct{ Name, Message string }
	met := true
	var looked, since uint64
	var status int32
	var restarts uint32
	path, err := bus.Load(name)
	if err == nil {
		err = bus.Get(path,
			systemd.Property{Iface: systemd.Unit, Name: "ActiveState", To: &u.Active}, systemd.Property{Iface: systemd.Unit, Name: "SubState", To: &u.Sub},
			systemd.Property{Iface: systemd.Unit, Name: "LoadState", To: &load}, systemd.Property{Iface: systemd.Unit, Name: "LoadError", To: &loadError},
			systemd.Property{Iface: systemd.Unit, Name: "ConditionResult", To: &met},
			systemd.Property{Iface: systemd.Unit, Name: "ConditionTimestampMonotonic", To: &looked},
			systemd.Property{Iface: systemd.Unit, Name: "ActiveEnterTimestampMonotonic", To: &since},
			systemd.Property{Iface: systemd.Service, Name: "Result", To: &u.Result}, systemd.Property{Iface: systemd.Service, Name: "ExecMainStatus", To: &status},
			systemd.Property{Iface: systemd.Service, Name: "NRestarts", To: &restarts})
	}
	if err != nil && ctx.Err() == nil {
		b.log.Debug("cannot read a unit", "unit", name, "error", err)
	}
	if u.Missing = load == "not-found"; u.Missing {
		u.Result = ""
		return u
	}
	u.LoadError, u.ExitCode, u.Restarts = loadError.Name, int(status), bounded(restarts)
	u.Conditions = !met && looked != 0 // 0 means that they were not checked yet
	if u.Active == "active" {
		u.since = atMonotonic(since)
	}
	return u
}

// atMonotonic is a time of CLOCK_MONOTONIC in microseconds; zero where it is none.
func atMonotonic(us uint64) time.Time {
	var ts unix.Timespec
	if us == 0 || unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return time.Time{}
	}
	now := uint64(ts.Nano()) / 1000
	if us > now {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(now-us) * time.Microsecond)
}

// failed asks on a connection of its own: the other one is waited at.
func (b *busUnits) failed() []unitSeen {
	if _, ok := b.look(); !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*busTimeout)
	defer cancel()
	bus, err := b.dial(ctx)
	if err != nil {
		b.log.Debug("cannot list failed units", "error", err)
		return nil
	}
	defer bus.Close()
	names, err := bus.UnitsIn("failed", "auto-restart")
	if err != nil {
		b.log.Debug("cannot list failed units", "error", err)
	}
	needed := map[string]bool{}
	if len(names) > 0 {
		needed = b.needed(bus)
	}
	var units []unitSeen
	for _, matters := range []bool{true, false} { // of many, those that matter
		for _, name := range names {
			if matters == (needed[name] || slices.Contains(makers(), name)) && len(units) < maxFailedUnits {
				u := b.read(ctx, bus, name)
				u.Needed = needed[name]
				units = append(units, u)
			}
		}
	}
	return units
}

// makers are the units that make a node.
func makers() []string {
	return slices.Concat(kubeletUnits(), cloudInitUnits(), []string{
		"containerd.service", "crio.service", "cloud-config.service", "cloud-init.service", "cloud-init-network.service", "cloud-init-main.service", "cloud-init-local.service",
	})
}

// maxNeeded bounds what one unit requires.
const maxNeeded = 256

// needed are the units without which those that make a node do not start.
func (b *busUnits) needed(bus *systemd.Bus) map[string]bool {
	all := map[string]bool{}
	for _, name := range makers() {
		path, err := bus.Loaded(name) // one that is not loaded requires nothing
		var requires, requisite, bindsTo []string
		if err == nil {
			err = bus.Get(path, systemd.Property{Iface: systemd.Unit, Name: "Requires", To: &requires},
				systemd.Property{Iface: systemd.Unit, Name: "Requisite", To: &requisite}, systemd.Property{Iface: systemd.Unit, Name: "BindsTo", To: &bindsTo})
		}
		for _, required := range [][]string{requires, requisite, bindsTo} {
			for _, r := range required[:min(len(required), maxNeeded)] {
				all[r] = true
			}
		}
		if err != nil {
			b.log.Debug("cannot read what a unit requires", "unit", name, "error", err)
		}
	}
	return all
}
