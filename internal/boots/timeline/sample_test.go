package timeline

import (
	"fmt"
	"math/rand"

	"github.com/ortet/ortet/internal/wire"
)

// Sample makes a report of a boot as a node of a scale set has it, with about
// that many units and what cloud-init and the kubelet tell, for measuring: it is
// the same for the same seed.
func Sample(seed int64, units int) wire.BootReport {
	return sampleReport(rand.New(rand.NewSource(seed)), units, 2500000)
}

func sampleReport(rnd *rand.Rand, units int, config wire.Micros) wire.BootReport {
	const kernel = 1700000000 * 1000000
	r := wire.BootReport{Version: wire.BootReportVersion, Node: "node", System: wire.SystemTimes{Firmware: 2500000, Loader: 900000, InitRD: 700000, Userspace: 1500000,
		SecurityStart: 1510000, SecurityFinish: 1515000, GeneratorsStart: 1530000, GeneratorsFinish: 1620000, UnitsLoadStart: 1620000, UnitsLoadFinish: 1710000}}
	jitter := func(d wire.Micros) wire.Micros { return d - d/20 + wire.Micros(rnd.Int63n(int64(d/10+1))) }
	now := wire.Micros(1720000)
	end := map[string]wire.Micros{}
	unit := func(name string, took wire.Micros, after ...string) {
		start := now
		if len(after) > 0 {
			start = 0
			for _, a := range after {
				start = max(start, end[a])
			}
			start += 100 + wire.Micros(rnd.Int63n(2000))
		}
		end[name] = start + took
		r.Units = append(r.Units, wire.BootUnit{Name: name, Activating: start, Activated: start + took, After: after})
	}
	unit("-.slice", 0)
	unit("system.slice", 0, "-.slice")
	unit("systemd-journald.socket", 0, "system.slice")
	// Most units are early and beside each other; each is ordered after what all
	// are, and after some others.
	var early []string
	for i := range max(units-20, 0) {
		after := []string{"systemd-journald.socket", "system.slice", "-.slice"}
		for range min(i, 6) {
			after = append(after, early[len(early)-1-rnd.Intn(min(len(early), 40))])
		}
		name := fmt.Sprintf("unit-%03d.service", i)
		took := jitter(20000)
		if i%5 == 0 {
			name, took = fmt.Sprintf("dev-disk-%03d.device", i), 0
		}
		if len(early) > 120 { // else the chain of them grows with their number
			after = append(after[:3], early[rnd.Intn(60)])
		}
		unit(name, took, after...)
		early = append(early, name)
	}
	unit("systemd-remount-fs.service", jitter(35000), "systemd-journald.socket")
	unit("cloud-init-local.service", jitter(3000000), "systemd-remount-fs.service")
	unit("systemd-networkd.service", jitter(60000), "cloud-init-local.service")
	unit("systemd-networkd-wait-online.service", jitter(1500000), "systemd-networkd.service")
	unit("cloud-init.service", jitter(4000000), "systemd-networkd-wait-online.service")
	unit("network-online.target", 0, "cloud-init.service", "systemd-networkd-wait-online.service")
	unit("sysinit.target", 0, append([]string{"cloud-init.service"}, early...)...)
	unit("basic.target", 0, "sysinit.target")
	unit("containerd.service", jitter(400000), "basic.target", "network-online.target")
	unit("cloud-config.service", jitter(config), "network-online.target", "basic.target")
	unit("walinuxagent.service", 0, "basic.target", "network-online.target")
	unit("cloud-final.service", jitter(8000000), "cloud-config.service", "basic.target")
	unit("kubelet.service", jitter(300000), "cloud-final.service", "containerd.service")
	unit("multi-user.target", 0, append([]string{"kubelet.service", "basic.target"}, early...)...)
	unit("graphical.target", 0, "multi-user.target")
	for _, u := range r.Units {
		r.System.Finish = max(r.System.Finish, u.Activated)
	}
	for m := wire.Micros(1000000); m < r.System.Finish; m += 2000000 {
		r.Clocks = append(r.Clocks, wire.ClockReading{Monotonic: m, Wall: m + kernel})
	}
	parts := func(stage, unit string, from, to wire.Micros, modules ...string) {
		r.Spans = append(r.Spans, wire.BootSpan{Source: "cloud-init", Name: stage, Clock: wire.ClockWall, Start: from + kernel, End: to + kernel, Grain: 1000, Unit: unit})
		for i, m := range modules {
			part := (to - from) / wire.Micros(len(modules)+1)
			start := from + part*wire.Micros(i) + part/2
			r.Spans = append(r.Spans, wire.BootSpan{Source: "cloud-init", Name: stage + "/" + m, Parent: stage, Clock: wire.ClockWall, Start: start + kernel, End: start + part*9/10 + kernel, Grain: 1000, Unit: unit})
		}
	}
	for _, s := range []struct {
		stage, unit string
		modules     []string
	}{
		{"init-local", "cloud-init-local.service", []string{"check-cache", "search-Azure"}},
		{"init-network", "cloud-init.service", []string{"config-growpart", "config-resizefs", "config-set_hostname", "config-users_groups", "config-ssh"}},
		{"modules-config", "cloud-config.service", []string{"config-apt_configure", "config-ntp", "config-timezone", "config-runcmd"}},
		{"modules-final", "cloud-final.service", []string{"config-package_update_upgrade_install", "config-scripts_user", "config-final_message"}},
	} {
		from := end[s.unit] - 10000
		for _, u := range r.Units {
			if u.Name == s.unit {
				from = u.Activating + 5000
			}
		}
		parts(s.stage, s.unit, from, max(from, end[s.unit]-10000), s.modules...)
	}
	ready := end["kubelet.service"]
	r.Spans = append(r.Spans,
		wire.BootSpan{Source: "kubelet", Name: "register", Clock: wire.ClockMonotonic, Start: ready, End: ready + jitter(700000), Unit: "kubelet.service"},
		wire.BootSpan{Source: "containerd", Name: "pull/registry.k8s.io/pause", Clock: wire.ClockMonotonic, Start: ready + 800000, End: ready + 900000 + jitter(500000), Unit: "containerd.service"},
		wire.BootSpan{Source: "kubelet", Name: "ready", Clock: wire.ClockMonotonic, Start: ready + 2500000, End: ready + 2500000, Unit: "kubelet.service"})
	return r
}
