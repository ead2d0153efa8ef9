package main

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// width of each picture, in pixels: what GitHub gives a page's column.
const (
	width  = 880.0
	margin = 20.0
)

// style has the colours of a boot's picture (internal/boots/timeline/draw), and is dark where
// the reader's screen is.
const style = `svg{--ground:#fff;--ink:#1a2230;--dim:#5b6676;--line:#e4e8ee;--off:#c3cbd7;--base:#d97706;--node:#2563eb;--platform:#64748b;--good:#15803d;--on:#fff}
@media (prefers-color-scheme:dark){svg{--ground:#11161d;--ink:#e6eaf0;--dim:#98a3b3;--line:#263040;--off:#4b5768;--base:#f0a53a;--node:#5b9bff;--platform:#8f9db0;--good:#4ade80;--on:#0b0f14}}
text{fill:var(--ink);font-size:13px}.title{font-size:18px;font-weight:650}.head{font-weight:650}.dim{fill:var(--dim);font-size:12px}.on{fill:var(--on);font-weight:650;font-size:12px}
.ground{fill:var(--ground)}.line{stroke:var(--line)}.frame{fill:none;stroke:var(--off)}.dash{stroke:var(--off);stroke-dasharray:3 4}
.off{fill:var(--off)}.base{fill:var(--base)}.node{fill:var(--node)}.platform{fill:var(--platform)}.good{fill:var(--good)}.faint{opacity:.13}.soft{opacity:.4}
.s-base{stroke:var(--base)}.s-node{stroke:var(--node)}.s-platform{stroke:var(--platform)}.s-good{stroke:var(--good)}path,line{fill:none;stroke-width:1.5}
`

const fonts = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

// A canvas is a picture that is being drawn. Text is escaped here and nowhere else.
type canvas struct {
	strings.Builder
	words []word
	err   error
}

// word is where a text lies, by the widest of the fonts.
type word struct {
	text       string
	x, y, w, h float64
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 32) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes all
	return b.String()
}

// lengthOf is a text's width in the widest of the fonts.
func lengthOf(class, text string) float64 {
	size := map[string]float64{"title": 11, "head": 8.2, "dim": 6.9, "on": 7.6}[class]
	if size == 0 {
		size = 7.4
	}
	return float64(utf8.RuneCountInString(text)) * size
}

// text writes a line; its anchor is "start", "middle" or "end".
func (c *canvas) text(x, y float64, class, anchor, text string) {
	w := word{text: text, x: x, y: y - 10, w: lengthOf(class, text), h: 12}
	w.x -= map[string]float64{"middle": w.w / 2, "end": w.w}[anchor]
	if w.x < 0 || w.x+w.w > width {
		c.fail("%q does not fit into the width", text)
	}
	for _, o := range c.words {
		if w.x < o.x+o.w && o.x < w.x+w.w && w.y < o.y+o.h && o.y < w.y+w.h {
			c.fail("%q overlaps %q", text, o.text)
		}
	}
	c.words = append(c.words, w)
	fmt.Fprintf(c, `<text x="%s" y="%s" class="%s" text-anchor="%s">%s</text>`+"\n", number(x), number(y), class, anchor, escape(text))
}

func (c *canvas) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *canvas) box(x, y, w, h float64, class string) {
	fmt.Fprintf(c, `<rect x="%s" y="%s" width="%s" height="%s" rx="3" class="%s"/>`+"\n", number(x), number(y), number(max(w, 1.5)), number(h), class)
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`+"\n", number(x1), number(y1), number(x2), number(y2), class)
}

// arrow is a line to the right, or to the left, with a head of the same colour.
func (c *canvas) arrow(x1, x2, y float64, colour string) {
	d := 8.0
	if x2 < x1 {
		d = -d
	}
	c.line(x1, y, x2-d, y, "s-"+colour)
	fmt.Fprintf(c, `<polygon points="%[1]s,%[2]s %[3]s,%[4]s %[3]s,%[5]s" class="%[6]s"/>`+"\n", number(x2), number(y), number(x2-d), number(y-4.5), number(y+4.5), colour)
}

// picture puts a frame around what was drawn; the description is for who cannot see it.
func (c *canvas) picture(height float64, title, description string) (string, error) {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" role="img" aria-labelledby="title desc" font-family="%[3]s">
<title id="title">%[4]s</title>
<desc id="desc">%[5]s</desc>
<style>%[6]s</style>
<rect width="100%%" height="100%%" rx="8" class="ground"/>
<text x="20" y="34" class="title">%[4]s</text>
%[7]s</svg>
`, number(width), number(height), fonts, escape(title), escape(description), style, c.String()), c.err
}
