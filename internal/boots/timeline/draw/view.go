package draw

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// view is a Timeline made fit to be shown: whatever is in it can be printed, and
// its times can be subtracted.
type view struct {
	timeline.Timeline
	classes map[string]timeline.Class // of the spans on the path
	share   map[timeline.Class]wire.Micros
	groups  []group
	// What all spans, the path and both ends cover.
	first, last wire.Micros
}

// group is one source's spans.
type group struct {
	source string
	rows   []row
}

// row is a span in the order in which it is shown: parts after what they are
// part of.
type row struct {
	timeline.Span
	depth int
	class timeline.Class // "": not on the path
}

// classes in the order in which they are listed.
var classOrder = [...]timeline.Class{timeline.Base, timeline.Node, timeline.Platform, timeline.Waiting}

// classMeans explains a class to people.
func classMeans(c timeline.Class) string {
	switch c {
	case timeline.Base:
		return "the same on every node: belongs in the image"
	case timeline.Node:
		return "has to be done on each node"
	case timeline.Platform:
		return "Azure's, the kernel's or systemd's own"
	case timeline.Waiting:
		return "nothing on the path ran"
	}
	return ""
}

// farthest is the most that a time may be off the kernel's start: some three
// years. Differences of such times do not overflow, also as nanoseconds.
const farthest = wire.Micros(1e14)

func clamp(m wire.Micros) wire.Micros { return min(max(m, -farthest), farthest) }

func newView(t timeline.Timeline) view {
	v := view{Timeline: cleaned(t), classes: map[string]timeline.Class{}, share: map[timeline.Class]wire.Micros{}}
	v.first, v.last = v.Origin, v.End
	for _, s := range v.Spans {
		v.first, v.last = min(v.first, s.Start), max(v.last, s.End)
	}
	for _, s := range v.Path {
		v.first, v.last = min(v.first, s.Start), max(v.last, s.End)
		v.share[s.Class] = clamp(v.share[s.Class] + s.End - s.Start)
		if c, ok := v.classes[s.Span]; s.Span != "" && (!ok || c == timeline.Waiting) {
			v.classes[s.Span] = s.Class
		}
	}
	v.groups = v.group()
	return v
}

// window is what is shown where not all can be: the time before the origin of a
// preprovisioned machine, or hours after the end, would leave no room.
func (v view) window() (from, to wire.Micros) {
	room := (v.End - v.Origin) / 4
	from, to = v.first, min(v.last, v.End+room)
	if v.Idle > 0 || from < v.Origin-room {
		from = v.Origin
	}
	return from, to
}

// group puts spans under their sources, in the order in which these begin.
func (v view) group() []group {
	var out []group
	at := map[string]int{}
	bySource := map[string][]timeline.Span{}
	for _, s := range v.Spans {
		if _, ok := at[s.Source]; !ok {
			at[s.Source] = len(out)
			out = append(out, group{source: s.Source})
		}
		bySource[s.Source] = append(bySource[s.Source], s)
	}
	for i, g := range out {
		spans := bySource[g.source]
		known := map[string]bool{}
		for _, s := range spans {
			known[s.ID] = true
		}
		parts := map[string][]timeline.Span{}
		for _, s := range spans {
			parent := s.Parent
			if !known[parent] || parent == s.ID {
				parent = ""
			}
			parts[parent] = append(parts[parent], s)
		}
		shown := map[string]bool{}
		var walk func(parent string, depth int)
		walk = func(parent string, depth int) {
			for _, s := range parts[parent] {
				out[i].rows = append(out[i].rows, row{Span: s, depth: min(depth, 8), class: v.classes[s.ID]})
				if s.ID != "" && !shown[s.ID] { // an ID that is there twice has its parts once
					shown[s.ID] = true
					walk(s.ID, depth+1)
				}
			}
		}
		walk("", 0)
		for _, s := range spans { // parents in a circle are reached from nowhere
			if s.ID != "" && !shown[s.ID] {
				shown[s.ID] = true
				out[i].rows = append(out[i].rows, row{Span: s, class: v.classes[s.ID]})
			}
		}
	}
	return out
}

// byStart compares spans as they are listed.
func byStart(a, b timeline.Span) int {
	if a.Start != b.Start {
		if a.Start < b.Start {
			return -1
		}
		return 1
	}
	if a.End != b.End { // what lasts longer holds what is shorter
		if a.End > b.End {
			return -1
		}
		return 1
	}
	return strings.Compare(a.ID, b.ID)
}

// cleaned copies t with every text printable and every time in bounds.
func cleaned(t timeline.Timeline) timeline.Timeline {
	for _, s := range []*string{&t.Node, &t.Pool, &t.Image, &t.VMID, &t.BootID, &t.OriginIs, &t.EndIs} {
		*s = printable(*s)
	}
	t.Origin, t.Idle = clamp(t.Origin), max(0, clamp(t.Idle))
	t.End = max(t.Origin, clamp(t.End))
	if y := t.KernelStart.UTC().Year(); y < 1 || y > 9999 {
		t.KernelStart = time.Time{}
	}
	t.Spans = slices.Clone(t.Spans)
	for i := range t.Spans {
		s := &t.Spans[i]
		for _, text := range []*string{&s.ID, &s.Name, &s.Source, (*string)(&s.Kind), &s.Parent, &s.Result, &s.Detail} {
			*text = printable(*text)
		}
		if s.Name == "" {
			s.Name = s.ID
		}
		s.Start, s.Uncertainty = clamp(s.Start), max(0, clamp(s.Uncertainty))
		s.End = max(s.Start, clamp(s.End))
		s.After = printables(s.After)
	}
	slices.SortStableFunc(t.Spans, byStart)
	t.Path = slices.Clone(t.Path)
	for i := range t.Path {
		s := &t.Path[i]
		s.Span, s.Name, s.Class = printable(s.Span), printable(s.Name), timeline.Class(printable(string(s.Class)))
		s.Stage = timeline.Stage(printable(string(s.Stage)))
		s.Start = clamp(s.Start)
		s.End = max(s.Start, clamp(s.End))
		if s.Wait != nil {
			w := *s.Wait
			for _, text := range []*string{&w.Before, &w.After, &w.Cause, &w.Evidence} {
				*text = printable(*text)
			}
			s.Wait = &w
		}
	}
	t.Advice = slices.Clone(t.Advice)
	for i := range t.Advice {
		a := &t.Advice[i]
		for _, text := range []*string{&a.What, &a.Do, &a.Unit, &a.Module, (*string)(&a.Class)} {
			*text = printable(*text)
		}
		a.Saves, a.Uncertainty = clamp(a.Saves), max(0, clamp(a.Uncertainty))
		a.Spans = printables(a.Spans)
	}
	t.Clocks = slices.Clone(t.Clocks)
	for i := range t.Clocks {
		c := &t.Clocks[i]
		c.Kind, c.How = wire.ClockKind(printable(string(c.Kind))), printable(c.How)
		c.Uncertainty = max(0, clamp(c.Uncertainty))
		c.Steps = slices.Clone(c.Steps)
		for j := range c.Steps {
			c.Steps[j].At, c.Steps[j].By = clamp(c.Steps[j].At), clamp(c.Steps[j].By)
		}
	}
	t.Missing = printables(t.Missing)
	t.UserData = max(0, clamp(t.UserData))
	t.DiskRead.Disk, t.DiskRead.Bytes, t.DiskRead.At = printable(t.DiskRead.Disk), max(0, t.DiskRead.Bytes), clamp(t.DiskRead.At)
	t.Restart.After = max(0, clamp(t.Restart.After))
	t.Pulls = slices.Clone(t.Pulls)
	for i := range t.Pulls {
		p := &t.Pulls[i]
		p.Image, p.DaemonSet = printable(p.Image), printable(p.DaemonSet)
		p.Took, p.Bytes = max(0, clamp(p.Took)), min(max(0, p.Bytes), 1<<58) // 16 of them can be added
	}
	return t
}

func printables(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = printable(list[i])
	}
	return list
}

// maxText is the most bytes of a text that are shown.
const maxText = 1024

// printable makes a text from outside safe to print: what controls a terminal, reorders a
// line, or joins onto the character before becomes U+FFFD, spaces and line ends become one
// space.
func printable(s string) string {
	plain := len(s) <= maxText
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || unicode.Is(unicode.Z, r):
			r = ' '
		case !unicode.IsPrint(r) || unicode.Is(unicode.M, r):
			r = utf8.RuneError
		}
		b.WriteRune(r)
		if b.Len() > maxText {
			b.WriteString("…")
			break
		}
	}
	return b.String()
}

// pathName is what a step is called.
func (v view) pathName(s timeline.Step) string {
	if s.Wait != nil && s.Span == "" && s.Wait.Before != "" {
		return "before " + v.nameOf(s.Wait.Before)
	}
	if s.Name != "" {
		return s.Name
	}
	return v.nameOf(s.Span)
}

// nameOf is a span's name, or a name made of its ID.
func (v view) nameOf(id string) string {
	for _, s := range v.Spans {
		if s.ID == id {
			return s.Name
		}
	}
	return id
}

// headline is the result, in one sentence.
func (v view) headline() string {
	from := ", from " + v.OriginIs + " to " + v.EndIs
	if v.OriginIs == "" || v.EndIs == "" {
		from = ""
	}
	total := Duration(v.Total())
	if v.Complete {
		return "booted in " + total + from
	}
	return "not seen to finish; " + total + " are known" + from
}

// title is what a boot is called.
func (v view) title() string {
	for _, s := range []string{v.Node, v.VMID, v.BootID} {
		if s != "" {
			return s
		}
	}
	return "a node"
}

// longestRows are the n longest of rows, by when they begin.
func longestRows(rows []row, n int) []row {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b row) int { return int(min(max((b.End-b.Start)-(a.End-a.Start), -1), 1)) })
	rows = rows[:min(n, len(rows))]
	slices.SortStableFunc(rows, func(a, b row) int { return byStart(a.Span, b.Span) })
	return rows
}

// imageName is the short form of the id of a gallery's image version, which is
// "/subscriptions/…/galleries/GALLERY/images/IMAGE/versions/VERSION".
func imageName(id string) string {
	parts := strings.Split(id, "/")
	n := len(parts)
	if n >= 6 && strings.EqualFold(parts[n-6], "galleries") && strings.EqualFold(parts[n-4], "images") && strings.EqualFold(parts[n-2], "versions") {
		return parts[n-5] + "/" + parts[n-3] + "/" + parts[n-1]
	}
	return id
}
