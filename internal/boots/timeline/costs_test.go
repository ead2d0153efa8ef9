package timeline_test

import (
	"strings"
	"testing"

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
