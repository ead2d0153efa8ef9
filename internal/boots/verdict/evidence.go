package verdict

import (
	"strings"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

// Bounds of what is quoted, in bytes of its JSON: together with all else it
// stays well below wire.MaxVerdict.
const (
	mostQuoted  = 40 << 10
	mostIgnored = 8 << 10
	// Lines before and after the one that shows the cause.
	linesBefore = 25
	linesAfter  = 8
	// The same of what is farther from the cause.
	nearBefore   = 4
	nearAfter    = 3
	mostOthers   = 4
	mostExcerpts = 14
	mostStages   = 16
	mostName     = 120
)

// evidence quotes what shows the reason: the lines around the best finding,
// then what else was found, then the ends of the logs where the reason is not
// the cause.
func (c *inquiry) evidence(best finding) []wire.Excerpt {
	q := quoter{left: mostQuoted}
	if best.log >= 0 {
		q.around(&c.logs[best.log], best.line, linesBefore, linesAfter)
	}
	var status, units []string
	for _, f := range c.found {
		switch {
		case f.log >= 0 || f.text == "":
		case f.source != "":
			q.text(f.source, []string{f.text})
		case f.order == cloudInit:
			status = append(status, f.stage+": "+f.text)
		case f.order == provision:
		default:
			units = append(units, f.text)
		}
	}
	if ci := c.facts.CloudInit; ci != nil && ci.Unreadable != "" {
		status = append(status, "not read: "+ci.Unreadable)
	}
	q.text(statusFile, status)
	if c.facts.Windows {
		q.text(services, append(units, c.beside...))
	} else {
		q.text(systemd, append(units, c.beside...))
	}
	if p := c.facts.Provision; p != nil && !c.came {
		q.text(provisionFile, []string{"ExitCode: " + p.ExitCode, "SystemdSummary: " + p.SystemdSummary})
	}
	others := 0
	for _, f := range c.found {
		if f.log < 0 || others == mostOthers || f.log == best.log && near(f.line, best.line) || !newReason(c.found, f) {
			continue
		}
		q.around(&c.logs[f.log], f.line, nearBefore, nearAfter)
		others++
	}
	if best.rank <= rankStage || best.rank == rankPhase-1 {
		for _, tail := range [...]struct {
			kind  kind
			lines int
		}{{output, 40}, {provision, 40}, {kubelet, 25}, {k3s, 25}, {runtime, 15}, {elsewhere, 15}, {kernel, 10}, {cloudInit, 10}} {
			for i := range c.logs {
				if l := &c.logs[i]; l.kind == tail.kind && l.kind&c.within != 0 && !l.aside && len(l.lines) > 0 {
					q.around(l, len(l.lines)-1, tail.lines-1, 0)
				}
			}
		}
	}
	return q.excerpts
}

func near(a, b int) bool { return a >= b-linesBefore && a <= b+linesAfter }

// newReason reports whether f is the first of its reason in its log: a program that retries
// logs the same again.
func newReason(found []finding, f finding) bool {
	for _, g := range found {
		if g.log == f.log && g.reason == f.reason && g.line < f.line {
			return false
		}
	}
	return true
}

// quoter gathers excerpts within a bound.
type quoter struct {
	left     int
	excerpts []wire.Excerpt
	quoted   []window
}

// window is what of a log was quoted, so that it is not quoted twice.
type window struct {
	log      *log
	from, to int
}

// around quotes the lines around one. If room is scarce the nearest before it
// are kept.
func (q *quoter) around(l *log, line, before, after int) {
	from, to := max(0, line-before), min(len(l.lines), line+after+1)
	for _, w := range q.quoted {
		if w.log == l && line >= w.from && line < w.to {
			return
		}
		if w.log == l && w.to > from && w.from <= from {
			from = w.to
		}
		if w.log == l && w.from < to && w.to >= to {
			to = w.from
		}
	}
	if from >= to || len(q.excerpts) == mostExcerpts {
		return
	}
	// A private key may have begun above; the line below may show that the last one
	// has a secret.
	top := max(0, from-redact.MaxKeyLines)
	shown := Redact(l.lines[top:min(to+1, len(l.lines))])[from-top : to-top]
	at := min(max(line-from, 0), len(shown)-1)
	first, last := at, at+1
	room := q.left - cost(shown[at]) - cost(l.source) - 64
	if room < 0 {
		return
	}
	for first > 0 && room-cost(shown[first-1]) >= 0 {
		first--
		room -= cost(shown[first])
	}
	for last < len(shown) && room-cost(shown[last]) >= 0 {
		room -= cost(shown[last])
		last++
	}
	q.left = room
	q.quoted = append(q.quoted, window{l, from, to})
	q.excerpts = append(q.excerpts, wire.Excerpt{
		Source: name(l.source), Lines: shown[first:last:last],
		Cut: l.cut || from+first > 0 || from+last < len(l.lines),
	})
}

// text quotes what is not of a log.
func (q *quoter) text(source string, lines []string) {
	var kept []string
	for _, l := range Redact(lines) {
		if n := cost(l); strings.TrimSpace(l) != "" && !strings.HasSuffix(l, ": ") && n <= q.left && len(kept) < 40 {
			kept = append(kept, l)
			q.left -= n
		}
	}
	if len(kept) > 0 && len(q.excerpts) < mostExcerpts {
		q.excerpts = append(q.excerpts, wire.Excerpt{Source: source, Lines: kept, Cut: len(kept) < len(lines)})
	}
}

// cost is the maximum length of a text in JSON, in bytes.
func cost(s string) int {
	n := 4
	for _, r := range s {
		switch r {
		case '<', '>', '&':
			n += 6
		case '"', '\\':
			n += 2
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}

// name makes a short text of the facts fit to be shown.
func name(s string) string {
	s = RedactText(s)
	if len(s) <= mostName {
		return s
	}
	n := mostName
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// bounded are findings as text, one line each.
func bounded(found []finding) []string {
	var lines []string
	left := mostIgnored
	for _, f := range found {
		text := f.text
		if f.stage != "" && f.order == cloudInit {
			text = f.stage + ": " + text
		}
		text = RedactText(text)
		if left -= cost(text); left < 0 || len(lines) == 32 {
			break
		}
		lines = append(lines, text)
	}
	return lines
}

// stageTimes are cloud-init's stages.
func stageTimes(ci *CloudInit) []wire.StageTime {
	if ci == nil {
		return nil
	}
	const most = int64(10 * 365 * 24 * 3600 * 1000)
	var times []wire.StageTime
	for _, s := range ci.Stages {
		if len(times) == mostStages {
			break
		}
		times = append(times, wire.StageTime{Name: name(s.Name), Begin: min(max(s.Begin, 0), most), End: min(max(s.End, 0), most)})
	}
	return times
}
