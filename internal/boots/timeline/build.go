package timeline

import (
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Build makes the timeline of a boot, always; what is unknown is in Missing. The report is
// not changed; the timeline shares its strings. It takes time that is nearly linear in the
// units, their edges and the spans.
func Build(r wire.BootReport, c Cloud) Timeline {
	b := analyse(&r, c)
	t := b.timeline()
	g := b.newGraph(b.endItem)
	t.Path = b.path(g)
	t.Advice = b.advise(g, t.Path)
	return t
}

// analyse does all that the path and the advice need.
func analyse(r *wire.BootReport, c Cloud) *boot {
	b := &boot{report: r, cloud: c, axis: newAxis(r)}
	b.collect()
	b.nest()
	b.findEnd()
	b.order()
	b.findOrigin()
	b.online = b.network()
	return b
}

// findEnd sets what the boot ended with.
func (b *boot) findEnd() {
	if i, ok := b.byID[idNode]; ok {
		b.ends(i, "node Ready", true)
		return
	}
	if i, ok := b.byID[idByKubelet]; ok && b.items[i].parent < 0 {
		b.ends(i, "node Ready", true) // by its own account
		return
	}
	clustered := !b.cloud.NodeCreated.IsZero() || b.cloud.Pool != ""
	if clustered {
		b.note("the Node's getting Ready: the boot is told up to what came last before it")
	}
	if i, ok := b.byID[idCreated]; ok {
		b.ends(i, "node created", false)
		return
	}
	for i := range b.items {
		if it := &b.items[i]; it.source == sourceKubelet && isRegistration(it.name) && !it.open {
			b.ends(int32(i), "kubelet registered", !clustered)
			return
		}
	}
	for _, name := range kubelets {
		if i, ok := b.byUnit[name]; ok && !b.items[i].open && b.items[i].unit.Activated > 0 { // else it failed
			b.ends(i, "kubelet started", !clustered)
			return
		}
	}
	if b.report.System.Finish > 0 {
		b.finish()
		return
	}
	if i := b.chainRoot(); i >= 0 {
		b.ends(i, b.items[i].name, true)
		return
	}
	b.stuck()
}

func (b *boot) ends(i int32, is string, complete bool) {
	_, b.end = b.span(i)
	b.endItem, b.endIs, b.complete = i, is, complete
}

// finish makes the moment at which systemd had done all of the start's jobs; it
// comes after all that had been started by then.
func (b *boot) finish() {
	at := b.report.System.Finish
	b.items = append(b.items, item{source: "systemd", id: idFinish, name: "startup finished", kind: KindMoment, start: at, end: at, parent: -1, starter: -1})
	b.children = append(b.children, nil)
	i := int32(len(b.items) - 1)
	b.byID[idFinish] = i
	b.ends(i, "startup finished", true)
}

// chainRoot is the unit that printed chains lead to: of several the last; -1: the
// report is none of chains.
func (b *boot) chainRoot() int32 {
	best := int32(-1)
	later := func(i int32) {
		if best < 0 || b.items[i].end > b.items[best].end {
			best = i
		}
	}
	for i := range b.report.Spans {
		if s := &b.report.Spans[i]; s.Source == "systemd" && s.Name == chainRoot {
			if u, ok := b.byUnit[s.Unit]; ok {
				later(u)
			}
		}
	}
	if best >= 0 || !b.report.System.Relative {
		return best
	}
	below := map[string]bool{}
	for i := range b.report.Units {
		for _, name := range b.report.Units[i].After {
			below[name] = true
		}
	}
	for i := range b.items {
		if it := &b.items[i]; it.unit != nil && !below[it.name] && !it.open {
			later(int32(i))
		}
	}
	return best
}

// stuck ends a boot that has no end with what had begun first and never ended,
// else with the last that is known.
func (b *boot) stuck() {
	best := int32(-1)
	for i := range b.items {
		if it := &b.items[i]; it.open && it.parent < 0 && best < 0 {
			best = int32(i)
		}
	}
	if best >= 0 {
		b.note("an end: the boot had not finished, and %s, which had begun first of what was not done, has not ended", b.items[best].name)
		b.ends(best, b.items[best].name, false)
		return
	}
	for i := range b.items {
		if it := &b.items[i]; it.id != idPod && it.id != idReady && (best < 0 || it.end >= b.items[best].end) {
			best = int32(i)
		}
	}
	if best < 0 {
		b.note("everything: nothing in the sources tells of this boot")
		b.items = append(b.items, item{source: "machine", id: idNothing, name: "nothing is known", kind: KindMoment, parent: -1, starter: -1})
		b.children = append(b.children, nil)
		best = 0
	} else {
		b.note("an end: nothing tells that the boot finished, and the last thing known is taken for it")
	}
	b.ends(best, b.items[best].name, false)
}

// pooled is how long cloud-init's first stage takes at least on a machine that
// waits in a pool: nothing that it does otherwise takes minutes.
const pooled = 120 * second

// findOrigin sets where the boot begins.
func (b *boot) findOrigin() {
	b.origin, b.originIs = 0, "kernel started"
	s := &b.report.System
	switch {
	case s.Relative:
		b.originIs = "userspace started"
		b.note("the kernel's start: times count from the start of userspace, and what was before it is not told")
	case s.SoftReboot > 0:
		b.origin, b.originIs = s.SoftReboot, "soft reboot"
	case s.Container:
		b.origin, b.originIs = s.Userspace, "userspace started"
	case b.axis.guessed:
		b.originIs = "the first thing told"
		b.note("the kernel's start: nothing tells of it, and times count from the first thing that is told")
	case s.Firmware > 0 || s.Loader > 0:
		b.origin, b.originIs = -max(s.Firmware, s.Loader), "machine started"
	}
	if i, ok := b.byID[idEarlier]; ok {
		b.origin, b.originIs = b.items[i].start, "first boot started"
	}
	if s.SoftReboot == 0 {
		if i, ok := b.byID[idRequest]; ok && b.items[i].start <= b.origin && !b.cloud.Requested.IsZero() {
			b.origin, b.originIs = b.items[i].start, "machine requested"
		} else if i, ok := b.byID[idCreate]; ok && b.items[i].start <= b.origin {
			b.origin, b.originIs = b.items[i].start, "machine created"
		}
	}
	b.handedOver()
	if b.origin > b.end {
		b.origin, b.originIs, b.idle, b.complete = b.end, b.endIs, 0, false
		b.note("the time before the end: it is told to be before the origin")
	}
}

// handedOver moves the origin of a preprovisioned machine to where it was handed
// over.
func (b *boot) handedOver() {
	over, from := maxTime, maxTime
	kind, reported, told := "", maxTime, false
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.span == nil || it.source != sourceCloudInit:
		case it.name == "pps-type":
			kind = it.detail
		case it.name == "reported-ready":
			reported = it.start
		case isPoolWait(it.name):
			from = min(from, it.start)
			if isHandOver(it.name) && !it.open {
				over = min(over, it.end)
			}
		case isOrIn(it.name, "azure-ds"), strings.HasPrefix(it.name, "init-local/"):
			told = true
		}
	}
	inferred := over == maxTime
	if inferred {
		if strings.EqualFold(kind, "None") {
			return // cloud-init found that it was not
		}
		if told && kind == "" && reported == maxTime {
			return // the cause is in the report, as a network that does not answer, and it is no pool
		}
		i, ok := b.byUnit["cloud-init-local.service"]
		if !ok {
			if i, ok = b.byID["cloud-init/init-local"]; !ok {
				return
			}
		}
		it := &b.items[i]
		if it.open || it.end-it.start < pooled || b.originIs == "machine requested" || b.originIs == "machine created" {
			return
		}
		from, over = it.start, it.end
		if reported > from && reported < over {
			from = reported
		}
	}
	if over <= b.origin || over-from <= 0 {
		return
	}
	if inferred {
		b.note("when the machine was handed over: cloud-init's first stage took %s, which it does on a preprovisioned machine that waits in Azure's pool, so its end is taken for that (concluded; nothing tells of it)", b.duration(over-from))
	}
	if i, ok := b.byID[idRequest]; ok && !b.cloud.Requested.IsZero() && b.items[i].start > b.origin && b.items[i].start < over {
		b.note("the time from the request to the hand-over, %s: the machine counts from its hand-over", b.duration(over-b.items[i].start))
	}
	b.origin, b.originIs, b.idle = over, "machine handed over", over-from
	b.restart = Restart{} // earlier boots were in the pool
	b.items = append(b.items, item{source: "azure", id: idIdle, name: "preprovisioned: waiting in the pool", kind: KindPlatform, start: from, end: over,
		parent: -1, starter: -1, about: second / 1000})
	b.children = append(b.children, nil)
	b.byID[idIdle] = int32(len(b.items) - 1)
	b.afterOf = append(b.afterOf, b.afterOf[len(b.afterOf)-1])
}

func (b *boot) duration(m wire.Micros) string {
	return Duration(m.Duration())
}

// timeline is what is known without the path.
func (b *boot) timeline() Timeline {
	r := b.report
	t := Timeline{Version: Version, Node: r.Node, Pool: b.cloud.Pool, Image: r.Image, VMID: r.VMID, BootID: r.BootID,
		Origin: b.origin, OriginIs: b.originIs, Idle: b.idle, End: b.end, EndIs: b.endIs, Complete: b.complete,
		Pulls: b.cloud.Pulls, UserData: b.userData(), Restart: b.restart}
	if t.Image == "" {
		t.Image = b.cloud.Image
	}
	if t.VMID == "" {
		t.VMID = b.cloud.VMID
	}
	if !r.System.Relative {
		t.KernelStart = b.axis.start()
	}
	t.Spans = b.spans()
	t.Clocks = b.axis.clocks(!b.cloud.Requested.IsZero() || !b.cloud.Created.IsZero(), !b.cloud.NodeCreated.IsZero() || !b.cloud.NodeReady.IsZero())
	for _, s := range r.Sources {
		if bytes, at, ok := wire.ParseDiskRead(s); ok {
			t.DiskRead = DiskRead{Disk: s.Path, Bytes: bytes, At: at}
		}
		if s.IsFact() {
			continue // they say nothing of times
		}
		switch s.State {
		case wire.SourceMissing, wire.SourcePartial, wire.SourceOther:
			text := s.Name
			if s.Path != "" {
				text += " (" + s.Path + ")"
			}
			text += ": " + map[wire.SourceState]string{wire.SourceMissing: "not read", wire.SourcePartial: "read in part", wire.SourceOther: "is of another boot"}[s.State]
			if s.Detail != "" {
				text += ": " + s.Detail
			}
			b.missing = append(b.missing, text)
		}
	}
	t.Missing, t.Tuned = b.missing, b.tunedBy()
	return t
}

// userData is how long modules of cloud-init ran that do what user data says.
func (b *boot) userData() (took wire.Micros) {
	until := -maxTime
	for i := range b.items { // by start
		it := &b.items[i]
		if it.source != sourceCloudInit || it.kind != KindPart || it.end <= until {
			continue
		}
		id := plainID(it.id)
		for _, module := range [...]string{"bootcmd", "runcmd", "write-files", "package-update-upgrade-install", "scripts-user"} {
			if strings.Contains(id, module) {
				took, until = took+it.end-max(it.start, until), it.end
				break
			}
		}
	}
	return took
}

// spans are the items as others see them, by start.
func (b *boot) spans() []Span {
	out := make([]Span, len(b.items))
	edges := make([]string, 0, len(b.after))
	sorted := true
	for i := range b.items {
		it := &b.items[i]
		s := Span{ID: it.id, Name: it.name, Source: it.source, Kind: it.kind, Start: it.start, End: it.end, Uncertainty: it.about, Open: it.open,
			Result: it.result, Detail: it.detail}
		if it.parent >= 0 {
			s.Parent = b.items[it.parent].id
		}
		from := len(edges)
		for _, d := range b.of(int32(i)) {
			edges = append(edges, b.items[d].id)
		}
		if len(edges) > from {
			s.After = edges[from:len(edges):len(edges)]
		}
		out[i] = s
		sorted = sorted && (i == 0 || out[i-1].Start <= s.Start)
	}
	if !sorted {
		slices.SortStableFunc(out, func(x, y Span) int { return int(max(-1, min(1, x.Start-y.Start))) })
	}
	return out
}
