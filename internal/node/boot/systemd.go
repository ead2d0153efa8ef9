package boot

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

// maxMonotonic is the latest time after the kernel's start that is believed, as
// the report's bound is.
const maxMonotonic = 10 * 366 * 24 * 3600 * 1e6

// dual is a moment by both clocks, as systemd notes it.
type dual struct{ wall, mono uint64 }

// manager is what systemd says of itself.
type manager struct {
	virtualization string
	times          wire.SystemTimes
	moments        map[string]dual
}

// readManager asks for systemd's own times.
func readManager(b *systemd.Bus) (manager, error) {
	r, err := b.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Properties, Member: "GetAll", Args: []string{systemd.Manager}})
	if err != nil {
		return manager{}, err
	}
	return parseManager(&r)
}

func parseManager(r *systemd.Reply) (m manager, err error) {
	m.moments = map[string]dual{}
	err = r.Properties(func(name []byte, kind string, d *systemd.Decoder) {
		switch {
		case string(name) == "Virtualization" && kind == "s":
			m.virtualization = string(d.Text())
		case kind == "t":
			event, ok := strings.CutSuffix(string(name), "TimestampMonotonic")
			if ok {
				at := m.moments[event]
				at.mono = d.U64()
				m.moments[event] = at
			} else if event, ok = strings.CutSuffix(string(name), "Timestamp"); ok {
				at := m.moments[event]
				at.wall = d.U64()
				m.moments[event] = at
			}
		}
	})
	for _, t := range []struct {
		to    *wire.Micros
		event string
	}{
		{&m.times.Firmware, "Firmware"}, {&m.times.Loader, "Loader"}, {&m.times.InitRD, "InitRD"}, {&m.times.Userspace, "Userspace"},
		{&m.times.SecurityStart, "SecurityStart"}, {&m.times.SecurityFinish, "SecurityFinish"},
		{&m.times.GeneratorsStart, "GeneratorsStart"}, {&m.times.GeneratorsFinish, "GeneratorsFinish"},
		{&m.times.UnitsLoadStart, "UnitsLoadStart"}, {&m.times.UnitsLoadFinish, "UnitsLoadFinish"},
		{&m.times.Finish, "Finish"}, {&m.times.SoftReboot, "SoftRebootStart"},
	} {
		*t.to = micros(m.moments[t.event].mono)
	}
	m.times.Container = wire.IsContainer(m.virtualization)
	return m, err
}

// clocks are what systemd read of both clocks at once, in their order.
func (m *manager) clocks() []wire.ClockReading {
	var all []wire.ClockReading
	// Firmware's, Loader's and Kernel's are worked out, not read.
	for _, event := range []string{"Userspace", "SecurityStart", "GeneratorsStart", "UnitsLoadStart", "UnitsLoadFinish", "Finish"} {
		if at := m.moments[event]; at.wall > 0 && micros(at.mono) > 0 && at.wall < math.MaxInt64 {
			all = append(all, wire.ClockReading{Monotonic: micros(at.mono), Wall: wire.Micros(at.wall)})
		}
	}
	return all
}

// micros is a time; 0 where it cannot be.
func micros(t uint64) wire.Micros {
	if t > maxMonotonic {
		return 0
	}
	return wire.Micros(t)
}

// finished tells whether all of the start's jobs are done.
func (m *manager) finished() bool { return m.times.Finish > 0 }

// unit is one that is being asked about.
type unit struct {
	wire.BootUnit
	path       string
	conditions uint64 // when its conditions were looked at; 0: never
	unmet      bool
}

// question is a property that units are asked for.
type question struct {
	iface, name string
	take        func(u *unit, kind string, d *systemd.Decoder)
}

func moment(name string, to func(u *unit) *wire.Micros) question {
	return question{systemd.Unit, name, func(u *unit, kind string, d *systemd.Decoder) {
		if kind == "t" {
			*to(u) = micros(d.U64())
		}
	}}
}

func begins() []question {
	return []question{moment("InactiveExitTimestampMonotonic", func(u *unit) *wire.Micros { return &u.Activating })}
}

// ofStarted are asked of units that were started. All of a unit's properties at
// once would be one question instead of these, and cost systemd twice the time.
func ofStarted() []question {
	return []question{
		moment("ActiveEnterTimestampMonotonic", func(u *unit) *wire.Micros { return &u.Activated }),
		moment("ActiveExitTimestampMonotonic", func(u *unit) *wire.Micros { return &u.Deactivating }),
		moment("InactiveEnterTimestampMonotonic", func(u *unit) *wire.Micros { return &u.Deactivated }),
		{systemd.Unit, "After", func(u *unit, kind string, d *systemd.Decoder) {
			if kind == "as" {
				u.After = d.Texts()
			}
		}},
		{systemd.Unit, "TriggeredBy", func(u *unit, kind string, d *systemd.Decoder) {
			if kind == "as" {
				u.TriggeredBy = d.Texts()
			}
		}},
	}
}

func ofConditions() []question {
	return []question{
		{systemd.Unit, "ConditionTimestampMonotonic", func(u *unit, kind string, d *systemd.Decoder) {
			if kind == "t" {
				u.conditions = d.U64()
			}
		}},
		{systemd.Unit, "ConditionResult", func(u *unit, kind string, d *systemd.Decoder) {
			u.unmet = kind == "b" && d.U32() == 0
		}},
	}
}

func ofServices() []question {
	return []question{
		{systemd.Service, "Type", func(u *unit, kind string, d *systemd.Decoder) {
			u.Oneshot = kind == "s" && string(d.Text()) == "oneshot"
		}},
		{systemd.Service, "Result", func(u *unit, kind string, d *systemd.Decoder) {
			if kind != "s" {
				return
			}
			if u.Result = string(d.Text()); u.Result == "success" {
				u.Result = ""
			}
		}},
		{systemd.Service, "NRestarts", func(u *unit, kind string, d *systemd.Decoder) {
			if kind == "u" {
				u.Restarts = int(min(d.U32(), 1<<30))
			}
		}},
	}
}

// askUnits asks each unit each question. What a unit, or this version of systemd,
// does not have is left as it is.
func askUnits(b *systemd.Bus, units []*unit, questions []question) error {
	calls := make([]systemd.Call, 0, len(units)*len(questions))
	for _, u := range units {
		for _, q := range questions {
			calls = append(calls, systemd.Call{Path: u.path, Iface: systemd.Properties, Member: "Get", Args: []string{q.iface, q.name}})
		}
	}
	return b.Each(calls, func(i int, r *systemd.Reply) error {
		kind := r.Variant()
		if kind == "" {
			return nil
		}
		questions[i%len(questions)].take(units[i/len(questions)], kind, &r.Body)
		return r.Body.Err()
	})
}

// readUnits asks for all units that were started in this boot, or were to be and
// had a condition that was not met.
func readUnits(b *systemd.Bus) ([]wire.BootUnit, error) {
	all, err := listUnits(b)
	if err != nil {
		return nil, fmt.Errorf("listing units: %w", err)
	}
	if err := askUnits(b, all, begins()); err != nil {
		return nil, fmt.Errorf("asking when units started: %w", err)
	}
	var started, rest, services []*unit
	for _, u := range all {
		switch {
		case u.Activating == 0:
			rest = append(rest, u)
			continue
		case strings.HasSuffix(u.Name, ".service"):
			services = append(services, u)
		}
		started = append(started, u)
	}
	err = askUnits(b, started, ofStarted())
	if err == nil {
		err = askUnits(b, services, ofServices())
	}
	if err == nil {
		err = askUnits(b, rest, ofConditions())
	}
	units := make([]wire.BootUnit, 0, len(started))
	for _, u := range all {
		u.Skipped = u.Activating == 0 && u.conditions > 0 && u.unmet
		if (u.Activating > 0 || u.Skipped) && len(units) < wire.MaxBootUnits {
			units = append(units, u.BootUnit)
		}
	}
	if err != nil {
		err = fmt.Errorf("asking for units: %w", err)
	}
	return units, err
}

// listUnits are all units that are loaded.
func listUnits(b *systemd.Bus) ([]*unit, error) {
	r, err := b.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Manager, Member: "ListUnits"})
	if err != nil {
		return nil, err
	}
	return parseUnits(&r)
}

func parseUnits(r *systemd.Reply) ([]*unit, error) {
	if r.Signature != "a(ssssssouso)" {
		return nil, fmt.Errorf("an answer of type %q", r.Signature)
	}
	var units []*unit
	d := &r.Body
	for end := d.Array(8); d.More(end); {
		d.Struct()
		u := &unit{BootUnit: wire.BootUnit{Name: string(d.Text())}}
		for range 5 { // description, states, the unit that it follows
			d.Text()
		}
		u.path = string(d.Text())
		d.U32() // its job
		d.Text()
		d.Text()
		units = append(units, u)
	}
	return units, d.Err()
}

// askTimeout is for all that is asked together.
const askTimeout = 20 * time.Second

// sockets are where systemd is asked: its own first, which spares the message bus
// the work and is there before that is; who is not root has to take the bus.
func sockets() []systemd.Address {
	return []systemd.Address{{Path: systemd.OwnSocket}, {Path: systemd.SharedSocket, Shared: true}}
}

// readSystemd asks systemd for all that it knows of this boot.
func readSystemd(ctx context.Context) (r wire.BootReport, m manager, err error) {
	b, err := systemd.Dial(ctx, askTimeout, sockets()...)
	if err != nil {
		return r, m, err
	}
	defer b.Close()
	if m, err = readManager(b); err != nil {
		return r, m, fmt.Errorf("asking systemd for its own times: %w", err)
	}
	r.System, r.Clocks = m.times, m.clocks()
	r.Units, err = readUnits(b)
	return r, m, err
}
