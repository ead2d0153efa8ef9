package boot

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

const (
	showTimeout = 20 * time.Second
	maxShown    = 32 << 20 // bytes of what systemctl prints
	showCommand = "systemctl show"
	// maxMonotonic is the latest time after the kernel's start that is believed.
	maxMonotonic = 10 * 366 * 24 * 3600 * 1e6 // microseconds
)

// unitProperties are those that source.SystemctlShow reads of a unit.
func unitProperties() string {
	return "Id,After,TriggeredBy,InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,ActiveExitTimestampMonotonic,InactiveEnterTimestampMonotonic," +
		"Type,Result,NRestarts,ConditionResult,ConditionTimestampMonotonic"
}

// managerProperties are those that it reads of the manager; of its times also that
// of day where exact says that it is printed to the microsecond.
func managerProperties(exact bool) string {
	all := []string{"Virtualization"}
	for _, event := range []string{"Firmware", "Loader", "InitRD", "Userspace", "SecurityStart", "SecurityFinish", "GeneratorsStart", "GeneratorsFinish",
		"UnitsLoadStart", "UnitsLoadFinish", "Finish", "SoftRebootStart"} {
		all = append(all, event+"TimestampMonotonic")
		if exact {
			all = append(all, event+"Timestamp")
		}
	}
	return strings.Join(all, ",")
}

// readSystemd has systemctl print what systemd knows of this boot.
func readSystemd(ctx context.Context) (wire.BootReport, error) {
	program, err := find("systemctl")
	if err != nil {
		return ofSystemd(nil, nil), err
	}
	show := func(args ...string) (reports []wire.BootReport, err error) {
		err = run(ctx, showTimeout, program, append([]string{"show", "--no-pager"}, args...), func(out io.Reader) {
			reports = source.SystemctlShow(out, source.Options{Bytes: maxShown})
		})
		return reports, err
	}
	manager, err := show("--timestamp=us+utc", "--property="+managerProperties(true))
	if err != nil { // systemd before 247
		manager, err = show("--property=" + managerProperties(false))
	}
	if err != nil {
		return ofSystemd(nil, nil), err
	}
	if len(manager) == 1 && len(manager[0].Clocks) < 2 {
		manager[0].Clocks = systemdClocks(ctx)
	}
	units, err := show("--all", "--property="+unitProperties(), "*")
	return ofSystemd(manager, units), err
}

// systemdClocks asks systemd for the moments at which it read both clocks. Before version
// 251 systemctl show cuts the times of day to the second, also with --timestamp.
func systemdClocks(ctx context.Context) (all []wire.ClockReading) {
	b, err := dialSystemd(ctx)
	if err != nil {
		return nil
	}
	defer b.Close()
	events := [...]string{"Userspace", "SecurityStart", "GeneratorsStart", "UnitsLoadStart", "UnitsLoadFinish", "Finish"}
	var wall, monotonic [len(events)]uint64
	var properties []systemd.Property
	for i, event := range events {
		properties = append(properties, systemd.Property{Iface: systemd.Manager, Name: event + "Timestamp", To: &wall[i]},
			systemd.Property{Iface: systemd.Manager, Name: event + "TimestampMonotonic", To: &monotonic[i]})
	}
	if err := b.Get(systemd.Object, properties...); err != nil {
		return nil
	}
	for i := range events {
		if wall[i] > 0 && wall[i] < math.MaxInt64 && monotonic[i] > 0 && monotonic[i] <= maxMonotonic {
			all = append(all, wire.ClockReading{Monotonic: wire.Micros(monotonic[i]), Wall: wire.Micros(wall[i])})
		}
	}
	slices.SortFunc(all, func(a, b wire.ClockReading) int { return cmp.Compare(a.Monotonic, b.Monotonic) })
	return all
}

// ofSystemd puts together what systemctl printed of the manager and of the units that
// are loaded: of these it keeps those that were started in this boot, and those
// that were to be and had a condition that was not met.
func ofSystemd(manager, units []wire.BootReport) wire.BootReport {
	r := wire.BootReport{Version: wire.BootReportVersion, Sources: []wire.BootSource{{State: wire.SourceRead}}}
	for _, m := range manager {
		r.System, r.Clocks = m.System, m.Clocks
	}
	for _, shown := range units {
		r.Sources = shown.Sources
		for _, u := range shown.Units {
			switch {
			case u.Activating > 0:
				u.Skipped = false
				r.Units = append(r.Units, u)
			case u.Skipped:
				r.Units = append(r.Units, wire.BootUnit{Name: u.Name, Skipped: true})
			}
		}
	}
	r.Sources[0].Name, r.Sources[0].Path = "systemd", showCommand
	return r
}
