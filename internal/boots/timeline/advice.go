package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const (
	// worthwhile is what advice has to save.
	worthwhile = second / 20
	// long is the least duration of necessary work that advice mentions.
	long = 3 * second
	// mostAdvice bounds the replays of one boot; what is on the path longest is
	// looked at first.
	mostAdvice = 16
)

// advise returns what would make such a boot faster, by replays of it.
func (b *boot) advise(g *graph, path []Step) []Advice {
	times := make([]wire.Micros, 0, len(g.moments))
	onPath, base := b.onPath(path)
	total := b.duration(b.end - b.origin)
	var out []Advice
	add := func(a Advice, end wire.Micros) {
		// A replay's gain before the origin is no gain to the user.
		a.Saves = min(b.end-end, b.end-b.origin)
		if a.Saves >= worthwhile {
			out = append(out, a)
		}
	}
	base = b.telling(base, onPath)
	slices.SortFunc(base, func(x, y int32) int { return cmp.Or(cmp.Compare(onPath[y], onPath[x]), cmp.Compare(x, y)) })
	base = base[:min(len(base), mostAdvice)]
	var all []string
	var uncertain wire.Micros
	in := make([]bool, len(b.items))
	of := func(i int32, class Class, do, why string) {
		a := Advice{Class: class, Spans: []string{b.items[i].id}, Uncertainty: b.items[i].about, Do: do,
			What: fmt.Sprintf("%s is on the critical path for %s of %s%s", b.items[i].name, b.duration(onPath[i]), total, why)}
		a.Unit, a.Module = b.unitAndModule(i)
		add(a, g.replay(change{without: b.mark(in, i), started: -1}, times))
	}
	for _, i := range base {
		of(i, Base, b.rule(i).Do, ": "+b.rule(i).Why)
		all, uncertain = append(all, b.items[i].id), max(uncertain, b.items[i].about)
	}
	if len(base) > 1 {
		end := g.replay(change{without: b.mark(in, base...), started: -1}, times)
		add(Advice{Class: Base, Spans: all, Uncertainty: uncertain,
			What: fmt.Sprintf("all base preparation on the critical path, %d units and parts of units, at once", len(base)),
			Do:   "do it in the image: `ortet capture` makes one of a node on which it is done"}, end)
	}
	for _, i := range b.shorter(onPath) {
		of(i, b.rule(i).Class, b.rule(i).Do, ", of which some has to be: "+b.rule(i).Why)
	}
	for _, i := range b.tunable(onPath) {
		of(i, b.rule(i).Class, b.tuneRemedy(tuningOf(b.items[i].id)), ", and a tuning shortens it")
	}
	b.adviseWaits(g, path, in, times, add)
	b.adviseKubelet(g, path, times, add)
	tuned := func(a Advice) int { // a capture's option is the least work
		if a.Class == Node && len(a.Spans) == 1 && tuningOf(a.Spans[0]) != "" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(x, y Advice) int {
		return cmp.Or(cmp.Compare(tuned(x), tuned(y)), cmp.Compare(y.Saves, x.Saves))
	})
	return out
}

// mark marks items and their parts.
func (b *boot) mark(in []bool, items ...int32) []bool {
	clear(in)
	for len(items) > 0 {
		i := items[len(items)-1]
		items = items[:len(items)-1]
		in[i] = true
		items = append(items[:len(items):len(items)], b.children[i]...)
	}
	return in
}

// onPath is for how long each item is on the path, with its parts, and which of
// them are base preparation.
func (b *boot) onPath(path []Step) (took map[int32]wire.Micros, base []int32) {
	took = make(map[int32]wire.Micros, 2*len(path))
	for _, s := range path {
		i := b.item(s.Span)
		if s.Wait != nil || i < 0 || s.End == s.Start {
			continue
		}
		for ; i >= 0; i = b.items[i].parent {
			if _, again := took[i]; !again {
				if b.rule(i).Class == Base {
					base = append(base, i)
				}
			}
			took[i] += s.End - s.Start
		}
	}
	return took, base
}

// shorter is what has to be done on each node, took long, and can be done in less.
func (b *boot) shorter(onPath map[int32]wire.Micros) []int32 {
	var out []int32
	for i, took := range onPath {
		if r := b.rule(i); r.Class == Node && r.Do != "" && took >= long {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), mostAdvice)]
}

// telling leaves out what only wraps others, as the operation of an extension
// whose command is all that takes time: units and the innermost parts are what a
// reader can change.
func (b *boot) telling(base []int32, onPath map[int32]wire.Micros) []int32 {
	const nearly = 10 // all but a tenth
	wraps := func(whole, part wire.Micros) bool { return part >= whole-whole/nearly }
	return slices.DeleteFunc(base, func(i int32) bool {
		if b.items[i].unit != nil {
			return false
		}
		leaf, own := true, onPath[i]
		for _, c := range b.children[i] {
			if onPath[c] == 0 {
				continue
			}
			leaf, own = false, own-onPath[c]
			if b.rule(c).Class == Base && wraps(onPath[i], onPath[c]) {
				return true
			}
		}
		p := b.items[i].parent
		if own > onPath[i]/2 && (p < 0 || b.items[p].unit == nil) {
			return false // it has most of it to itself, and what it fills is left out for it
		}
		return !leaf && p >= 0 && b.rule(p).Class == Base && wraps(onPath[p], onPath[i])
	})
}

// item is the item of an ID; -1: there is none.
func (b *boot) item(id string) int32 {
	if name, ok := strings.CutPrefix(id, unitPrefix); ok {
		if i, ok := b.byUnit[name]; ok {
			return i
		}
	}
	if i, ok := b.byID[id]; ok {
		return i
	}
	return -1
}

// unitAndModule name what is to be changed.
func (b *boot) unitAndModule(i int32) (unit, module string) {
	if it := &b.items[i]; it.unit == nil && (it.parent >= 0 || it.source == sourceAKS) {
		module = it.name
	}
	for k := i; k >= 0; k = b.items[k].parent {
		if b.items[k].unit != nil {
			return b.items[k].name, module
		}
	}
	if s := b.items[i].span; s != nil {
		unit = b.unitOf(s)
	}
	return unit, module
}

// adviseWaits is about the longest waits.
func (b *boot) adviseWaits(g *graph, path []Step, in []bool, times []wire.Micros, add func(Advice, wire.Micros)) {
	var waits []*Step
	for i := range path {
		if s := &path[i]; s.Wait != nil && s.End-s.Start >= worthwhile {
			waits = append(waits, s)
		}
	}
	slices.SortStableFunc(waits, func(x, y *Step) int { return cmp.Compare(y.End-y.Start, x.End-x.Start) })
	for _, s := range waits[:min(len(waits), mostAdvice)] {
		i := b.item(s.Wait.Before)
		c := change{unheld: func(m *moment) bool { return m.item == i }, started: -1}
		if s.Span != "" {
			i = b.item(s.Span)
			c = change{without: b.mark(in, i), started: -1}
		}
		end := g.replay(c, times)
		it := &b.items[i]
		a := Advice{Class: Waiting, Spans: []string{it.id}, Uncertainty: it.about, Do: b.waitRemedy(s.Wait, it)}
		a.Unit, a.Module = b.unitAndModule(i)
		last := "nothing that is known"
		if k := b.item(s.Wait.After); k >= 0 {
			last = b.items[k].name
		}
		a.What = fmt.Sprintf("%s waited %s, after %s", it.name, b.duration(s.End-s.Start), last)
		if k := b.item(s.Wait.Before); s.Span != "" {
			a.What = fmt.Sprintf("%s waited %s", b.items[k].name, b.duration(s.End-s.Start))
		}
		switch {
		case s.Wait.Cause == "":
			a.What += "; cause unknown"
		case s.Wait.Evidence == "":
			a.What += ", for " + s.Wait.Cause
		default:
			a.What += ", for " + s.Wait.Cause + ": " + s.Wait.Evidence
		}
		add(a, end)
	}
}

func (b *boot) waitRemedy(w *Wait, it *item) string {
	switch w.Cause {
	case causeQueue, causeJob:
		return "look at `systemctl list-jobs` at that time, and at the units that conflict with it or have Before= of it"
	case causeReload:
		return "reload systemd in the image, and not at boot: no job runs meanwhile"
	case causeRestart:
		return "look at why its first starts failed, and order it after what they lacked; RestartSec= is what each try costs"
	case causeSocket:
		return "enable the service itself, so that it does not start with the first connection"
	case causeTimer:
		return "start it with the boot, or let nothing wait for it"
	case causePath:
		return "start it with the boot, or write the file sooner"
	case causeDevice:
		return "mount the disk with nofail, or let what does not need it not wait for it"
	case causeNetwork:
		return "look at DHCP and at which interfaces have to be online (systemd-networkd-wait-online --any, optional: true for others)"
	case causeLock, "a lock of dpkg":
		return "mask what else takes the lock at boot: apt-daily.service, apt-daily-upgrade.service, unattended-upgrades.service"
	case causePull:
		return "pull the image when the machine's image is made"
	case causeGoal:
		return "let a unit of the image do it, and no extension: the agent looks for extensions every 6 s"
	case causeItself:
		return "read what it logged meanwhile: `journalctl -b -o short-monotonic`"
	case causePool:
		return "nothing: the machine waited to be handed over"
	}
	if it.unit != nil {
		return "find what ran before it: `journalctl -b -o short-monotonic` (`systemd-analyze critical-chain` does not show it)"
	}
	return "find what ran before it: `journalctl -b -o short-monotonic`"
}

// adviseKubelet is source 4's: a kubelet that is a unit of the image, ordered
// after network-online.target only.
func (b *boot) adviseKubelet(g *graph, path []Step, times []wire.Micros, add func(Advice, wire.Micros)) {
	ready, anchor := b.networkReady()
	if anchor < 0 {
		return
	}
	kubelet, until := int32(-1), b.end
	for _, name := range kubelets {
		if i, ok := b.byUnit[name]; ok && g.seen[2*i] >= 0 {
			kubelet, until = i, b.items[i].start
			break
		}
	}
	if kubelet < 0 && (b.endIs == "node Ready" || b.endIs == "node created" || b.endIs == "kubelet registered") {
		return
	}
	after := []string{networkOnline}
	if kubelet >= 0 {
		for _, d := range b.of(kubelet) {
			switch b.items[d].name {
			case "containerd.service", "docker.service", "crio.service":
				if !b.items[d].open && b.items[d].end <= until {
					ready = max(ready, b.items[d].end)
					after = append(after, b.items[d].name)
				}
			}
		}
	}
	if ready >= until {
		return
	}
	spans, text, waits, avoided := b.between(path, ready, until)
	if !avoided {
		return
	}
	a := Advice{Class: Base, Spans: spans, Unit: "kubelet.service",
		// No evidence shows that such a kubelet has no waits of its own.
		Uncertainty: max(b.items[anchor].about, waits),
		Do:          "put the kubelet and its unit into the image, enabled, with After=" + strings.Join(after, " ") + " and Wants=network-online.target only; give it its configuration by user data (`ortet-node join`)"}
	stays := ""
	for _, name := range beforeNetwork {
		if i, ok := b.byUnit[name]; ok && !b.items[i].open && b.items[i].end <= ready && b.items[i].end > b.items[i].start {
			stays += fmt.Sprintf("; %s (%s) stays, since it comes before network-online.target", name, b.duration(b.items[i].end-b.items[i].start))
		}
	}
	if kubelet >= 0 {
		a.Unit = b.items[kubelet].name
		a.What = fmt.Sprintf("%s began %s after %s; ordered after that only it would not wait for %s%s", a.Unit, b.duration(until-ready), strings.Join(after, " and "), text, stays)
		add(a, g.replay(change{started: g.seen[2*kubelet], at: ready}, times))
		return
	}
	a.What = fmt.Sprintf("a kubelet that comes after %s, as one that a script extension starts, waits %s from when the network was there; one in the image, ordered after %s only, would not wait for %s%s",
		b.endIs, b.duration(until-ready), networkOnline, text, stays)
	add(a, ready)
}

// networkReady is when network-online.target was reached, or could have been by
// what is ordered before it. anchor is -1 where neither is known.
func (b *boot) networkReady() (at wire.Micros, anchor int32) {
	if i, ok := b.byUnit[networkOnline]; ok && !b.items[i].open {
		return b.items[i].end, i
	}
	anchor = -1
	for _, name := range beforeNetwork {
		if i, ok := b.byUnit[name]; ok && !b.items[i].open && (anchor < 0 || b.items[i].end > at) {
			at, anchor = b.items[i].end, i
		}
	}
	return at, anchor
}

// between is what is on the path between two times, longest first, how much of it
// is waits, and whether any of it is what a kubelet need not wait for.
func (b *boot) between(path []Step, from, to wire.Micros) (spans []string, text string, waits wire.Micros, avoided bool) {
	took := map[int32]wire.Micros{}
	var order []int32
	for _, s := range path {
		share := min(s.End, to) - max(s.Start, from)
		if share <= 0 {
			continue
		}
		if s.Wait != nil {
			waits += share
			continue
		}
		i := b.item(s.Span)
		for i >= 0 && b.items[i].parent >= 0 {
			i = b.items[i].parent
		}
		if i < 0 {
			continue
		}
		if _, again := took[i]; !again {
			order = append(order, i)
		}
		took[i] += share
		it := &b.items[i]
		switch unitStage(it.name) {
		case StageConfig, StageFinal, StageAgent:
			avoided = true
		}
		switch it.source {
		case sourceAgent, sourceCSE, sourceAKS, sourceProvision:
			avoided = true
		}
	}
	slices.SortFunc(order, func(x, y int32) int { return cmp.Or(cmp.Compare(took[y], took[x]), cmp.Compare(x, y)) })
	var words []string
	for _, i := range order {
		spans = append(spans, b.items[i].id)
		if len(words) < 8 {
			words = append(words, fmt.Sprintf("%s (%s)", b.items[i].name, b.duration(took[i])))
		}
	}
	if waits > 0 {
		words = append(words, fmt.Sprintf("waits between them (%s)", b.duration(waits)))
	}
	return spans, strings.Join(words, ", "), waits, avoided
}
