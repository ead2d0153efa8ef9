package source

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// SystemctlShow reads what `systemctl show` prints, of the manager (without a
// name), of some units or of all ('*'): blocks of key=value lines with empty
// lines between them. Times are exact. Only keys are needed that `-p` would
// select: Id, After, TriggeredBy, the four timestamps, Type, Result, NRestarts,
// ConditionResult, ConditionTimestampMonotonic.
func SystemctlShow(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	b := newBoot()
	var p properties
	end := func() {
		if p.any {
			p.keep(b, in)
		}
		p = properties{}
	}
	for in.next() {
		if len(in.line) == 0 {
			end()
			continue
		}
		key, value, ok := bytes.Cut(in.line, []byte("="))
		if !ok || len(key) > 64 {
			continue // the rest of a value of several lines
		}
		p.set(string(key), value)
	}
	end()
	sortClocks(b.report.Clocks)
	s := in.source(sourceShow, o)
	if in.good == 0 && s.State == wire.SourceRead {
		s = nothing(s, "no unit's and no manager's times are in it")
	}
	return []wire.BootReport{b.done(s)}
}

// properties are those of a unit, or of the manager.
type properties struct {
	any     bool
	unit    wire.BootUnit
	manager wire.SystemTimes
	isMain  bool // it is the manager's
	asked   bool // whether its conditions were looked at
	unmet   bool
	walls   map[string]wire.Micros // the times of day of the manager's events
}

func (p *properties) set(key string, value []byte) {
	number := func(to *wire.Micros) {
		if v, ok := micros(value); ok {
			*to = v
			clamp(to)
		}
	}
	p.any = true
	switch key {
	case "Id":
		p.unit.Name = string(value)
	case "InactiveExitTimestampMonotonic":
		number(&p.unit.Activating)
	case "ActiveEnterTimestampMonotonic":
		number(&p.unit.Activated)
	case "ActiveExitTimestampMonotonic":
		number(&p.unit.Deactivating)
	case "InactiveEnterTimestampMonotonic":
		number(&p.unit.Deactivated)
	case "After":
		p.unit.After = strings.Fields(string(value))
	case "TriggeredBy":
		p.unit.TriggeredBy = strings.Fields(string(value))
	case "Type":
		p.unit.Oneshot = string(value) == "oneshot"
	case "Result":
		if s := string(value); s != "success" {
			p.unit.Result = word(s)
		}
	case "NRestarts":
		if v, ok := micros(value); ok && v < 1<<30 {
			p.unit.Restarts = int(v)
		}
	case "ConditionResult":
		p.unmet = string(value) == "no"
	case "ConditionTimestampMonotonic":
		p.asked = string(value) != "0"
	case "Virtualization":
		p.manager.Container = wire.IsContainer(string(value))
	case "UserspaceTimestamp", "SecurityStartTimestamp", "GeneratorsStartTimestamp", "UnitsLoadStartTimestamp", "UnitsLoadFinishTimestamp", "FinishTimestamp":
		// Without --timestamp=us+utc they are cut to the second, and several would
		// contradict each other.
		if at, ok := dateText(string(value)); ok && (key == "UserspaceTimestamp" || bytes.Contains(value, []byte("."))) {
			if p.walls == nil {
				p.walls = map[string]wire.Micros{}
			}
			p.walls[key] = at
		}
	case "UserspaceTimestampMonotonic":
		p.isMain = true
		number(&p.manager.Userspace)
	default:
		if to := p.managerTime(key); to != nil {
			number(to)
		}
	}
}

// managerTime is where a time of the manager belongs.
func (p *properties) managerTime(key string) *wire.Micros {
	name, ok := strings.CutSuffix(key, "TimestampMonotonic")
	if !ok {
		return nil
	}
	switch name {
	case "Userspace":
		return &p.manager.Userspace
	case "Firmware":
		return &p.manager.Firmware
	case "Loader":
		return &p.manager.Loader
	case "InitRD":
		return &p.manager.InitRD
	case "SecurityStart":
		return &p.manager.SecurityStart
	case "SecurityFinish":
		return &p.manager.SecurityFinish
	case "GeneratorsStart":
		return &p.manager.GeneratorsStart
	case "GeneratorsFinish":
		return &p.manager.GeneratorsFinish
	case "UnitsLoadStart":
		return &p.manager.UnitsLoadStart
	case "UnitsLoadFinish":
		return &p.manager.UnitsLoadFinish
	case "Finish":
		return &p.manager.Finish
	case "SoftRebootStart":
		return &p.manager.SoftReboot
	}
	return nil
}

func (p *properties) keep(b *boot, in *lines) {
	if p.isMain {
		in.good++
		fillSystem(&b.report.System, p.manager)
		for event, wall := range p.walls {
			if at := *p.managerTime(event + "Monotonic"); at > 0 && wall > 0 {
				b.report.Clocks = append(b.report.Clocks, wire.ClockReading{Monotonic: at, Wall: wall})
			}
		}
	}
	if p.unit.Name == "" {
		return
	}
	to := b.unit(p.unit.Name)
	if to == nil {
		in.bad++
		return
	}
	in.good++
	p.unit.Skipped = p.asked && p.unmet
	p.unit.After, p.unit.TriggeredBy = edges(nil, p.unit.After), edges(nil, p.unit.TriggeredBy)
	*to = p.unit
}

// Dump reads what `systemd-analyze dump` prints. Its times are of the clock of day, to the
// second (some versions: the microsecond): they become times after the kernel's start, by
// the manager's time of that, with twice that for a Grain, since both are cut. Where the
// manager has no time of the kernel's start, times count from the start of userspace.
func Dump(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	d := dump{boot: newBoot(), unit: -1, grain: 1}
	for in.next() {
		line := in.line
		if name, ok := bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte("-> Unit ")); ok {
			d.unit = -1
			unit := string(bytes.TrimSuffix(name, []byte(":")))
			if d.boot.unit(unit) != nil {
				d.unit = d.boot.units[unit]
				if d.unit == len(d.walls) {
					d.walls = append(d.walls, [4]wire.Micros{})
				}
				in.good++
			} else {
				in.bad++
			}
			continue
		}
		key, value, ok := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte(": "))
		if !ok || len(key) > 64 {
			continue
		}
		if name, found := bytes.CutPrefix(key, []byte("Timestamp ")); found {
			d.managerTime(string(name), string(value))
			continue
		}
		if d.unit >= 0 {
			// A job's or an executed command's properties are deeper.
			d.property(string(key), string(value))
		}
	}
	s := in.source(sourceDump, o)
	if in.good == 0 && s.State == wire.SourceRead {
		s = nothing(s, "no unit is in it")
	}
	return []wire.BootReport{d.done(s, o)}
}

// dump gathers a dump's times of day until the kernel's start is known.
type dump struct {
	boot    *boot
	unit    int // the unit that lines are of; -1: none
	walls   [][4]wire.Micros
	grain   wire.Micros
	manager [12]wire.Micros // by managerNames
	spans   [12]bool        // that one is a duration
}

// managerNames are the manager's times as a dump calls them. Source: systemd,
// src/core/manager.c, manager_timestamp_table.
var managerNames = [...]string{"kernel", "firmware", "loader", "initrd", "userspace", "finish", "security-start", "security-finish", "generators-start", "generators-finish", "units-load-start", "units-load-finish"}

func (d *dump) managerTime(name, value string) {
	for i, n := range managerNames {
		if n != name {
			continue
		}
		if at, ok := d.wall(value); ok {
			d.manager[i] = at
		} else if span, ok := timespan(value); ok {
			d.manager[i], d.spans[i] = span, true
		}
	}
}

// wall reads a time of day, and minds how fine it is.
func (d *dump) wall(s string) (wire.Micros, bool) {
	at, ok := dateText(s)
	if ok && at%second == 0 && !strings.Contains(s, ".") {
		d.grain = second
	}
	return at, ok
}

func (d *dump) property(key, value string) {
	u := &d.boot.report.Units[d.unit]
	walls := &d.walls[d.unit]
	switch key {
	case "Inactive Exit Timestamp":
		walls[0], _ = d.wall(value)
	case "Active Enter Timestamp":
		walls[1], _ = d.wall(value)
	case "Active Exit Timestamp":
		walls[2], _ = d.wall(value)
	case "Inactive Enter Timestamp":
		walls[3], _ = d.wall(value)
	case "After":
		name, _, _ := strings.Cut(value, " (") // newer versions add an edge's origin
		after(u, strings.TrimSpace(name))
	case "TriggeredBy":
		if name, _, _ := strings.Cut(value, " ("); len(u.TriggeredBy) < wire.MaxUnitEdges && isUnit(name) {
			u.TriggeredBy = append(u.TriggeredBy, name)
		}
	case "Result":
		if value != "success" {
			u.Result = word(value)
		}
	case "Type":
		u.Oneshot = value == "oneshot"
	case "Condition Result":
		u.Skipped = value == "no"
	}
}

func (d *dump) done(s wire.BootSource, o Options) wire.BootReport {
	zero := d.manager[0] // the kernel's start
	if d.spans[0] {
		zero = 0
	}
	t := &d.boot.report.System
	if zero == 0 && d.manager[4] > 0 && !d.spans[4] {
		zero, t.Relative = d.manager[4], true
	}
	if zero == 0 {
		s = nothing(s, "it does not say when the kernel or userspace started, so its times have no beginning")
		for i := range d.boot.report.Units {
			d.boot.report.Units[i].Grain = 0
		}
		return d.boot.done(s)
	}
	if !o.covers(zero) && o.windowed() {
		s.State, s.Detail = wire.SourceOther, "the boot that it tells of started at another time"
		return newBoot().done(s)
	}
	since := func(at wire.Micros) wire.Micros {
		if at == 0 || at < zero {
			return 0
		}
		at = max(at-zero, 1)
		clamp(&at)
		return at
	}
	for i := range d.walls {
		u := &d.boot.report.Units[i]
		u.Activating, u.Activated, u.Deactivating, u.Deactivated = since(d.walls[i][0]), since(d.walls[i][1]), since(d.walls[i][2]), since(d.walls[i][3])
		u.Grain = 2 * d.grain
		u.After, u.TriggeredBy = edges(nil, u.After), edges(nil, u.TriggeredBy)
	}
	for i, to := range [...]*wire.Micros{nil, &t.Firmware, &t.Loader, &t.InitRD, &t.Userspace, &t.Finish, &t.SecurityStart, &t.SecurityFinish, &t.GeneratorsStart, &t.GeneratorsFinish, &t.UnitsLoadStart, &t.UnitsLoadFinish} {
		if to == nil || d.manager[i] == 0 {
			continue
		}
		switch {
		case d.spans[i]:
			*to = d.manager[i]
		case i <= 2: // before the kernel's start
			*to = max(zero-d.manager[i], 0)
		default:
			*to = since(d.manager[i])
		}
		clamp(to)
	}
	if t.Relative {
		t.Userspace = 0
	} else {
		d.boot.report.Clocks = []wire.ClockReading{{Monotonic: 0, Wall: zero}}
	}
	return d.boot.done(s)
}

// Times reads what `systemd-analyze` (time) prints, as it also stands in AKS's
// provision.json:
//
//	Startup finished in 2.148s (kernel) + 31.520s (userspace) = 33.668s
//
// and returns the manager's times that follow from it, to the millisecond.
func Times(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	b := newBoot()
	for in.next() {
		if t, ok := startupTimes(string(in.line)); ok {
			in.good++
			b.report.System = t
		}
	}
	s := in.source(sourceTime, o)
	if in.good == 0 {
		s = nothing(s, "no line tells when the startup finished")
	}
	return []wire.BootReport{b.done(s)}
}

const sourceTime = "systemd-time"

func startupTimes(line string) (wire.SystemTimes, bool) {
	_, rest, ok := strings.Cut(line, "Startup finished in ")
	if !ok {
		return wire.SystemTimes{}, false
	}
	rest, _, _ = strings.Cut(rest, "=")
	var firmware, loader, kernel, initrd, soft, userspace wire.Micros
	var hasUserspace bool
	for _, part := range strings.Split(rest, "+") {
		took, what, ok := strings.Cut(part, "(")
		at, good := timespan(took)
		if !ok || !good {
			return wire.SystemTimes{}, false
		}
		what, _, _ = strings.Cut(what, ")")
		switch what {
		case "firmware":
			firmware = at
		case "loader":
			loader = at
		case "kernel":
			kernel = at
		case "initrd":
			initrd = at
		case "soft reboot":
			soft = at
		case "userspace":
			userspace, hasUserspace = at, true
		}
	}
	if !hasUserspace || kernel == 0 || soft > 0 {
		// Of a container, and after a soft reboot, they do not count from the
		// kernel's start.
		return wire.SystemTimes{Relative: hasUserspace, Finish: userspace}, hasUserspace
	}
	t := wire.SystemTimes{Loader: loader, Userspace: kernel + initrd, Finish: kernel + initrd + userspace}
	if firmware > 0 {
		t.Firmware = firmware + loader
	}
	if initrd > 0 {
		t.InitRD = kernel
	}
	return t, true
}

// Blame reads what `systemd-analyze blame` prints: how long units took to start, without
// their times. That has no place on an axis, so it returns no units; the BootSource has
// their number.
func Blame(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	for in.next() {
		if isBlame(string(in.line)) {
			in.good++
		}
	}
	s := in.source("systemd-blame", o)
	s = nothing(s, "it tells how long "+strconv.Itoa(in.good)+" units took, but not when: give `systemd-analyze plot --json=short` or `systemctl show '*'`, too")
	return []wire.BootReport{newBoot().done(s)}
}

// isBlame reports whether a line is `blame`'s: a time and a unit.
func isBlame(line string) bool {
	line = strings.TrimSpace(line)
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || !isUnit(line[i+1:]) {
		return false
	}
	_, ok := timespan(line[:i])
	return ok
}
