package timeline

import (
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// slack is by how much a span may reach beyond what it is a part of: a program writes its
// log a moment after the event.
const slack = second / 10

// nest finds what each item is a part of. What is a part is also a part in time;
// what began when its unit had started already came after it.
func (b *boot) nest() {
	manager, ok := b.byID[idManager]
	if !ok {
		manager = -1
	}
	bySource := map[string][]int32{}
	for i := range b.items {
		if it := &b.items[i]; it.span != nil {
			bySource[it.source] = append(bySource[it.source], int32(i))
		}
	}
	for i := range b.items {
		it := &b.items[i]
		if it.kind == KindManager && int32(i) != manager {
			it.parent = b.within(int32(i), manager)
		}
		if it.span == nil || it.source == sourceKubelet {
			continue // the kubelet goes on when its unit has started
		}
		if it.source == sourceAPT || it.kind == KindPull {
			it.parent = b.doing(int32(i))
			continue
		}
		if p := b.named(int32(i), bySource[it.source]); p >= 0 {
			it.parent = p
			continue
		}
		if p := b.around(int32(i), bySource); p >= 0 {
			it.parent = p
			continue
		}
		if u, ok := b.byUnit[b.unitOf(it.span)]; ok {
			it.parent = b.within(int32(i), u)
		}
	}
	b.unknot()
	b.children = make([][]int32, len(b.items))
	for i := range b.items {
		if p := b.items[i].parent; p >= 0 {
			b.children[p] = append(b.children[p], int32(i))
		}
	}
}

func (b *boot) unitOf(s *wire.BootSpan) string {
	return unitOf(s, func(name string) bool { _, ok := b.byUnit[name]; return ok })
}

// within is p if i lies in it, else -1.
func (b *boot) within(i, p int32) int32 {
	if p < 0 || p == i {
		return -1
	}
	x, y := &b.items[i], &b.items[p]
	over := slack + x.about + y.about
	if y.end == y.start || x.start < y.start-over || x.end > y.end+over || x.start >= y.end {
		return -1
	}
	return p
}

// named finds the part's whole by the name in its source, or that its own name begins with:
// of several, the last that began before it.
func (b *boot) named(i int32, of []int32) int32 {
	s := b.items[i].span
	want := s.Parent
	if want == "" {
		cut := strings.LastIndexByte(s.Name, '/')
		if cut <= 0 {
			return -1
		}
		want = s.Name[:cut]
	}
	found := int32(-1)
	over := slack + b.items[i].about
	for k, _ := slices.BinarySearch(of, i); k < len(of); k++ { // one that began at the same moment may stand behind it
		if b.items[of[k]].start > b.items[i].start+over {
			break
		}
		if of[k] != i && b.items[of[k]].span.Name == want && b.within(i, of[k]) >= 0 {
			return of[k]
		}
	}
	k, _ := slices.BinarySearch(of, i)
	for k--; k >= 0; k-- {
		if b.items[of[k]].span.Name == want {
			found = b.within(i, of[k])
			break
		}
	}
	return found
}

// around finds the shortest span of the sources that may enclose i's.
func (b *boot) around(i int32, bySource map[string][]int32) int32 {
	for _, source := range enclosing(b.items[i].source) {
		best := int32(-1)
		of := bySource[source]
		k, _ := slices.BinarySearch(of, i)
		for k--; k >= 0; k-- {
			if p := b.within(i, of[k]); p >= 0 && (best < 0 || b.items[p].end-b.items[p].start < b.items[best].end-b.items[best].start) {
				best = p
			}
			if k < len(of)-64 && best >= 0 {
				break
			}
		}
		if best >= 0 {
			return best
		}
	}
	return -1
}

// doing finds the program that runs others, and ran for as long as i: a wait for
// dpkg's lock, or a pull, before the kubelet pulls what it needs itself, is taken
// for a part of it.
func (b *boot) doing(i int32) int32 {
	x := &b.items[i]
	if x.kind == KindPull {
		for _, name := range kubelets {
			if u, ok := b.byUnit[name]; ok && b.items[u].start <= x.start {
				return -1
			}
		}
	}
	best := int32(-1)
	for p := i - 1; p >= 0; p-- {
		y := &b.items[p]
		if y.span == nil || y.start > x.start || y.end < x.end || y.end == y.start || y.kind == KindPull || !runsCommands(y) {
			continue
		}
		if best < 0 || y.end-y.start < b.items[best].end-b.items[best].start {
			best = p
		}
	}
	return best
}

// unknot parts what is said to be a part of its own parts.
func (b *boot) unknot() {
	state := make([]byte, len(b.items))
	for i := range b.items {
		var way []int32
		for k := int32(i); k >= 0 && state[k] != 2; k = b.items[k].parent {
			if state[k] == 1 {
				b.items[way[len(way)-1]].parent = -1
				break
			}
			state[k] = 1
			way = append(way, k)
		}
		for _, k := range way {
			state[k] = 2
		}
	}
}

// order makes the edges: what each item comes after.
func (b *boot) order() {
	n := 0
	for i := range b.items {
		if u := b.items[i].unit; u != nil {
			n += len(u.After) + 1
		} else {
			n += 4
		}
	}
	b.after = make([]int32, 0, n)
	b.afterOf = make([]int32, 0, len(b.items)+1)
	b.machineOnly()
	starters := b.starters()
	before := map[string][]int32{} // of each source, those without a whole
	for i := range b.items {
		b.afterOf = append(b.afterOf, int32(len(b.after)))
		it := &b.items[i]
		switch {
		case it.unit != nil:
			for _, name := range it.unit.After {
				if d, ok := b.byUnit[name]; ok && d != int32(i) {
					b.after = append(b.after, d)
				}
			}
			for _, name := range it.unit.TriggeredBy {
				if d, ok := b.byUnit[name]; ok && d != int32(i) && !slices.Contains(it.unit.After, name) {
					b.after = append(b.after, d)
				}
			}
			b.startedBy(int32(i), starters)
		case it.parent >= 0:
		default:
			b.loose(int32(i), before)
		}
	}
	b.afterOf = append(b.afterOf, int32(len(b.after)))
}

// of are the edges of an item.
func (b *boot) of(i int32) []int32 { return b.after[b.afterOf[i]:b.afterOf[i+1]] }

// machineOnly finds the machine's own, which follow each other.
func (b *boot) machineOnly() {
	for i := range b.items {
		switch b.items[i].id {
		case idRequest, idCreate:
			if b.items[i].end <= 0 { // else it was asked for while it waited in a pool
				b.base = append(b.base, int32(i))
			}
		case idEarlier, idFirmware, idLoader, idKernel, idInitrd, idSoft, idManager:
			b.base = append(b.base, int32(i))
		}
	}
}

// starters are the leaves among what starts other programs, by start.
func (b *boot) starters() []int32 {
	var out []int32
	for i := range b.items {
		if it := &b.items[i]; it.span != nil && it.end > it.start && runsCommands(it) {
			out = append(out, int32(i))
		}
	}
	return out
}

// unqueued is the longest time that systemd takes to start a unit that waits for nothing:
// beyond, something else started or delayed it.
const unqueued = second / 10

// startedBy adds an edge from the program that ran when a service began, where what it was
// ordered after was long done: a script extension that starts the kubelet. It is a
// conclusion, and marked as such.
func (b *boot) startedBy(i int32, starters []int32) {
	it := &b.items[i]
	if len(starters) == 0 || !strings.HasSuffix(it.name, ".service") || it.kind != KindUnit {
		return
	}
	last := -maxTime
	for _, d := range b.after[b.afterOf[i]:] {
		if end := b.items[d].end; end <= it.start {
			last = max(last, end)
		}
	}
	if it.start-last <= unqueued {
		return
	}
	best := int32(-1)
	for _, s := range starters {
		x := &b.items[s]
		if x.start >= it.start {
			break
		}
		if x.end < it.start-x.about-it.about || x.start <= last || b.isPart(s, i) {
			continue
		}
		if best < 0 || x.start >= b.items[best].start {
			best = s
		}
	}
	if best < 0 {
		return
	}
	it.starter = best
	b.after = append(b.after, best)
	text := "held to have been started by " + b.items[best].name + ", which ran when it began, when what it is ordered after was done"
	if it.detail != "" {
		text = it.detail + "; " + text
	}
	it.detail = text
}

// isPart reports whether i is a part of p, or p itself.
func (b *boot) isPart(i, p int32) bool {
	for ; i >= 0; i = b.items[i].parent {
		if i == p {
			return true
		}
	}
	return false
}

// loose orders what has no whole and is no unit: after its unit, its source's earlier
// spans, and what it needs by its kind.
func (b *boot) loose(i int32, before map[string][]int32) {
	it := &b.items[i]
	add := func(d int32) {
		if d >= 0 && d != i {
			b.after = append(b.after, d)
		}
	}
	find := func(id string) int32 {
		if d, ok := b.byID[id]; ok {
			return d
		}
		return -1
	}
	if it.span != nil {
		if u, ok := b.byUnit[b.unitOf(it.span)]; ok {
			add(u)
		}
		// The last of its source that ended before it, and what ran beside that.
		of := before[it.source]
		for k := len(of) - 1; k >= 0 && k >= len(of)-beside; k-- {
			if x := &b.items[of[k]]; x.end <= it.start && !x.aside {
				add(of[k])
			}
		}
		before[it.source] = append(of, i)
	}
	switch {
	case it.id == idCreated:
		b.each(func(d int32, x *item) bool { return x.source == sourceKubelet || x.unit != nil && isKubelet(x.name) }, i, add)
	case it.id == idNode:
		add(find(idCreated))
		b.each(func(_ int32, x *item) bool {
			return x.source == sourceKubelet || x.kind == KindPull || x.unit != nil && isKubelet(x.name)
		}, i, add)
	case it.id == idByKubelet:
		b.each(func(_ int32, x *item) bool { return x.kind == KindPull }, i, add)
	case it.id == idFinish:
		b.each(func(_ int32, x *item) bool { return x.unit != nil && !x.open }, i, add)
	case it.id == idPod:
		add(find(idNode))
		b.each(func(_ int32, x *item) bool { return x.kind == KindPull }, i, add)
	case it.kind == KindPull:
		// Pods come to a node that is registered; earlier pulls are the kubelet's own, or a
		// static pod's.
		for _, id := range []string{sourceKubelet + "/register", sourceKubelet + "/startup/registration", idCreated} {
			if d := find(id); d >= 0 && b.items[d].end <= it.start {
				add(d)
				break // the first is the finest
			}
		}
		for _, name := range kubelets {
			if u, ok := b.byUnit[name]; ok {
				add(u)
			}
		}
	}
}

// each calls add for what answers to is and ended before i began.
func (b *boot) each(is func(int32, *item) bool, i int32, add func(int32)) {
	for d := range b.items {
		x := &b.items[d]
		if x.parent < 0 && !x.aside && x.end <= b.items[i].start && is(int32(d), x) {
			add(int32(d))
		}
	}
}
