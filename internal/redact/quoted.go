package redact

import (
	"bytes"
	"net/url"
	"strings"
)

// callArguments finds a password among the arguments of a call: auth=('user', '…'),
// HTTPBasicAuth("user", "…"), DBI->connect(source, user, '…'), smtp.login(user, "…").
func (f *finder) callArguments(from, to int) {
	if f.kind != code && f.kind != text {
		return
	}
	mark := lower(string(f.Data[from:to]))
	which := 1 // of the arguments, the second
	if hasAny(mark, "connect(", "mysqli(", "pdo(") {
		which = 2
	}
	line, end := f.lineAt(from)
	s := f.plainLine(line, end)
	if isComment(s) {
		return
	}
	for _, v := range argument(s, to-line, which, nil) {
		f.hit(ruleCommand, line+v.from, line+v.to)
	}
}

// argument is the one of a call's arguments, from 0, whose list begins at a place, if
// it is a text in quotes that can be a password.
func argument(s string, at, which int, hide []span) []span {
	for n := 0; at < len(s) && n <= which; n++ {
		at = skipBlanks(s, at)
		if at >= len(s) || s[at] == ')' {
			return hide
		}
		next := at
		if s[at] == '\'' || s[at] == '"' {
			v := wordAt(s, at)
			if n == which {
				if value := s[v.from:v.to]; strengthOf(value) >= mixed && !looksNamed(value) && !strings.Contains(value, " ") {
					hide = append(hide, v)
				}
				return hide
			}
			next = v.to + 1
		}
		for next < len(s) && s[next] != ',' && s[next] != ')' {
			next++
		}
		if next >= len(s) || s[next] == ')' {
			return hide
		}
		at = next + 1
	}
	return hide
}

// callSecrets is callArguments for a line of a log.
func callSecrets(s string, hide []span) []span {
	for _, call := range [...]struct {
		mark  string
		which int
	}{{"auth=(", 1}, {"auth = (", 1}, {"basicauth(", 1}, {"basic_auth(", 1}, {"->connect(", 2}, {"mysqli(", 2}, {"mysqli_connect(", 2}, {"pdo(", 2}, {".login(", 1}} {
		if i := indexFold(s, call.mark); i >= 0 {
			hide = argument(s, i+len(call.mark), call.which, hide)
		}
	}
	return hide
}

// fallback finds what a program takes where the environment has no password:
// ENV.fetch('DB_PASSWORD', '…'), os.getenv("TOKEN", "…").
func (f *finder) fallback(_, to int) {
	if f.kind != code && f.kind != text {
		return
	}
	line, end := f.lineAt(to)
	s := f.plainLine(line, end)
	at := to - line
	if isComment(s) || skipQuotes(s, at) == at {
		return
	}
	var buf [64]byte
	name := wordAt(s, at)
	if flat := string(flatten(&buf, s[name.from:name.to])); secretName(flat) == notSecret && !isShouted(s[name.from:name.to]) {
		return
	}
	for _, v := range argument(s, at, 1, nil) {
		f.hit(ruleNamed, line+v.from, line+v.to)
	}
}

// secondLine finds a password in the second line below a mark.
func (f *finder) secondLine(_, to int) {
	for range 2 {
		_, end := f.lineAt(to)
		if to = end + 1; to >= len(f.Data) {
			return
		}
	}
	if a, b := f.lineAt(to); b-a >= 4 && f.Data[a] != '<' {
		f.hit(ruleOpenVPN, a, b)
	}
}

// braced finds what Maven has of its master password: in braces.
func (f *finder) braced(_, to int) {
	if end := f.run(to, isKeyByte); end-to >= 24 {
		f.hit(ruleNamed, to, end)
	}
}

// expect finds what a script sends where a password is asked for.
func (f *finder) expect(from, to int) {
	if f.kind != code && f.kind != text || !bytes.Contains(f.Data[max(0, from-256):from], []byte("assword")) && !bytes.Contains(f.Data[max(0, from-256):from], []byte("assphrase")) {
		return
	}
	line, end := f.lineAt(from)
	s := f.plainLine(line, end)
	v := wordAt(s, to-line-1)
	if n := strings.IndexByte(s[v.from:v.to], '\\'); n >= 0 {
		v.to = v.from + n
	}
	if v.from < v.to && strengthOf(s[v.from:v.to]) >= word {
		f.hit(ruleCommand, line+v.from, line+v.to)
	}
}

// subversion finds a password in its cache: password, V and a length, then the value.
func (f *finder) subversion(_, to int) {
	_, end := f.lineAt(to)
	if end+1 >= len(f.Data) {
		return
	}
	if a, b := f.lineAt(end + 1); b-a >= 4 {
		f.hit(ruleNamed, a, b)
	}
}

// dataAddress looks into the text of an address data:,…, as Ignition has files.
func (f *finder) dataAddress(_, to int) {
	if f.kind != text || f.inner || to < f.ahead {
		return
	}
	end := f.run(to, func(c byte) bool { return c > ' ' && c != '"' && c != '\'' && c != '<' })
	f.ahead = end
	plain, err := url.PathUnescape(string(f.Data[to:end]))
	if err != nil || plain == "" || len(plain) == end-to {
		return
	}
	inner := finder{Piece: Piece{Path: f.Path, Data: []byte(plain)}, place: f.place, index: f.index, inner: true}
	inner.index.marks.each(inner.Data, inner.mark)
	for _, h := range inner.sorted() {
		f.hit(h.Rule, to, end)
	}
}

// jaas finds the users of a broker's login module: user_NAME="…".
func (f *finder) jaas(_, to int) {
	if f.kind != text {
		return
	}
	if to < f.ahead {
		return
	}
	rest := f.Data[to:min(len(f.Data), to+2<<10)]
	if n := bytes.IndexByte(rest, ';'); n >= 0 {
		rest = rest[:n]
	}
	f.ahead = to + len(rest)
	for at := 0; ; {
		i := bytes.Index(rest[at:], []byte("user_"))
		if i < 0 {
			return
		}
		at += i + len("user_")
		s := string(rest[at:min(len(rest), at+256)])
		if n := strings.IndexAny(s, " \n="); n > 0 && s[n] == '=' {
			if v := wordAt(s, n+1); v.to-v.from >= 4 && strengthOf(s[v.from:v.to]) >= word {
				f.hit(ruleNamed, to+at+v.from, to+at+v.to)
			}
		}
	}
}

// plainScheme finds {PLAIN}… of Dovecot.
func (f *finder) plainScheme(_, to int) {
	if f.kind != text {
		return
	}
	end := f.run(to, func(c byte) bool { return c > ' ' && c != ':' && c != '"' && c != '\'' })
	if v := string(f.Data[to:end]); strengthOf(v) >= word {
		f.hit(ruleNamed, to, end)
	}
}

// composer finds a token that has a host's name alone before it, within the object of
// composer's auth.json that says what they are.
func (f *finder) composer(_, to int) {
	if to < f.ahead {
		return
	}
	end := min(len(f.Data), to+1<<10)
	f.ahead = end
	if n := bytes.IndexByte(f.Data[to:end], '}'); n >= 0 {
		end = to + n
	}
	s := strings.Map(oneBlank, string(f.Data[to:end]))
	for at := 0; at < len(s); {
		i := strings.IndexByte(s[at:], ':')
		if i < 0 {
			return
		}
		at += i + 1
		v := wordAt(s, skipBlanks(s, at))
		if value := s[v.from:v.to]; len(value) >= 20 && strengthOf(value) == random && len(s) == end-to {
			f.hit(ruleNamed, to+v.from, to+v.to)
		}
	}
}
