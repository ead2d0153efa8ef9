package redact

import "strings"

// prompts finds what is sent where a password was asked for, as scripts of expect have
// it, and what expect says of them: send "…\r", send: sending "…\r" to { exp4 }.
type prompts struct {
	left int // lines that may still answer the last question
}

func (p *prompts) answer(s string) (v span, ok bool) {
	asks := strings.Contains(s, "assword") || strings.Contains(s, "assphrase") || strings.Contains(s, "PIN")
	if p.left = max(0, p.left-1); asks {
		p.left = 4
	}
	if p.left == 0 {
		return span{}, false
	}
	for _, mark := range [...]string{"sending ", "send -- ", "send "} {
		i := strings.LastIndex(s, mark)
		if at := i + len(mark); i >= 0 && skipQuotes(s, at) > at {
			v := wordAt(s, at)
			if n := strings.IndexByte(s[v.from:v.to], '\\'); n >= 0 {
				v.to = v.from + n
			}
			p.left = 0
			return v, v.to-v.from > 3 && s[v.from] != '$'
		}
	}
	return span{}, false
}

// passwdEntry finds the password of a line in the form of passwd(5), as newusers reads
// them: user:password:uid:gid:name:home:shell.
func passwdEntry(s string, hide []span) []span {
	from := textOf(s)
	if strings.Count(s[from:], ":") != 6 {
		return hide
	}
	f := strings.SplitN(s[from:], ":", 7)
	user := strings.Trim(f[0], `"'`)
	password := f[1]
	if !isUser(user) || len(password) < 4 || strings.Contains(password, " ") || f[2] != "" && !isNumber(f[2]) || f[3] != "" && !isNumber(f[3]) && !isUser(f[3]) || f[5] != "" && f[5][0] != '/' || f[6] != "" && f[6][0] != '/' || f[5]+f[6] == "" {
		return hide
	}
	at := from + len(f[0]) + 1
	return append(hide, span{at, at + len(password)})
}

// chapEntry finds the secret of a line of pppd's: client * secret *.
func chapEntry(s string, hide []span) []span {
	from := textOf(s)
	w := strings.Fields(s[from:])
	if len(w) != 4 || w[1] != "*" || w[3] != "*" || strengthOf(strings.Trim(w[2], `"`)) < mixed {
		return hide
	}
	at := from + strings.LastIndex(s[from:], w[2])
	return append(hide, span{at, at + len(w[2])})
}

// headerKey says whether the name at from to i is of a header that gives a key, though no
// rule knows it: one that ends in -Key and is written as headers are, or set by -H.
func headerKey(s string, from, i int) int {
	const end = "-key"
	name := s[from:i]
	if n := len(name) - len(end); n < 1 || i >= len(s) || s[i] != ':' || !hasFold(name[n:], end) || isPublic(name[:n]) {
		return notSecret
	}
	before := strings.TrimRight(behind(s, from), `"'`)
	switch {
	case strings.HasSuffix(before, "-H") || strings.HasSuffix(before, "-H ") || strings.HasSuffix(before, "header ") || strings.HasSuffix(before, "header="):
		return secretValue
	case name[0] >= 'A' && name[0] <= 'Z':
		return secretRandom
	}
	return notSecret
}

// minDumped is how many bytes a row alone has that may be a secret.
const minDumped = 8

// dumpedRows hides what rows of dumps with columns hold: what they dump nothing says.
// The offsets stay. One row alone is one where its columns show it.
func dumpedRows(in, out []string) {
	before := -1 // where the line before has digits behind its offset
	for i, s := range in {
		at, sure := dumpedRow(s)
		if at >= 0 && (sure || before >= 0) {
			if before >= 0 {
				out[i-1] = Cut(in[i-1][:before] + hidden)
			}
			out[i] = Cut(s[:at] + hidden)
		}
		before = at
	}
}

// dumpedRow is where the digits of a row begin, -1 where a line is none, and whether it
// can be nothing else.
func dumpedRow(s string) (at int, sure bool) {
	from := textOf(s)
	if i := strings.Index(s, "] "); i >= 0 && i < 96 && from <= i {
		from = skipBlanks(s, i+1) // of the kernel's log
	}
	r := dumpRow([]byte(s[from:]))
	at, n := -1, 0
	for r.next() {
		if at < 0 {
			at = from + r.from
		}
		n += (r.to - r.from) / 2
	}
	rest := strings.TrimLeft(s[from+r.to:], " ")
	text := r.colon || strings.HasPrefix(rest, "|") || strings.HasPrefix(rest, ">")
	if n < 2 || rest != "" && !text {
		return -1, false
	}
	return at, text && n >= minDumped
}
