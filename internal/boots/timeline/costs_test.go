package timeline_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// What a node counted of its OS disk is in the timeline, and no missing evidence; what is no count is left out.
func TestDiskRead(t *testing.T) {
	for detail, want := range map[string]int64{
		wire.DiskRead(412e6, 9.5e6): 412e6, "": -1, "412 MB": -1, wire.DiskRead(-1, 5): -1, wire.DiskRead(1, -5): -1, wire.DiskRead(1, 1<<62): -1,
		"99999999999999999999 bytes read by microsecond 5": -1,
	} {
		tl := tunable(t, wire.BootSource{Name: wire.SourceDiskRead, Path: "/dev/sda", State: wire.SourceRead, Detail: detail})
		if d := tl.DiskRead; (d.Disk == "") != (want < 0) || d.Disk != "" && (d.Bytes != want || d.Disk != "/dev/sda" || d.At != 9.5e6) {
			t.Errorf("%q: %+v, want %d", detail, d, want)
		}
		if strings.Contains(strings.Join(tl.Missing, "\n"), "disk-read") {
			t.Errorf("%q is called missing evidence: %q", detail, tl.Missing)
		}
	}
}

// A machine that restarted before a boot of it was reported counts from its first boot, whose time is
// one span. A claim out of bounds, or of before Azure created the machine, is left out.
func TestRestart(t *testing.T) {
	began := time.Date(2026, 11, 30, 6, 10, 0, 0, time.UTC)
	claim := wire.EarlierBoots(1, 600e6)
	for name, c := range map[string]struct {
		detail string
		cloud  timeline.Cloud
		origin wire.Micros
		is     string
		after  wire.Micros // the first boot
		change func(*wire.BootReport)
	}{
		"restarted":                  {claim, timeline.Cloud{}, -600e6, "first boot started", 600e6, nil},
		"restarted, by Azure's time": {claim, timeline.Cloud{Created: began.Add(-620 * time.Second)}, -620e6, "machine created", 600e6, nil},
		"the image's boot":           {claim, timeline.Cloud{Created: began.Add(-20 * time.Second)}, -20e6, "machine created", 0, nil},
		"as the machine was created": {claim, timeline.Cloud{Created: began.Add(-590 * time.Second)}, -590e6, "machine created", 590e6, nil},
		"created days before":        {claim, timeline.Cloud{Created: began.Add(-50 * time.Hour)}, 0, "kernel started", 0, nil},
		"not restarted":              {"", timeline.Cloud{}, 0, "kernel started", 0, nil},
		"none":                       {wire.EarlierBoots(0, 5), timeline.Cloud{}, 0, "kernel started", 0, nil},
		"many":                       {wire.EarlierBoots(1<<30, 5e6), timeline.Cloud{}, 0, "kernel started", 0, nil},
		"weeks ago":                  {wire.EarlierBoots(3, 1<<41), timeline.Cloud{}, 0, "kernel started", 0, nil},
		"later":                      {wire.EarlierBoots(1, -5e6), timeline.Cloud{}, 0, "kernel started", 0, nil},
		"words":                      {"1 boots before, the first of them by microseconds \x1b[2J", timeline.Cloud{}, 0, "kernel started", 0, nil},
		"soft reboot":                {claim, timeline.Cloud{}, 5e5, "soft reboot", 0, func(r *wire.BootReport) { r.System.SoftReboot = 5e5 }},
		"not read":                   {claim, timeline.Cloud{}, 0, "kernel started", 0, func(r *wire.BootReport) { r.Sources[0].State = wire.SourceMissing }},
		"claimed twice": {claim, timeline.Cloud{}, -600e6, "first boot started", 600e6, func(r *wire.BootReport) {
			r.Sources = append(r.Sources, wire.BootSource{Name: wire.SourceEarlierBoots, State: wire.SourceRead, Detail: wire.EarlierBoots(7, 900e6)})
		}},
		"restarted in the pool": {claim, timeline.Cloud{}, 4e6, "machine handed over", 0, func(r *wire.BootReport) {
			r.Spans = []wire.BootSpan{{Source: "cloud-init", Name: "azure-ds/wait-for-media-disconnect-connect", Clock: wire.ClockMonotonic, Start: 2e6, End: 4e6}}
		}},
	} {
		sent := wire.BootReport{
			Version: wire.BootReportVersion, System: wire.SystemTimes{Userspace: 1e6, Finish: 9e6},
			Clocks:  []wire.ClockReading{{Monotonic: 1e6, Wall: wire.Micros(began.UnixMicro()) + 1e6}},
			Units:   []wire.BootUnit{{Name: "kubelet.service", Activating: 8e6, Activated: 8.5e6}},
			Sources: []wire.BootSource{{Name: wire.SourceEarlierBoots, Path: "/usr/bin/journalctl", State: wire.SourceRead, Detail: c.detail}},
		}
		if c.change != nil {
			c.change(&sent)
		}
		text, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.ParseBootReport(text)
		if name == "words" {
			if err == nil {
				t.Error("control characters are taken")
			}
			continue
		}
		if err != nil {
			t.Fatal(name, err)
		}
		tl, want := timeline.Build(r, c.cloud), timeline.Restart{}
		if c.after > 0 {
			want = timeline.Restart{Boot: 2, After: c.after}
		}
		if tl.Restart != want || tl.Origin != c.origin || tl.OriginIs != c.is {
			t.Errorf("%s: %+v from %d, %s; want %+v from %d, %s", name, tl.Restart, tl.Origin, tl.OriginIs, want, c.origin, c.is)
		}
		at, earlier := tl.Origin, wire.Micros(0)
		for _, s := range tl.Path {
			if s.Start != at {
				t.Errorf("%s: the path has a hole before %+v", name, s)
			}
			if at = s.End; s.Span == "machine/earlier-boots" {
				earlier += s.End - s.Start
				if s.Stage != timeline.StagePlatform {
					t.Errorf("%s: earlier boots are of stage %s", name, s.Stage)
				}
			}
		}
		if at != tl.End || earlier < c.after-1 || earlier > c.after {
			t.Errorf("%s: the path ends by %d of %d, with %d of earlier boots: %+v", name, at, tl.End, earlier, tl.Path)
		}
		if strings.Contains(strings.Join(tl.Missing, "\n"), "earlier-boots") {
			t.Errorf("%s: called missing evidence: %q", name, tl.Missing)
		}
	}
}

// User data's seconds are those of its modules, each moment once, and of no other module.
func TestUserData(t *testing.T) {
	r := wire.BootReport{Version: wire.BootReportVersion, System: wire.SystemTimes{Userspace: 1e6, Finish: 60e6},
		Units: []wire.BootUnit{{Name: "cloud-final.service", Activating: 20e6, Activated: 50e6}, {Name: "bootcmd.service", Activating: 2e6, Activated: 9e6}}}
	for _, s := range []struct {
		name       string
		start, end wire.Micros
	}{
		{"modules-init/config-bootcmd", 3e6, 4e6},
		{"modules-init/config-ssh", 4e6, 6e6},
		{"modules-final/config-package_update_upgrade_install", 21e6, 31e6},
		{"modules-final/config-package_update_upgrade_install/apt-get", 22e6, 30e6},
		{"modules-final/config-scripts_user", 31e6, 33.5e6},
		{"modules-init/config-write_files", 6e6, 7e6},
		{"modules-final/config-runcmd", 32e6, 34e6},
		{"modules-final/config-scripts_per_boot", 34e6, 39e6},
	} {
		r.Spans = append(r.Spans, wire.BootSpan{Source: "cloud-init", Name: s.name, Clock: wire.ClockMonotonic, Start: s.start, End: s.end})
	}
	if tl := timeline.Build(r, timeline.Cloud{}); tl.UserData != 15e6 {
		t.Errorf("user data took %s, want 15s", tl.UserData.Duration())
	}
	r.Spans = r.Spans[1:2]
	if tl := timeline.Build(r, timeline.Cloud{}); tl.UserData != 0 {
		t.Errorf("without user data it took %s", tl.UserData.Duration())
	}
}
