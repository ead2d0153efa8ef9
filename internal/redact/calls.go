package redact

import "strings"

// programCalls finds what programs are given in ways of their own: sqlplus
// user/password@db, htpasswd -nb user password, httpie's -a, redis' users.
func programCalls(s string, hide []span) []span {
	if i := indexFold(s, "sqlplus "); i >= 0 {
		for _, v := range wordsOf(s, i) {
			user, rest, ok := strings.Cut(s[v.from:v.to], "/")
			if ok && isUser(strings.ToLower(user)) && len(rest) > 3 && rest[0] != '/' {
				from := v.from + len(user) + 1
				to := v.to
				if n := strings.LastIndexByte(rest, '@'); n > 0 {
					to = from + n
				}
				hide = append(hide, span{from, to})
			}
		}
	}
	if i := strings.Index(s, "htpasswd -"); i >= 0 {
		w := wordsOf(s, i)
		if len(w) > 2 && strings.Contains(s[w[1].from:w[1].to], "b") {
			for n := 2; n < len(w); n++ {
				if isRedirect(s, w[n]) {
					w = w[:n]
				}
			}
			hide = append(hide, w[len(w)-1])
		}
	}
	if at := textOf(s); strings.HasPrefix(s[at:], "user ") && strings.Contains(s, " on ") || strings.Contains(s, "SETUSER ") {
		for _, v := range wordsOf(s, at) {
			if s[v.from] == '>' && v.to-v.from > 5 {
				hide = append(hide, span{v.from + 1, v.to})
			}
		}
	}
	if at := textOf(s); strings.HasPrefix(s[at:], "AuthInfo:") { // of sendmail
		if i := strings.Index(s, `"P:`); i >= 0 {
			hide = append(hide, wordAt(s, i))
			hide[len(hide)-1].from += len("P:")
		}
	}
	for _, mark := range [...]string{": EAP ", ": PSK ", ": XAUTH ", ": NTLM "} { // of ipsec.secrets
		if i := strings.Index(s, mark); i >= 0 && i+len(mark) < len(s) && s[i+len(mark)] == '"' {
			hide = append(hide, wordAt(s, i+len(mark)))
		}
	}
	for _, mark := range [...]string{"{PLAIN}", "{plain}", "{CLEARTEXT}"} { // of Dovecot's users
		if i := strings.Index(s, mark); i >= 0 {
			from := i + len(mark)
			to := from
			for to < len(s) && s[to] != ':' && s[to] != ' ' {
				to++
			}
			hide = append(hide, span{from, to})
		}
	}
	if i := strings.Index(s, "user_"); i >= 0 { // of a broker's login module
		if n := strings.Index(s[i:], `="`); n > 0 && n < 40 && !strings.Contains(s[i:i+n], " ") {
			if v := wordAt(s, i+n+1); isStrong(s[v.from:v.to]) {
				hide = append(hide, v)
			}
		}
	}
	if i := strings.Index(s, "snmp"); i >= 0 && hasAny(s[i:], "snmpget", "snmpwalk", "snmpset", "snmpbulk", "snmptrap", "snmptable", "snmpstatus", "snmpinform") {
		w := wordsOf(s, i)
		for n, v := range w {
			if flag := s[v.from:v.to]; n+1 < len(w) && (flag == "-c" || flag == "-A" || flag == "-X") && s[w[n+1].from:w[n+1].to] != "public" {
				hide = append(hide, w[n+1])
			}
		}
	}
	if i := strings.Index(s, ".password -v "); i >= 0 { // of iscsiadm
		hide = append(hide, wordAt(s, skipBlanks(s, i+len(".password -v "))))
	}
	if i := strings.Index(s, "oracle:thin:"); i >= 0 {
		user, rest, ok := strings.Cut(s[i+len("oracle:thin:"):], "/")
		if n := strings.IndexByte(rest, '@'); ok && n > 3 && isUser(strings.ToLower(user)) {
			from := len(s) - len(rest)
			hide = append(hide, span{from, from + n})
		}
	}
	if i := strings.Index(s, "define("); i >= 0 {
		at := i + len("define(")
		if v := wordAt(s, skipBlanks(s, at)); v.to > v.from {
			var buf [64]byte
			if name := s[v.from:v.to]; secretName(string(flatten(&buf, name))) == secretValue || isShouted(name) {
				hide = argument(s, at, 1, hide)
			}
		}
	}
	return pairOfProxy(s, hide)
}

// pairOfProxy finds TYPE HOST PORT USER PASSWORD of proxychains and redsocks.
func pairOfProxy(s string, hide []span) []span {
	at := textOf(s)
	if !strings.HasPrefix(s[at:], "http ") && !strings.HasPrefix(s[at:], "socks4 ") && !strings.HasPrefix(s[at:], "socks5 ") {
		return hide
	}
	if w := wordsOf(s, at); len(w) == 5 && isNumber(s[w[2].from:w[2].to]) {
		hide = append(hide, w[4])
	}
	return hide
}

func isRedirect(s string, v span) bool { return s[v.from] == '>' || s[v.from] == '<' }

// wordsOf are the words of a command from a place on, without their quotes.
func wordsOf(s string, at int) []span {
	var out []span
	for at < len(s) && len(out) < 32 {
		if at = skipBlanks(s, at); at >= len(s) || s[at] == '|' || s[at] == ';' || s[at] == '&' {
			break
		}
		v := wordAt(s, at)
		if v.to <= at {
			at++
			continue
		}
		if v.to > v.from {
			out = append(out, v)
		}
		at = v.to
		if v.from > 0 && (s[v.from-1] == '"' || s[v.from-1] == '\'') {
			at++
		}
	}
	return out
}

// arguments finds what some programs are given as words of their own, unless a
// sentence goes on behind their names.
func arguments(s string, hide []span) []span {
	for _, mark := range [...]string{"openssl passwd ", "vault login ", "operator unseal ", "net user ", "htpasswd -b", "management token set ", "rabbitmqctl add_user ", "rabbitmqctl change_password ", "mkpasswd ", "wpa_passphrase ", "acl set-agent-token ", "mc alias set ", "mc config host add ", "rootpw ", "password password ", "operator unseal-key "} {
		i := indexFold(s, mark)
		if i < 0 || i > 0 && isNameByte(s[i-1]) && s[i-1] != '.' {
			continue
		}
		from := i + len(mark)
		to := from
		for to < len(s) && s[to] != ';' && s[to] != '|' && s[to] != '&' {
			to++
		}
		if word := s[from:wordEnd(s, from)]; to > from && !isSpoken(strings.TrimRight(word, ":,")) {
			hide = append(hide, span{from, to})
		}
	}
	return hide
}
