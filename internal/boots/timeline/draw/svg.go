package draw

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

//go:embed svg.css
var svgStyle string

// SVG writes a boot as a picture that stands for itself: it loads nothing, runs
// nothing, and is dark where the reader's screen is.
func SVG(w io.Writer, t timeline.Timeline) error {
	v := newView(t)
	if _, err := io.WriteString(w, picture(v, true)); err != nil {
		return fmt.Errorf("write the picture of the boot of %s: %w", v.title(), err)
	}
	return nil
}

// Lengths of the picture, in pixels.
const (
	picWidth  = 1200
	picNames  = 300 // what names take
	picRow    = 18
	picMargin = 16
)

const (
	fonts = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
	// hatch is what waits are filled with.
	hatch = `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" class="hatch-a"/><rect width="3" height="6" class="hatch-b"/></pattern></defs>`
)

// drawing is SVG that is being written. Text and attributes are escaped here and
// nowhere else.
type drawing struct{ strings.Builder }

// tag opens an element; attributes are given as name, value, name, value.
func (d *drawing) tag(name string, attributes ...string) {
	d.WriteByte('<')
	d.WriteString(name)
	for i := 0; i+1 < len(attributes); i += 2 {
		d.WriteString(" " + attributes[i] + `="`)
		d.escape(attributes[i+1])
		d.WriteByte('"')
	}
	d.WriteByte('>')
}

func (d *drawing) escape(text string) {
	_ = xml.EscapeText(&d.Builder, []byte(text)) // a strings.Builder takes all
}

// text writes a text at a place.
func (d *drawing) text(x, y float64, class, words string) {
	d.tag("text", "x", number(x), "y", number(y), "class", class)
	d.escape(words)
	d.WriteString("</text>")
}

// box writes a rectangle with a title for the pointer.
func (d *drawing) box(x, y, w, h float64, class, title string) {
	d.tag("rect", "x", number(x), "y", number(y), "width", number(max(w, 1)), "height", number(h), "rx", "2", "class", class)
	if title != "" {
		d.WriteString("<title>")
		d.escape(title)
		d.WriteString("</title>")
	}
	d.WriteString("</rect>")
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 32) }

// class is a CSS class for a class of work; what is none of ours has the colour
// of what is not on the path.
func (c classOf) css() string {
	for _, known := range classOrder {
		if timeline.Class(c) == known {
			return "c-" + string(known)
		}
	}
	return "c-off"
}

type classOf timeline.Class

// scale brings times to places.
type scale struct {
	from, to wire.Micros
	x, width float64
}

func (s scale) at(m wire.Micros) float64 {
	m = min(max(m, s.from), s.to)
	x := s.x + float64(m-s.from)/float64(max(s.to-s.from, 1))*s.width
	return float64(int64(x*100+0.5)) / 100
}

// picture draws the path in one row, and below it all spans by their sources.
// Alone, it has its own style and names what it is of.
func picture(v view, alone bool) string {
	rows := len(v.groups)
	for _, g := range v.groups {
		rows += len(g.rows)
	}
	s := scale{x: picNames, width: picWidth - picNames - picMargin}
	s.from, s.to = v.window()
	s.to = max(s.to, s.from+1)
	const top, pathHeight = 96.0, 30.0
	bottom := top + pathHeight + 14 + float64(rows)*picRow
	height := bottom + picMargin
	d := &drawing{}
	d.tag("svg", "xmlns", "http://www.w3.org/2000/svg", "viewBox", "0 0 "+number(picWidth)+" "+number(height), "role", "img", "class", "boot",
		"font-family", fonts, "font-size", "11")
	d.WriteString("<title>")
	d.escape("Boot of " + v.title() + ": " + v.headline())
	d.WriteString("</title>")
	if alone {
		d.WriteString("<style>" + svgStyle + shapesStyle + "</style>")
		d.tag("rect", "width", "100%", "height", "100%", "class", "ground")
		d.WriteString("</rect>")
	}
	if alone {
		d.WriteString(hatch)
	}
	d.text(picMargin, 26, "title", shorten(v.title(), 60))
	d.text(picMargin, 44, "dim", shorten(v.headline(), 110))
	x := float64(picNames)
	for _, c := range classOrder {
		d.box(x, 56, 12, 12, classOf(c).css(), "")
		label := string(c) + " " + Duration(v.share[c].Duration())
		d.text(x+17, 66, "dim", label)
		x += 40 + float64(len(label))*6.2
	}
	d.axis(s, v.Origin, top, bottom)
	for _, step := range v.Path { // a wait shows across all, so that what ran meanwhile is seen
		if step.Class == timeline.Waiting && step.End > step.Start {
			d.tag("rect", "x", number(s.at(step.Start)), "y", number(top), "width", number(s.at(step.End)-s.at(step.Start)), "height", number(bottom-top), "class", "band")
			d.WriteString("</rect>")
		}
	}
	d.text(picMargin, top+pathHeight/2+8, "source", "Critical path")
	for _, step := range v.Path {
		a, b := s.at(step.Start), s.at(step.End)
		d.box(a, top+4, b-a, pathHeight-6, classOf(step.Class).css(), v.stepTitle(step))
		if name := v.pathName(step); b-a > 50 {
			d.text(a+4, top+pathHeight/2+5, "on", shorten(name, int((b-a-6)/6.2)))
		}
	}
	y := top + pathHeight + 14
	for _, g := range v.groups {
		d.text(picMargin, y+13, "source", shorten(or(g.source, "no source"), 40))
		y += picRow
		for _, r := range g.rows {
			d.row(v, s, r, y)
			y += picRow
		}
	}
	d.WriteString("</svg>\n")
	return d.String()
}

// axis draws lines at round times after the origin.
func (d *drawing) axis(s scale, origin wire.Micros, top, bottom float64) {
	step := tickStep(s.to-s.from, 12)
	first := (s.from - origin) / step
	for i := first; i*step+origin <= s.to; i++ {
		at := i*step + origin
		if at < s.from {
			continue
		}
		x := s.at(at)
		d.tag("line", "x1", number(x), "x2", number(x), "y1", number(top-4), "y2", number(bottom), "class", "grid")
		d.WriteString("</line>")
		d.text(x, top-10, "tick", tickLabel(i*step, step))
	}
}

func (d *drawing) row(v view, s scale, r row, y float64) {
	class := "name"
	if r.class != "" {
		class = "name path"
	}
	d.text(picMargin+10+float64(r.depth)*10, y+13, class, shorten(r.Name, 44-2*r.depth))
	css := classOf(r.class).css()
	if r.Result != "" {
		css += " bad"
	}
	if r.Open {
		css += " open"
	}
	a, b := s.at(r.Start), s.at(r.End)
	if r.End < s.from || r.Start > s.to { // it is named where it would lie
		at := took(v.Origin, r.Start)
		if r.End < s.from {
			d.text(s.x+4, y+13, "dim", "◂ at "+at)
		} else {
			d.text(s.x+s.width, y+13, "dim end", "at "+at+" ▸")
		}
		return
	}
	if r.End == r.Start {
		d.tag("path", "d", fmt.Sprintf("M%s %sl4 4l-4 4l-4-4z", number(a), number(y+5)), "class", css)
		d.WriteString("<title>")
		d.escape(v.spanTitle(r.Span))
		d.WriteString("</title></path>")
	} else {
		d.box(a, y+3, b-a, picRow-6, css, v.spanTitle(r.Span))
	}
	label := took(r.Start, r.End)
	if r.End == r.Start {
		label = took(v.Origin, r.Start)
	}
	if room := float64(len(label))*6 + 8; b+room < picWidth {
		d.text(max(b, a+1)+6, y+13, "dim", label)
	} else {
		d.text(a-4, y+13, "dim end", label)
	}
}

// stepTitle is the title of a step.
func (v view) stepTitle(s timeline.Step) string {
	text := v.pathName(s) + ": " + took(s.Start, s.End) + ", " + string(s.Class) + ", at " + took(v.Origin, s.Start)
	if s.Wait != nil {
		text += "; " + strings.Join(waitLines(*s.Wait), "; ")
	}
	return text
}

func (v view) spanTitle(s timeline.Span) string {
	text := s.Name + ": " + took(s.Start, s.End) + ", from " + took(v.Origin, s.Start) + " to " + took(v.Origin, s.End)
	if s.Uncertainty > 0 {
		text += ", give or take " + Duration(s.Uncertainty.Duration())
	}
	if s.Open {
		text += ", not ended"
	}
	for _, more := range []string{s.Result, s.Detail} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}

// shorten cuts a text in its middle to n characters.
func shorten(text string, n int) string {
	r := []rune(text)
	n = max(n, 1)
	if len(r) <= n {
		return text
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
