package source

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceChain = "systemd-critical-chain"
	maxChains   = 256
	chainRoot   = "chain-root"
	maxDepth    = 512
)

// link is a line of a critical chain.
type link struct {
	unit   string
	at     wire.Micros
	took   wire.Micros
	hasAt  bool
	hasFor bool
	above  int // the line that it is a dependency of; -1: the root
}

type chain struct{ links []link }

// CriticalChains reads what `systemd-analyze critical-chain` prints, in a text
// with anything else around it, as a document or a terminal's record. Chains
// that share units, and agree on their times, are of one boot; others are boots
// of their own, in their order.
//
// Times count from the start of userspace (SystemTimes.Relative), and are
// rounded to milliseconds (Grain). Each chain leaves a span "chain-root" of the
// source "systemd", which names the unit that it leads to. Of a root that took
// time systemd prints only how long; it cannot have begun before the last of
// what it is ordered after was active, so these are its times, and its span is
// Open: its end is that, or later.
func CriticalChains(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	chains := readChains(in)
	boots := sameBoots(chains)
	if len(boots) == 0 {
		return []wire.BootReport{newBoot().done(nothing(in.source(sourceChain, o), "no critical chain is in it"))}
	}
	reports := make([]wire.BootReport, len(boots))
	for i, chains := range boots {
		b := newBoot()
		b.report.System.Relative = true
		for _, c := range chains {
			b.addLinks(c)
		}
		for _, c := range chains { // a root may be further down in another chain, with its time
			b.addRoot(c)
		}
		for i := range b.report.Units {
			b.report.Units[i].After = unique(b.report.Units[i].After)
		}
		reports[i] = b.done(in.source(sourceChain, o))
	}
	return reports
}

// nothing reports that a source has nothing of what it was read for.
func nothing(s wire.BootSource, why string) wire.BootSource {
	if s.State == wire.SourceRead {
		s.State = wire.SourcePartial
	}
	s.Detail = join(s.Detail, why)
	return s
}

func unique(names []string) []string {
	seen := make(map[string]bool, len(names))
	kept := names[:0]
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			kept = append(kept, n)
		}
	}
	return kept
}

func readChains(in *lines) []chain {
	var chains []chain
	var open *chain
	var columns []int // of the lines from the root to the last, and which they are
	var path []int
	for in.next() {
		l, column, tree, dots, ok := readLink(string(in.line))
		if dots && open != nil {
			continue
		}
		if !ok || tree && open == nil {
			open = nil
			continue
		}
		if !tree {
			if len(chains) >= maxChains {
				open = nil
				continue
			}
			chains = append(chains, chain{})
			open = &chains[len(chains)-1]
			columns, path = columns[:0], path[:0]
		}
		for len(columns) > 0 && columns[len(columns)-1] >= column {
			columns, path = columns[:len(columns)-1], path[:len(path)-1]
		}
		l.above = -1
		if len(path) > 0 {
			l.above = path[len(path)-1]
		} else if tree {
			// The first dependency's branch begins where the root's name does, but
			// its name is further right: so this is no part of the chain.
			open = nil
			continue
		}
		if len(open.links) >= wire.MaxBootUnits || len(path) >= maxDepth {
			in.bad++
			continue
		}
		columns, path = append(columns, column), append(path, len(open.links))
		open.links = append(open.links, l)
	}
	kept := chains[:0]
	for _, c := range chains {
		// A name alone on a line is no chain.
		if len(c.links) > 1 || len(c.links) == 1 && (c.links[0].hasAt || c.links[0].hasFor) {
			kept = append(kept, c)
			in.good += len(c.links)
		}
	}
	return kept
}

// readLink reads a line of a chain. tree means that a branch is drawn before the name,
// which begins in that column; dots, that it stands for what was printed above already.
func readLink(s string) (l link, column int, tree, dots, ok bool) {
	if strings.IndexByte(s, 0x1b) >= 0 {
		s = verdict.Plain(s, maxLine) // its colours
	}
	if len(s) > 2048 {
		return link{}, 0, false, false, false
	}
	rest := s
	for rest != "" {
		r, n := utf8.DecodeRuneInString(rest)
		switch r {
		case ' ', '\t', '\u00a0', '>', '│', '├', '└', '─', '|', '`':
			tree = tree || strings.ContainsRune("│├└─|`", r)
		case '-':
			// Of an ASCII branch ("|-", "`-"); a name may begin with it too ("-.slice").
			if !strings.HasSuffix(s[:len(s)-len(rest)], "|") && !strings.HasSuffix(s[:len(s)-len(rest)], "`") {
				n = 0
			}
		default:
			n = 0
		}
		if n == 0 {
			break
		}
		rest = rest[n:]
		column++
	}
	rest = strings.TrimRight(rest, " \t")
	if rest == "..." || rest == "…" {
		return link{}, column, tree, true, false
	}
	name, times, _ := strings.Cut(rest, " ")
	if !isUnit(name) {
		return link{}, 0, false, false, false
	}
	l.unit = name
	times = strings.TrimSpace(times)
	if at, found := strings.CutPrefix(times, "@"); found {
		at, took, both := strings.Cut(at, "+")
		times = ""
		if both {
			times = "+" + took
		}
		if l.at, ok = timespan(at); !ok {
			return link{}, 0, false, false, false
		}
		l.hasAt = true
	}
	if took, found := strings.CutPrefix(times, "+"); found {
		if l.took, ok = timespan(took); !ok {
			return link{}, 0, false, false, false
		}
		l.hasFor, times = true, ""
	}
	return l, column, tree, false, times == ""
}

// sameBoots sorts chains by boots.
func sameBoots(chains []chain) [][]chain {
	var boots [][]chain
	var times []map[string]link
	for _, c := range chains {
		to := -1
		for i := range boots {
			if agree(times[i], c) {
				to = i
				break
			}
		}
		if to < 0 {
			if len(boots) >= maxBoots {
				continue
			}
			to = len(boots)
			boots, times = append(boots, nil), append(times, map[string]link{})
		}
		boots[to] = append(boots[to], c)
		for _, l := range c.links {
			if l.hasAt {
				times[to][l.unit] = l
			}
		}
	}
	return boots
}

// agree tells whether a chain shares units with others, and all of them have the
// same times.
func agree(times map[string]link, c chain) bool {
	shared := false
	for _, l := range c.links {
		other, ok := times[l.unit]
		if !ok || !l.hasAt {
			continue
		}
		if l.at != other.at || l.took != other.took {
			return false
		}
		shared = true
	}
	return shared
}

func (b *boot) addLinks(c chain) {
	for _, l := range c.links {
		if u := b.unit(l.unit); u != nil && l.hasAt {
			at := max(l.at, 1) // 0 would say that it never began
			u.Activating, u.Activated, u.Grain = at, at+l.took, millisecond
		}
		if l.above >= 0 {
			after(b.unit(c.links[l.above].unit), l.unit)
		}
	}
}

func (b *boot) addRoot(c chain) {
	root := c.links[0]
	u := b.unit(root.unit)
	if u == nil {
		return
	}
	s := wire.BootSpan{Source: sourceSystemd, Name: chainRoot, Clock: wire.ClockMonotonic, Grain: millisecond, Unit: root.unit}
	if !root.hasAt && root.hasFor && u.Activated == 0 {
		for _, l := range c.links {
			if l.above == 0 {
				u.Activating = max(u.Activating, l.at+l.took)
			}
		}
		u.Activated, u.Grain = u.Activating+root.took, millisecond
		s.Open = true
		s.Detail = "it took as long as printed; when it began is not printed, and is taken to be when the last of what it is ordered after was active"
	}
	s.Start, s.End = u.Activating, u.Activated
	b.span(s)
}
