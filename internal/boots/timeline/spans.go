package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// item is a span while its boot is analysed. Items refer to each other by their
// place in boot.items, -1 for none.
type item struct {
	source, id, name string
	kind             Kind
	start, end       wire.Micros
	about, grain     wire.Micros
	open             bool
	unit             *wire.BootUnit
	span             *wire.BootSpan
	parent           int32
	result, detail   string
	rule             *Rule
	starter          int32 // what ran, and counts as what started it
	aside            bool  // it was reported, without effect
}

// boot is one boot while it is analysed.
type boot struct {
	report *wire.BootReport
	cloud  Cloud
	axis   *axis
	items  []item // by start
	byUnit map[string]int32
	byID   map[string]int32 // of all but units

	after    []int32 // of all items, one after the other
	afterOf  []int32 // where an item's begin; one more than items
	children [][]int32
	base     []int32 // the machine's and systemd's own, one after the other
	missing  []string
	online   wire.Micros // when the network was there

	origin   wire.Micros
	originIs string
	idle     wire.Micros
	end      wire.Micros
	endIs    string
	endItem  int32
	complete bool
	restart  Restart
}

// Names of the spans that are made here, without a source.
const (
	idRequest  = "azure/request"
	idCreate   = "azure/create"
	idReady    = "azure/provisioned"
	idIdle     = "azure/idle"
	idNothing  = "machine/nothing"
	idEarlier  = "machine/earlier-boots"
	idFirmware = "machine/firmware"
	idLoader   = "machine/loader"
	idKernel   = "machine/kernel"
	idInitrd   = "machine/initrd"
	idSoft     = "machine/soft-reboot"
	idManager  = "systemd/start"
	idFinish   = "systemd/finish"
	idCreated  = "cluster/node-created"
	idNode     = "cluster/node-ready"
	idPod      = "cluster/first-pod"
	// Ready by the kubelet's own account.
	idByKubelet = "kubelet/ready"
)

const unitPrefix = "unit/"

// chainRoot is the span by which package source marks the unit that a critical
// chain leads to.
const chainRoot = "chain-root"

// stageUnits are the units that cloud-init's stages and others' spans run in, where the
// span does not name one; the first that exists counts.
var stageUnits = []struct {
	source, name string
	units        []string
}{
	{sourceCloudInit, "init-local", []string{"cloud-init-local.service"}},
	{sourceCloudInit, "init-network", []string{"cloud-init-network.service", "cloud-init.service"}},
	{sourceCloudInit, "init", []string{"cloud-init-network.service", "cloud-init.service"}},
	{sourceCloudInit, "modules-config", []string{"cloud-config.service"}},
	{sourceCloudInit, "modules-final", []string{"cloud-final.service"}},
	{sourceAgent, "", []string{"walinuxagent.service", "waagent.service"}},
	{sourceKubelet, "", kubelets},
	{"containerd", "", []string{"containerd.service"}},
}

// Sources of spans, as package source names them, that mean something here.
const (
	sourceCloudInit = "cloud-init"
	sourceAgent     = "waagent"
	sourceCSE       = "cse"
	sourceAKS       = "aks"
	sourceProvision = "aks-provision"
	sourceKubelet   = "kubelet"
	sourceAPT       = "apt"
)

// enclosing returns within which other sources' spans a source's are: the first that
// exists.
func enclosing(source string) []string {
	switch source {
	case sourceAKS:
		return []string{sourceCSE, sourceProvision, sourceAgent}
	case sourceProvision:
		return []string{sourceCSE, sourceAgent}
	case sourceCSE:
		return []string{sourceAgent}
	}
	return nil
}

// unitOf names the unit that a span ran in; "" where that is not known.
func unitOf(s *wire.BootSpan, there func(string) bool) string {
	if s.Unit != "" {
		return s.Unit
	}
	for _, row := range stageUnits {
		if row.source != s.Source || row.name != "" && row.name != s.Name {
			continue
		}
		for _, unit := range row.units {
			if there(unit) {
				return unit
			}
		}
	}
	return ""
}

// done is when a unit had started, as those that are ordered after it see it.
func done(u *wire.BootUnit) (wire.Micros, bool) {
	begun := began(u)
	switch {
	case u.Activated != 0 && u.Activated >= begun:
		return u.Activated, true
	case u.Deactivated != 0 && u.Deactivated >= begun:
		return u.Deactivated, true
	}
	return 0, false
}

// began is when a unit began to start. What is active from the beginning has no
// activating of its own in what some tools print.
func began(u *wire.BootUnit) wire.Micros {
	if u.Activating == 0 {
		return u.Activated
	}
	return u.Activating
}

func (b *boot) note(format string, args ...any) {
	b.missing = append(b.missing, fmt.Sprintf(format, args...))
}

// collect makes the items.
func (b *boot) collect() {
	r := b.report
	b.items = make([]item, 0, len(r.Units)+len(r.Spans)+16)
	b.byUnit, b.byID = make(map[string]int32, len(r.Units)), make(map[string]int32, 32+len(r.Spans))
	last := b.lastKnown()
	b.machine()
	before := 0
	for i := range r.Units {
		u := &r.Units[i]
		start := began(u)
		if start == 0 {
			continue
		}
		end, ended := done(u)
		if from := r.System.Began(); start < from || ended && end < from {
			before++
			continue
		}
		if !ended {
			end = max(last, start)
		}
		b.byUnit[u.Name] = int32(len(b.items))
		it := item{source: "systemd", id: unitPrefix + u.Name, name: u.Name, kind: KindUnit, start: start, end: end, about: u.Grain, grain: u.Grain,
			open: !ended, unit: u, parent: -1, starter: -1, result: u.Result}
		if u.Restarts > 0 {
			it.detail = "restarted " + strconv.Itoa(u.Restarts) + " times: only its last start is known"
		}
		b.items = append(b.items, it)
	}
	if before > 0 {
		b.note("%d units that went on through the last soft reboot started before it: when is not this start's", before)
	}
	b.told()
	b.cluster()
	b.sort()
}

// lastKnown is the last known moment of the node itself.
func (b *boot) lastKnown() wire.Micros {
	last := max(b.report.System.Finish, b.report.System.Userspace, b.report.System.UnitsLoadFinish)
	for i := range b.report.Units {
		u := &b.report.Units[i]
		last = max(last, u.Activating, u.Activated)
	}
	return last
}

func (b *boot) add(it item) {
	it.parent, it.starter = -1, -1
	b.items = append(b.items, it)
}

// told makes the spans of the sources.
func (b *boot) told() {
	lost := map[string]int{}
	for i := range b.report.Spans {
		s := &b.report.Spans[i]
		if s.Source == "systemd" && s.Name == chainRoot {
			continue // it marks a unit
		}
		it := item{source: s.Source, id: s.Source + "/" + s.Name, name: s.Name, kind: kindOf(s), about: s.Grain, grain: s.Grain,
			open: s.Open, span: s, result: s.Result, detail: s.Detail}
		switch s.Clock {
		case wire.ClockMonotonic:
			it.start, it.end = s.Start, s.End
		case wire.ClockWall:
			low, high := -maxTime, maxTime
			if u, ok := b.byUnit[b.unitOf(s)]; ok {
				low = b.items[u].start - second/100
				if b.items[u].end > b.items[u].start {
					high = b.items[u].end + second/100
				}
			}
			start, about, ok := b.axis.wall(s.Start, low, high)
			end, about2, _ := b.axis.wall(s.End, max(low, start), high)
			if !ok {
				lost[s.Source]++
				continue
			}
			it.start, it.end, it.about = start, max(start, end), max(about, about2, s.Grain)
		case wire.ClockCloud, wire.ClockCluster:
			if !b.axis.known {
				lost[s.Source]++
				continue
			}
			it.start, it.end = b.axis.raw(s.Start), b.axis.raw(s.End)
			it.about = max(b.axis.about+synchronised, s.Grain)
		default:
			lost[s.Source]++
			continue
		}
		if it.end < -maxBoot || it.start > maxTime/2 {
			lost[s.Source]++
			continue
		}
		b.add(it)
	}
	for _, source := range sortedKeys(lost) {
		b.note("%d spans of %s: no clock ties them to this boot", lost[source], source)
	}
}

func kindOf(s *wire.BootSpan) Kind {
	switch {
	case strings.HasPrefix(s.Name, "pull") || s.Source == "containerd" && strings.Contains(s.Name, "pull"):
		return KindPull
	case s.Parent != "" || s.Source == sourceCloudInit && strings.Contains(s.Name, "/"):
		return KindPart
	case s.Start == s.End && !s.Open:
		return KindMoment
	}
	return KindStage
}

// sort puts the items in their order, and names those that came again.
func (b *boot) sort() {
	// Pointers are sorted, since an item is large.
	sorted := make([]*item, len(b.items))
	for i := range b.items {
		sorted[i] = &b.items[i]
	}
	slices.SortStableFunc(sorted, func(x, y *item) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(y.end, x.end))
	})
	items := make([]item, len(sorted), cap(b.items))
	for i, it := range sorted {
		items[i] = *it
	}
	b.items = items
	times := map[string]int{}
	n := 0
	for i := range b.items {
		it := &b.items[i]
		if it.unit == nil {
			if first, again := b.byID[it.id]; again {
				if same(&b.items[first], it) {
					continue // two sources of one program report it
				}
				times[it.id]++
				it.id += "#" + strconv.Itoa(times[it.id]+1)
				if _, taken := b.byID[it.id]; taken {
					continue
				}
			}
			b.byID[it.id] = int32(n)
		} else {
			b.byUnit[it.name] = int32(n)
		}
		if n != i {
			b.items[n] = *it
		}
		n++
	}
	b.items = b.items[:n]
	b.gauges()
}

// gauges puts the kubelet's gauges aside where other sources are more precise: they count
// from the boot, to the second.
func (b *boot) gauges() {
	_, finer := b.byID[sourceKubelet+"/register"]
	for i := range b.items {
		if it := &b.items[i]; it.source == sourceKubelet && isOrIn(it.name, "startup") {
			it.aside = finer || it.name == "startup" || it.name == "startup/pre-kubelet"
		}
	}
}

// same reports that two spans of one name are one, reported twice.
func same(x, y *item) bool {
	slack := max(x.about, y.about, second/1000)
	return abs(x.start-y.start) <= slack && abs(x.end-y.end) <= slack && x.open == y.open
}
