package timeline

import (
	"cmp"

	"github.com/ortet/ortet/internal/wire"
)

// machine makes what comes before systemd's units: Azure, firmware, kernel, and
// systemd itself.
func (b *boot) machine() {
	s := b.report.System
	boots := -max(s.Firmware, s.Loader) // when the machine began to run
	if began := s.Began(); began > 0 {
		boots = began
	}
	b.allocation(b.firstBegan(boots))
	if s.Began() > 0 {
		if s.SoftReboot > 0 && s.Userspace > s.SoftReboot {
			b.add(item{source: "machine", id: idSoft, name: "soft reboot", kind: KindPlatform, start: s.SoftReboot, end: s.Userspace})
		}
	} else {
		if s.Firmware > s.Loader {
			b.add(item{source: "machine", id: idFirmware, name: "firmware", kind: KindPlatform, start: -s.Firmware, end: -s.Loader})
		}
		if s.Loader > 0 {
			b.add(item{source: "machine", id: idLoader, name: "boot loader", kind: KindPlatform, start: -s.Loader, end: 0})
		}
		if kernel := cmp.Or(s.InitRD, s.Userspace); kernel > 0 {
			b.add(item{source: "machine", id: idKernel, name: "kernel", kind: KindPlatform, start: 0, end: kernel})
		}
		if s.InitRD > 0 && s.Userspace > s.InitRD {
			b.add(item{source: "machine", id: idInitrd, name: "initrd", kind: KindPlatform, start: s.InitRD, end: s.Userspace})
		}
	}
	if s.Userspace == 0 && !s.Relative {
		b.note("the times of systemd's manager: what was before the first unit is one wait")
		return
	}
	// systemd itself, until it starts the first unit.
	first := maxTime
	for i := range b.report.Units {
		if t := began(&b.report.Units[i]); t >= s.Userspace && t > 0 {
			first = min(first, t)
		}
	}
	end := max(s.Userspace, s.UnitsLoadFinish, s.GeneratorsFinish)
	if first < maxTime {
		end = max(end, first)
	}
	if end > s.Userspace {
		it := item{source: "systemd", id: idManager, name: "systemd, until its first unit", kind: KindManager, start: s.Userspace, end: end}
		if s.UnitsLoadFinish == 0 {
			it.detail = "that systemd itself took this long is concluded from its first unit"
		}
		b.add(it)
	}
	for _, part := range []struct {
		id, name   string
		start, end wire.Micros
	}{
		{"systemd/security", "security policies", s.SecurityStart, s.SecurityFinish},
		{"systemd/generators", "generators", s.GeneratorsStart, s.GeneratorsFinish},
		{"systemd/load-units", "loading units", s.UnitsLoadStart, s.UnitsLoadFinish},
	} {
		if part.start > 0 && part.end >= part.start && part.start >= s.Userspace {
			b.add(item{source: "systemd", id: part.id, name: part.name, kind: KindManager, start: part.start, end: part.end})
		}
	}
}

// firstBegan is when the machine's first boot began. Boots before this one are one span, unless they began
// before Azure created the machine, as the image's, or it was created long before them.
func (b *boot) firstBegan(boots wire.Micros) wire.Micros {
	for _, s := range b.report.Sources {
		n, before, ok := wire.ParseEarlierBoots(s)
		if !ok || b.report.System.Relative || b.report.System.SoftReboot > 0 {
			continue
		}
		first := boots - before
		if c := b.cloud.Created; !c.IsZero() && b.axis.known {
			created := b.axis.raw(micros(c))
			if created > first+60*second {
				b.note("boots before this one: the node reports one of before Azure created the machine, and it is left out")
				return boots
			}
			if created < first-firstBoot {
				return boots // the journal has not its first boot
			}
			if created >= first { // nothing runs before it was created
				first, before = created+1, boots-created
			}
		}
		b.restart = Restart{Boot: n + 1, After: before}
		b.add(item{source: "machine", id: idEarlier, name: "earlier boots", kind: KindPlatform,
			start: first, end: boots, about: second, grain: second})
		return first
	}
	return boots
}

// firstBoot is how long before the kernel's start a machine may have been asked
// for: beyond that, this boot is not its first.
const firstBoot = 3600 * second

// allocation makes what Azure did before the machine ran.
func (b *boot) allocation(boots wire.Micros) {
	c := &b.cloud
	if c.Requested.IsZero() && c.Created.IsZero() {
		return
	}
	if !b.axis.known || b.report.System.Relative {
		b.note("when the machine was asked for cannot be told: no clock of the node ties Azure's to its boot")
		c.Requested, c.Created = noTime, noTime
		return
	}
	if b.axis.cloud.by == 0 && !c.Created.IsZero() {
		if at := b.axis.raw(micros(c.Created)); at > boots && at-boots < 5*second {
			b.axis.cloud.notAfter(at, boots) // nothing runs before it was created
		}
	}
	b.axis.cloud.settle()
	about := b.axis.about + b.axis.cloud.about
	at := func(t wire.Micros) wire.Micros { return b.axis.raw(t) - b.axis.cloud.by }
	if !c.Created.IsZero() && at(micros(c.Created)) < boots-firstBoot || !c.Requested.IsZero() && at(micros(c.Requested)) < boots-firstBoot {
		b.note("the machine was created more than an hour before: this was not its first boot, and the time before its kernel started is not told")
		c.Requested, c.Created = noTime, noTime
		return
	}
	var requested, created wire.Micros
	if !c.Created.IsZero() {
		created = at(micros(c.Created))
	}
	if !c.Requested.IsZero() {
		requested = at(micros(c.Requested))
		if !c.Created.IsZero() && requested > created {
			requested = created
		}
	}
	switch {
	case !c.Requested.IsZero() && !c.Created.IsZero() && created <= boots:
		b.add(item{source: "azure", id: idRequest, name: "request for the machine", kind: KindPlatform, start: requested, end: created, about: about})
		b.add(item{source: "azure", id: idCreate, name: "machine created, until it runs", kind: KindPlatform, start: created, end: boots, about: about})
	case !c.Requested.IsZero() && requested <= boots:
		b.add(item{source: "azure", id: idRequest, name: "request for the machine, until it runs", kind: KindPlatform, start: requested, end: boots, about: about})
	case !c.Created.IsZero() && created <= boots:
		b.add(item{source: "azure", id: idCreate, name: "machine created, until it runs", kind: KindPlatform, start: created, end: boots, about: about})
	case created-boots > maxBoot || requested-boots > maxBoot:
		b.note("Azure's times of the machine's creation are long after this boot, and left out")
		c.Requested, c.Created = noTime, noTime
	default: // it ran before it was asked for: preprovisioned
		from, to := requested, created
		if c.Requested.IsZero() {
			from = created
		} else if c.Created.IsZero() {
			to = requested
		}
		b.add(item{source: "azure", id: idRequest, name: "request for the machine", kind: KindPlatform, start: from, end: to, about: about})
	}
}

// maxBoot is beyond any boot.
const maxBoot = 7 * 24 * 3600 * second

// cluster makes the spans of the cluster.
func (b *boot) cluster() {
	c := &b.cloud
	if c.NodeCreated.IsZero() && c.NodeReady.IsZero() && c.FirstPod.IsZero() && c.Provisioned.IsZero() {
		return
	}
	if !b.axis.known || b.report.System.Relative {
		b.note("when the Node was created and Ready cannot be told on this axis: no clock of the node ties the cluster's to its boot")
		c.NodeCreated, c.NodeReady, c.FirstPod, c.Provisioned = noTime, noTime, noTime, noTime
		return
	}
	var started, registered wire.Micros
	for i := range b.items {
		switch it := &b.items[i]; {
		case it.unit != nil && isKubelet(it.name):
			started = it.start
		case it.source == sourceKubelet && isRegistration(it.name):
			registered = it.end
		}
	}
	s := &b.axis.cluster
	if !c.NodeCreated.IsZero() {
		at := b.axis.raw(micros(c.NodeCreated))
		if started > 0 {
			s.notBefore(at, second, started)
		}
		if registered > 0 {
			s.notAfter(at, registered)
		}
	}
	if !c.NodeReady.IsZero() && registered > 0 {
		s.notBefore(b.axis.raw(micros(c.NodeReady)), second, registered)
	}
	s.settle()
	about := b.axis.about + s.about + second // its times are cut to seconds
	floor, began := started, b.report.System.Began()
	for _, m := range []struct {
		id, name string
		at       *wire.Micros
	}{
		{idCreated, "Node created", timeOf(c.NodeCreated)},
		{idNode, "Node Ready", timeOf(c.NodeReady)},
		{idPod, "first pod running", timeOf(c.FirstPod)},
	} {
		if m.at == nil {
			continue
		}
		at := b.axis.raw(*m.at) - s.by
		if at < began || at-began > maxBoot {
			b.note("%s: the time that the cluster tells is of another boot, and left out", m.name)
			continue
		}
		if m.id == idCreated && registered > 0 && at > registered && at-registered <= about {
			at = registered
		}
		if at < floor && floor-at <= about+second {
			at = floor
		}
		floor = max(floor, at)
		if m.id == idCreated {
			floor = max(floor, registered)
		}
		b.add(item{source: "cluster", id: m.id, name: m.name, kind: KindCluster, start: at, end: at, about: about, grain: second})
	}
	if !c.Provisioned.IsZero() {
		if at := b.axis.raw(micros(c.Provisioned)) - b.axis.cloud.by; at-began > -maxBoot && at-began < maxBoot {
			b.add(item{source: "azure", id: idReady, name: "Azure called it provisioned", kind: KindMoment, start: at, end: at, about: b.axis.about + synchronised})
		}
	}
}
