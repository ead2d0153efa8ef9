package timeline

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// printed is a line of a critical chain: where at is -1 nothing is printed.
type printed struct {
	unit     string
	at, took wire.Micros // milliseconds
}

// report is what package source makes of chains.
func report(chains ...[]printed) wire.BootReport {
	r := wire.BootReport{Version: wire.BootReportVersion, System: wire.SystemTimes{Relative: true}}
	seen := map[string]int{}
	unit := func(name string) *wire.BootUnit {
		i, ok := seen[name]
		if !ok {
			i = len(r.Units)
			seen[name] = i
			r.Units = append(r.Units, wire.BootUnit{Name: name, Grain: 1000})
		}
		return &r.Units[i]
	}
	for _, chain := range chains {
		for i, l := range chain {
			at := l.at
			if at < 0 {
				at = chain[i+1].at + chain[i+1].took
			}
			u := unit(l.unit)
			u.Activating, u.Activated = at*1000, (at+l.took)*1000
			if i+1 < len(chain) {
				u.After = append(u.After, chain[i+1].unit)
			}
		}
		root := unit(chain[0].unit)
		r.Spans = append(r.Spans, wire.BootSpan{Source: "systemd", Name: chainRoot, Clock: wire.ClockMonotonic, Start: root.Activating, End: root.Activated, Unit: root.Name})
	}
	for i := range r.Units { // a unit of two chains has an edge from each
		after := r.Units[i].After
		var once []string
		for _, a := range after {
			if len(once) == 0 || once[len(once)-1] != a {
				once = append(once, a)
			}
		}
		r.Units[i].After = once
	}
	return r
}

// The chains that source 4 prints.
var (
	chain1 = []printed{{"graphical.target", 20972, 0}, {"multi-user.target", 20972, 0}, {"docker.service", 16939, 4032}, {"network-online.target", 16910, 0},
		{"systemd-networkd-wait-online.service", 270, 16639}, {"systemd-networkd.service", 225, 42}, {"systemd-udevd.service", 197, 27},
		{"systemd-tmpfiles-setup-dev.service", 190, 5}, {"systemd-sysusers.service", 184, 5}, {"systemd-remount-fs.service", 171, 8},
		{"systemd-journald.socket", 155, 0}, {"system.slice", 107, 0}, {"-.slice", 107, 0}}
	chain2 = []printed{{"graphical.target", 1015434, 0}, {"multi-user.target", 1015429, 0}, {"ephemeral-disk-warning.service", 1015339, 78},
		{"cloud-config.service", 1012066, 3266}, {"basic.target", 1011683, 0}, {"sockets.target", 1011681, 0}, {"lxd.socket", 1011667, 6},
		{"sysinit.target", 1011600, 0}, {"cloud-init.service", 1004344, 7076}, {"systemd-networkd-wait-online.service", 1003303, 1033},
		{"systemd-networkd.service", 1002924, 369}, {"network-pre.target", 1002920, 0}, {"cloud-init-local.service", 2504, 1000410},
		{"hv-kvp-daemon.service", 2500, 0}, {`sys-devices-virtual-misc-vmbus\x21hv_kvp.device`, 2496, 0}}
	below = []printed{{"sysinit.target", 31146, 0}, {"cloud-init.service", 10912, 20216}, {"cloud-init-local.service", 2528, 6098},
		{"systemd-remount-fs.service", 1453, 35}, {"systemd-journald.socket", 1403, 0}, {"system.slice", 1387, 0}, {"-.slice", 1359, 0}}
	chain3 = append([]printed{{"cloud-final.service", -1, 11703}, {"multi-user.target", 33929, 0}, {"ephemeral-disk-warning.service", 33896, 29},
		{"cloud-config.service", 31392, 2499}, {"basic.target", 31204, 0}, {"paths.target", 31188, 0}, {"update_certs.path", 31185, 0}}, below...)
	chain4 = append([]printed{{"walinuxagent.service", 31385, 0}, {"basic.target", 31204, 0}, {"paths.target", 31188, 0}, {"update_certs.path", 31185, 0}}, below...)
)

func TestPrintedChains(t *testing.T) {
	for name, c := range map[string]struct {
		chains [][]printed
		end    string
		total  wire.Micros
		idle   wire.Micros
		waits  map[string]wire.Micros // by what waited, milliseconds
		work   map[string]wire.Micros
	}{
		"docker": {[][]printed{chain1}, "graphical.target", 20972, 0,
			map[string]wire.Micros{"unit/docker.service": 29}, map[string]wire.Micros{"unit/docker.service": 4032, "unit/systemd-networkd-wait-online.service": 16639}},
		"preprovisioned": {[][]printed{chain2}, "graphical.target", 1015434 - 1002914, 1000410,
			nil, map[string]wire.Micros{"unit/cloud-init.service": 7076, "unit/cloud-config.service": 3266}},
		"cloud-final": {[][]printed{chain3, chain4}, "cloud-final.service", 45632, 0,
			map[string]wire.Micros{"unit/cloud-init.service": 2286, "unit/cloud-init-local.service": 1040},
			map[string]wire.Micros{"unit/cloud-final.service": 11703, "unit/cloud-config.service": 2499, "unit/cloud-init.service": 20216}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Build(report(c.chains...), Cloud{})
			checkTiled(t, got)
			if got.EndIs != c.end || got.End-got.Origin != c.total*1000 || got.Idle != c.idle*1000 {
				t.Errorf("%s after %d, idle %d", got.EndIs, got.End-got.Origin, got.Idle)
			}
			waits, work := map[string]wire.Micros{}, map[string]wire.Micros{}
			for _, s := range got.Path {
				if s.Wait != nil {
					waits[s.Wait.Before] += s.End - s.Start
				} else {
					work[s.Span] += s.End - s.Start
				}
			}
			for id, want := range c.waits {
				if waits[id] != want*1000 {
					t.Errorf("%s waited %d, not %d", id, waits[id], want*1000)
				}
			}
			for id, want := range c.work {
				if work[id] != want*1000 {
					t.Errorf("%s took %d, not %d", id, work[id], want*1000)
				}
			}
			if t.Failed() {
				for _, s := range got.Path {
					t.Logf("%+v %+v", s, s.Wait)
				}
			}
		})
	}
}

// Nearly all of the first printed boot is spent until the network is there, which
// has to be on each node, but not for so long.
func TestSlowNetworkIsAdvisedOn(t *testing.T) {
	got := Build(report(chain1), Cloud{})
	for _, a := range got.Advice {
		if a.Unit == "systemd-networkd-wait-online.service" && a.Class == Node && a.Saves == 16639000 && strings.Contains(a.Do, "RequiredForOnline") {
			return
		}
	}
	t.Errorf("no advice about 16.639 s of waiting for the network: %+v", got.Advice)
}

// checkTiled fails unless the path covers the boot without a gap or an overlap.
func checkTiled(t *testing.T, got Timeline) {
	t.Helper()
	at := got.Origin
	for i, s := range got.Path {
		if s.Start != at || s.End < s.Start {
			t.Fatalf("step %d (%s) from %d to %d begins not where the last ended: %d", i, s.Name, s.Start, s.End, at)
		}
		at = s.End
	}
	if at != got.End {
		t.Fatalf("the path ends at %d, the boot at %d", at, got.End)
	}
}

// Source 4 concludes from its chains that a kubelet of the image, ordered after
// network-online.target, saves cloud-final's 11.703 s and cloud-config's 2.499 s.
func TestPrintedAdvice(t *testing.T) {
	got := Build(report(chain3, chain4), Cloud{})
	saves := map[string]wire.Micros{}
	var kubelet *Advice
	for i, a := range got.Advice {
		t.Logf("%s %v saves %d: %s. %s", a.Class, a.Spans, a.Saves, a.What, a.Do)
		if len(a.Spans) == 1 {
			saves[string(a.Class)+" "+a.Spans[0]] = a.Saves
		}
		if a.Unit == "kubelet.service" {
			kubelet = &got.Advice[i]
		}
	}
	for id, want := range map[string]wire.Micros{"base unit/cloud-final.service": 11703000, "base unit/cloud-config.service": 2499000,
		"wait unit/cloud-init.service": 2286000, "wait unit/cloud-init-local.service": 1040000} {
		if saves[id] != want {
			t.Errorf("%s saves %d, not %d", id, saves[id], want)
		}
	}
	if kubelet == nil {
		t.Fatal("no advice about the kubelet")
	}
	// 45.632 s less cloud-init.service's end.
	if want := wire.Micros(45632000 - 31128000); kubelet.Saves != want {
		t.Errorf("the kubelet saves %d, not %d", kubelet.Saves, want)
	}
	for _, word := range []string{"cloud-final.service (11.703s)", "cloud-config.service (2.499s)", "cloud-init.service (20.216s) stays"} {
		if !strings.Contains(kubelet.What, word) {
			t.Errorf("%q is not in %q", word, kubelet.What)
		}
	}
}
