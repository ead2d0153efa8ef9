package verdict

import "strings"

// redactLine hides secrets within a line that plain has seen.
func redactLine(s string) string {
	hide := make([]span, 0, 8)
	hide = namedSecrets(s, hide)
	hide = knownTokens(s, hide)
	hide = urlPasswords(s, hide)
	hide = bootstrapTokens(s, hide)
	hide = longRuns(s, hide)
	if i := strings.Index(s, "| chpasswd"); i > 0 {
		hide = append(hide, span{0, i})
	}
	if len(hide) == 0 {
		return s
	}
	return without(s, hide)
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

// namedSecrets finds values by the name before them: password=…, "token": "…",
// --certificate-key …, Authorization: ….
func namedSecrets(s string, hide []span) []span {
	for i := 0; i < len(s); {
		if !isNameByte(s[i]) {
			i++
			continue
		}
		from := i
		for i < len(s) && isNameByte(s[i]) {
			i++
		}
		flag := strings.HasPrefix(s[from:i], "-") && (from == 0 || isBreak(s[from-1]))
		whole := secretName(s[from:i])
		if flag && whole == notSecret {
			whole = secretFlag(s, s[from:i])
		}
		if whole == notSecret {
			continue
		}
		v, ok := valueAt(s, i, flag)
		if !ok {
			continue
		}
		if whole == secretAfterColon {
			n := strings.IndexByte(s[v.from:v.to], ':')
			if n < 0 {
				continue
			}
			v.from += n + 1
		}
		if whole == secretToEnd {
			v.to = len(s)
		} else if query := from > 0 && (s[from-1] == '?' || s[from-1] == '&'); query {
			if n := strings.IndexByte(s[v.from:v.to], '&'); n >= 0 {
				v.to = v.from + n
			}
		}
		if v.to > v.from {
			hide = append(hide, v)
		}
		i = max(i, v.to)
	}
	return hide
}

const (
	notSecret = iota
	secretValue
	secretToEnd      // what follows has blanks within
	secretAfterColon // user:password
)

// secretFlag says the same of a flag that is too short to tell by itself.
func secretFlag(line, flag string) int {
	switch flag {
	case "-u", "--user", "--proxy-user", "-U":
		return secretAfterColon
	case "-p":
		if strings.Contains(line, "login") || strings.Contains(line, "sshpass") {
			return secretValue
		}
	}
	return notSecret
}

// secretName says whether a name is one of a secret: by its end, without regard
// to case, dashes, underscores and dots (client-secret, AZURE_CLIENT_SECRET).
func secretName(name string) int {
	var buf [64]byte
	if len(name) > len(buf) {
		name = name[len(name)-len(buf):]
	}
	n := 0
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c == '-' || c == '_' || c == '.':
			continue
		}
		buf[n] = c
		n++
	}
	flat := string(buf[:n])
	switch flat {
	case "sig", "sas", "auth", "identitytoken", "pwd", "pass":
		return secretValue
	case "authorization", "proxyauthorization", "cookie", "setcookie":
		return secretToEnd
	}
	for _, end := range [...]string{
		"password", "passwd", "passphrase", "secret", "token", "accountkey", "accesskey", "apikey", "certificatekey",
		"clientkeydata", "privatekey", "storagekey", "encryptionkey", "sharedkey", "masterkey", "hostkey", "accesssignature",
		"sastoken", "secretkey", "signingkey", "clientkey", "subscriptionkey", "functionskey", "workspacekey", "primarykey", "secondarykey", "dockerconfigjson", "hashedpasswd", "secretdata", "credential",
	} {
		if strings.HasSuffix(flat, end) {
			return secretValue
		}
	}
	for _, end := range [...]string{"connectionstring", "protectedsettings", "customdata", "userdata"} {
		if strings.HasSuffix(flat, end) {
			return secretToEnd
		}
	}
	return notSecret
}

func isBreak(c byte) bool {
	return c == ' ' || c == '"' || c == '\'' || c == '[' || c == '(' || c == ',' || c == '`' || c == '='
}

// valueAt finds the value of the name that ends at i: after = or :, with quotes
// (also escaped ones, and those of a list of arguments), or, for a flag, after
// a blank.
func valueAt(s string, i int, flag bool) (span, bool) {
	name := i
	i = skipQuotes(s, i)
	quoted := i > name
	i = skipBlanks(s, i)
	blank := !quoted && i > name
	switch {
	case i < len(s) && (s[i] == '=' || s[i] == ':'):
		i++
		if i < len(s) && s[i] == '=' { // :=
			i++
		}
	case flag && quoted && i < len(s) && s[i] == ',': // ["--token", "…"]
		i++
	case flag && blank: // --token …
	case flag && quoted && i < len(s): // '--token' '…'
	default:
		return span{}, false
	}
	i = skipBlanks(s, i)
	if i >= len(s) || strings.HasPrefix(s[i:], "Invalid value: ") { // Kubernetes names the field, then what is wrong
		return span{}, false
	}
	from := i
	if n := skipQuotes(s, i); n > i {
		quote := s[n-1]
		escaped := n-i > 1
		from, i = n, n
		for i < len(s) {
			if s[i] == quote && (escaped || s[i-1] != '\\' || i == from) {
				break
			}
			i++
		}
		if escaped && i > from && s[i-1] == '\\' {
			i--
		}
		return span{from, i}, true
	}
	if s[i] == '{' || s[i] == '[' { // an object: what is within has names too
		return span{}, false
	}
	for i < len(s) && s[i] != ' ' && s[i] != '"' && s[i] != '\'' {
		i++
	}
	to := i
	// A value may begin with a scheme: token: Bearer ….
	if isScheme(s[from:to]) {
		if at := skipBlanks(s, to); at < len(s) {
			to = at
			for to < len(s) && s[to] != ' ' && s[to] != '"' && s[to] != '\'' {
				to++
			}
		}
	}
	return span{from, to}, true
}

func isScheme(s string) bool {
	return strings.EqualFold(s, "bearer") || strings.EqualFold(s, "basic")
}

func skipBlanks(s string, i int) int {
	for i < len(s) && s[i] == ' ' {
		i++
	}
	return i
}

// skipQuotes skips one quote, with the backslashes before it.
func skipQuotes(s string, i int) int {
	at := i
	for at < len(s) && s[at] == '\\' {
		at++
	}
	if at < len(s) && (s[at] == '"' || s[at] == '\'') {
		return at + 1
	}
	return i
}

// knownTokens finds secrets by how they begin: k3s tokens, JWTs, bearers, and
// the tokens of registries and forges; and Azure's client secrets by what they
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
	for _, mark := range [...]string{"eyJ", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "dckr_pat_"} {
		for at := 0; ; {
			i := strings.Index(s[at:], mark)
			if i < 0 {
				break
			}
			i += at
			to := i
			for to < len(s) && isNameByte(s[to]) {
				to++
			}
			if to-i >= len(mark)+16 {
				hide = append(hide, span{i, to})
			}
			at = max(to, i+1)
		}
	}
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
		hide = append(hide, span{i, to})
		at = to
	}
	for at := 0; ; {
		i := indexFold(s[at:], "bearer")
		if i < 0 {
			return hide
		}
		i += at + len("bearer")
		at = i
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

// indexFold is strings.Index without regard to the case of ASCII letters;
// word is in lower case.
func indexFold(s, word string) int {
	for i := 0; i+len(word) <= len(s); i++ {
		if s[i]|0x20 == word[0] && strings.EqualFold(s[i:i+len(word)], word) {
			return i
		}
	}
	return -1
}

func endsValue(c byte) bool {
	return c == ' ' || c == '"' || c == '\'' || c == ',' || c == ';' || c == '\\' || c == ')' || c == ']' || c == '}'
}

// urlPasswords finds what stands between a user's name and the host.
func urlPasswords(s string, hide []span) []span {
	for at := 0; ; {
		i := strings.Index(s[at:], "://")
		if i < 0 {
			return hide
		}
		from := at + i + len("://")
		at = from
		end := from
		for end < len(s) && s[end] != '/' && s[end] != ' ' && s[end] != '"' && s[end] != '\'' && s[end] != '?' {
			end++
		}
		host := strings.LastIndexByte(s[from:end], '@')
		if host < 0 { // a password may hold a slash, though it should not
			for end < len(s) && s[end] != ' ' && s[end] != '"' && s[end] != '\'' {
				end++
			}
			if host = strings.LastIndexByte(s[from:end], '@'); host < 0 {
				continue
			}
		}
		if colon := strings.IndexByte(s[from:from+host], ':'); colon >= 0 {
			hide = append(hide, span{from + colon + 1, from + host})
		}
	}
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
		// right beside other letters.
		if left == 6 && right == 16 || left >= 6 && right >= 16 && digit {
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
		case n < least || upper == 0 || lower == 0 || digit == 0:
		case n < 256 && slash*10 > n: // a path
		case n < 256 && dash*8 > n: // a name
		default:
			hide = append(hide, span{from, i})
		}
	}
	return hide
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=' || c == '-' || c == '_'
}
