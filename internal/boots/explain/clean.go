package explain

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/redact"
)

var (
	// escapes are a terminal's, also as other programs spell them, or without their escape.
	escapes = regexp.MustCompile(`\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|(?:\x1b|\^\[|\\x1b|\\u001[bB]|\\033|\\e|#033|␛)(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78cM])`)
	lost    = regexp.MustCompile(`^M?\[K|\[(?:0?|[0-9]{1,2}(?:;[0-9]{1,3})+)m|\[[0-9]{2}m([^\]]|$)`)
	// quoted is what mails, tables and tools put before a line.
	quoted = regexp.MustCompile(`^(?:\s*[>|│]\s?)+`)
	// carried is what runtimes and pipelines put before a line of another program.
	carried = regexp.MustCompile(`^(?:\[pod/\S+\] )?\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?`)
	// headed is how a program's own line begins.
	headed = regexp.MustCompile(`^(?:[IWEF]\d{4} \d\d:\d\d:|time="|[A-Z]{4}\[\d|\[ *\d+\.\d+\] |\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\[(?:preflight|kubelet-|discovery|control-plane|certs|etcd|ERROR |WARNING )|\S*[^\[\]]{0,30}\d\d:\d\d:\d\d\S* (?:[A-Z]{3,5} )?\S+ [^\s:]+\[\d+\]: )`)
	// framed is a byte that Docker's framing leaves before a line.
	framed = regexp.MustCompile(`^\s*[^\s"]time="(\d{4}-)`)
	typed  = strings.NewReplacer("\u00a0", " ", "“", `"`, "”", `"`, "‘", "'", "’", "'", "\b", "", "\x00", "", "\ufeff", "")
)

// clean takes off what a paste or a terminal puts around a line.
func clean(s string) string {
	s = strings.TrimRight(s, "\r\n ")
	if i := strings.LastIndexByte(s, '\r'); i >= 0 { // what was overwritten is not seen
		s = s[i+1:]
	}
	s = typed.Replace(s)
	if strings.Contains(s, "[") {
		s = lost.ReplaceAllString(escapes.ReplaceAllString(s, ""), "$1")
	}
	if strings.Contains(s, "&") {
		s = html.UnescapeString(s)
	}
	s = s[len(quoted.FindString(s)):]
	bare := strings.TrimSpace(s)
	if strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "~~~") {
		return ""
	}
	if strings.Count(s, "**") == 2 && !strings.Contains(s, "***") { // bold in its middle
		s = strings.ReplaceAll(s, "**", "")
		bare = strings.TrimSpace(s)
	}
	for _, mark := range [...]string{"**", "`"} {
		if inner, ok := strings.CutPrefix(bare, mark); ok {
			s = strings.TrimSuffix(inner, mark)
		}
	}
	if inner, ok := strings.CutPrefix(bare, `"`); ok { // an element of a list, as Ansible prints lines
		if inner = strings.TrimSuffix(strings.TrimSuffix(inner, ","), `"`); headed.MatchString(inner) {
			s = strings.ReplaceAll(inner, `\"`, `"`)
		}
	}
	s = framed.ReplaceAllString(s, `time="$1`)
	if before, after, ok := strings.Cut(s, "-exec): "); ok && !strings.Contains(before, ": ") { // Terraform's
		s = after
	}
	if n := len(carried.FindString(s)); n > 0 && (headed.MatchString(s[n:]) || strings.Contains(s[:n], " std")) {
		s = s[n:]
	}
	return s
}

// wrapWidth is how wide a text may be that is taken for a wrapped one before it is judged as
// it is: lines of programs are longer.
const wrapWidth = 100

// unwrapped puts lines together that were broken at a width, and says whether the text looks
// like it: a line without a program's head goes on where its first word had no room in the
// line before.
func unwrapped(lines []Line) (out []Line, wrapped bool) {
	width := 0
	runes := utf8.RuneCountInString
	goesOn := func(s string) bool { // x509 speaks of times: "… is after …"
		return s != "" && (!headed.MatchString(strings.TrimLeft(s, " ")) || strings.Contains(s[:min(len(s), 24)], "Z is "))
	}
	heads := 0
	for _, l := range lines {
		if strings.Contains(strings.TrimSpace(l.Text), " ") {
			width = max(width, runes(l.Text))
		}
		if !goesOn(l.Text) && l.Text != "" {
			heads++
		}
	}
	if heads == 0 || width < 50 || width > 250 {
		return lines, false
	}
	full, broken := 0, 0 // lines before one that goes on: a terminal breaks them all at its width
	for i, l := range lines[1:] {
		if n := runes(lines[i].Text); goesOn(l.Text) && n > width/2 {
			broken++
			if n >= width-1 {
				full++
			}
		}
	}
	hard := width == 80 || broken > 2 && full*5 >= broken*4
	room := width
	if width < 80 { // how wide it may have been: 72 is what mails are wrapped at
		room = min(width, 72)
	}
	last, joined := 0, false // the width of the line before, as it was
	for _, l := range lines {
		word, _, _ := strings.Cut(strings.TrimLeft(l.Text, " "), " ")
		if len(out) > 0 && len(out[len(out)-1].Text) < redact.MaxRead && (goesOn(l.Text) && last+1+runes(word) > room || strings.HasSuffix(out[len(out)-1].Text, "]:")) {
			more := l.Text
			if !hard || last < width { // broken between words
				more = " " + strings.TrimLeft(l.Text, " ")
			}
			out[len(out)-1].Text += more
			joined = true
		} else {
			out = append(out, l)
		}
		last = runes(l.Text)
	}
	return out, joined && width <= wrapWidth
}

var (
	// nested is JSON in a line, as Ansible prints what a program wrote.
	nested = regexp.MustCompile(`\\+[nrt]`)
	// printed is what Ansible prints of a program.
	printed = regexp.MustCompile(`"(?:stderr|stdout|msg)": "`)
	// prompt is a shell's.
	prompt = regexp.MustCompile(`^(?:\[?[\w.-]+@[\w.-]+[^#$%>]{0,60}[#$%>]|[#$]) `)
	// states are how systemd begins its lines on a console.
	states = regexp.MustCompile(`\s+(\[(?:  OK  | TIME |DEPEND|FAILED|[ *]{3,6})\] )`)
)

// unquoted breaks lines that hold several into these: JSON with escapes, and a console that
// was pasted as one line. What a person wrote before a line goes off it. A line that may go on
// in the next is there a second time with it.
func unquoted(lines []Line) (out []Line) {
	var all []Line
	for _, l := range lines {
		parts := []Line{l}
		if escaped(l.Text) {
			parts = unescaped(parts)
		}
		for _, part := range parts {
			text := states.ReplaceAllString(prompt.ReplaceAllString(part.Text, ""), "\n$1")
			for one := range strings.SplitSeq(text, "\n") {
				all = append(all, Line{l.Number, one})
			}
		}
	}
	for i, l := range all {
		out = append(out, l)
		if i+1 == len(all) || len(l.Text) < 40 || len(l.Text) > redact.MaxRead || headed.MatchString(l.Text) || headed.MatchString(all[i+1].Text) {
			continue
		}
		if next := strings.TrimLeft(all[i+1].Text, " "); next != "" {
			out = append(out, Line{l.Number, l.Text + " " + next})
			if next == all[i+1].Text && next[0] >= 'a' && next[0] <= 'z' { // broken within a word
				out = append(out, Line{l.Number, l.Text + next})
			}
		}
	}
	return out
}

// escaped says whether a line is JSON with what a program wrote in it. Windows' paths have
// such escapes too.
func escaped(s string) bool { return nested.MatchString(s) && !strings.Contains(s, `:\`) }

// programs breaks what Ansible prints of programs into their lines.
func programs(lines []Line) []Line {
	if !slices.ContainsFunc(lines, func(l Line) bool { return printed.MatchString(l.Text) && escaped(l.Text) }) {
		return lines
	}
	var out []Line
	for _, l := range lines {
		if printed.MatchString(l.Text) && escaped(l.Text) && !armText.MatchString(l.Text) {
			out = append(out, unescaped([]Line{l})...)
		} else {
			out = append(out, l)
		}
	}
	return out
}
