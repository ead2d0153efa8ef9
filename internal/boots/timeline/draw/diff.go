package draw

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline"
)

//go:embed diff.html
var diffTemplate string

// Side is one of two that are compared: a node, a pool, an image version. Boot is the one
// that is shown for it.
type Side struct {
	Name string
	Boot timeline.Timeline
}

// DiffHTML writes a page of two boots above each other on one scale, both from their
// origins on, and of what differs. It has no script, and makes no requests.
func DiffHTML(w io.Writer, a, b Side, d timeline.Difference) error {
	page, err := template.New("diff").Parse(diffTemplate)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	a.Name, b.Name = printable(a.Name), printable(b.Name)
	var out bytes.Buffer
	if err := page.Execute(&out, diffPage(a, b, d)); err != nil {
		return fmt.Errorf("lay out the page of %s and %s: %w", a.Name, b.Name, err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the page of %s and %s: %w", a.Name, b.Name, err)
	}
	return nil
}

type htmlDiff struct {
	Policy          string
	Style           template.CSS
	Title, Headline string
	A, B            string
	Picture         template.HTML
	Classes         []htmlShare
	Tables          []htmlChanges
	Notes           []string
}

type htmlChanges struct {
	Title string
	Rows  []htmlChange
}

type htmlChange struct{ Name, A, B, By, Sure string }

func diffPage(a, b Side, d timeline.Difference) htmlDiff {
	style := pageStyle + shapesStyle
	va, vb := newView(a.Boot), newView(b.Boot)
	p := htmlDiff{Policy: policy(style, ""), Style: template.CSS(style), //nolint:gosec // both are our own files
		Title: a.Name + " against " + b.Name, A: a.Name, B: b.Name, Headline: diffHeadline(d.Total),
		Picture: template.HTML(strips(a.Name, va, b.Name, vb)), Notes: printables(d.Notes)} //nolint:gosec // escaped as it is written
	for _, c := range classOrder {
		p.Classes = append(p.Classes, htmlShare{Class: string(c), Means: classMeans(c)})
	}
	for _, t := range []struct {
		title string
		of    []timeline.Change
	}{{"Stages, by their share of the critical path", d.Stages}, {"Spans and waits, by their share of the critical path", d.Spans}} {
		if len(t.of) == 0 {
			continue
		}
		h := htmlChanges{Title: t.title}
		for _, c := range t.of {
			sure := ""
			if c.Significant {
				sure = fmt.Sprintf("yes (p = %.2g)", c.P)
			}
			h.Rows = append(h.Rows, htmlChange{printable(c.Name), Duration(clamp(c.A).Duration()), Duration(clamp(c.B).Duration()), signed(clamp(c.By).Duration()), sure})
		}
		p.Tables = append(p.Tables, h)
	}
	return p
}

func signed(d time.Duration) string {
	if d > 0 {
		return "+" + Duration(d)
	}
	return Duration(d)
}

func diffHeadline(total timeline.Change) string {
	a, b := clamp(total.A), clamp(total.B)
	text := Duration(a.Duration()) + " against " + Duration(b.Duration())
	switch {
	case a <= 0 || b <= 0:
		return "nothing can be compared"
	case b < a:
		text += fmt.Sprintf(": the second is faster by %s (%d%%)", Duration((a - b).Duration()), percent(a-b, a))
	case b > a:
		text += fmt.Sprintf(": the second is slower by %s (%d%%)", Duration((b - a).Duration()), percent(b-a, a))
	}
	return text
}

// strips draws both paths, from their origins on, with the stages below each.
func strips(nameA string, a view, nameB string, b view) string {
	const left, room, high = 160.0, 1020.0, 34.0
	longer := max(a.End-a.Origin, b.End-b.Origin, 1)
	d := &drawing{}
	d.tag("svg", "xmlns", "http://www.w3.org/2000/svg", "viewBox", "0 0 1200 190", "role", "img", "class", "boot", "font-family", fonts, "font-size", "11")
	d.WriteString("<title>")
	d.escape("The critical paths of " + nameA + " and " + nameB)
	d.WriteString("</title>" + hatch)
	d.axis(scale{from: 0, to: longer, x: left, width: room}, 0, 24, 176)
	for i, v := range []view{a, b} {
		y := 34 + float64(i)*74
		s := scale{from: v.Origin, to: v.Origin + longer, x: left, width: room}
		d.text(8, y+22, "source", shorten([]string{nameA, nameB}[i], 26))
		for _, step := range v.Path {
			x, to := s.at(step.Start), s.at(step.End)
			d.box(x, y, to-x, high, classOf(step.Class).css(), v.stepTitle(step))
			if to-x > 50 {
				d.text(x+4, y+21, "on", shorten(v.pathName(step), int((to-x-6)/6.2)))
			}
		}
		for _, ph := range v.coarse() {
			from, to := farthest, -farthest
			for _, step := range ph.steps {
				from, to = min(from, step.Start), max(to, step.End)
			}
			if x, x2 := s.at(from), s.at(to); x2-x > float64(len(ph.name))*5.5 {
				d.text(x+1, y+high+13, "dim", ph.name)
			}
		}
		end := s.at(v.End)
		if label := Duration(v.Total()); end < left+room-70 {
			d.text(end+6, y+21, "path", label)
		} else {
			d.text(left+room, y-3, "end", label)
		}
	}
	d.WriteString("</svg>")
	return strings.TrimSpace(d.String())
}
