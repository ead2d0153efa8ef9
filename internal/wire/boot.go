package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Micros is a time or a duration in microseconds, which is systemd's precision: of a named
// clock, or after the kernel's start.
type Micros int64

// Duration is the same as a time.Duration.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// MicrosOf is d in microseconds, the rest cut off.
func MicrosOf(d time.Duration) Micros { return Micros(d / time.Microsecond) }

// ClockKind is whose clock a time was read from. Only times of one kind can be subtracted
// as they are.
type ClockKind string

// The clocks.
const (
	// ClockMonotonic is CLOCK_MONOTONIC: since the kernel's start, never set. systemd, the
	// journal and /dev/kmsg use it; /proc/uptime, which also counts what was slept, is
	// taken for it.
	ClockMonotonic ClockKind = "monotonic"
	// ClockWall is the node's own CLOCK_REALTIME, since the epoch: it may be wrong
	// before the first synchronisation, and is stepped by it.
	ClockWall ClockKind = "wall"
	// ClockCloud is Azure's, since the epoch.
	ClockCloud ClockKind = "cloud"
	// ClockCluster is the API server's, since the epoch.
	ClockCluster ClockKind = "cluster"
)

// BootReport is the record of a boot by the node, or the files that were taken from it:
// each time in the clock of its source, nothing reconciled and nothing judged, so that
// later knowledge applies to earlier boots. It has no secrets: whoever makes one redacts
// its text.
type BootReport struct {
	Version int    `json:"version"`          // BootReportVersion
	Node    string `json:"node,omitempty"`   // host name in lower case
	VMID    string `json:"vmId,omitempty"`   // Azure's, in lower case
	BootID  string `json:"bootId,omitempty"` // of this boot; "" where unknown
	// Image is the resource id of what the machine was created from, by IMDS: an
	// image version of a gallery, or "publisher:offer:sku:version".
	Image string    `json:"image,omitempty"`
	At    time.Time `json:"at,omitzero"` // when this was collected, by the node's clock
	// Clocks are readings of both clocks at one moment, by ascending Monotonic: they show
	// how far the node's clock was off, and when it was set.
	Clocks  []ClockReading `json:"clocks,omitempty"`
	System  SystemTimes    `json:"system"`
	Units   []BootUnit     `json:"units,omitempty"`
	Spans   []BootSpan     `json:"spans,omitempty"`
	Sources []BootSource   `json:"sources,omitempty"`
}

// ClockReading is one moment by both of a node's clocks.
type ClockReading struct {
	Monotonic Micros `json:"monotonicUsec"`
	Wall      Micros `json:"wallUsec"` // since the epoch
}

// SystemTimes are the times of systemd's manager, monotonic; 0 where they are unknown.
// Firmware and Loader are how long before the kernel's start those began, in systemd's
// form.
type SystemTimes struct {
	Firmware         Micros `json:"firmwareUsec,omitempty"`
	Loader           Micros `json:"loaderUsec,omitempty"`
	InitRD           Micros `json:"initrdUsec,omitempty"`
	Userspace        Micros `json:"userspaceUsec,omitempty"`
	SecurityStart    Micros `json:"securityStartUsec,omitempty"`
	SecurityFinish   Micros `json:"securityFinishUsec,omitempty"`
	GeneratorsStart  Micros `json:"generatorsStartUsec,omitempty"`
	GeneratorsFinish Micros `json:"generatorsFinishUsec,omitempty"`
	UnitsLoadStart   Micros `json:"unitsLoadStartUsec,omitempty"`
	UnitsLoadFinish  Micros `json:"unitsLoadFinishUsec,omitempty"`
	// Finish is when all of the start's jobs were done; 0: that has not come.
	Finish Micros `json:"finishUsec,omitempty"`
	// SoftReboot is when the last soft reboot began, after which systemd counts units from
	// zero while the kernel's clock goes on; 0: there was none.
	SoftReboot Micros `json:"softRebootUsec,omitempty"`
	// Relative means that the kernel's start is not known: times count from Userspace,
	// which is 0. So it is in what `systemd-analyze critical-chain` prints.
	Relative bool `json:"relative,omitempty"`
	// Container means that the kernel is another's: its clock went on since long before,
	// and this machine began with Userspace.
	Container bool `json:"container,omitempty"`
}

// IsContainer reports whether systemd's name of its virtualization (its manager's property)
// is a container's, which has no kernel of its own. Source: systemd, src/basic/virt.c.
func IsContainer(virtualization string) bool {
	switch virtualization {
	case "systemd-nspawn", "lxc-libvirt", "lxc", "openvz", "docker", "podman", "rkt", "wsl", "proot", "pouch", "container-other":
		return true
	}
	return false
}

// Began is when this boot began on the kernel's clock: 0, the kernel's start, but
// after a soft reboot and in a container.
func (s SystemTimes) Began() Micros {
	if s.SoftReboot == 0 && s.Container {
		return s.Userspace
	}
	return s.SoftReboot
}

// BootUnit is a systemd unit and its start in this boot: the first that is known. systemd
// itself keeps the last one only, the journal has earlier ones. Times are 0 where it never
// came to that.
type BootUnit struct {
	Name         string `json:"name"`
	Activating   Micros `json:"activatingUsec,omitempty"`   // InactiveExitTimestampMonotonic
	Activated    Micros `json:"activatedUsec,omitempty"`    // ActiveEnterTimestampMonotonic
	Deactivating Micros `json:"deactivatingUsec,omitempty"` // ActiveExitTimestampMonotonic
	Deactivated  Micros `json:"deactivatedUsec,omitempty"`  // InactiveEnterTimestampMonotonic
	// Grain is how fine the times are; 0: to the microsecond. `critical-chain`
	// prints milliseconds, `dump` seconds.
	Grain Micros `json:"grainUsec,omitempty"`
	// After are the units that it is ordered after, also such as are not there.
	After       []string `json:"after,omitempty"`
	TriggeredBy []string `json:"triggeredBy,omitempty"` // sockets, timers and paths that start it
	Result      string   `json:"result,omitempty"`      // a service's, where it is not "success"
	Restarts    int      `json:"restarts,omitempty"`    // NRestarts
	Skipped     bool     `json:"skipped,omitempty"`     // a condition of it was not met
	Oneshot     bool     `json:"oneshot,omitempty"`     // Type=oneshot: it is done when it deactivates or is active
}

// BootSpan is something that took time, or a moment where Start is End. Its Name
// is one of the fixed names of its source (docs/reference/boot.md), so that boots can be
// compared.
type BootSpan struct {
	Source string    `json:"source"` // as "cloud-init"
	Name   string    `json:"name"`   // as "init-local/search-Azure"
	Clock  ClockKind `json:"clock"`
	Start  Micros    `json:"startUsec"`
	End    Micros    `json:"endUsec"`
	// Open means that no end was seen: End is the last moment at which it went on.
	Open bool `json:"open,omitempty"`
	// Grain is how fine the source's times are; 0: to the microsecond.
	Grain  Micros `json:"grainUsec,omitempty"`
	Unit   string `json:"unit,omitempty"`   // the unit that it ran in, where that is known
	Parent string `json:"parent,omitempty"` // the Name, of the same source, that it is a part of
	Result string `json:"result,omitempty"` // "" is success; else the source's own result
	Detail string `json:"detail,omitempty"` // for a person; redacted
}

// SourceState is what became of reading a source.
type SourceState string

// The states.
const (
	SourceRead    SourceState = "read"
	SourcePartial SourceState = "partial" // cut off, rotated away, or broken in places
	SourceMissing SourceState = "missing"
	SourceOther   SourceState = "other-boot" // it has only another boot
)

// BootSource is where something was looked for.
type BootSource struct {
	Name   string      `json:"name"`           // "systemd", "cloud-init", …
	Path   string      `json:"path,omitempty"` // of the file
	State  SourceState `json:"state"`
	Detail string      `json:"detail,omitempty"` // why; redacted
}

// BootReportVersion is the version that this code writes, and the only one that
// it reads.
const BootReportVersion = 1

// Bounds of a BootReport. A machine of 400 units, with all that cloud-init does,
// has some 150 KB.
const (
	MaxBootReport  = 4 << 20 // bytes of its JSON
	MaxBootUnits   = 4096
	MaxBootSpans   = 8192
	MaxBootClocks  = 1024
	MaxBootSources = 256
	MaxUnitEdges   = 1024 // of one unit's After
	maxBootDetail  = 512
	maxEpoch       = Micros(4102444800 * 1e6) // 2100
	maxMonotonic   = Micros(maxUptime * 1000)
)

// ParseBootReport reads a report strictly: no unknown field, nothing after the
// object, every bound checked. It may come from anybody who is root on a node;
// what is returned can be printed and stored.
func ParseBootReport(text []byte) (BootReport, error) {
	if len(text) > MaxBootReport {
		return BootReport{}, fmt.Errorf("a boot report of %d bytes, more than %d", len(text), MaxBootReport)
	}
	if objects(text) > maxBootObjects {
		return BootReport{}, fmt.Errorf("a boot report of more than %d objects", maxBootObjects)
	}
	var r BootReport
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return BootReport{}, fmt.Errorf("reading a boot report: %w", err)
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return BootReport{}, errors.New("reading a boot report: something follows the object")
	}
	if err := r.Validate(); err != nil {
		return BootReport{}, fmt.Errorf("a boot report: %w", err)
	}
	return r, nil
}

// Validate returns what is wrong with a report; nil when nothing is. Times that contradict
// each other are not wrong: clocks are.
func (r BootReport) Validate() error {
	if r.Version != BootReportVersion {
		return fmt.Errorf("version %d, and only %d is known", r.Version, BootReportVersion)
	}
	if len(r.Clocks) > MaxBootClocks || len(r.Units) > MaxBootUnits || len(r.Spans) > MaxBootSpans || len(r.Sources) > MaxBootSources {
		return errors.New("lists out of bounds")
	}
	if r.At.Year() > 9999 || r.At.Year() < 1 {
		return errors.New("its time is out of bounds")
	}
	if err := errors.Join(checkText("node", r.Node, maxName), checkText("vmId", r.VMID, maxName),
		checkText("bootId", r.BootID, maxName), checkText("image", r.Image, maxPath), r.System.validate()); err != nil {
		return err
	}
	for i, c := range r.Clocks {
		if c.Monotonic < 0 || c.Monotonic > maxMonotonic || c.Wall < 0 || c.Wall > maxEpoch {
			return errors.New("a reading of the clocks is out of bounds")
		}
		if i > 0 && c.Monotonic < r.Clocks[i-1].Monotonic {
			return errors.New("the readings of the clocks are not in their order")
		}
	}
	names := make(map[string]bool, len(r.Units))
	for _, u := range r.Units {
		if err := u.validate(); err != nil {
			return fmt.Errorf("unit %q: %w", clip(u.Name), err)
		}
		if names[u.Name] {
			return fmt.Errorf("unit %q is there twice", clip(u.Name))
		}
		names[u.Name] = true
	}
	for _, s := range r.Spans {
		if err := s.validate(); err != nil {
			return fmt.Errorf("span %q of %q: %w", clip(s.Name), clip(s.Source), err)
		}
	}
	for _, s := range r.Sources {
		switch s.State {
		case SourceRead, SourcePartial, SourceMissing, SourceOther:
		default:
			return fmt.Errorf("source %q: unknown state %q", clip(s.Name), clip(string(s.State)))
		}
		if err := errors.Join(checkName(s.Name), checkText("path", s.Path, maxPath), checkText("detail", s.Detail, maxBootDetail)); err != nil {
			return fmt.Errorf("source %q: %w", clip(s.Name), err)
		}
	}
	return nil
}

func (s SystemTimes) validate() error {
	for _, t := range []Micros{s.Firmware, s.Loader, s.InitRD, s.Userspace, s.SecurityStart, s.SecurityFinish, s.GeneratorsStart,
		s.GeneratorsFinish, s.UnitsLoadStart, s.UnitsLoadFinish, s.Finish, s.SoftReboot} {
		if t < 0 || t > maxMonotonic {
			return errors.New("a time of the manager is out of bounds")
		}
	}
	if s.Relative && s.Userspace != 0 {
		return errors.New("times count from the start of userspace, which is not 0")
	}
	return nil
}

func (u BootUnit) validate() error {
	for _, t := range []Micros{u.Activating, u.Activated, u.Deactivating, u.Deactivated, u.Grain} {
		if t < 0 || t > maxMonotonic {
			return errors.New("a time is out of bounds")
		}
	}
	if len(u.After) > MaxUnitEdges || len(u.TriggeredBy) > MaxUnitEdges || u.Restarts < 0 {
		return errors.New("lists out of bounds")
	}
	errs := []error{checkName(u.Name), checkText("result", u.Result, maxName)}
	for _, list := range [][]string{u.After, u.TriggeredBy} {
		for _, name := range list {
			errs = append(errs, checkName(name))
		}
	}
	return errors.Join(errs...)
}

func (s BootSpan) validate() error {
	most := maxEpoch
	switch s.Clock {
	case ClockMonotonic:
		most = maxMonotonic
	case ClockWall, ClockCloud, ClockCluster:
	default:
		return fmt.Errorf("unknown clock %q", clip(string(s.Clock)))
	}
	if s.Start < 0 || s.End < s.Start || s.End > most || s.Grain < 0 || s.Grain > maxMonotonic {
		return errors.New("its times are out of bounds")
	}
	return errors.Join(checkName(s.Source), checkName(s.Name), checkText("unit", s.Unit, maxUnitName), checkText("parent", s.Parent, maxUnitName),
		checkText("result", s.Result, maxName), checkText("detail", s.Detail, maxBootDetail))
}

// maxUnitName is systemd's own bound (UNIT_NAME_MAX).
const maxUnitName = 256

func checkName(name string) error {
	if strings.TrimSpace(name) == "" {
		return errors.New("a name is empty")
	}
	return checkText("name", name, maxUnitName)
}
