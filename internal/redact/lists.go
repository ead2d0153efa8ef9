package redact

import (
	"slices"
	"strings"
)

// textOf is where what a program wrote begins in a line: behind what a log has in
// front of it, and its indentation.
func textOf(s string) int {
	from := 0
	// A log's own words end in a colon: … cloud-init[812]: text.
	if i := strings.Index(s, "]: "); i >= 0 && i < 96 {
		from = i + len("]: ")
	}
	for from < len(s) && s[from] == ' ' {
		from++
	}
	return from
}

// lists finds secrets that the lines before show to be some: the lines of a .netrc, and
// of the list of users and passwords that chpasswd reads.
type lists struct {
	login int  // lines that may still give a login's password
	users int  // lines that may still be user:password
	word  bool // whether the line before ends in the word password of a login
}

func (l *lists) next(s string) (hide span, ok bool) {
	from := textOf(s)
	text := s[from:]
	first, rest, _ := strings.Cut(text, " ")
	if expected := l.word; expected && text != "" {
		l.word = false
		if end := strings.IndexByte(text, ' '); end < 0 || strings.Trim(text[end:], " ") == "" {
			return span{from, len(s)}, true
		}
	}
	defer func() {
		l.word = l.login > 0 && (first == "password" || first == "passwd") && rest == ""
		l.login, l.users = max(0, l.login-1), max(0, l.users-1)
		if first == "machine" || first == "login" || first == "account" || first == "default" && rest != "" {
			l.login = 3
		}
		if strings.Contains(text, "chpasswd") || strings.Contains(text, "following 'random' passwords") || strings.HasSuffix(text, "list: |") || strings.HasSuffix(text, "list:") {
			l.users = maxHereLines
		}
	}()
	word := strings.TrimLeft(rest, " ")
	if (first == "password" || first == "passwd") && word != "" && !strings.Contains(strings.TrimRight(word, " "), " ") && !isSpoken(strings.TrimRight(word, ".,:")) && (l.login > 0 || strengthOf(word) > noSecret && !ordinary(word)) {
		return span{len(s) - len(word), len(s)}, true
	}
	entry := strings.TrimLeft(text, "- '\"")
	user, password, ok := strings.Cut(entry, ":")
	if l.users > 0 && ok && len(password) > 3 && isUser(user) && !strings.Contains(password, " ") && !strings.HasPrefix(password, "//") {
		return span{len(s) - len(password), len(s)}, true
	}
	return span{}, false
}

func isUser(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')) {
			return false
		}
	}
	return name != "" && len(name) <= 32
}

// pgpassword finds the last field of host:port:database:user:password.
func pgpassword(s string, hide []span) []span {
	for at := 0; at < len(s); {
		from := skipBlanks(s, at)
		to := from
		var colon [4]int
		n := 0
		for to < len(s) && s[to] != ' ' && s[to] != '\'' && s[to] != '"' {
			if s[to] == ':' && n < len(colon) && (to == 0 || s[to-1] != '\\') {
				colon[n] = to
				n++
			}
			to++
		}
		at = to + 1
		if n < len(colon) || to-colon[3] < 5 {
			continue
		}
		port, database, user := s[colon[0]+1:colon[1]], s[colon[1]+1:colon[2]], s[colon[2]+1:colon[3]]
		host := s[from:colon[0]]
		if port == "*" && isLockedAccount(s[from:]) {
			return hide
		}
		if host == "" || database == "" || user == "" || port != "*" && (len(port) < 4 || !isNumber(port)) || isHex(strings.ReplaceAll(s[from:to], ":", "")) {
			continue
		}
		hide = append(hide, span{colon[3] + 1, to})
	}
	return hide
}

// isLockedAccount reports whether an entry with "*" for the password is of passwd(5) or
// shadow(5): those have numbers where pgpass has a database and a user, and more fields.
func isLockedAccount(entry string) bool {
	f := strings.Split(strings.TrimRight(entry, " "), ":")
	if !isUser(f[0]) {
		return false
	}
	switch len(f) {
	case 7:
		return isNumber(f[2]) && isNumber(f[3]) && strings.HasPrefix(f[5], "/")
	case 9:
		return !slices.ContainsFunc(f[2:], func(n string) bool { return n != "" && !isNumber(n) })
	}
	return false
}

func isNumber(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// spoken finds a secret that a sentence gives: the password for u is X.
func spoken(s string, hide []span) []span {
	for _, name := range [...]string{"password", "passphrase", "passcode", "secret", "token", "psk", "community", "key"} {
		for at := 0; ; {
			i := indexFold(s[at:], name)
			if i < 0 {
				break
			}
			at += i + len(name)
			rest := s[at:min(len(s), at+80)]
			if v := wordAt(s, skipBlanks(s, at)); at < len(s) && s[at] == ' ' && isHex(s[v.from:v.to]) && v.to-v.from >= 32 && v.to-v.from != 40 { // psk 9f8e…
				hide = append(hide, v)
			}
			if name == "key" {
				continue
			}
			i = -1
			for _, verb := range [...]string{" is: ", " is ", " set to: ", " set to ", " was: ", " was ", " to ", ": ", " -> ", " => "} {
				if n := strings.Index(rest, verb); n >= 0 && (i < 0 || n+len(verb) < i) && strings.Count(rest[:n], " ") < 5 && !strings.ContainsAny(rest[:n], ":;,.=\"'") {
					i = n + len(verb)
				}
			}
			if i < 0 {
				continue
			}
			v := wordAt(s, skipBlanks(s, at+i))
			word := strings.TrimRight(s[v.from:v.to], ".,;:)")
			quoted := v.from > 0 && (s[v.from-1] == '\'' || s[v.from-1] == '"')
			if quoted {
				word = s[v.from:v.to]
			}
			if len(word) < 6 || ordinary(word) && !quoted || isSaid(s, v) || looksNamed(word) && !quoted || isHex(word) || !isStrong(word) && strings.ContainsAny(word, "/[(=%:") || isVersion(word) || isNumber(word) || isAssigned(word) {
				continue
			}
			hide = append(hide, span{v.from, v.from + len(word)})
		}
	}
	return hide
}

// shortKeys finds keys that are printed in short lines of base64, two or more below one
// another; lines of 48 bytes or more are known by themselves.
func shortKeys(in, out []string) {
	before, hex := -1, 0 // the last line that may be of a key; lines of hexadecimal before
	for i, s := range in {
		from := textOf(s)
		word := strings.TrimRight(s[from:], " ")
		if n := len(word); isHex(word) && (n >= 40 && n%2 == 0 || hex > 0) { // xxd -p, od: two lines or more are no digest
			if hex++; hex > 1 {
				at := textOf(in[i-1])
				out[i-1], out[i] = Cut(in[i-1][:at]+hidden), Cut(s[:from]+hidden)
			}
			continue
		}
		hex = 0
		upper, lower, digit, changes, pairs := classes(word)
		end := before == i-1 && before >= 0 && len(word) > 1 && out[before] != in[before] && allBase64(word)
		if !end && (len(word) < 16 || !allBase64(word) || upper == 0 || lower == 0 || changes*3 < pairs || digit == 0 && changes*2 < pairs || isPath(word)) {
			continue
		}
		if end || before == i-1 && before >= 0 {
			if !end {
				at := textOf(in[before])
				out[before] = Cut(in[before][:at] + hidden)
			}
			out[i] = Cut(s[:from] + hidden)
		}
		before = i
		if strings.HasSuffix(word, "=") {
			before = -1
		}
	}
}

func allBase64(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isBase64(s[i]) {
			return false
		}
	}
	return true
}

// pipedLogin says whether a line pipes what an echo gives into a program that takes a
// secret so.
func pipedLogin(s string) bool {
	i := strings.LastIndexByte(s, '|')
	if i <= 0 || !hasAny(s[:i], "echo ", "printf ", "ECHO ", "echo\"", "cat <<<") {
		return false
	}
	into := strings.ToLower(s[i:])
	if strings.Contains(into, "tee ") || strings.Contains(into, ">") {
		return hasAny(into, "pass", "secret", "token", "netrc", "credential", ".key", "shadow")
	}
	return hasAny(into, " login", "-pass", "ssh-add", "gpg ", "openssl ", "su ", "ansible-vault", "vault ", "smbclient", "mount", "secret", "htpasswd", "--token", "token-", "-pw", "sshpass", "ldap", "psql", "mysql", "smbpasswd", "vncpasswd", "secret-tool", "pass insert")
}
