package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	hidden = "[redacted]"
	// maxShown is how long a line may be, in bytes; wire allows no more.
	maxShown = 1 << 10
	// MaxRead is how much of a line is read, in bytes: the rest is not shown.
	MaxRead = 16 << 10
	// MaxKeyLines limits the lines of a PEM block, so that one whose end is
	// missing does not hide a whole log. An RSA key of 16384 bits has 200 lines.
	MaxKeyLines = 256
	// maxHereLines is the same of a here-document.
	maxHereLines = 32
)

// Tail returns the last lines of what a program printed, at most so many and each of at most so many
// bytes, as Lines makes them. A secret may begin above the lines that are returned.
func Tail(output []byte, most, width int) (lines []string) {
	for _, l := range Lines(strings.Split(strings.TrimRight(string(output), "\r\n"), "\n")) {
		if l = Plain(l, width); strings.TrimSpace(l) != "" {
			lines = append(lines, l)
		}
	}
	return lines[max(0, len(lines)-most):]
}

// Lines makes lines fit to be shown and stored, one for one: secrets are
// replaced, also in lines that do not name them, control characters and escape
// sequences are removed, what is not UTF-8 is replaced, and each line is cut to
// 1 KiB. Lines must be given in their order, since a private key goes over several.
// It hides rather too much than too little. The time it takes is in proportion to
// what it is given.
func Lines(lines []string) []string {
	out := make([]string, len(lines))
	inKey, announced := 0, false
	var known []string             // secrets that lines name, and others may show
	until := ""                    // what ends a here-document
	below, covered := heading{}, 0 // what names a secret whose value is in the lines below
	expected := false              // whether a line before ends in an announcement of a password
	next, named := false, false    // whether the line before was a flag alone, as in a list of arguments
	said, read := false, false     // whether the line before was the trace of an echo, of a program that reads secrets
	var of lists
	var prompt prompts
	plain := make([]string, len(lines))
	for i, l := range lines {
		l = Plain(l, MaxRead)
		plain[i] = l
		listed, isListed := of.next(l)
		if v, ok := prompt.answer(l); ok {
			l = l[:v.from] + hidden + l[v.to:]
		}
		if announced && strings.TrimSpace(l) != "" {
			l, announced = hidden, false
		}
		announced = announced || strings.HasSuffix(strings.TrimSpace(l), "sing certificate key:") // kubeadm gives it in the next line
		if word := strings.TrimLeft(l[textOf(l):], "- \"'"); next && word != "" && !strings.Contains(strings.TrimRight(word, " "), " ") {
			next = false
			out[i] = Cut(redactLine(l[:len(l)-len(word)], &known) + hidden)
			continue
		}
		if value := textOf(l); named && strings.HasPrefix(l[value:], "value: ") {
			l = l[:value] + "value: " + hidden
		}
		if said := strings.TrimSpace(l); expected && said != "" {
			expected = false
			if isAnnounced(l) {
				out[i] = Cut(l[:textOf(l)] + hidden)
				continue
			}
		}
		expected = expected || announces(l)
		next, named = flagAlone(l), nameAlone(l)
		if covered > 0 && below.covers(l) {
			covered--
			out[i] = Cut(redactLine(l[:min(below.prefix, len(l))], &known) + hidden)
			continue
		}
		if below, covered = headingOf(l), 0; below.names {
			covered = maxHereLines
		}
		if inKey > 0 {
			inKey--
			if until != "" && strings.HasSuffix(l, until) {
				inKey, until = 0, ""
				out[i] = Cut(redactLine(l, &known))
				continue
			}
			if end := strings.Index(l, "-----END"); end >= 0 && until == "" {
				inKey = 0
				out[i] = hidden + Cut(redactLine(afterMark(l[end:]), &known))
				continue
			}
			out[i] = hidden
			continue
		}
		// Of a key that begins above all that there is, long lines are known by
		// themselves, and the last is short.
		if end := strings.Index(l, "-----END "); end >= 0 && i > 0 && (strings.Contains(l[end:], "PRIVATE") || strings.Contains(l[end:], "Static key")) && !strings.Contains(l[:end], "-----BEGIN ") {
			out[i-1] = hidden
		}
		if endsUserPass(l) && i > 0 { // begins above all that there is
			out[i-1] = hidden
		}
		if isListed {
			l = l[:listed.from] + hidden
		}
		l, open := hideKeys(l)
		if open {
			inKey, until = MaxKeyLines, ""
		} else if until = hereDocument(l); until != "" {
			inKey = maxHereLines
		} else if until = inlineBlock(l); until != "" {
			inKey = inlineLines(lines[i+1:], until)
		}
		// The shell traces a pipe's programs in lines of their own, in any order.
		echo, reads := traced(l)
		if echo > 0 && read {
			l = l[:echo] + hidden
		}
		if reads && said {
			before, _ := traced(out[i-1])
			out[i-1] = out[i-1][:before] + hidden
		}
		said, read = echo > 0, reads
		out[i] = Cut(redactLine(l, &known))
	}
	shortKeys(plain, out)
	dumpedRows(plain, out)
	// The shell traces what a script does with what it was given: [ -z VALUE ].
	for i := range out {
		for _, v := range known {
			out[i] = Cut(strings.ReplaceAll(out[i], v, hidden))
		}
	}
	return out
}

// Text is Lines for a text of one line; line breaks become blanks.
func Text(s string) string {
	lines := Lines(strings.Split(strings.TrimRight(s, "\r\n"), "\n"))
	return Cut(strings.Join(lines, " "))
}

// Plain makes a text one line that can be printed: what a terminal would obey is
// removed, blanks of other kinds become blanks, what is not UTF-8 is replaced. It
// has most bytes at most; of what is longer the last word is left out, since it
// may be the first half of a secret, which nothing would know.
func Plain(s string, most int) string {
	clean := len(s) <= most
	for i := 0; i < len(s) && clean; i++ {
		clean = s[i] >= 0x20 && s[i] < 0x7f
	}
	if clean {
		return s
	}
	b := make([]byte, 0, min(len(s), most))
	for i := 0; i < len(s) && len(b) <= most; {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '\t' || r == '\n' || r == '\r' && i < len(s), r == '\u2028', r == '\u2029':
			b = append(b, ' ')
		case unicode.IsControl(r), r == '\ufeff':
		case r >= '\u200b' && r <= '\u200f', r >= '\u202a' && r <= '\u202e', r >= '\u2060' && r <= '\u206f': // nothing to see, or the order of what is seen
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	if len(b) <= most {
		return string(b)
	}
	kept := string(b[:most-len(" …")])
	return kept[:max(strings.LastIndexByte(kept, ' '), 0)] + " …"
}

// escapeLen is how long the terminal's escape sequence is that s begins with, of
// which the first byte is ESC: CSI to its final byte, OSC to its terminator,
// others two bytes.
func escapeLen(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] <= 0x20 || s[i] > 0x7e {
				return i // broken off: what comes is text
			}
		}
		return len(s)
	case ']':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b {
				return i // its terminator is an escape sequence too
			}
		}
		return len(s)
	}
	if s[1] < 0x20 || s[1] > 0x7e {
		return 1
	}
	return 2
}

// Cut cuts a text to 1 KiB, at the end of a letter.
func Cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	const mark = "…"
	n := maxShown - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// hideKeys hides PEM private keys within a line; open says that one goes on in
// the next.
func hideKeys(s string) (out string, open bool) {
	const begin = "-----BEGIN "
	for from := 0; ; {
		i := strings.Index(s[from:], begin)
		if i < 0 {
			return s, false
		}
		i += from
		rest := s[i+len(begin):]
		kind, _, _ := strings.Cut(rest, "-----")
		if !strings.Contains(kind, "PRIVATE") && !strings.Contains(kind, "Static key") {
			from = i + len(begin)
			continue
		}
		end := strings.Index(rest, "-----END")
		if end < 0 {
			return s[:i] + hidden, true
		}
		after := afterMark(rest[end:])
		s = s[:i] + hidden + after
		from = i + len(hidden)
	}
}

// afterMark is what follows the end mark of a PEM block that s begins with.
func afterMark(s string) string {
	s = strings.TrimPrefix(s, "-----END")
	if i := strings.Index(s, "-----"); i >= 0 {
		return s[i+len("-----"):]
	}
	return ""
}
