package verdict

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	hidden = "[redacted]"
	// maxShown is how long a line may be, in bytes; wire allows no more.
	maxShown = 1 << 10
	// maxRead is how much of a line is looked at: what is beyond is not shown.
	maxRead = 16 << 10
	// maxKeyLines is how long a PEM block may be, so that one whose end is
	// missing does not hide a whole log. An RSA key of 16384 bits has 200 lines.
	maxKeyLines = 256
)

// Redact makes lines fit to be shown and stored, one for one: secrets are
// replaced, control characters and escape sequences are removed, what is not
// UTF-8 is replaced, and each line is cut to 1 KiB. Lines must be given in
// their order, since a private key goes over several. It hides rather too much
// than too little.
func Redact(lines []string) []string {
	out := make([]string, len(lines))
	inKey, announced := 0, false
	for i, l := range lines {
		l = plain(l)
		if announced && strings.TrimSpace(l) != "" {
			l, announced = hidden, false
		}
		announced = announced || strings.HasSuffix(strings.TrimSpace(l), "sing certificate key:") // kubeadm gives it in the next line
		if inKey > 0 {
			inKey--
			if end := strings.Index(l, "-----END"); end >= 0 {
				inKey = 0
				out[i] = hidden + cut(redactLine(afterMark(l[end:])))
				continue
			}
			out[i] = hidden
			continue
		}
		l, open := hideKeys(l)
		if open {
			inKey = maxKeyLines
		}
		out[i] = cut(redactLine(l))
	}
	return out
}

// RedactText is Redact for a text of one line; line breaks become blanks.
func RedactText(s string) string {
	lines := Redact(strings.Split(strings.TrimRight(s, "\r\n"), "\n"))
	return cut(strings.Join(lines, " "))
}

// plain removes what a terminal would obey and what is not UTF-8.
func plain(s string) string {
	if len(s) > maxRead {
		// The last word may be the first half of a secret, which nothing would know.
		s = s[:maxRead]
		if i := strings.LastIndexAny(s, " \t"); i >= 0 {
			s = s[:i]
		} else {
			s = ""
		}
		s += " …"
	}
	clean := true
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += EscapeLen(s[i:])
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '\t' || r == '\n' || r == '\r' && i < len(s), r == '\u2028', r == '\u2029':
			b.WriteByte(' ')
		case r == utf8.RuneError && n <= 1:
			b.WriteRune(utf8.RuneError)
		case unicode.IsControl(r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// EscapeLen is how long the terminal's escape sequence is that s begins with, of
// which the first byte is ESC: CSI to its final byte, OSC to its terminator,
// others two bytes.
func EscapeLen(s string) int {
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

func cut(s string) string {
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
		if !strings.Contains(kind, "PRIVATE") {
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
