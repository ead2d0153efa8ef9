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

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/verdict"
)

// busTimeout bounds questions that are asked together: a bus that hangs must not
// keep the rest from going on.
const busTimeout = 5 * time.Second

// busUnits tells of units by systemd's signals. While there is no bus it has
// nothing to tell, and connects when it is told to try again.
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
	units, paths := map[string]unitSeen{}, map[string]string{}
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

// property is one of a unit's: of which interface, and what is done with it.
type property struct {
	iface, name string
	take        func(kind string, d *systemd.Decoder)
}

// get asks for an object's properties. What this version or this kind of unit
// does not have is passed over.
func get(bus *systemd.Bus, path string, properties []property) error {
	calls := make([]systemd.Call, 0, len(properties))
	for _, p := range properties {
		calls = append(calls, systemd.Call{Path: path, Iface: systemd.Properties, Member: "Get", Args: []string{p.iface, p.name}})
	}
	return bus.Each(calls, func(i int, r *systemd.Reply) error {
		if kind := r.Variant(); kind != "" {
			properties[i].take(kind, &r.Body)
		}
		return nil
	})
}

func text(iface, name string, to *string) property {
	return property{iface, name, func(kind string, d *systemd.Decoder) {
		if kind == "s" {
			*to = string(d.Text())
		}
	}}
}

func number32(iface, name, kind string, to func(uint32)) property {
	return property{iface, name, func(k string, d *systemd.Decoder) {
		if k == kind {
			to(d.U32())
		}
	}}
}

func number64(name string, to *uint64) property {
	return property{systemd.Unit, name, func(kind string, d *systemd.Decoder) {
		if kind == "t" {
			*to = d.U64()
		}
	}}
}

// object is where a unit is; one that systemd does not know is loaded, which finds
// it where it is on disk.
func object(bus *systemd.Bus, how, name string) (string, error) {
	r, err := bus.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Manager, Member: how, Args: []string{name}})
	if err != nil {
		return "", err
	}
	if r.Signature != "o" {
		return "", fmt.Errorf("an answer of type %q, not an object", r.Signature)
	}
	path := string(r.Body.Text())
	return path, r.Body.Err()
}

// read asks for a unit's properties.
func (b *busUnits) read(ctx context.Context, bus *systemd.Bus, name string) unitSeen {
	u := unitSeen{Unit: verdict.Unit{Name: name}}
	path, err := object(bus, "LoadUnit", name)
	var load string
	met := true
	var looked, since uint64
	if err == nil {
		err = get(bus, path, []property{
			text(systemd.Unit, "ActiveState", &u.Active), text(systemd.Unit, "SubState", &u.Sub), text(systemd.Unit, "LoadState", &load),
			{systemd.Unit, "LoadError", func(kind string, d *systemd.Decoder) {
				if kind == "(ss)" {
					d.Struct()
					u.LoadError = string(d.Text())
				}
			}},
			number32(systemd.Unit, "ConditionResult", "b", func(v uint32) { met = v != 0 }),
			number64("ConditionTimestampMonotonic", &looked), number64("ActiveEnterTimestampMonotonic", &since),
			text(systemd.Service, "Result", &u.Result),
			number32(systemd.Service, "ExecMainStatus", "i", func(v uint32) { u.ExitCode = int(int32(v)) }),
			number32(systemd.Service, "NRestarts", "u", func(v uint32) { u.Restarts = bounded(v) }),
		})
	}
	u.Missing = load == "not-found"
	if u.Missing {
		u.Result, u.ExitCode, u.Restarts = "", 0, 0
		return u
	}
	u.Conditions = !met && looked != 0 // 0 says that they were not looked at yet
	if u.Active == "active" {
		u.since = atMonotonic(since)
	}
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
	names, err := failedNames(bus)
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

func failedNames(bus *systemd.Bus) ([]string, error) {
	r, err := bus.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Manager, Member: "ListUnitsFiltered", List: []string{"failed", "auto-restart"}})
	if err != nil {
		return nil, err
	}
	return unitNames(&r)
}

// unitNames reads an answer of ListUnits.
func unitNames(r *systemd.Reply) ([]string, error) {
	if r.Signature != "a(ssssssouso)" {
		return nil, fmt.Errorf("an answer of type %q, not a list of units", r.Signature)
	}
	var names []string
	d := &r.Body
	for end := d.Array(8); d.More(end); {
		d.Struct()
		names = append(names, string(d.Text()))
		for range 6 { // description, states, the unit that it follows, object
			d.Text()
		}
		d.U32() // its job
		d.Text()
		d.Text()
	}
	return names, d.Err()
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
	keep := func(kind string, d *systemd.Decoder) {
		if kind != "as" {
			return
		}
		required := d.Texts()
		for _, r := range required[:min(len(required), maxNeeded)] {
			all[r] = true
		}
	}
	for _, name := range makers() {
		path, err := object(bus, "GetUnit", name) // one that is not loaded requires nothing
		if err == nil {
			err = get(bus, path, []property{{systemd.Unit, "Requires", keep}, {systemd.Unit, "Requisite", keep}, {systemd.Unit, "BindsTo", keep}})
		}
		if err != nil {
			b.log.Debug("cannot tell what a unit requires", "unit", name, "error", err)
		}
	}
	return all
}
