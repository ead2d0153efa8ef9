package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const epoch = wire.Micros(1700000000 * 1e6) // what the node's clock showed at the kernel's start

// ms are milliseconds.
func ms(n float64) wire.Micros { return wire.Micros(n * 1000) }

func unit(name string, from, to float64, after ...string) wire.BootUnit {
	return wire.BootUnit{Name: name, Activating: ms(from), Activated: ms(to), After: after}
}

func span(source, name string, from, to float64) wire.BootSpan {
	return wire.BootSpan{Source: source, Name: name, Clock: wire.ClockMonotonic, Start: ms(from), End: ms(to)}
}

func wall(s wire.BootSpan, offset wire.Micros) wire.BootSpan {
	s.Clock, s.Start, s.End = wire.ClockWall, s.Start+offset, s.End+offset
	return s
}

func in(s wire.BootSpan, unit string) wire.BootSpan {
	s.Unit = unit
	return s
}

func of(s wire.BootSpan, parent string) wire.BootSpan {
	s.Parent = parent
	return s
}

// utc is a time by a synchronised clock, in milliseconds after the kernel's start.
func utc(at float64) time.Time { return time.UnixMicro(int64(epoch + ms(at))).UTC() }

func synced() []wire.ClockReading {
	return []wire.ClockReading{{Monotonic: ms(1000), Wall: epoch + ms(1000)}, {Monotonic: ms(30000), Wall: epoch + ms(30000)}}
}

// lines are a path as text: name, and milliseconds; of waits the cause.
func lines(path []Step) []string {
	var out []string
	for _, s := range path {
		took := float64(s.End-s.Start) / 1000
		switch {
		case s.Wait != nil:
			out = append(out, fmt.Sprintf("wait before %s %g: %s", s.Wait.Before, took, s.Wait.Cause))
		default:
			out = append(out, fmt.Sprintf("%s %g", s.Span, took))
		}
	}
	return out
}

var system = wire.SystemTimes{Userspace: ms(1000), UnitsLoadStart: ms(1100), UnitsLoadFinish: ms(1200)}

func TestPaths(t *testing.T) {
	restarted := unit("b.service", 9000, 9500, "a.service")
	restarted.Restarts = 2
	bySocket, byTimer, byPath := unit("b.service", 5000, 6000, "a.service"), unit("b.service", 5000, 6000), unit("b.service", 5000, 6000)
	bySocket.TriggeredBy, byTimer.TriggeredBy, byPath.TriggeredBy = []string{"b.socket"}, []string{"b.timer"}, []string{"b.path"}
	oneshot := wire.BootUnit{Name: "a.service", Activating: ms(1200), Deactivated: ms(3000), Oneshot: true, Result: "exit-code"}
	for name, c := range map[string]struct {
		system wire.SystemTimes
		units  []wire.BootUnit
		spans  []wire.BootSpan
		want   []string
	}{
		"one after the other": {system, []wire.BootUnit{unit("a.service", 1200, 2000), unit("b.service", 2000, 4000, "a.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 800", "unit/b.service 2000", "systemd/finish 0"}},
		"an ended unit that is no dependency held its job": {system,
			[]wire.BootUnit{unit("a.service", 1200, 2000), unit("c.service", 1300, 3990), unit("b.service", 4000, 5000, "a.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 800", "wait before unit/b.service 2000: another unit's job", "unit/b.service 1000", "systemd/finish 0"}},
		"nothing tells": {system, []wire.BootUnit{unit("a.service", 1200, 2000), unit("b.service", 4000, 5000, "a.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 800", "wait before unit/b.service 2000: ", "unit/b.service 1000", "systemd/finish 0"}},
		"systemd reloads": {system, []wire.BootUnit{unit("a.service", 1200, 2000), unit("b.service", 4000, 5000, "a.service")}, []wire.BootSpan{span("systemd", "reload", 2100, 3990)},
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 800", "wait before unit/b.service 2000: a reload of systemd", "unit/b.service 1000", "systemd/finish 0"}},
		"a dependency that ended later is none": {system,
			[]wire.BootUnit{unit("a.service", 1200, 4800), unit("c.service", 1200, 1500), unit("b.service", 1500, 5000, "a.service", "c.service", "never.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/c.service 300", "unit/b.service 3500", "systemd/finish 0"}},
		"a cycle": {system, []wire.BootUnit{unit("a.target", 1200, 1200, "b.target"), unit("b.target", 1200, 1200, "a.target"), unit("c.service", 1200, 2000, "a.target", "c.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/b.target 0", "unit/a.target 0", "unit/c.service 800", "systemd/finish 0"}},
		"restarted": {system, []wire.BootUnit{unit("a.service", 1200, 2000), restarted}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 800", "wait before unit/b.service 7000: its own restarts", "unit/b.service 500", "systemd/finish 0"}},
		"by its socket": {system, []wire.BootUnit{unit("a.service", 1200, 2000), unit("b.socket", 1200, 1200), bySocket}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 800", "wait before unit/b.service 3000: a connection to its socket", "unit/b.service 1000", "systemd/finish 0"}},
		"by its timer": {system, []wire.BootUnit{unit("b.timer", 1200, 1200), byTimer}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/b.timer 0", "wait before unit/b.service 3800: its timer", "unit/b.service 1000", "systemd/finish 0"}},
		"by its path": {system, []wire.BootUnit{unit("b.path", 1200, 1200), byPath}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/b.path 0", "wait before unit/b.service 3800: a change of a file", "unit/b.service 1000", "systemd/finish 0"}},
		"the network, which went on after": {system, []wire.BootUnit{unit("a.service", 1200, 1300), unit("systemd-networkd-wait-online.service", 1250, 9000), unit("foo.service", 5000, 12000, "a.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 100", "wait before unit/foo.service 3700: ", "unit/foo.service 7000", "systemd/finish 0"}},
		"a device": {system, []wire.BootUnit{unit("d.device", 3000, 3000), unit("d.mount", 3000, 3500, "d.device")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "systemd/start 1800", "unit/d.device 0", "unit/d.mount 500", "systemd/finish 0"}},
		"a oneshot that failed": {system, []wire.BootUnit{oneshot, unit("b.service", 3000, 3100, "a.service")}, nil,
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/a.service 1800", "unit/b.service 100", "systemd/finish 0"}},
		"parts of a stage, and a lock within one": {system,
			[]wire.BootUnit{unit("cloud-final.service", 1200, 9000)},
			[]wire.BootSpan{in(span("cloud-init", "modules-final", 1300, 8900), "cloud-final.service"), of(span("cloud-init", "modules-final/config-package_update_upgrade_install", 1500, 6000), "modules-final"),
				of(span("cloud-init", "modules-final/config-scripts_user", 6000, 8800), "modules-final"), span("apt", "lock", 2000, 4500)},
			[]string{"machine/kernel 1000", "systemd/start 100", "systemd/load-units 100", "unit/cloud-final.service 100", "cloud-init/modules-final 200",
				"cloud-init/modules-final/config-package_update_upgrade_install 500", "wait before cloud-init/modules-final/config-package_update_upgrade_install 2500: a lock of dpkg",
				"cloud-init/modules-final/config-package_update_upgrade_install 1500", "cloud-init/modules-final/config-scripts_user 2800", "cloud-init/modules-final 100", "unit/cloud-final.service 100", "systemd/finish 0"}},
		"no times of the manager": {wire.SystemTimes{}, []wire.BootUnit{unit("a.service", 1200, 2000)}, nil,
			[]string{"wait before unit/a.service 1200: ", "unit/a.service 800", "systemd/finish 0"}},
		"after a soft reboot": {wire.SystemTimes{Userspace: ms(901000), SoftReboot: ms(900000)}, []wire.BootUnit{unit("old.service", 1200, 2000), unit("a.service", 901500, 902000, "old.service")}, nil,
			[]string{"machine/soft-reboot 1000", "systemd/start 500", "unit/a.service 500", "systemd/finish 0"}},
		"in a container": {wire.SystemTimes{Userspace: ms(901000), Container: true}, []wire.BootUnit{unit("old.service", 1200, 2000), unit("a.service", 901500, 902000, "old.service")}, nil,
			[]string{"systemd/start 500", "unit/a.service 500", "systemd/finish 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := wire.BootReport{Version: wire.BootReportVersion, System: c.system, Units: c.units, Spans: c.spans}
			for _, u := range c.units {
				r.System.Finish = max(r.System.Finish, u.Activated)
			}
			got := Build(r, Cloud{})
			checkTiled(t, got)
			if have, want := strings.Join(lines(got.Path), "\n"), strings.Join(c.want, "\n"); have != want {
				t.Errorf("the path is\n%s\nnot\n%s", have, want)
			}
			if !got.Complete || got.EndIs != "startup finished" {
				t.Errorf("ends with %s, complete %v", got.EndIs, got.Complete)
			}
			if want := originOf(c.system); got.OriginIs != want {
				t.Errorf("begins with %s, and should with %s", got.OriginIs, want)
			}
		})
	}
}

func originOf(s wire.SystemTimes) string {
	switch {
	case s.SoftReboot > 0:
		return "soft reboot"
	case s.Container:
		return "userspace started"
	}
	return "kernel started"
}

// aks is a node as AKS makes them: the agent runs the script extension, and that
// starts the kubelet.
func aks() wire.BootReport {
	return wire.BootReport{Version: wire.BootReportVersion, Clocks: synced(),
		System: wire.SystemTimes{Firmware: ms(3000), Loader: ms(1000), Userspace: ms(1000), UnitsLoadFinish: ms(1200), UnitsLoadStart: ms(1100), Finish: ms(20000)},
		Units: []wire.BootUnit{unit("cloud-init.service", 1200, 8000), unit("network-online.target", 8000, 8000, "cloud-init.service"), unit("containerd.service", 8000, 8500, "network-online.target"),
			unit("cloud-config.service", 8000, 10000, "cloud-init.service"), unit("cloud-final.service", 10000, 15000, "cloud-config.service"),
			unit("walinuxagent.service", 15000, 15000, "cloud-final.service"), unit("kubelet.service", 32000, 32100, "network-online.target", "containerd.service")},
		Spans: []wire.BootSpan{
			wall(span("waagent", "goal-state", 16000, 16000), epoch),
			wall(span("waagent", "extensions", 20000, 40000), epoch),
			wall(of(span("waagent", "extension/Microsoft.Azure.Extensions.CustomScript", 20100, 39000), "extensions"), epoch),
			wall(span("cse", "enable", 20500, 38000), epoch), wall(of(span("cse", "enable/command", 21000, 37900), "enable"), epoch),
			wall(span("aks", "AKS.CSE.cse_start", 21100, 37800), epoch), wall(of(span("aks", "AKS.CSE.installKubelet", 22000, 31000), "AKS.CSE.cse_start"), epoch),
			wall(of(span("aks", "AKS.CSE.ensureKubelet", 31500, 33000), "AKS.CSE.cse_start"), epoch),
			in(span("kubelet", "register", 33000, 34200), "kubelet.service"), span("containerd", "pull/mcr.microsoft.com/oss/cni", 35000, 41000),
		}}
}

func TestNodeStartedByAnExtension(t *testing.T) {
	got := Build(aks(), Cloud{Pool: "pool", Requested: utc(-30000), Created: utc(-25000), NodeCreated: utc(34000), NodeReady: utc(42000)})
	checkTiled(t, got)
	want := []string{"azure/request 5000", "azure/create 22000", "machine/firmware 2000", "machine/loader 1000", "machine/kernel 1000", "systemd/start 100", "systemd/load-units 100",
		"unit/cloud-init.service 6800", "unit/cloud-config.service 2000", "unit/cloud-final.service 5000", "unit/walinuxagent.service 0",
		"wait before waagent/goal-state 1000: the agent's next look at the goal state", "wait before waagent/extensions 4000: the agent's next look at the goal state",
		"waagent/extensions 100", "waagent/extension/Microsoft.Azure.Extensions.CustomScript 400", "cse/enable 500", "cse/enable/command 100", "aks/AKS.CSE.cse_start 900", "aks/AKS.CSE.installKubelet 9000",
		"aks/AKS.CSE.cse_start 500", "aks/AKS.CSE.ensureKubelet 500", "unit/kubelet.service 100", "wait before kubelet/register 900: the program itself", "kubelet/register 1200",
		"wait before containerd/pull/mcr.microsoft.com/oss/cni 800: ", "containerd/pull/mcr.microsoft.com/oss/cni 6000", "wait before cluster/node-ready 1000: ", "cluster/node-ready 0"}
	if have := strings.Join(lines(got.Path), "\n"); have != strings.Join(want, "\n") {
		t.Errorf("the path is\n%s\nnot\n%s", have, strings.Join(want, "\n"))
	}
	if got.OriginIs != "machine requested" || got.EndIs != "node Ready" || !got.Complete || got.Total() != 72*time.Second {
		t.Errorf("from %s to %s, %s", got.OriginIs, got.EndIs, got.Total())
	}
	var kubelet *Advice
	for i := range got.Advice {
		if a := &got.Advice[i]; a.Unit == "kubelet.service" && strings.HasPrefix(a.Do, "put the kubelet") {
			kubelet = a
		}
	}
	// From 32 s to 8.5 s, when containerd had started; the pull, that began 800 ms after the registration, with it.
	if kubelet == nil || kubelet.Saves != ms(32000-8500) {
		t.Errorf("the kubelet's advice is %+v", kubelet)
	}
	for _, a := range got.Advice {
		if strings.HasPrefix(a.What, "AKS.CSE.cse_start") || strings.HasPrefix(a.What, "enable") {
			t.Errorf("advice about what only wraps others: %s", a.What)
		}
		if a.Class == Waiting && a.Spans[0] == "kubelet/register" && a.Saves != ms(900) {
			t.Errorf("the registration's wait saves %d", a.Saves)
		}
	}
	byStage := map[Stage]wire.Micros{}
	for _, s := range Stages(got) {
		byStage[s.Stage] = s.OnPath
	}
	for stage, want := range map[Stage]wire.Micros{StageRequest: ms(5000), StagePlatform: ms(22000), StageFirmware: ms(3000), StageConfig: ms(2000), StageFinal: ms(5000),
		StageAgent: ms(17000), StagePulls: ms(6800), StageKubelet: ms(2200), StageReady: ms(1000)} {
		if byStage[stage] != want {
			t.Errorf("stage %s has %d, not %d", stage, byStage[stage], want)
		}
	}
}

// What a script does beside its named parts is advised on, though all that is around
// it only wraps it.
func TestScriptOfItsOwnIsAdvisedOn(t *testing.T) {
	r := aks()
	for i := range r.Spans {
		if s := &r.Spans[i]; s.Name == "AKS.CSE.installKubelet" {
			s.Start = s.End - ms(2000)
		}
	}
	got := Build(r, Cloud{})
	told := map[string]wire.Micros{}
	for _, a := range got.Advice {
		if a.Class == Base && len(a.Spans) == 1 {
			told[a.Spans[0]] = a.Saves
		}
	}
	if told["aks/AKS.CSE.cse_start"] == 0 || told["aks/AKS.CSE.installKubelet"] == 0 || told["cse/enable/command"] != 0 {
		t.Errorf("%v", told)
	}
}

// The agent looks for a goal state as soon as it runs extensions: what that takes is
// its own.
func TestFirstLookIsAtOnce(t *testing.T) {
	r := aks()
	r.Spans = append(r.Spans, wall(span("waagent", "exthandler-start", 15500, 15500), epoch))
	got := Build(r, Cloud{})
	for _, s := range got.Path {
		if s.Wait != nil && s.Wait.Before == "waagent/goal-state" {
			if s.Wait.After != "waagent/exthandler-start" || s.Wait.Cause != causeItself {
				t.Errorf("%+v", s.Wait)
			}
			return
		}
	}
	t.Errorf("no wait before the goal state: %q", lines(got.Path))
}

// A Node is not created before its kubelet started, whatever the clocks say, which
// are a second apart at most and cut to seconds.
func TestClusterIsOrdered(t *testing.T) {
	r := wire.BootReport{Version: wire.BootReportVersion, System: system, Clocks: synced(), Units: []wire.BootUnit{unit("kubelet.service", 33400, 33500)},
		Spans: []wire.BootSpan{in(span("kubelet", "register", 33600, 34900), "kubelet.service")}}
	got := Build(r, Cloud{NodeCreated: utc(32000), NodeReady: utc(34000)})
	checkTiled(t, got)
	for _, s := range got.Spans {
		switch {
		case s.ID == idCreated && (s.Start < ms(33400) || s.Start > ms(34900)):
			t.Errorf("the Node is created at %d", s.Start)
		case s.ID == idNode && s.Start < ms(34900):
			t.Errorf("the Node is Ready at %d, before it was registered", s.Start)
		}
	}
	if len(got.Clocks) != 2 || got.Clocks[1].Kind != wire.ClockCluster || !strings.Contains(got.Clocks[1].How, "narrowed") || got.Clocks[1].Uncertainty > second {
		t.Errorf("the clocks are %+v", got.Clocks)
	}
}

// What moving a step saves is not its length where something else was nearly as
// late.
func TestSavingsAreReplayed(t *testing.T) {
	r := wire.BootReport{Version: wire.BootReportVersion, System: system, Units: []wire.BootUnit{unit("snapd.seeded.service", 1200, 9000), unit("other.service", 1200, 8000),
		unit("multi-user.target", 9000, 9000, "snapd.seeded.service", "other.service")}}
	r.System.Finish = ms(9000)
	got := Build(r, Cloud{})
	if len(got.Advice) != 1 || got.Advice[0].Saves != ms(1000) || got.Advice[0].Unit != "snapd.seeded.service" {
		t.Errorf("the advice is %+v", got.Advice)
	}
}

func TestOrigins(t *testing.T) {
	pps := func(name string, from, to float64) wire.BootSpan {
		return in(of(wall(span("cloud-init", "azure-ds/"+name, from, to), epoch), "init-local"), "cloud-init-local.service")
	}
	local := unit("cloud-init-local.service", 2000, 900000)
	short := unit("cloud-init-local.service", 2000, 5000)
	for name, c := range map[string]struct {
		units []wire.BootUnit
		spans []wire.BootSpan
		cloud Cloud
		is    string
		at    wire.Micros
		idle  wire.Micros
		told  string // in Missing
	}{
		"kernel":                            {units: []wire.BootUnit{short}, is: "kernel started"},
		"requested":                         {units: []wire.BootUnit{short}, cloud: Cloud{Requested: utc(-9000), Created: utc(-8000)}, is: "machine requested", at: ms(-9000)},
		"created":                           {units: []wire.BootUnit{short}, cloud: Cloud{Created: utc(-8000)}, is: "machine created", at: ms(-8000)},
		"created, by a clock that is ahead": {units: []wire.BootUnit{short}, cloud: Cloud{Created: utc(400)}, is: "machine created", at: 0},
		"rebooted":                          {units: []wire.BootUnit{short}, cloud: Cloud{Created: utc(-86400e3)}, is: "kernel started", told: "not its first boot"},
		"handed over":                       {units: []wire.BootUnit{local}, spans: []wire.BootSpan{pps("wait-for-media-disconnect-connect", 5000, 890000)}, is: "machine handed over", at: ms(890000), idle: ms(885000)},
		"nic attached":                      {units: []wire.BootUnit{local}, spans: []wire.BootSpan{pps("wait-for-nic-detach", 5000, 600000), pps("wait-for-nic-attach", 600000, 700000), pps("wait-for-nic-attach", 800000, 810000)}, is: "machine handed over", at: ms(700000), idle: ms(695000)},
		"concluded":                         {units: []wire.BootUnit{local}, is: "machine handed over", at: ms(900000), idle: ms(898000), told: "concluded"},
		"asked for late":                    {units: []wire.BootUnit{local}, cloud: Cloud{Created: utc(800000)}, is: "machine handed over", at: ms(900000), idle: ms(898000)},
		"slow, and created for it":          {units: []wire.BootUnit{local}, cloud: Cloud{Created: utc(-8000)}, is: "machine created", at: ms(-8000)},
		"slow, for its network":             {units: []wire.BootUnit{local}, spans: []wire.BootSpan{pps("obtain-dhcp-lease", 3000, 890000)}, is: "kernel started"},
		"slow, and none":                    {units: []wire.BootUnit{local}, spans: []wire.BootSpan{{Source: "cloud-init", Name: "pps-type", Clock: wire.ClockMonotonic, Start: ms(3000), End: ms(3000), Detail: "None"}}, is: "kernel started"},
	} {
		t.Run(name, func(t *testing.T) {
			r := wire.BootReport{Version: wire.BootReportVersion, System: system, Units: append(c.units, unit("z.service", 950000, 960000, "cloud-init-local.service")), Spans: c.spans, Clocks: synced()}
			r.System.Finish = ms(960000)
			got := Build(r, c.cloud)
			checkTiled(t, got)
			if got.OriginIs != c.is || got.Origin != c.at || got.Idle != c.idle {
				t.Errorf("%s at %d, idle %d; not %s at %d, idle %d", got.OriginIs, got.Origin, got.Idle, c.is, c.at, c.idle)
			}
			if c.told != "" && !strings.Contains(strings.Join(got.Missing, "\n"), c.told) {
				t.Errorf("%q is not told: %q", c.told, got.Missing)
			}
		})
	}
}

// What counts from no kernel's start says so, and what ends before it begins has
// not been seen to boot.
func TestOriginsThatNothingTells(t *testing.T) {
	handler := wall(span("cse", "enable", 0, 18000), epoch)
	got := Build(wire.BootReport{Version: wire.BootReportVersion, Spans: []wire.BootSpan{handler}}, Cloud{})
	checkTiled(t, got)
	if got.OriginIs != "the first thing told" || got.Complete || !strings.Contains(strings.Join(got.Missing, "\n"), "the kernel's start: nothing tells of it") {
		t.Errorf("begins with %q, complete %v, missing %q", got.OriginIs, got.Complete, got.Missing)
	}

	// The kubelet's gauges of one boot, and cloud-init's log of another.
	ready := wire.BootSpan{Source: "kubelet", Name: "ready", Clock: wire.ClockMonotonic, Start: ms(42100), End: ms(42100)}
	pool := wire.BootSpan{Source: "cloud-init", Name: "azure-ds/wait-for-media-disconnect-connect", Clock: wire.ClockMonotonic, Start: ms(5000), End: ms(1005000)}
	got = Build(wire.BootReport{Version: wire.BootReportVersion, Spans: []wire.BootSpan{pool, ready}}, Cloud{})
	checkTiled(t, got)
	if got.Complete || got.Total() != 0 {
		t.Errorf("%s to %s in %s, complete %v", got.OriginIs, got.EndIs, got.Total(), got.Complete)
	}
	if got.Nothing() {
		t.Error("of that something is known")
	}
	if got := Build(wire.BootReport{Version: wire.BootReportVersion}, Cloud{}); !got.Nothing() || got.Complete {
		t.Errorf("of an empty report: %+v", got)
	}
}

func TestEnds(t *testing.T) {
	open := wire.BootUnit{Name: "stuck.service", Activating: ms(3000)}
	first := unit("a.service", 1200, 2000)
	kubelet := unit("kubelet.service", 4000, 5000)
	finished := system
	finished.Finish = ms(9000)
	for name, c := range map[string]struct {
		system   wire.SystemTimes
		units    []wire.BootUnit
		spans    []wire.BootSpan
		cloud    Cloud
		is       string
		at       wire.Micros
		complete bool
	}{
		"Ready":                 {finished, []wire.BootUnit{first, kubelet}, nil, Cloud{NodeCreated: utc(6000), NodeReady: utc(8000)}, "node Ready", ms(8000), true},
		"a kubelet that failed": {system, []wire.BootUnit{first, {Name: "kubelet.service", Activating: ms(4000), Deactivated: ms(5000), Result: "exit-code"}}, nil, Cloud{}, "kubelet.service", ms(5000), false},
		"never Ready":           {finished, []wire.BootUnit{first, kubelet}, nil, Cloud{NodeCreated: utc(6000)}, "node created", ms(6000), false},
		"Ready by itself":       {finished, []wire.BootUnit{first, kubelet}, []wire.BootSpan{span("kubelet", "ready", 7000, 7000)}, Cloud{}, "node Ready", ms(7000), true},
		"registered":            {finished, []wire.BootUnit{first, kubelet}, []wire.BootSpan{span("kubelet", "register", 6000, 7000)}, Cloud{}, "kubelet registered", ms(7000), true},
		"kubelet":               {finished, []wire.BootUnit{first, kubelet}, nil, Cloud{}, "kubelet started", ms(5000), true},
		"kubelet of a cluster":  {finished, []wire.BootUnit{first, kubelet}, nil, Cloud{Pool: "pool"}, "kubelet started", ms(5000), false},
		"finished":              {finished, []wire.BootUnit{first}, nil, Cloud{}, "startup finished", ms(9000), true},
		"stuck":                 {system, []wire.BootUnit{first, open, unit("late.service", 8000, 9000)}, nil, Cloud{}, "stuck.service", ms(9000), false},
		"cut off":               {system, []wire.BootUnit{first}, nil, Cloud{}, "a.service", ms(2000), false},
		"nothing":               {wire.SystemTimes{}, nil, nil, Cloud{}, "nothing is known", 0, false},
		"of another boot":       {finished, []wire.BootUnit{first, kubelet}, nil, Cloud{NodeCreated: utc(-90000e3), NodeReady: utc(-80000e3)}, "kubelet started", ms(5000), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := wire.BootReport{Version: wire.BootReportVersion, System: c.system, Units: c.units, Spans: c.spans, Clocks: synced()}
			got := Build(r, c.cloud)
			checkTiled(t, got)
			if got.EndIs != c.is || got.End != c.at || got.Complete != c.complete {
				t.Errorf("%s at %d, complete %v; not %s at %d", got.EndIs, got.End, got.Complete, c.is, c.at)
			}
			if !got.Complete && len(got.Missing) == 0 {
				t.Error("what is missing is not told")
			}
		})
	}
}

func TestClocks(t *testing.T) {
	const ahead = 3600 * second
	stepped := []wire.ClockReading{{Monotonic: ms(1000), Wall: epoch - ahead + ms(1000)}, {Monotonic: ms(5000), Wall: epoch - ahead + ms(5000)},
		{Monotonic: ms(6000), Wall: epoch + ms(6000)}, {Monotonic: ms(20000), Wall: epoch + ms(20000)}}
	back := []wire.ClockReading{{Monotonic: ms(1000), Wall: epoch + ms(4000)}, {Monotonic: ms(5000), Wall: epoch + ms(8000)},
		{Monotonic: ms(5100), Wall: epoch + ms(5100)}, {Monotonic: ms(20000), Wall: epoch + ms(20000)}}
	for name, c := range map[string]struct {
		clocks  []wire.ClockReading
		units   []wire.BootUnit
		span    wire.BootSpan
		at      wire.Micros
		about   wire.Micros // at most
		atLeast wire.Micros
		steps   int
	}{
		"synchronised":              {clocks: synced(), span: wall(span("x", "y", 3000, 3000), epoch), at: ms(3000)},
		"before it was set":         {clocks: stepped, span: wall(span("x", "y", 3000, 3000), epoch-ahead), at: ms(3000), steps: 1},
		"after it was set":          {clocks: stepped, span: wall(span("x", "y", 9000, 9000), epoch), at: ms(9000), steps: 1},
		"in the gap":                {clocks: stepped, span: wall(span("x", "y", -1000e3, -1000e3), epoch), at: ms(6000), about: ahead, atLeast: ahead, steps: 1},
		"in the overlap":            {clocks: back, span: wall(span("x", "y", 7000, 7000), epoch), at: ms(7000), about: ms(3000), atLeast: ms(3000), steps: 1},
		"in the overlap, in a unit": {clocks: back, units: []wire.BootUnit{unit("u.service", 3500, 4500)}, span: in(wall(span("x", "y", 7000, 7000), epoch), "u.service"), at: ms(4000), steps: 1},
		"by a unit":                 {units: []wire.BootUnit{unit("u.service", 3000, 5000)}, span: in(wall(span("x", "y", 3010, 4990), epoch), "u.service"), at: ms(3010), about: ms(20)},
	} {
		t.Run(name, func(t *testing.T) {
			r := wire.BootReport{Version: wire.BootReportVersion, System: system, Units: c.units, Spans: []wire.BootSpan{c.span}, Clocks: c.clocks}
			got := Build(r, Cloud{})
			var at, about wire.Micros = -1, -1
			for _, s := range got.Spans {
				if s.ID == "x/y" {
					at, about = s.Start, s.Uncertainty
				}
			}
			if at != c.at || about > c.about || about < c.atLeast {
				t.Errorf("at %d ± %d, not %d ± %d", at, about, c.at, c.about)
			}
			if len(got.Clocks) == 0 || len(got.Clocks[0].Steps) != c.steps {
				t.Errorf("the clocks are %+v", got.Clocks)
			}
		})
	}
	lost := Build(wire.BootReport{Version: wire.BootReportVersion, System: system, Units: []wire.BootUnit{unit("u.service", 3000, 5000)}, Spans: []wire.BootSpan{wall(span("x", "y", 1, 2), epoch)}}, Cloud{Created: utc(0)})
	if len(lost.Missing) < 2 || len(lost.Clocks) != 0 || !lost.KernelStart.IsZero() {
		t.Errorf("clocks are tied by nothing: %+v", lost)
	}
	only := Build(wire.BootReport{Version: wire.BootReportVersion, Spans: []wire.BootSpan{wall(span("cloud-init", "init-local", 1000, 2000), epoch), wall(span("cloud-init", "init-network", 2500, 4000), epoch)}}, Cloud{})
	checkTiled(t, only)
	if only.Total() != 3*time.Second {
		t.Errorf("what is told of one clock only takes %s", only.Total())
	}
}
