package timeline

import (
	"slices"

	"github.com/ortet/ortet/internal/wire"
)

// path is the critical path: from the end back to the origin, at each moment the
// last of its causes. What lies between two moments belongs to one span, or is a
// wait, so that the steps cover the time exactly.
func (b *boot) path(g *graph) []Step {
	steps := []Step{} // backwards
	at := b.end
	from := func(start wire.Micros) wire.Micros { return max(min(start, at), b.origin) }
	for m := g.end; m >= 0; {
		x := &g.moments[m]
		start, last := b.origin, int32(-1)
		if x.last >= 0 {
			start, last = from(g.moments[x.last].at), x.last
		}
		switch {
		case x.owner >= 0:
			steps = b.work(steps, x.owner, start, at)
		case start < at:
			steps = append(steps, b.waited(g, x, start, at))
		}
		at = start
		if at <= b.origin && (last < 0 || g.moments[last].at < b.origin) {
			break
		}
		m = last
	}
	slices.Reverse(steps)
	return steps
}

// work adds time of an item. A moment is shown too, where it is a unit's: a chain
// leads through targets.
func (b *boot) work(steps []Step, i int32, start, end wire.Micros) []Step {
	it := &b.items[i]
	if n := len(steps); n > 0 && steps[n-1].Span == it.id {
		steps[n-1].Start = start
		return steps
	}
	if start == end && (it.start < it.end || it.unit == nil && i != b.endItem) {
		return steps
	}
	step := Step{Span: it.id, Name: it.name, Start: start, End: end, Class: b.rule(i).Class, Stage: b.stageOf(i)}
	if cause := waiting(it); cause != "" {
		w := &Wait{Before: it.id, Cause: cause, Evidence: it.name + " is reported by " + it.source}
		if it.parent >= 0 {
			w.Before = b.items[it.parent].id
		}
		if it.detail != "" {
			w.Evidence += ": " + it.detail
		}
		step.Name, step.Class, step.Wait = "waiting for "+cause, Waiting, w
	}
	return append(steps, step)
}

// waited is the step of a wait: x is the beginning of what waited.
func (b *boot) waited(g *graph, x *moment, start, end wire.Micros) Step {
	it := &b.items[x.item]
	w := &Wait{Before: it.id}
	after := int32(-1)
	if x.last >= 0 {
		after = g.moments[x.last].item
		w.After = b.items[after].id
	}
	// It prints when a unit began and what it waited for last, and nothing of the
	// time between; of what runs beside systemd it prints nothing at all.
	w.Hidden = it.unit != nil && end-start >= second/1000
	w.Cause, w.Evidence = b.cause(x.item, after, start, end)
	name := "waiting"
	if w.Cause != "" {
		name += " for " + w.Cause
	}
	return Step{Name: name, Start: start, End: end, Class: Waiting, Stage: b.stageOf(x.item), Wait: w}
}
