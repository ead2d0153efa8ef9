package source

import (
	"strings"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// Bounds of stored text.
const (
	maxDetail = 400 // wire allows 512
	maxUnit   = 256
	maxWord   = 200
	maxBoots  = 64 // of one file; the last ones are kept
)

// boot gathers one source's events of one boot.
type boot struct {
	report wire.BootReport
	units  map[string]int
	over   int // how many things were left out because of the report's bounds
}

func newBoot() *boot {
	return &boot{report: wire.BootReport{Version: wire.BootReportVersion}, units: map[string]int{}}
}

// unit is the unit of that name, made where it is not there yet; nil where there
// is no more room or it is no name of a unit.
func (b *boot) unit(name string) *wire.BootUnit {
	if i, ok := b.units[name]; ok {
		return &b.report.Units[i]
	}
	if !isUnit(name) {
		return nil
	}
	if len(b.report.Units) >= wire.MaxBootUnits {
		b.over++
		return nil
	}
	b.units[name] = len(b.report.Units)
	b.report.Units = append(b.report.Units, wire.BootUnit{Name: name})
	return &b.report.Units[len(b.report.Units)-1]
}

// span keeps a span whose times are possible.
func (b *boot) span(s wire.BootSpan) {
	most := maxWall
	if s.Clock == wire.ClockMonotonic {
		most = maxMonotonic
	}
	if s.Start < 0 || s.Start > most || s.End > most || s.Name == "" {
		return
	}
	if s.End < s.Start {
		s.End = s.Start // the clock was set back meanwhile
	}
	if len(b.report.Spans) >= wire.MaxBootSpans {
		b.over++
		return
	}
	s.Detail = detail(s.Detail)
	b.report.Spans = append(b.report.Spans, s)
}

// after adds an edge, once.
func after(u *wire.BootUnit, name string) {
	if u == nil || len(u.After) >= wire.MaxUnitEdges || !isUnit(name) {
		return
	}
	u.After = append(u.After, name)
}

// done is the report, with what became of reading its source.
func (b *boot) done(s wire.BootSource) wire.BootReport {
	if b.over > 0 && s.State != wire.SourceOther {
		s.State = wire.SourcePartial
		s.Detail = join(s.Detail, "more was said than a report holds")
	}
	b.report.Sources = []wire.BootSource{s}
	return b.report
}

// detail makes a source's text fit to be stored.
func detail(s string) string {
	if s == "" {
		return ""
	}
	return shorten(verdict.RedactText(s), maxDetail)
}

// word makes a part of a source's text fit to be part of a name.
func word(s string) string {
	return strings.TrimSpace(shorten(verdict.RedactText(s), maxWord))
}

func shorten(s string, most int) string {
	s = strings.ToValidUTF8(verdict.Plain(s, 4*most), "?")
	if len(s) <= most {
		return s
	}
	n := most - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// isUnit reports whether s can be the name of a unit. Source: systemd,
// src/basic/unit-name.c.
func isUnit(s string) bool {
	if len(s) < len("a.path") || len(s) >= maxUnit {
		return false
	}
	i := strings.LastIndexByte(s, '.')
	if i <= 0 {
		return false
	}
	switch s[i+1:] {
	case "service", "socket", "target", "device", "mount", "automount", "swap", "path", "timer", "slice", "scope":
	default:
		return false
	}
	for _, c := range []byte(s[:i]) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == ':', c == '-', c == '_', c == '.', c == '\\', c == '@':
		default:
			return false
		}
	}
	return true
}
