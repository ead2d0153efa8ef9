package redact

import (
	"slices"
	"strings"
)

// redactLine hides secrets within a line that plain has seen. The values that it
// knew by their names it adds to known, where that is not nil.
func redactLine(s string, known *[]string) string {
	hide := make([]span, 0, 8)
	hide = namedSecrets(s, hide)
	for _, h := range hide {
		if v := s[h.from:h.to]; known != nil && len(*known) < mostKnown && isDistinct(v) && !slices.Contains(*known, v) {
			*known = append(*known, v)
		}
	}
	hide = knownTokens(s, hide)
	hide = passwordHashes(s, hide)
	hide = urlPasswords(s, hide)
	hide = webhooks(s, hide)
	hide = bootstrapTokens(s, hide)
	hide = longRuns(s, hide)
	hide = inputs(s, hide)
	hide = arguments(s, hide)
	hide = pgpassword(s, hide)
	hide = spoken(s, hide)
	hide = accounts(s, hide)
	hide = passwdEntry(s, hide)
	hide = chapEntry(s, hide)
	hide = directives(s, hide)
	hide = schemed(s, hide)
	hide = recoveryKeys(s, hide)
	hide = programCalls(s, hide)
	hide = callSecrets(s, hide)
	hide = besides(s, hide)
	hide = commandArguments(s, hide)
	hide = inlineBlocks(s, hide)
	if len(hide) > 0 {
		s = without(s, hide)
	}
	return shorten(s)
}

// mostKnown bounds the values that are looked for in other lines.
const mostKnown = 16

// isDistinct says whether a value can be looked for in other lines, since it is
// neither a word, nor a number or an address.
func isDistinct(v string) bool {
	digit, letter := false, false
	for i := 0; i < len(v); i++ {
		digit = digit || v[i] >= '0' && v[i] <= '9'
		letter = letter || v[i]|0x20 >= 'a' && v[i]|0x20 <= 'z'
		if v[i] == ' ' || v[i] == '[' || v[i] == '$' {
			return false
		}
	}
	return len(v) >= 8 && len(v) <= 256 && digit && letter
}

type span struct{ from, to int }

// without replaces spans, which may overlap and are in no order.
func without(s string, hide []span) string {
	// A line has few: insertion keeps sort out of the agent's start.
	for i := 1; i < len(hide); i++ {
		for j := i; j > 0 && hide[j].from < hide[j-1].from; j-- {
			hide[j], hide[j-1] = hide[j-1], hide[j]
		}
	}
	var b strings.Builder
	at := 0
	for _, h := range hide {
		if h.to <= at {
			continue
		}
		if h.from > at || at == 0 {
			b.WriteString(s[at:h.from])
			b.WriteString(hidden)
		}
		at = h.to
	}
	b.WriteString(s[at:])
	return b.String()
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

// knownTokens finds secrets by how they begin: k3s tokens, JWTs, bearers, and
// the tokens of services (tokenForms); and Azure's client secrets by what they
// have within.
func knownTokens(s string, hide []span) []span {
	for _, mark := range [...]string{"::server:", "::node:", "::agent:"} {
		for at := 0; ; {
			i := strings.Index(s[at:], mark)
			if i < 0 {
				break
			}
			i += at
			from, to := i, i+len(mark)
			for from > 0 && isNameByte(s[from-1]) {
				from--
			}
			for to < len(s) && !endsValue(s[to]) {
				to++
			}
			hide = append(hide, span{from, to})
			at = to
		}
	}
	// kubeadm quotes a token whose form is wrong, which may be a token but for a
	// letter.
	if _, after, ok := strings.Cut(s, `ootstrap token "`); ok {
		from := len(s) - len(after)
		if n := strings.IndexByte(after, '"'); n > 0 {
			hide = append(hide, span{from, from + n})
		}
	}
	hide = beginnings(s, hide)
	for at := 0; ; {
		i := strings.Index(s[at:], "Q~")
		if i < 0 {
			break
		}
		i += at
		from, to := i, i+2
		for from > 0 && (isNameByte(s[from-1]) || s[from-1] == '~') {
			from--
		}
		for to < len(s) && (isNameByte(s[to]) || s[to] == '~') {
			to++
		}
		if to-from >= 30 {
			hide = append(hide, span{from, to})
		}
		at = to
	}
	// A SAS within a URL within a URL.
	for at := 0; ; {
		i := indexFold(s[at:], "sig%3d")
		if i < 0 {
			break
		}
		i += at + len("sig%3d")
		to := i
		for to < len(s) && !endsValue(s[to]) && !strings.HasPrefix(s[to:], "%26") {
			to++
		}
		if !strings.HasPrefix(s[i:], hidden) {
			hide = append(hide, span{i, to})
		}
		at = to
	}
	for at := 0; ; {
		i := indexFold(s[at:], "bearer")
		if i < 0 {
			return hide
		}
		i += at + len("bearer")
		at = i
		if i < len(s) && isNameByte(s[i]) { // BearerAuthorizer
			continue
		}
		for i < len(s) && (s[i] == ' ' || s[i] == ':' || s[i] == '"' || s[i] == '=') {
			i++
		}
		to := i
		for to < len(s) && !endsValue(s[to]) {
			to++
		}
		if to-i >= 16 {
			hide = append(hide, span{i, to})
			at = to
		}
	}
}

// beginnings finds what tokenForms lists, and JWTs. It asks for less than the scan of a
// disk does: a token may be cut off.
func beginnings(s string, hide []span) []span {
	x, last := formIndex(), 0
	x.marks.each([]byte(s), func(mark, from, to int) {
		least, begin, gitLab := 16, "eyJ", false
		switch {
		case x.kind[mark] == markToken:
			t := &x.forms[x.of[mark]]
			if begin = t.begin; t.of == 'h' || t.of == 'u' {
				if end := t.end([]byte(s), from); end > 0 {
					hide = append(hide, span{from, end})
				}
				return
			}
			least, gitLab = min(least, t.least), t.rule == ruleGitLab // its random part may have letters alone
		case x.kind[mark] != markOf || to-from != len(begin):
			return
		}
		if from < last || s[from:to] != begin || from > 0 && isAlnum(s[from-1]) && begin != "eyJ" && (from < 2 || s[from-2] != '\\') {
			return
		}
		end := to
		for end < len(s) && isNameByte(s[end]) {
			end++
		}
		last = end
		if end-to >= least && (begin == "eyJ" || gitLab || len(begin) > 6 || isToken([]byte(s[to:end]))) {
			hide = append(hide, span{from, end})
		}
	})
	return hide
}

// indexFold is strings.Index without regard to the case of ASCII letters;
// word is in lower case and begins with what | 0x20 leaves as it is.
func indexFold(s, word string) int {
	for i := 0; i+len(word) <= len(s); i++ {
		if s[i]|0x20 == word[0] && hasFold(s[i:], word) {
			return i
		}
	}
	return -1
}

// hasFold is the same of strings.HasPrefix.
func hasFold(s, word string) bool {
	return len(s) >= len(word) && strings.EqualFold(s[:len(word)], word)
}

func endsValue(c byte) bool {
	return c == ' ' || c == '"' || c == '\'' || c == ',' || c == ';' || c == '\\' || c == ')' || c == ']' || c == '}'
}

// urlPasswords finds what stands between a user's name and the host, and a token
// that stands for both.
func urlPasswords(s string, hide []span) []span {
	word, last := 0, -1 // the end of the word that was looked at, and its last @
	for at := 0; ; {
		i := strings.Index(s[at:], "://")
		if i < 0 {
			return hide
		}
		i += at
		from := i + len("://")
		at = from
		if from >= word {
			word = wordEnd(s, from)
			last = from + strings.LastIndexByte(s[from:word], '@')
		}
		end := from
		for end < word && s[end] != '/' && s[end] != '?' {
			end++
		}
		host := from + strings.LastIndexByte(s[from:end], '@')
		within := host >= from
		if !within { // a password may hold a slash, though it should not
			if host = last; host < from {
				continue
			}
		}
		user, second, colon := strings.Cut(s[from:host], ":")
		web := i >= 4 && (hasFold(s[i-4:], "http") || hasFold(s[max(i-5, 0):], "https"))
		switch {
		case colon && second != "" && second != "x-oauth-basic":
			hide = append(hide, span{from + len(user) + 1, host})
		case web && within && user != "git":
			hide = append(hide, span{from, from + len(user)})
		}
	}
}

// webhooks finds addresses whose path is the secret; MicroK8s' too, by its port.
func webhooks(s string, hide []span) []span {
	for at := 0; ; {
		i := strings.Index(s[at:], "/hooks/")
		if i < 0 {
			break
		}
		i += at
		at = i + len("/hooks/")
		begin := strings.LastIndexByte(s[:i], ' ') + 1
		if end := wordEnd(s, at); strings.Contains(s[begin:i], "://") && end-at >= 20 {
			hide = append(hide, span{at, end})
		}
	}
	for _, mark := range [...]string{"hooks.slack.com", "webhook.office.com", "/webhookb2", "/api/webhooks", "telegram.org", ":25000"} {
		for at := 0; ; {
			i := indexFold(s[at:], mark)
			if i < 0 {
				break
			}
			at += i + len(mark)
			if from := at; from < len(s) && (s[from] == '/' || s[from] == '\\') {
				at = wordEnd(s, from)
				hide = append(hide, span{from + 1, at})
			}
		}
	}
	return hide
}

// passwordHashes finds what crypt(5) makes: $6$salt$hash.
func passwordHashes(s string, hide []span) []span {
	for i := 0; i < len(s); i++ {
		if s[i] != '$' {
			continue
		}
		at := i + 1
		for at < len(s) && at < i+9 && isTokenByte(s[at]) {
			at++
		}
		to, more := at, 0
		for to < len(s) && (isBase64(s[to]) || s[to] == '.' || s[to] == ',' || s[to] == '$' || s[to] == '\\') {
			if s[to] == '$' {
				more++
			}
			to++
		}
		if at > i+1 && more > 1 && to-at >= 20 && (s[at] == '$' || s[at] == '\\') {
			hide = append(hide, span{i, to})
		}
		i = max(i, to-1)
	}
	return hide
}

// reader is where the last program or flag is named that reads a secret from its
// input, -1 where there is none.
func reader(s string) int {
	at := -1
	for _, mark := range [...]string{"chpasswd", " passwd", "|passwd", "bin/passwd", "-stdin", "sudo -s", "securestring", "cryptsetup", " kinit", "base64 -d", "base64 --d", "with-token", "passphrase-fd", "realm join", "adcli ", "net ads", "net rpc", "openconnect", "smbpasswd", "ipa-client", "-on-stdin", "kadmin", "newusers", "krb5-strength", "vault-password"} {
		for from := 0; ; {
			i := indexFold(s[from:], mark)
			if i < 0 {
				break
			}
			at = max(at, from+i)
			from += i + len(mark)
		}
	}
	return at
}

// inputs finds what such a program is given: echo … | chpasswd, and <<< ….
func inputs(s string, hide []span) []span {
	mark := reader(s)
	if mark < 0 && pipedLogin(s) {
		mark = strings.LastIndexByte(s, '|')
	}
	if mark < 0 {
		return hide
	}
	for i := mark; i > 0; i-- {
		if s[i] != '|' {
			continue
		}
		if s[i-1] != '|' {
			hide = append(hide, span{0, i})
			break
		}
		i-- // an or
	}
	for _, begin := range [...]string{"<<<", "<("} {
		if i := strings.Index(s, begin); i >= 0 {
			hide = append(hide, span{i + len(begin), len(s)})
		}
	}
	return hide
}

// hereDocument is the word that ends the one that such a program is given from
// the next line on; "" where there is none.
func hereDocument(s string) string {
	_, word, ok := strings.Cut(s, "<<")
	if !ok || reader(s) < 0 && !strings.HasPrefix(strings.TrimLeft(s, " "), "passwd ") {
		return ""
	}
	word = strings.TrimLeft(word, "-'\"\\ ")
	n := 0
	for n < len(word) && isNameByte(word[n]) {
		n++
	}
	return word[:n]
}

// traced says of a line of the shell's trace where what an echo gives begins, 0
// where there is no echo, and whether it is of a program that reads a secret.
func traced(s string) (echo int, reads bool) {
	i := strings.Index(s, "+ ")
	if i < 0 {
		return 0, false
	}
	i += len("+ ")
	for _, program := range [...]string{"echo ", "printf "} {
		if strings.HasPrefix(s[i:], program) {
			return i + len(program), false
		}
	}
	if strings.HasPrefix(s[i:], "tee ") && hasAny(strings.ToLower(s[i:]), "pass", "secret", "token", "netrc", "credential", ".key", "shadow") {
		return 0, true
	}
	return 0, reader(s[i-1:]) >= 0 && !strings.Contains(s[i:], "|")
}

func isTokenByte(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// bootstrapTokens finds [a-z0-9]{6}.[a-z0-9]{16}. The six before the dot are
// shown: they are the token's public name, by which it is looked for.
func bootstrapTokens(s string, hide []span) []span {
	for i := 6; i < len(s); i++ {
		if s[i] != '.' {
			continue
		}
		from, to := i, i+1
		for from > 0 && i-from < 7 && isTokenByte(s[from-1]) {
			from--
		}
		digit := false
		for to < len(s) && isTokenByte(s[to]) {
			digit = digit || s[to] <= '9'
			to++
		}
		left, right := i-from, to-i-1
		// Longer runs are most often names of hosts and files, but a token may stand
		// right beside other letters. A name that goes on is of a host: those of Azure's
		// own domains have such parts.
		host := to+1 < len(s) && s[to] == '.' && isTokenByte(s[to+1])
		if left == 6 && right == 16 || left >= 6 && right >= 16 && digit && !host {
			hide = append(hide, span{i + 1, to})
		}
	}
	return hide
}

// longRuns finds keys and encoded files: long runs of base64 or base64url with
// letters of both cases and digits. Digests and identifiers in hexadecimal are
// no secrets and stay.
func longRuns(s string, hide []span) []span {
	const least = 48
	for i := 0; i < len(s); {
		if !isBase64(s[i]) {
			i++
			continue
		}
		from := i
		var upper, lower, digit, slash, dash int
		for i < len(s) && isBase64(s[i]) {
			switch c := s[i]; {
			case c >= 'A' && c <= 'Z':
				upper++
			case c >= 'a' && c <= 'z':
				lower++
			case c >= '0' && c <= '9':
				digit++
			case c == '/':
				slash++
			case c == '-' || c == '_':
				dash++
			}
			i++
		}
		n := i - from
		switch {
		case n == 52 && digit > 0 && isLowerBase32(s[from:i]): // a token of Azure DevOps, before those with AZDO
			hide = append(hide, span{from, i})
		case n < least || upper == 0 || lower == 0 || digit == 0:
		case n < 256 && slash*10 > n: // a path
		case n < 256 && dash*8 > n: // a name
		case n < 512 && isAddress(s, from, i): // a path, or what Azure calls a resource
		default:
			hide = append(hide, span{from, i})
		}
	}
	return hide
}

func isLowerBase32(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// isAddress says whether a long run is the id of a resource of Azure's, or the part
// of one that follows the name of its provider, or the path of a file.
func isAddress(s string, from, to int) bool {
	const guid = 36
	if i := indexFold(s[from:to], "subscriptions/"); i >= 0 && i < 16 {
		id := s[from+i+len("subscriptions/") : to]
		return len(id) > guid && id[guid] == '/' && strings.Count(id[:guid], "-") == 4
	}
	return from >= len("microsoft.") && hasFold(s[from-len("microsoft."):], "microsoft.") || isPath(s[from:to])
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=' || c == '-' || c == '_'
}
