package draw

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/ortet/ortet/internal/boots/timeline"
)

// Terminal is what text is written for.
type Terminal struct {
	Width int  // columns; less than 40 are taken for 40, 0 for 80, more than 1000 for 1000
	Color bool // SGR sequences may be written
	ASCII bool // nothing else may be: bars are of "#" and "."
}

const (
	narrowest = 40
	usual     = 80
	widest    = 1000
)

// page is text that is being laid out.
type page struct {
	strings.Builder
	Terminal
}

func newPage(to Terminal) *page {
	if to.Width == 0 {
		to.Width = usual
	}
	to.Width = min(max(to.Width, narrowest), widest)
	return &page{Terminal: to}
}

func (p *page) glyph(nice, plain string) string {
	if p.ASCII {
		return plain
	}
	return nice
}

// sgr are the colours: those of classes differ also with few colours, since texts and bars
// show the same.
func sgr(name string) string {
	switch name {
	case "bold":
		return "1"
	case "dim":
		return "2"
	case string(timeline.Base):
		return "33"
	case string(timeline.Node):
		return "36"
	case string(timeline.Platform):
		return "34"
	case string(timeline.Waiting):
		return "31"
	}
	return ""
}

func (p *page) style(name, text string) string {
	code := sgr(name)
	if !p.Color || code == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *page) line(parts ...string) {
	p.WriteString(strings.TrimRight(strings.Join(parts, ""), " "))
	p.WriteByte('\n')
}

// paragraph writes text after begin, and further lines of it after next. A text without
// spaces that does not fit a line, such as an ARM id, is broken.
func (p *page) paragraph(begin, next, style, text string) {
	text = p.plain(text)
	for first := true; ; first = false {
		room := p.Width - len(begin)
		line, rest := p.breakLine(text, room)
		if line == "" && !first {
			return
		}
		p.line(begin + p.style(style, line))
		if begin, text = next, rest; rest == "" {
			return
		}
	}
}

// breakLine takes as much as fits up to a space, or as much of the first part as does.
func (p *page) breakLine(text string, room int) (line, rest string) {
	words := strings.Fields(text)
	used := 0
	for i, word := range words {
		n := p.columns(word)
		if i > 0 {
			n++
		}
		if used+n > room {
			if i > 0 {
				return strings.Join(words[:i], " "), strings.Join(words[i:], " ")
			}
			cut := p.fits(word, room)
			return word[:cut], strings.Join(append([]string{word[cut:]}, words[1:]...), " ")
		}
		used += n
	}
	return strings.Join(words, " "), ""
}

// fits is how many bytes of text lie in n columns: at least one character.
func (p *page) fits(text string, n int) int {
	used := 0
	for i, r := range text {
		if used += p.runeColumns(r); used > n && i > 0 {
			return i
		}
	}
	return len(text)
}

// plain is text in characters that may be written.
func (p *page) plain(text string) string {
	if !p.ASCII {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == 'µ':
			return 'u'
		case r == '…':
			return '~'
		case r >= utf8.RuneSelf:
			return '?'
		}
		return r
	}, text)
}

func (p *page) columns(text string) int {
	n := 0
	for _, r := range text {
		n += p.runeColumns(r)
	}
	return n
}

func (p *page) runeColumns(r rune) int {
	if r < utf8.RuneSelf || p.ASCII {
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// pad fills text up to n columns.
func (p *page) pad(text string, n int) string {
	text = p.plain(text)
	return text + strings.Repeat(" ", max(0, n-p.columns(text)))
}

// middle cuts a text in its middle: beginnings and ends of names matter most.
func (p *page) middle(text string, n int) string {
	if p.columns(text) <= n {
		return text
	}
	head := text[:p.fits(text, max(1, (n-1)/2))]
	room := n - 1 - p.columns(head)
	tail := ""
	runes := []rune(text)
	for i := len(runes) - 1; i >= 0 && p.columns(string(runes[i]))+p.columns(tail) <= room; i-- {
		tail = string(runes[i]) + tail
	}
	return head + "…" + tail
}
