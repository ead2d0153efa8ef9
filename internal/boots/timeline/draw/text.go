package draw

import (
	"fmt"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// Text shows a boot in a terminal: how long it took, the coarse phases, the
// critical path with what was waited for, advice, and what is not known. No line
// is wider than the terminal.
func Text(w io.Writer, t timeline.Timeline, to Terminal) error {
	p := newPage(to)
	v := newView(t)
	p.head(v)
	p.phases(v)
	p.path(v)
	p.advice(v)
	p.list(costsTitle, v.costs())
	p.unknown(v)
	if _, err := io.WriteString(w, p.String()); err != nil {
		return fmt.Errorf("write the timeline of %s: %w", v.title(), err)
	}
	return nil
}

func (p *page) head(v view) {
	p.paragraph("", "  ", "bold", v.title()+": "+v.headline())
	if !v.KernelStart.IsZero() {
		at := v.KernelStart.Add(v.Origin.Duration()).UTC()
		p.field("began", at.Format("2006-01-02 15:04:05")+"Z")
	}
	p.field("pool", v.Pool)
	p.field("image", imageName(v.Image))
	p.field("tuned by", strings.Join(v.Tuned, ", "))
	p.field("vm id", v.VMID)
	p.field("boot id", v.BootID)
	if v.Idle > 0 {
		p.field("idle", Duration(v.Idle.Duration())+" before that, waiting in the pool of machines; not counted")
	}
	p.field("restarted", v.restarted())
	if len(v.Path) == 0 {
		return
	}
	var parts []string
	for _, c := range classOrder {
		if d := v.share[c]; d > 0 {
			parts = append(parts, fmt.Sprintf("%s %s (%d%%)", c, Duration(d.Duration()), percent(d, v.End-v.Origin)))
		}
	}
	p.field("spent on", strings.Join(parts, ", "))
}

// restarted says which of the machine's boots this is, where it is not the first.
func (v view) restarted() string {
	if v.Restart.Boot == 0 {
		return ""
	}
	return fmt.Sprintf("machine restarted %s after its first boot began; times below are of boot %d, with all before it as one span",
		Duration(v.Restart.After.Duration()), v.Restart.Boot)
}

func percent(part, whole wire.Micros) int {
	if whole <= 0 {
		return 0
	}
	return int(min(float64(part)/float64(whole)*100+0.5, 999))
}

// field writes a name and what it is, over several lines where that is long.
func (p *page) field(name, text string) {
	if text != "" {
		p.paragraph(fmt.Sprintf("  %-9s ", name), strings.Repeat(" ", 12), "", text)
	}
}

// phase is a coarse part of a boot: what of the path lies in it.
type phase struct {
	name  string
	took  wire.Micros
	steps []timeline.Step
}

// coarse are the stages that the path leads through; without a path, the longest spans that
// are no part of another.
func (v view) coarse() []phase {
	var out []phase
	for _, s := range timeline.Stages(v.Timeline) {
		if s.OnPath == 0 {
			continue
		}
		p := phase{name: string(s.Stage), took: s.OnPath}
		for _, step := range v.Path {
			if step.Stage == s.Stage {
				p.steps = append(p.steps, step)
			}
		}
		out = append(out, p)
	}
	if len(out) > 0 {
		return out
	}
	for _, r := range v.longest(12) {
		out = append(out, phase{r.Name, r.End - r.Start, []timeline.Step{{Start: r.Start, End: r.End, Class: r.class}}})
	}
	return out
}

// phases shows where the coarse parts of the boot lie.
func (p *page) phases(v view) {
	all := v.coarse()
	if len(all) == 0 || v.End == v.Origin {
		return
	}
	name := 0
	for _, ph := range all {
		name = max(name, p.columns(ph.name))
	}
	name = min(name, p.Width*3/8)
	const duration, share = 10, 5
	bar := p.Width - 2 - name - 1 - duration - share - 2
	p.line()
	p.line(p.style("bold", p.pad("Phases", p.Width-bar)), p.axis(v, bar))
	for _, ph := range all {
		p.line("  ", p.pad(p.middle(ph.name, name), name), " ", fmt.Sprintf("%*s %*s", duration, p.plain(Duration(ph.took.Duration())), share-1, fmt.Sprintf("%d%%", percent(ph.took, v.End-v.Origin))), "  ",
			p.bars(v, ph.steps, bar))
	}
}

// bars are those of several steps in one line: of two that would lie in one
// column, the longer one.
func (p *page) bars(v view, steps []timeline.Step, n int) string {
	type cell struct {
		text string
		of   timeline.Step
	}
	line := make([]cell, n)
	for _, s := range steps {
		for x, r := range []rune((&page{Terminal: Terminal{Width: p.Width, ASCII: p.ASCII}}).bar(v, s.Start, s.End, n, s.Class)) {
			if c := &line[min(x, n-1)]; r != ' ' && (c.text == "" || c.of.End-c.of.Start < s.End-s.Start) {
				*c = cell{string(r), s}
			}
		}
	}
	var b strings.Builder
	for i := 0; i < n; {
		j, run := i, ""
		for ; j < n && line[j].of.Class == line[i].of.Class; j++ {
			run += or(line[j].text, " ")
		}
		b.WriteString(p.style(string(line[i].of.Class), run))
		i = j
	}
	return b.String()
}

// longest are up to n spans that are no part of another, by when they began.
func (v view) longest(n int) []row {
	var all []row
	for _, g := range v.groups {
		for _, r := range g.rows {
			if r.depth > 0 || r.End <= v.Origin || r.Start >= v.End || r.End == r.Start {
				continue
			}
			switch r.Kind {
			case timeline.KindPlatform, timeline.KindManager, timeline.KindStage, timeline.KindCluster, timeline.KindPull:
				all = append(all, r)
			case timeline.KindUnit, timeline.KindPart, timeline.KindMoment:
			}
		}
	}
	return longestRows(all, n)
}

// path lists the critical path.
func (p *page) path(v view) {
	p.line()
	if len(v.Path) == 0 {
		p.line(p.style("bold", "Critical path"))
		p.paragraph("  ", "  ", "", "None: too little is known of this boot.")
		return
	}
	const at, duration, class = 10, 10, 8
	left, bar := 2+at+1+duration+2+class+1, 0
	if p.Width >= 64 { // else names need all the room
		bar = max(12, (p.Width-left)*2/5)
	}
	name := max(1, p.Width-left-1-bar)
	if bar > 0 {
		p.line(p.style("bold", p.pad("Critical path", left+name+1)), p.axis(v, bar))
	} else {
		p.line(p.style("bold", "Critical path"))
	}
	p.line(p.style("dim", fmt.Sprintf("  %*s %*s  %-*s what", at, "at", duration, "took", class, "class")))
	for _, s := range v.folded() {
		style := ""
		if s.Class == timeline.Waiting {
			style = string(s.Class)
		}
		p.line(fmt.Sprintf("  %*s %*s  ", at, p.plain(took(v.Origin, s.Start)), duration, p.plain(took(s.Start, s.End))),
			p.style(string(s.Class), p.pad(p.middle(string(s.Class), class), class)), " ",
			p.style(style, p.pad(p.middle(v.pathName(s), name), name)), " ", p.bar(v, s.Start, s.End, bar, s.Class))
		if s.Wait != nil && !v.short(s) {
			const indent = "             "
			for _, l := range waitLines(*s.Wait) {
				p.paragraph(indent, indent+"  ", "dim", l)
			}
		}
	}
}

// folded is the path with what is too short to matter put together, where it
// follows upon each other: a boot is hundreds of steps, of which some matter.
func (v view) folded() []timeline.Step {
	var out []timeline.Step
	for i := 0; i < len(v.Path); {
		j := i
		for j < len(v.Path) && v.short(v.Path[j]) {
			j++
		}
		if j-i < 2 {
			out = append(out, v.Path[i])
			i++
			continue
		}
		start := v.Path[i].Start
		out = append(out, timeline.Step{Name: fmt.Sprintf("%d short steps", j-i), Start: start, End: max(start, v.Path[j-1].End)})
		i = j
	}
	return out
}

// short reports that a step matters little: half a percent of the boot, or 10 ms of one of
// more than a fifth of a second.
func (v view) short(s timeline.Step) bool {
	all := v.End - v.Origin
	return s.End-s.Start < max(all/200, min(all/20, 10_000))
}

// waitLines are what is known of a wait.
func waitLines(w timeline.Wait) []string {
	why := "cause unknown"
	if w.Cause != "" {
		why = "for " + w.Cause
	}
	if w.Hidden {
		why += " (systemd-analyze critical-chain does not show it)"
	}
	if w.Evidence == "" {
		return []string{why}
	}
	return []string{why, w.Evidence}
}

func (p *page) advice(v view) {
	if len(v.Advice) == 0 {
		return
	}
	p.line()
	p.line(p.style("bold", "Advice"))
	if len(v.Advice) > 1 {
		p.paragraph("  ", "  ", "dim", alone)
	}
	for i, a := range v.Advice {
		saves := savesWord(a) + " " + Duration(a.Saves.Duration())
		if a.Uncertainty > 0 {
			saves += ", give or take " + Duration(a.Uncertainty.Duration())
		}
		if a.Class != "" {
			saves += " (" + string(a.Class) + ")"
		}
		p.paragraph(fmt.Sprintf("%3d. ", i+1), "     ", string(a.Class), saves)
		if a.What != "" {
			p.paragraph("     ", "     ", "", a.What)
		}
		if a.Do != "" {
			p.paragraph("     do: ", "         ", "", a.Do)
		}
	}
}

// alone is said where there are several pieces of advice.
const alone = "Savings are estimated separately and do not add up."

// savesWord is how much of what was replayed can be saved: of what has to be done on each
// node some stays, and the avoidable part of a wait is unknown.
func savesWord(a timeline.Advice) string {
	if a.Class == timeline.Base {
		return "saves"
	}
	return "saves at most"
}

func (p *page) unknown(v view) {
	p.list("Not known", v.Missing)
	var clocks []string
	for _, c := range v.Clocks {
		clocks = append(clocks, clockLine(c))
	}
	p.list("Clocks", clocks)
}

// list writes lines below a title, if there are any.
func (p *page) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line()
	p.line(p.style("bold", title))
	for _, l := range lines {
		p.paragraph("  - ", "    ", "", l)
	}
}

// clockLine is how sure a clock's times are.
func clockLine(c timeline.Clock) string {
	text := string(c.Kind) + ": "
	if c.Uncertainty == 0 {
		text += "exact"
	} else {
		text += "to within " + Duration(c.Uncertainty.Duration())
	}
	if c.How != "" {
		text += ", " + c.How
	}
	for _, s := range c.Steps {
		way, by := "forward", s.By
		if by < 0 {
			way, by = "back", -by
		}
		text += fmt.Sprintf("; set %s by %s at %s after the kernel's start", way, Duration(by.Duration()), Duration(s.At.Duration()))
	}
	return text
}

// axis is a scale of n columns for bars below it.
func (p *page) axis(v view, n int) string {
	whole := v.End - v.Origin
	if whole <= 0 || n < 8 {
		return ""
	}
	step := tickStep(whole, max(1, n/10))
	line := []byte(strings.Repeat(" ", n))
	free := 0
	for at := wire.Micros(0); at <= whole; at += step {
		label := tickLabel(at, step)
		x := int(int64(at) * int64(n) / int64(whole))
		if x < free || x+len(label) > n {
			continue
		}
		copy(line[x:], label)
		free = x + len(label) + 1
	}
	return p.style("dim", strings.TrimRight(string(line), " "))
}

// bar draws what lies between two times in n columns that stand for the time
// from the origin to the end. What is there but too short to see is a thin line.
func (p *page) bar(v view, from, to wire.Micros, n int, c timeline.Class) string {
	whole := v.End - v.Origin
	from, to = max(from, v.Origin)-v.Origin, min(to, v.End)-v.Origin
	if whole <= 0 || to < from || n <= 0 {
		return ""
	}
	// In eighths of a column: microseconds of three years times that do not overflow.
	eighths := func(m wire.Micros) int { return int(int64(m) * int64(n*8) / int64(whole)) }
	a, b := eighths(from), eighths(to)
	if b-a < 1 {
		x := min(a/8, n-1)
		return strings.Repeat(" ", x) + p.style(string(c), p.glyph("▏", "|"))
	}
	var line strings.Builder
	for x := a / 8; x*8 < b && x < n; x++ {
		lo, hi := max(a-x*8, 0), min(b-x*8, 8)
		line.WriteString(p.cell(lo, hi, c))
	}
	return strings.Repeat(" ", a/8) + p.style(string(c), strings.TrimRight(line.String(), " "))
}

// cell is a column of which the eighths from lo to hi are covered.
func (p *page) cell(lo, hi int, c timeline.Class) string {
	switch {
	case c == timeline.Waiting:
		return p.glyph("░", ".")
	case p.ASCII:
		return "#"
	case lo == 0:
		return string([]rune(" ▏▎▍▌▋▊▉█")[hi])
	case hi < 8: // inside a column: what stands left of it cannot be left out
		return string([]rune(" ▏▎▍▌▋▊▉█")[max(1, hi-lo)])
	case lo >= 6:
		return "▕"
	case lo >= 3:
		return "▐"
	}
	return "█"
}
