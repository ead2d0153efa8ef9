package source

import (
	"github.com/ortet/ortet/internal/wire"
)

// near is by how much the kernel's start may differ between two sources of one boot: some
// know it to the second, and a clock may be set during the boot.
const near = 90 * second

// Join sorts the reports of several files by boots, and merges those of each:
//
//   - reports with a boot's id by that;
//   - reports with readings of both clocks by when the kernel started;
//   - spans with times of day alone go to the boot that had begun last by then;
//   - reports that have only times since the kernel's start, or since userspace's,
//     to the boot with the same units at the same times, else to the newest that
//     says nothing against it, which the BootSource then says;
//   - what says nothing of a time goes to the newest.
//
// The boots are given by their start, those whose start is not known first, in
// the order given. Reports of one machine are expected: those that name different
// nodes are of different boots.
func Join(reports ...wire.BootReport) []wire.BootReport {
	var boots []*gathered
	var wallOnly, monotonicOnly, silent []wire.BootReport
	for _, r := range reports { // those that name their boot first: others are measured by them
		if start, known := kernelStart(&r); r.BootID != "" {
			boots = gather(boots, r, start, known)
		}
	}
	for _, r := range reports {
		start, known := kernelStart(&r)
		switch {
		case r.BootID != "":
		case known:
			boots = gather(boots, r, start, known)
		case len(r.Units) > 0 || hasMonotonic(&r):
			monotonicOnly = append(monotonicOnly, r)
		case len(r.Spans) > 0:
			wallOnly = append(wallOnly, r)
		default:
			silent = append(silent, r)
		}
	}
	for i := 1; i < len(boots); i++ { // there are few
		for k := i; k > 0 && boots[k].start < boots[k-1].start; k-- {
			boots[k], boots[k-1] = boots[k-1], boots[k]
		}
	}
	for _, r := range wallOnly {
		boots = share(boots, r)
	}
	for _, r := range monotonicOnly {
		boots = settle(boots, r)
	}
	for _, r := range silent {
		if len(boots) == 0 {
			boots = append(boots, &gathered{})
		}
		last := boots[len(boots)-1]
		last.parts = append(last.parts, r)
	}
	joined := make([]wire.BootReport, 0, len(boots))
	for _, b := range boots {
		joined = append(joined, Merge(b.parts...))
	}
	return joined
}

// gathered are the reports of one boot.
type gathered struct {
	id, node string
	start    wire.Micros // of the kernel, since the epoch; 0: not known
	parts    []wire.BootReport
}

// kernelStart is when the kernel started, by the readings of both clocks: by the
// last, since the clock was set before that if at all.
func kernelStart(r *wire.BootReport) (wire.Micros, bool) {
	if len(r.Clocks) == 0 {
		return 0, false
	}
	c := r.Clocks[len(r.Clocks)-1]
	return c.Wall - c.Monotonic, true
}

func hasMonotonic(r *wire.BootReport) bool {
	for i := range r.Spans {
		if r.Spans[i].Clock == wire.ClockMonotonic {
			return true
		}
	}
	return r.System != wire.SystemTimes{}
}

func gather(boots []*gathered, r wire.BootReport, start wire.Micros, known bool) []*gathered {
	to, least := -1, near
	for i, b := range boots {
		if r.Node != "" && b.node != "" && r.Node != b.node {
			continue
		}
		if r.BootID != "" && b.id != "" {
			if SameBoot(r.BootID, b.id) {
				to = i
				break
			}
			continue
		}
		by := start - b.start
		if by < 0 {
			by = -by
		}
		if known && b.start > 0 && by < least {
			to, least = i, by
		}
	}
	if to < 0 {
		return append(boots, &gathered{id: r.BootID, node: r.Node, start: start, parts: []wire.BootReport{r}})
	}
	b := boots[to]
	b.parts = append(b.parts, r)
	fill(&b.id, r.BootID)
	fill(&b.node, r.Node)
	if b.start == 0 {
		b.start = start
	}
	return boots
}

// share assigns each of a report's spans to the boot that it fell into: the last that had
// begun by then. Spans before the first boot go to a boot of unknown start.
func share(boots []*gathered, r wire.BootReport) []*gathered {
	early := -1
	for i, b := range boots {
		if b.start == 0 && b.id == "" {
			early = i
			break
		}
	}
	if early < 0 && len(boots) == 1 && boots[0].start == 0 { // nothing shows that it is another boot
		early = 0
	}
	parts := make([]wire.BootReport, len(boots)+1)
	for _, s := range r.Spans {
		to := early
		for i, b := range boots {
			if b.start > 0 && b.start <= s.Start+5*second {
				to = i
			}
		}
		if to < 0 {
			to = len(boots)
		}
		parts[to].Spans = append(parts[to].Spans, s)
	}
	for i := range parts {
		if len(parts[i].Spans) == 0 {
			continue
		}
		part := r
		part.Spans = parts[i].Spans
		if i < len(boots) {
			boots[i].parts = append(boots[i].parts, part)
		} else {
			boots = append([]*gathered{{parts: []wire.BootReport{part}}}, boots...)
		}
	}
	return boots
}

// settle finds the boot of a report that has no times of day.
func settle(boots []*gathered, r wire.BootReport) []*gathered {
	best, most := -1, 0
	free := -1 // the newest without a contradiction
	for i, b := range boots {
		agree, differ := 0, 0
		for k := range b.parts {
			a, d := compare(&b.parts[k], &r)
			agree, differ = agree+a, differ+d
		}
		if agree > most && agree > differ {
			best, most = i, agree
		}
		if differ == 0 {
			free = i
		}
	}
	switch {
	case best >= 0:
		boots[best].parts = append(boots[best].parts, r)
	case free >= 0:
		if len(boots) > 1 {
			r.Sources = append([]wire.BootSource(nil), r.Sources...)
			for k := range r.Sources {
				r.Sources[k].Detail = join(r.Sources[k].Detail, "it does not say of which boot it is: taken for one of the last boot that says nothing against it")
			}
		}
		boots[free].parts = append(boots[free].parts, r)
	default:
		return append(boots, &gathered{parts: []wire.BootReport{r}})
	}
	return boots
}

// alike is by how much the times of one start of a unit may differ between two sources.
const alike = second / 4

// compare counts the units of which two reports have the same start, and the others that
// both have. If the reports' times count from different zeros, the first shared unit is the
// reference.
func compare(a, b *wire.BootReport) (agree, differ int) {
	if len(a.Units) == 0 || len(b.Units) == 0 {
		return compareSystem(a, b)
	}
	times := make(map[string]*wire.BootUnit, len(a.Units))
	for i := range a.Units {
		times[a.Units[i].Name] = &a.Units[i]
	}
	var zero wire.Micros
	measured := a.System.Relative == b.System.Relative
	if !measured && a.System.Userspace+b.System.Userspace > 0 {
		zero, measured = a.System.Userspace-b.System.Userspace, true
	}
	for _, r := range [...]*wire.BootReport{a, b} { // those times are no evidence
		for _, name := range concludedRoots(r) {
			delete(times, name)
		}
	}
	for i := range b.Units {
		u, ok := times[b.Units[i].Name]
		if !ok || u.Activating == 0 || b.Units[i].Activating == 0 {
			continue
		}
		if !measured {
			zero, measured = u.Activating-b.Units[i].Activating, true
			continue
		}
		by := u.Activating - b.Units[i].Activating - zero
		if within := alike + u.Grain + b.Units[i].Grain; by <= within && by >= -within {
			agree++
		} else if u.Restarts == 0 && b.Units[i].Restarts == 0 {
			differ++
		}
	}
	return agree, differ
}

func compareSystem(a, b *wire.BootReport) (agree, differ int) {
	if a.System.Finish == 0 || b.System.Finish == 0 || a.System.Relative != b.System.Relative {
		return 0, 0
	}
	if by := a.System.Finish - b.System.Finish; by < alike && by > -alike {
		return 1, 0
	}
	return 0, 1
}
