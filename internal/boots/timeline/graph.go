package timeline

import (
	"cmp"
	"slices"
	"sort"

	"github.com/ortet/ortet/internal/wire"
)

// graph is what the end of a boot came of: moments, each after others, with what
// lay between the last of those and it.
//
// A moment's time is the latest of its causes' times plus its lag. With every lag as it
// was, that returns each moment's own time; with the lags of some span left out, the times
// that the boot would have had without it.
type graph struct {
	b       *boot
	moments []moment // causes stand before what they cause
	causes  []int32  // of all moments
	seen    []int32  // moments of the items' beginnings and ends: -2, not looked at
	middles map[point]int32
	kids    map[int32][]part
	end     int32
}

// point is the beginning or the end of an item, or a moment of its middle.
type point struct {
	item int32
	what int32 // starts, ends, or an item that began in its middle
}

const (
	starts = int32(-1)
	ends   = int32(-2)
	doing  = int32(1) << 30 // added to the item whose beginning is meant
)

// moment is a point with its time and causes.
type moment struct {
	at    wire.Micros
	lag   wire.Micros // since the last cause
	from  int32       // causes[from:to]
	to    int32
	last  int32 // the last cause; -1: none
	item  int32
	owner int32 // the item that the lag was time of; -1: of none, the item waited
}

// newGraph makes the graph of all that an item's end came of.
func (b *boot) newGraph(item int32) *graph {
	g := &graph{b: b, seen: make([]int32, 2*len(b.items)), middles: map[point]int32{}, kids: map[int32][]part{},
		moments: make([]moment, 0, 2*len(b.items)), causes: make([]int32, 0, len(b.after)+3*len(b.items))}
	for i := range g.seen {
		g.seen[i] = unseen
	}
	g.end = g.visit(point{item, ends})
	return g
}

// unfinished marks a moment whose causes are being searched for: it cannot be a cause of
// its own, whatever the units' ordering.
const (
	unfinished = int32(-1)
	unseen     = int32(-2)
)

func (g *graph) found(p point) int32 {
	switch p.what {
	case starts:
		return g.seen[2*p.item]
	case ends:
		return g.seen[2*p.item+1]
	}
	if m, ok := g.middles[p]; ok {
		return m
	}
	return unseen
}

func (g *graph) keep(p point, m int32) {
	switch p.what {
	case starts:
		g.seen[2*p.item] = m
	case ends:
		g.seen[2*p.item+1] = m
	default:
		g.middles[p] = m
	}
}

func (g *graph) visit(p point) int32 {
	if m := g.found(p); m != unseen {
		return m
	}
	g.keep(p, unfinished)
	m := moment{at: g.time(p), last: -1, owner: p.item, item: p.item}
	var causes []point
	var room [24]point
	causes = g.because(p, &m, room[:0])
	var few [24]int32
	found := few[:0]
	var latest wire.Micros
	for _, c := range causes {
		i := g.visit(c)
		if i == unfinished {
			continue
		}
		found = append(found, i)
		at := min(g.moments[i].at, m.at)
		if m.last < 0 || at > latest {
			m.last, latest = i, at
		}
	}
	if m.last >= 0 {
		m.lag = m.at - latest
	}
	m.from = int32(len(g.causes))
	g.causes = append(g.causes, found...)
	m.to = int32(len(g.causes))
	g.moments = append(g.moments, m)
	g.keep(p, int32(len(g.moments)-1))
	return int32(len(g.moments) - 1)
}

// time is a point's time, within what its item is a part of.
func (g *graph) time(p point) wire.Micros {
	if p.what >= 0 {
		t := g.b.items[p.what&^doing].start
		start, end := g.b.span(p.item)
		return min(max(t, start), end)
	}
	start, end := g.b.span(p.item)
	if p.what == starts {
		return start
	}
	return end
}

// span is an item's time, cut to what it is a part of.
func (b *boot) span(i int32) (start, end wire.Micros) {
	start, end = b.items[i].start, b.items[i].end
	for p := b.items[i].parent; p >= 0; p = b.items[p].parent {
		low, high := b.items[p].start, b.items[p].end
		start, end = min(max(start, low), high), min(max(end, low), high)
	}
	return start, end
}

// because finds a point's causes, and whose the time between is.
func (g *graph) because(p point, m *moment, causes []point) []point {
	b := g.b
	switch {
	case p.what == ends:
		causes = g.parts(p.item, m.at, -1, causes)
		return append(causes, point{p.item, starts})
	case p.what >= 0:
		causes = g.parts(p.item, m.at, p.what&^doing, causes)
		return append(causes, point{p.item, starts})
	}
	it := &b.items[p.item]
	if it.parent >= 0 {
		m.owner = it.parent
		causes = g.parts(it.parent, m.at, p.item, causes)
		return append(causes, point{it.parent, starts})
	}
	m.owner = -1
	for _, d := range b.of(p.item) {
		x := &b.items[d]
		switch {
		case d == it.starter:
			causes = append(causes, point{d, p.item | doing})
		case x.end <= m.at+it.grain+x.grain && x.start <= m.at:
			causes = append(causes, point{d, ends})
		}
	}
	return g.machine(p.item, m.at, causes)
}

// machine adds what of the machine's own came last before, or went on at, a
// moment.
func (g *graph) machine(i int32, at wire.Micros, causes []point) []point {
	b := g.b
	for k := len(b.base) - 1; k >= 0; k-- {
		d := b.base[k]
		x := &b.items[d]
		if d == i || x.start > at || x.start == at && d > i {
			continue
		}
		if x.end <= at {
			return append(causes, point{d, ends})
		}
		if x.start < at && b.items[i].unit != nil {
			return append(causes, point{d, i | doing})
		}
	}
	return causes
}

// beside is of how many parts that ran at once each can be the last cause: beyond
// that, a replay without the longest of them may find too early an end.
const beside = 16

// parts adds what of an item's parts ended last before a moment, and what ran
// beside that. but is the part whose beginning it is.
func (g *graph) parts(of int32, at wire.Micros, but int32, causes []point) []point {
	kids := g.byEnd(of)
	n := sort.Search(len(kids), func(k int) bool { return kids[k].end > at })
	begun, found := -maxTime, 0
	for k := n - 1; k >= 0 && found < beside && kids[k].end > begun; k-- {
		x := kids[k]
		if x.item == but || x.start == at && (but >= 0 && x.item > but || found > 0) {
			continue
		}
		if found == 0 {
			begun = x.start
		}
		causes = append(causes, point{x.item, ends})
		found++
	}
	return causes
}

// part is a part's time, within its whole.
type part struct {
	item       int32
	start, end wire.Micros
}

// byEnd are an item's parts by their ends.
func (g *graph) byEnd(of int32) []part {
	if len(g.b.children[of]) == 0 {
		return nil
	}
	if kids, ok := g.kids[of]; ok {
		return kids
	}
	kids := make([]part, len(g.b.children[of]))
	for k, c := range g.b.children[of] {
		start, end := g.b.span(c)
		kids[k] = part{c, start, end}
	}
	slices.SortStableFunc(kids, func(x, y part) int { return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.start, y.start)) })
	g.kids[of] = kids
	return kids
}
