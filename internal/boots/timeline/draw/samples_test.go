package draw

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// samples are boots as they may come. Each is in testdata as JSON too.
func samples(t testing.TB) map[string]timeline.Timeline {
	t.Helper()
	return map[string]timeline.Timeline{
		"aks":            aks(t),
		"k3s":            k3s(t),
		"preprovisioned": preprovisioned(t),
		"partial":        partial(t),
		"hostile":        hostile(t),
		"empty":          {Version: timeline.Version, Spans: []timeline.Span{}, Path: []timeline.Step{}},
	}
}

// sketch builds a Timeline from lines
//
//	ID | name | source | kind | from | to | after, after | more
//
// with times in milliseconds after the kernel's start, an ID that is indented
// being a part of the last one that is less so. More is "open", "±N",
// "result=…" or "detail=…".
func sketch(t testing.TB, text string) []timeline.Span {
	t.Helper()
	var spans []timeline.Span
	var above []struct {
		indent int
		id     string
	}
	ms := func(s string) wire.Micros {
		var f float64
		if _, err := fmt.Sscan(s, &f); err != nil {
			t.Fatalf("%q is no time: %v", s, err)
		}
		return wire.Micros(math.Round(f * 1000))
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, "\t"))
		f := strings.Split(line, "|")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if len(f) < 6 {
			t.Fatalf("a line of too few columns: %s", line)
		}
		s := timeline.Span{ID: f[0], Name: f[1], Source: f[2], Kind: timeline.Kind(f[3]), Start: ms(f[4]), End: ms(f[5])}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		if len(above) > 0 {
			s.Parent = above[len(above)-1].id
		}
		above = append(above, struct {
			indent int
			id     string
		}{indent, s.ID})
		if len(f) > 6 && f[6] != "" {
			for id := range strings.SplitSeq(f[6], ",") {
				s.After = append(s.After, strings.TrimSpace(id))
			}
		}
		for _, more := range f[min(7, len(f)):] {
			name, value, _ := strings.Cut(more, "=")
			switch {
			case more == "open":
				s.Open = true
			case strings.HasPrefix(more, "±"):
				s.Uncertainty = ms(strings.TrimPrefix(more, "±"))
			case name == "result":
				s.Result = value
			case name == "detail":
				s.Detail = value
			}
		}
		spans = append(spans, s)
	}
	return spans
}

// walk lays the path through spans, each given as "class ID", and puts the waits
// into the gaps, the causes of which are by what waited.
func walk(t testing.TB, origin, end wire.Micros, spans []timeline.Span, waits map[string]timeline.Wait, steps ...string) []timeline.Step {
	t.Helper()
	byID := map[string]timeline.Span{}
	for _, s := range spans {
		byID[s.ID] = s
	}
	var path []timeline.Step
	at, last := origin, ""
	for i, step := range steps {
		class, id, _ := strings.Cut(step, " ")
		s, ok := byID[id]
		if !ok {
			t.Fatalf("no span %s", id)
		}
		if s.Start > at {
			w := waits[id]
			w.Before, w.After = id, last
			path = append(path, timeline.Step{Name: "wait before " + s.Name, Start: at, End: s.Start, Class: timeline.Waiting, Wait: &w})
			at = s.Start
		}
		to := s.End
		if i+1 < len(steps) {
			_, next, _ := strings.Cut(steps[i+1], " ")
			to = min(to, max(at, byID[next].Start))
			if byID[next].Start >= s.End {
				to = s.End
			}
		}
		path = append(path, timeline.Step{Span: id, Name: s.Name, Start: at, End: to, Class: timeline.Class(class)})
		at, last = to, id
	}
	for i := range path {
		id := path[i].Span
		if w := path[i].Wait; w != nil {
			id = w.Before
		}
		path[i].Stage = stageOf(id)
	}
	if at != end {
		t.Fatalf("the path ends at %d, the boot at %d", at, end)
	}
	return path
}

func stageOf(id string) timeline.Stage {
	for _, of := range []struct {
		words string
		stage timeline.Stage
	}{{"cloud/create", timeline.StageRequest}, {"cloud/start", timeline.StagePlatform}, {"firmware loader", timeline.StageFirmware}, {"kernel", timeline.StageKernel}, {"initrd", timeline.StageInitrd},
		{"init-local reprovision", timeline.StageLocal}, {"modules-config cloud-config", timeline.StageConfig}, {"modules-final", timeline.StageFinal}, {"cloud-init", timeline.StageNetwork},
		{"waagent cse", timeline.StageAgent}, {"pull", timeline.StagePulls}, {"kubelet k3s-agent", timeline.StageKubelet}, {"node/", timeline.StageReady}} {
		for w := range strings.FieldsSeq(of.words) {
			if strings.Contains(id, w) {
				return of.stage
			}
		}
	}
	return timeline.StageUserspace
}

func aks(t testing.TB) timeline.Timeline {
	spans := sketch(t, `
cloud/create | machine created | azure | platform | -21300 | -3900 | | ±1000 | detail=from the request to the host's start, by the activity log and the instance's timeCreated
cloud/start | host starts the machine | azure | platform | -3900 | -2350 | cloud/create | ±1000
system/firmware | firmware | systemd | platform | -2350 | -940
system/loader | boot loader | systemd | platform | -940 | 0 | system/firmware
system/kernel | kernel | systemd | platform | 0 | 1842.113 | system/loader
system/initrd | initrd | systemd | platform | 1842.113 | 3120.5 | system/kernel
system/generators | generators | systemd | manager | 3168.2 | 3391.7 | system/initrd
system/units-load | loading units | systemd | manager | 3391.7 | 3522.04 | system/generators
unit/-.slice | -.slice | systemd | unit | 3530.1 | 3530.1
unit/system.slice | system.slice | systemd | unit | 3541.2 | 3541.2 | unit/-.slice
unit/systemd-journald.socket | systemd-journald.socket | systemd | unit | 3552.9 | 3553.4 | unit/system.slice
unit/systemd-journald.service | systemd-journald.service | systemd | unit | 3601.7 | 3822.5 | unit/systemd-journald.socket
unit/systemd-modules-load.service | systemd-modules-load.service | systemd | unit | 3604.8 | 3761.2 | unit/systemd-journald.socket
unit/systemd-remount-fs.service | systemd-remount-fs.service | systemd | unit | 3612.1 | 3660.8 | unit/systemd-journald.socket
unit/systemd-sysusers.service | systemd-sysusers.service | systemd | unit | 3672.2 | 3702.7 | unit/systemd-remount-fs.service
unit/systemd-tmpfiles-setup-dev.service | systemd-tmpfiles-setup-dev.service | systemd | unit | 3710.5 | 3741.9 | unit/systemd-sysusers.service
unit/systemd-udevd.service | systemd-udevd.service | systemd | unit | 3750.3 | 3980.6 | unit/systemd-tmpfiles-setup-dev.service
unit/systemd-udev-settle.service | systemd-udev-settle.service | systemd | unit | 3990.4 | 4611.8 | unit/systemd-udevd.service
unit/hv-kvp-daemon.service | hv-kvp-daemon.service | systemd | unit | 4105.6 | 4106.9 | unit/systemd-udevd.service
unit/local-fs.target | local-fs.target | systemd | unit | 4702.3 | 4702.3 | unit/systemd-remount-fs.service
unit/apparmor.service | apparmor.service | systemd | unit | 4720.9 | 5233.1 | unit/local-fs.target
unit/systemd-tmpfiles-setup.service | systemd-tmpfiles-setup.service | systemd | unit | 4711.2 | 4803.4 | unit/local-fs.target
unit/cloud-init-local.service | cloud-init-local.service | systemd | unit | 4850.2 | 8248.7 | unit/systemd-remount-fs.service
unit/network-pre.target | network-pre.target | systemd | unit | 8250.2 | 8250.2 | unit/cloud-init-local.service
unit/systemd-networkd.service | systemd-networkd.service | systemd | unit | 8261.1 | 8398.3 | unit/network-pre.target
unit/systemd-networkd-wait-online.service | systemd-networkd-wait-online.service | systemd | unit | 8401.4 | 10611.8 | unit/systemd-networkd.service
unit/systemd-resolved.service | systemd-resolved.service | systemd | unit | 8402.8 | 8731.4 | unit/systemd-networkd.service
unit/cloud-init.service | cloud-init.service | systemd | unit | 12897.7 | 17133.6 | unit/systemd-networkd-wait-online.service, unit/cloud-init-local.service
unit/network-online.target | network-online.target | systemd | unit | 17134.2 | 17134.2 | unit/systemd-networkd-wait-online.service, unit/cloud-init.service
unit/sysinit.target | sysinit.target | systemd | unit | 17136.9 | 17136.9 | unit/cloud-init.service, unit/apparmor.service
unit/snapd.socket | snapd.socket | systemd | unit | 17150.4 | 17153.1 | unit/sysinit.target
unit/basic.target | basic.target | systemd | unit | 17160.1 | 17160.1 | unit/sysinit.target
unit/dbus.service | dbus.service | systemd | unit | 17171.3 | 17184.2 | unit/basic.target
unit/containerd.service | containerd.service | systemd | unit | 17190.8 | 18102.5 | unit/basic.target, unit/network-online.target
unit/cloud-config.service | cloud-config.service | systemd | unit | 17195.9 | 19698.8 | unit/basic.target, unit/network-online.target
unit/ssh.service | ssh.service | systemd | unit | 17201.4 | 17260.7 | unit/basic.target
unit/chrony.service | chrony.service | systemd | unit | 17202.1 | 17331.4 | unit/basic.target
unit/walinuxagent.service | walinuxagent.service | systemd | unit | 17204.3 | 17205.9 | unit/cloud-init.service, unit/network-online.target
unit/multi-user.target | multi-user.target | systemd | unit | 19912.3 | 19912.3 | unit/cloud-config.service
unit/cloud-final.service | cloud-final.service | systemd | unit | 19914.9 | 31617.9 | unit/multi-user.target
unit/kubelet.service | kubelet.service | systemd | unit | 49633.2 | 49701.1 | unit/containerd.service
cloud-init/init-local | init-local | cloud-init | stage | 5210.4 | 8166.2 | | ±1
	cloud-init/init-local/search-Azure | searching Azure's data | cloud-init | part | 5390.1 | 8011.9 | | ±1
		cloud-init/init-local/dhcp | ephemeral DHCP | cloud-init | part | 5501.2 | 7120.8 | | ±1
		cloud-init/init-local/imds | metadata of the instance | cloud-init | part | 7122.1 | 7480.3 | | ±1
cloud-init/init | init | cloud-init | stage | 13240.6 | 17050.2 | cloud-init/init-local | ±1
	cloud-init/init/growpart | growpart | cloud-init | part | 13630.8 | 14702.9 | | ±1
	cloud-init/init/resizefs | resizefs | cloud-init | part | 14702.9 | 15533.1 | | ±1
	cloud-init/init/users-groups | users-groups | cloud-init | part | 15610.7 | 16220.3 | | ±1
	cloud-init/init/ssh | ssh | cloud-init | part | 16220.3 | 16930.9 | | ±1 | detail=generated 3 host keys
cloud-init/modules-config | modules-config | cloud-init | stage | 17502.2 | 19602.7 | cloud-init/init | ±1
	cloud-init/modules-config/apt-configure | apt-configure | cloud-init | part | 17611.1 | 19011.4 | | ±1
	cloud-init/modules-config/runcmd | runcmd | cloud-init | part | 19340.5 | 19411.9 | | ±1
cloud-init/modules-final | modules-final | cloud-init | stage | 20220.4 | 31530.8 | cloud-init/modules-config | ±1
	cloud-init/modules-final/package-update-upgrade-install | package-update-upgrade-install | cloud-init | part | 20310.2 | 30902.6 | | ±1 | detail=apt-get update; apt-get install nfs-common jq
	cloud-init/modules-final/scripts-user | scripts-user | cloud-init | part | 30944.1 | 31420.9 | | ±1
waagent/provision | provisioning | waagent | stage | 17640.2 | 18210.4 | | ±1
waagent/goal-state | goal state fetched | waagent | moment | 34120.6 | 34120.6 | waagent/provision | ±1
cse/download | download of the script | extension | stage | 34655.2 | 35890.7 | waagent/goal-state | ±1
cse/run | script | extension | stage | 35901.3 | 49702.4 | cse/download | ±1
	cse/installDeps | installDeps | extension | part | 36044.8 | 36120.4 | | ±1
	cse/wait-dpkg | waiting for dpkg's lock | extension | part | 36120.4 | 37802.9 | | ±1 | result=WARN
	cse/configureKubelet | configureKubelet | extension | part | 37811.3 | 44370.9 | | ±1
	cse/ensureContainerd | ensureContainerd | extension | part | 44371.5 | 45312.7 | | ±1
	cse/pull-pause | pull of mcr.microsoft.com/oss/kubernetes/pause:3.9 | containerd | pull | 45380.2 | 46419.6 | | ±1
	cse/ensureKubelet | ensureKubelet | extension | part | 46430.1 | 49702.4 | | ±1
kubelet/registration | registration | kubelet | stage | 50410.5 | 51288.4 | unit/kubelet.service | ±50
node/created | Node created | cluster | moment | 51288.4 | 51288.4 | kubelet/registration | ±500
containerd/pull-cni | pull of mcr.microsoft.com/containernetworking/azure-cns:v1.6.5 | containerd | pull | 52530.3 | 57219.9 | node/created | ±1
node/ready | Node Ready | cluster | moment | 58402.7 | 58402.7 | node/created, containerd/pull-cni | ±500
node/first-pod | first pod running | cluster | moment | 63210.9 | 63210.9 | node/ready | ±500`)
	micros := func(ms float64) wire.Micros { return wire.Micros(math.Round(ms * 1000)) }
	origin, end := micros(-21300), micros(58402.7)
	path := walk(t, origin, end, spans, map[string]timeline.Wait{
		"unit/systemd-journald.socket": {},
		"unit/cloud-init.service":      {Cause: "another unit's job", Evidence: "the job of cloud-init.service was queued at 8.249s and held until dpkg-configure-once.service ended at 12.897s, by the journal", Hidden: true},
		"waagent/goal-state":           {Cause: "the agent's next look at the goal state", Evidence: "waagent.log: the goal state was fetched at 28.1s and again at 34.1s, each 6 s; the extension's was created in between", Hidden: true},
		"cse/wait-dpkg":                {Cause: "a lock of dpkg", Evidence: "the script's own event"},
		"containerd/pull-cni":          {Cause: "the network plugin's DaemonSet", Evidence: "its pod was created 1.2s after the Node", Hidden: true},
		"node/ready":                   {Cause: "the kubelet's next status", Evidence: "the network was ready at 57.9s by the kubelet's log", Hidden: true},
	},
		"platform cloud/create", "platform cloud/start", "platform system/firmware", "platform system/loader", "platform system/kernel", "platform system/initrd",
		"platform system/generators", "platform system/units-load", "platform unit/systemd-journald.socket", "platform unit/systemd-remount-fs.service",
		"node cloud-init/init-local/dhcp", "node cloud-init/init-local/imds", "node unit/cloud-init-local.service", "platform unit/systemd-networkd.service",
		"node unit/systemd-networkd-wait-online.service", "base cloud-init/init/growpart", "base cloud-init/init/resizefs", "node cloud-init/init/users-groups", "node cloud-init/init/ssh",
		"base cloud-init/modules-config/apt-configure", "base cloud-init/modules-final/package-update-upgrade-install", "node cloud-init/modules-final/scripts-user",
		"platform waagent/goal-state", "node cse/download", "base cse/installDeps", "base cse/wait-dpkg", "node cse/configureKubelet", "base cse/ensureContainerd", "base cse/pull-pause", "node cse/ensureKubelet",
		"node kubelet/registration", "base containerd/pull-cni", "platform node/ready")
	for i := range path {
		if s := &path[i]; s.Wait != nil && s.Wait.Before == "cloud-init/init/growpart" {
			s.Wait.Before, s.Wait.Cause, s.Wait.Hidden = "unit/cloud-init.service", "another unit's job", true
			s.Wait.Evidence = "the job of cloud-init.service was queued at 8.249s and held until dpkg-configure-once.service ended at 12.897s, by the journal"
			s.Name = "wait before cloud-init.service"
		}
	}
	return timeline.Timeline{
		Version: timeline.Version, Node: "aks-nodepool1-12345678-vmss000003", Pool: "aks-nodepool1-12345678-vmss",
		Image: "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/SIG/providers/Microsoft.Compute/galleries/AKSUbuntu/images/2204gen2containerd/versions/202611.03.0",
		VMID:  "8f2b7c34-0c5d-4c9a-9d27-6d0f4c1b2a10", BootID: "b6e4a7d29f30412a8f57c2be6a90d1c4",
		KernelStart: time.Date(2026, 11, 21, 9, 12, 22, 41_000_000, time.UTC),
		Origin:      origin, OriginIs: "machine requested", End: end, EndIs: "node Ready", Complete: true,
		Spans: spans, Path: path,
		Advice: []timeline.Advice{
			{Class: timeline.Base, Spans: []string{"cloud-init/modules-final/package-update-upgrade-install"}, Saves: micros(10592.4), Uncertainty: micros(2),
				What:   "cloud-final installs packages at each boot, and the script extension begins only when it has ended: 10.592s of its 11.703s.",
				Do:     "Put nfs-common and jq into the image, and take packages and package_update out of the node's custom data (module package-update-upgrade-install of cloud-final.service).",
				Module: "package-update-upgrade-install", Unit: "cloud-final.service"},
			{Class: timeline.Base, Spans: []string{"containerd/pull-cni"}, Saves: micros(4689.6), Uncertainty: micros(500),
				What: "The network plugin's image was pulled before the node could be Ready: 4.690s.",
				Do:   "Pull mcr.microsoft.com/containernetworking/azure-cns:v1.6.5 into the image.", Unit: "containerd.service"},
			{Class: timeline.Waiting, Spans: []string{"unit/cloud-init.service"}, Saves: micros(2285.9),
				What: "cloud-init.service could have begun at 10.612s and did at 12.898s.",
				Do:   "Find what holds its job: run dpkg-configure-once.service in the image, or order it after cloud-init.service.", Unit: "dpkg-configure-once.service"},
		},
		Clocks: []timeline.Clock{
			{Kind: wire.ClockMonotonic, Offset: 0, Uncertainty: 0, How: "the axis itself"},
			{Kind: wire.ClockWall, Offset: 1795252342041000, Uncertainty: 1000, How: "by 412 readings of both clocks in the journal", Steps: []timeline.ClockStep{{At: micros(17310), By: 412_000}}},
			{Kind: wire.ClockCluster, Offset: 1795252342041000, Uncertainty: 500_000, How: "taken for synchronised; the API server tells whole seconds"},
		},
		Missing: []string{"activity log: no permission to read it, so the request is taken for the instance's timeCreated"},
	}
}

func k3s(t testing.TB) timeline.Timeline {
	spans := sketch(t, `
system/kernel | kernel | systemd | platform | 0 | 1120.4
system/userspace | loading units | systemd | manager | 1120.4 | 1390.2 | system/kernel
unit/systemd-udevd.service | systemd-udevd.service | systemd | unit | 1420.2 | 1610.5 | system/userspace
unit/cloud-init-local.service | cloud-init-local.service | systemd | unit | 1702.6 | 3811.4 | unit/systemd-udevd.service
unit/systemd-networkd.service | systemd-networkd.service | systemd | unit | 3815.9 | 3911.2 | unit/cloud-init-local.service
unit/systemd-networkd-wait-online.service | systemd-networkd-wait-online.service | systemd | unit | 3912.4 | 5322.5 | unit/systemd-networkd.service
unit/cloud-init-network.service | cloud-init-network.service | systemd | unit | 5324.7 | 6912.3 | unit/systemd-networkd-wait-online.service
unit/network-online.target | network-online.target | systemd | unit | 6913.1 | 6913.1 | unit/cloud-init-network.service
unit/k3s-agent.service | k3s-agent.service | systemd | unit | 6921.9 | 13207.8 | unit/network-online.target
containerd/pull-pause | pull of rancher/mirrored-pause:3.6 | containerd | pull | 14020.4 | 14911.8 | unit/k3s-agent.service
node/created | Node created | cluster | moment | 12900 | 12900 | | ±500
node/ready | Node Ready | cluster | moment | 15300 | 15300 | unit/k3s-agent.service | ±500`)
	return timeline.Timeline{
		Version: timeline.Version, Node: "k3s-agent-000007", Pool: "k3s-agent", Image: "Canonical:ubuntu-24_04-lts:server:24.04.202611010",
		VMID: "0d9c6e1a-0000-4a77-8a5e-2f6b0a1c9e42", BootID: "1f0e2d3c4b5a69788796a5b4c3d2e1f0",
		KernelStart: time.Date(2026, 11, 20, 22, 1, 9, 0, time.UTC),
		Origin:      0, OriginIs: "kernel started", End: 15_300_000, EndIs: "node Ready", Complete: true, Spans: spans,
		Path: walk(t, 0, 15_300_000, spans, map[string]timeline.Wait{
			"containerd/pull-pause": {},
			"node/ready":            {Cause: "the kubelet's next status", Evidence: "the node's status is sent every 10 s", Hidden: true}},
			"platform system/kernel", "platform system/userspace", "platform unit/systemd-udevd.service", "node unit/cloud-init-local.service", "node unit/systemd-networkd.service",
			"node unit/systemd-networkd-wait-online.service", "node unit/cloud-init-network.service", "node unit/k3s-agent.service", "base containerd/pull-pause", "platform node/ready"),
		Clocks:  []timeline.Clock{{Kind: wire.ClockCluster, Uncertainty: 500_000, How: "the API server tells whole seconds"}},
		Missing: []string{"waagent: /var/log/waagent.log is not there"},
	}
}

// preprovisioned is the second chain of a document on such machines: the pool
// had it for 16 min 40 s.
func preprovisioned(t testing.TB) timeline.Timeline {
	spans := sketch(t, `
unit/hv-kvp-daemon.service | hv-kvp-daemon.service | systemd | unit | 2500 | 2500
unit/cloud-init-local.service | cloud-init-local.service | systemd | unit | 2504 | 1002914 | unit/hv-kvp-daemon.service
cloud-init/wait-for-media | waiting for media | cloud-init | part | 3600 | 1002200 | | detail=azure-ds/wait-for-media-disconnect-connect
cloud-init/reprovision | reprovisioning data from IMDS | cloud-init | part | 1002200 | 1002890
unit/network-pre.target | network-pre.target | systemd | unit | 1002920 | 1002920 | unit/cloud-init-local.service
unit/systemd-networkd.service | systemd-networkd.service | systemd | unit | 1002924 | 1003293 | unit/network-pre.target
unit/systemd-networkd-wait-online.service | systemd-networkd-wait-online.service | systemd | unit | 1003303 | 1004336 | unit/systemd-networkd.service
unit/cloud-init.service | cloud-init.service | systemd | unit | 1004344 | 1011420 | unit/systemd-networkd-wait-online.service
unit/sysinit.target | sysinit.target | systemd | unit | 1011600 | 1011600 | unit/cloud-init.service
unit/lxd.socket | lxd.socket | systemd | unit | 1011667 | 1011673 | unit/sysinit.target
unit/sockets.target | sockets.target | systemd | unit | 1011681 | 1011681 | unit/lxd.socket
unit/basic.target | basic.target | systemd | unit | 1011683 | 1011683 | unit/sockets.target
unit/cloud-config.service | cloud-config.service | systemd | unit | 1012066 | 1015332 | unit/basic.target
unit/ephemeral-disk-warning.service | ephemeral-disk-warning.service | systemd | unit | 1015339 | 1015417 | unit/cloud-config.service
unit/multi-user.target | multi-user.target | systemd | unit | 1015429 | 1015429 | unit/ephemeral-disk-warning.service
unit/graphical.target | graphical.target | systemd | unit | 1015434 | 1015434 | unit/multi-user.target`)
	origin, end := wire.Micros(1_002_200_000), wire.Micros(1_015_434_000)
	return timeline.Timeline{
		Version: timeline.Version, Node: "pool-preprovisioned-1",
		Origin: origin, OriginIs: "machine handed over", Idle: 1_000_410_000, End: end, EndIs: "graphical.target", Complete: true, Spans: spans,
		Path: walk(t, origin, end, spans, nil, "node cloud-init/reprovision", "node unit/systemd-networkd.service", "node unit/systemd-networkd-wait-online.service",
			"node unit/cloud-init.service", "platform unit/lxd.socket", "base unit/cloud-config.service", "node unit/ephemeral-disk-warning.service", "platform unit/graphical.target"),
		Missing: []string{"cluster: no Node of that name was asked for"},
	}
}

// partial is a boot that hung.
func partial(t testing.TB) timeline.Timeline {
	spans := sketch(t, `
system/kernel | kernel | journal | platform | 0 | 1950
unit/cloud-init-local.service | cloud-init-local.service | journal | unit | 2900 | 6100 | | result=exit-code
unit/cloud-init.service | cloud-init.service | journal | unit | 7200 | 61200 | unit/cloud-init-local.service | open`)
	return timeline.Timeline{
		Version: timeline.Version, VMID: "2c1f9f3e-77aa-4b0e-9d8e-111111111111", Origin: 0, OriginIs: "kernel started", End: 61_200_000, EndIs: "cloud-init.service", Spans: spans,
		Path: walk(t, 0, 61_200_000, spans, nil, "platform system/kernel", "node unit/cloud-init-local.service", "node unit/cloud-init.service"),
		Missing: []string{
			"systemd: its bus could not be reached, so units are known by the journal only, and their order not at all",
			"cloud-init: /var/log/cloud-init.log is cut off at its end",
			"kubelet: it was not running",
		},
		Clocks: []timeline.Clock{{Kind: wire.ClockWall, Uncertainty: 90_000_000, How: "by two readings between which the clock was set", Steps: []timeline.ClockStep{{At: 7_300_000, By: -3_600_000_000}}}},
	}
}

// hostile has in each word what would do harm if it were not taken for a word.
func hostile(t testing.TB) timeline.Timeline {
	t.Helper()
	const word = "\x1b]0;owned\x07\x1b[2J\u009b31m</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${x}{{.}}]]>--><!-- \u202egnp.exe \u0000 \xff\xfe &lt; \u2028 a\u0301 😀 漢字"
	long := strings.Repeat("W", 5000)
	spans := []timeline.Span{
		{ID: "a", Name: word, Source: word, Kind: timeline.Kind(word), Parent: "b", Start: math.MinInt64, End: math.MaxInt64, After: []string{"a", "b", word, ""}, Result: word, Detail: word},
		{ID: "b", Name: long, Source: word, Kind: timeline.KindUnit, Parent: "a", Start: 5_000_000, End: 1_000_000, Uncertainty: math.MaxInt64, Detail: long, Open: true},
		{ID: "a", Name: "again", Source: "", Kind: timeline.KindMoment, Parent: "a", Start: 2_000_000, End: 2_000_000},
		{ID: "", Name: "", Source: "", Start: 0, End: 3_000_000},
		{ID: "__proto__", Name: "constructor", Source: "__proto__", Kind: timeline.KindStage, Start: 1, End: 2_500_000, After: []string{"toString"}},
	}
	return timeline.Timeline{
		Version: timeline.Version, Node: word, Pool: word, Image: long, VMID: word, BootID: word, KernelStart: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Origin: 0, OriginIs: word, Idle: math.MaxInt64, End: 4_000_000, EndIs: word, Spans: spans,
		Path: []timeline.Step{
			{Span: "a", Name: word, Start: 0, End: 1_500_000, Class: timeline.Class(word)},
			{Span: "b", Name: long, Start: 1_500_000, End: math.MaxInt64, Class: timeline.Base, Stage: timeline.Stage(word)},
			{Span: "b", Name: word, Start: 2_000_000, End: 3_000_000, Class: timeline.Waiting, Stage: timeline.StageFinal, Wait: &timeline.Wait{Before: "a"}},
			{Name: word, Start: 3_000_000, End: 2_000_000, Class: timeline.Waiting, Wait: &timeline.Wait{Before: word, After: "a", Cause: word, Evidence: long, Hidden: true}},
			{Start: math.MinInt64, End: 4_000_000, Wait: &timeline.Wait{Before: "b"}},
		},
		Advice:  []timeline.Advice{{Class: timeline.Class(word), Spans: []string{word, "a"}, Saves: math.MinInt64, Uncertainty: math.MinInt64, What: word, Do: long, Unit: word, Module: word}},
		Clocks:  []timeline.Clock{{Kind: wire.ClockKind(word), Offset: math.MinInt64, Uncertainty: math.MaxInt64, How: word, Steps: []timeline.ClockStep{{At: math.MaxInt64, By: math.MinInt64}}}},
		Missing: []string{word, long, ""},
	}
}

// large is a machine of so many units.
func large(units int) timeline.Timeline {
	t := timeline.Timeline{Version: timeline.Version, Node: "large", OriginIs: "kernel started", EndIs: "startup finished", Complete: true}
	at := wire.Micros(0)
	for i := range units {
		s := timeline.Span{ID: fmt.Sprintf("unit/u%d.service", i), Name: fmt.Sprintf("u%d.service", i), Source: []string{"systemd", "cloud-init", "extension"}[i%7%3], Kind: timeline.KindUnit,
			Start: at, End: at + wire.Micros(i*7919%900_000)}
		if i > 0 {
			s.After = []string{fmt.Sprintf("unit/u%d.service", i/2)}
		}
		t.Spans = append(t.Spans, s)
		t.End = max(t.End, s.End)
		at += 50_000
		if i%10 == 0 {
			from := wire.Micros(0)
			if n := len(t.Path); n > 0 {
				from = t.Path[n-1].End
			}
			t.Path = append(t.Path, timeline.Step{Span: s.ID, Name: s.Name, Start: from, End: max(from, s.End), Class: classOrder[i/10%3], Stage: timeline.AllStages()[min(i/10%40/3, 14)]})
		}
	}
	t.Path[len(t.Path)-1].End = t.End
	return t
}
