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

	"github.com/ortet/ortet/internal/verdict"
)

const (
	systemdName   = "org.freedesktop.systemd1"
	systemdPath   = "/org/freedesktop/systemd1"
	managerIface  = systemdName + ".Manager"
	unitIface     = systemdName + ".Unit"
	serviceIface  = systemdName + ".Service"
	propertyIface = "org.freedesktop.DBus.Properties"
	busTimeout    = 5 * time.Second
	maxBusSignals = 64
)

// busUnits tells of units by systemd's signals. While there is no bus it has
// nothing to tell, and connects when it is told to try again.
type busUnits struct {
	addresses []address
	names     []string
	poke      func()
	log       *slog.Logger

	again chan struct{}
	stop  context.CancelFunc
	done  chan struct{}

	mu    sync.Mutex
	conn  *dbus.Conn
	units map[string]unitSeen // nil while not connected
}

type address struct {
	socket string
	hello  bool // it is a message bus, not systemd itself
}

func watchUnits(o Options, names []string, poke func(), log *slog.Logger) unitSource {
	ctx, stop := context.WithCancel(context.Background())
	b := &busUnits{
		// systemd's own socket is the second choice: it sends every unit's signals,
		// and each would wake us.
		addresses: []address{{o.under(busSocket), true}, {o.under("/run/systemd/private"), false}},
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

func (b *busUnits) follow(ctx context.Context) error {
	var problems []error
	for _, a := range b.addresses {
		if _, err := os.Stat(a.socket); err != nil {
			problems = append(problems, err)
			continue
		}
		conn, err := connect(ctx, a)
		if err == nil {
			err = b.followOn(ctx, conn, a.hello)
			_ = conn.Close() // it was lost, or is of no use any more
			b.mu.Lock()
			b.conn, b.units = nil, nil
			b.mu.Unlock()
			return err
		}
		problems = append(problems, fmt.Errorf("connecting to %s: %w", a.socket, err))
	}
	return errors.Join(problems...)
}

func connect(ctx context.Context, a address) (*dbus.Conn, error) {
	// A bus that takes the connection and says nothing must not hold us.
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(busTimeout, cancel)
	conn, err := dbus.Dial("unix:path="+a.socket, dbus.WithContext(ctx))
	if err != nil {
		timer.Stop()
		cancel()
		return nil, err
	}
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(fmt.Sprint(os.Getuid()))})
	if err == nil && a.hello {
		err = conn.Hello()
	}
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	context.AfterFunc(conn.Context(), cancel)
	return conn, nil
}

func (b *busUnits) followOn(ctx context.Context, conn *dbus.Conn, isBus bool) error {
	signals := make(chan *dbus.Signal, maxBusSignals)
	conn.Signal(signals)
	paths := map[dbus.ObjectPath]string{}
	for _, name := range b.names {
		path := unitPath(name)
		paths[path] = name
		if !isBus {
			continue
		}
		err := b.call(ctx, func(ctx context.Context) error {
			return conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemdName), dbus.WithMatchObjectPath(path),
				dbus.WithMatchInterface(propertyIface), dbus.WithMatchMember("PropertiesChanged"))
		})
		if err != nil {
			return err
		}
	}
	manager := conn.Object(systemdName, systemdPath)
	if err := b.call(ctx, func(ctx context.Context) error {
		return manager.CallWithContext(ctx, managerIface+".Subscribe", 0).Err
	}); err != nil && isBus {
		return fmt.Errorf("subscribing to systemd's signals: %w", err)
	}
	b.mu.Lock()
	b.conn = conn
	b.mu.Unlock()
	// Look after subscribing: what happened before shows in the properties.
	units := map[string]unitSeen{}
	for _, name := range b.names {
		units[name] = b.read(ctx, conn, name)
	}
	b.set(units)
	b.log.Debug("units are watched", "units", len(units))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-conn.Context().Done():
			b.poke()
			return errors.New("the connection to systemd was lost")
		case s, ok := <-signals:
			if !ok {
				b.poke()
				return errors.New("the connection to systemd was lost")
			}
			if name := paths[s.Path]; name != "" && s.Name == propertyIface+".PropertiesChanged" {
				u := b.read(ctx, conn, name)
				// Two changes in a row may show as the latter only: what the signal
				// itself says of a restart is not to be missed.
				u = withSignal(u, s.Body)
				b.mu.Lock()
				b.units[name] = u
				b.mu.Unlock()
				b.poke()
			}
		}
	}
}

func (b *busUnits) set(units map[string]unitSeen) {
	b.mu.Lock()
	b.units = units
	b.mu.Unlock()
	b.poke()
}

// withSignal takes over the number of restarts where the signal knows more.
func withSignal(u unitSeen, body []any) unitSeen {
	if len(body) < 2 {
		return u
	}
	changed, _ := body[1].(map[string]dbus.Variant)
	if n, ok := changed["NRestarts"].Value().(uint32); ok {
		u.Restarts = max(u.Restarts, bounded(n))
	}
	return u
}

func bounded(n uint32) int { return int(min(n, 1<<20)) }

// call bounds a call: a bus that hangs must not keep the rest from going on.
func (b *busUnits) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	return f(ctx)
}

// read asks for a unit's properties; one that systemd does not know is loaded,
// which finds it where it is on disk.
func (b *busUnits) read(ctx context.Context, conn *dbus.Conn, name string) unitSeen {
	u := unitSeen{Unit: verdict.Unit{Name: name}}
	err := b.call(ctx, func(ctx context.Context) error {
		var path dbus.ObjectPath
		if err := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIface+".LoadUnit", 0, name).Store(&path); err != nil {
			return err
		}
		unit := conn.Object(systemdName, path)
		get := func(iface, property string) any {
			var v dbus.Variant
			if unit.CallWithContext(ctx, propertyIface+".Get", 0, iface, property).Store(&v) != nil {
				return nil // one that this version or this kind of unit does not have
			}
			return v.Value()
		}
		u.Active, _ = get(unitIface, "ActiveState").(string)
		u.Sub, _ = get(unitIface, "SubState").(string)
		load, _ := get(unitIface, "LoadState").(string)
		u.Missing = load == "not-found"
		if e, ok := get(unitIface, "LoadError").([]any); ok && len(e) > 0 {
			u.LoadError, _ = e[0].(string)
		}
		if u.Missing {
			return nil
		}
		if met, ok := get(unitIface, "ConditionResult").(bool); ok && !met {
			at, _ := get(unitIface, "ConditionTimestampMonotonic").(uint64)
			u.Conditions = at != 0 // 0 says that they were not looked at yet
		}
		if since, ok := get(unitIface, "ActiveEnterTimestampMonotonic").(uint64); ok && u.Active == "active" {
			u.since = atMonotonic(since)
		}
		u.Result, _ = get(serviceIface, "Result").(string)
		if code, ok := get(serviceIface, "ExecMainStatus").(int32); ok {
			u.ExitCode = int(code)
		}
		if n, ok := get(serviceIface, "NRestarts").(uint32); ok {
			u.Restarts = bounded(n)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		b.log.Debug("cannot read a unit", "unit", name, "error", err)
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

func (b *busUnits) failed() []unitSeen {
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	if conn == nil {
		return nil
	}
	var names []string
	err := b.call(context.Background(), func(ctx context.Context) error {
		var list []struct {
			Name, Description, Load, Active, Sub, Following string
			Path                                            dbus.ObjectPath
			Job                                             uint32
			JobType                                         string
			JobPath                                         dbus.ObjectPath
		}
		call := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIface+".ListUnitsFiltered", 0, []string{"failed"})
		if err := call.Store(&list); err != nil {
			return err
		}
		for _, u := range list {
			names = append(names, u.Name)
		}
		return nil
	})
	if err != nil {
		b.log.Debug("cannot list failed units", "error", err)
	}
	needed := map[string]bool{}
	if len(names) > 0 {
		needed = b.needed(conn)
	}
	var units []unitSeen
	for _, matters := range []bool{true, false} { // of many, those that matter
		for _, name := range names {
			if matters == (needed[name] || slices.Contains(makers(), name)) && len(units) < maxFailedUnits {
				u := b.read(context.Background(), conn, name)
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
func (b *busUnits) needed(conn *dbus.Conn) map[string]bool {
	all := map[string]bool{}
	for _, name := range makers() {
		err := b.call(context.Background(), func(ctx context.Context) error {
			var path dbus.ObjectPath
			if err := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIface+".GetUnit", 0, name).Store(&path); err != nil {
				return err // it is not loaded, so it requires nothing
			}
			for _, property := range []string{"Requires", "Requisite", "BindsTo"} {
				var v dbus.Variant
				if err := conn.Object(systemdName, path).CallWithContext(ctx, propertyIface+".Get", 0, unitIface, property).Store(&v); err != nil {
					return err
				}
				required, _ := v.Value().([]string)
				for _, r := range required[:min(len(required), maxNeeded)] {
					all[r] = true
				}
			}
			return nil
		})
		if err != nil {
			b.log.Debug("cannot tell what a unit requires", "unit", name, "error", err)
		}
	}
	return all
}

// unitPath is the object of a unit: systemd escapes all but letters and digits.
func unitPath(name string) dbus.ObjectPath {
	path := []byte(systemdPath + "/unit/")
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' {
			path = append(path, c)
		} else {
			path = fmt.Appendf(path, "_%02x", c)
		}
	}
	return dbus.ObjectPath(path)
}
