package redact

import "strings"

// isPair says whether what lies between a name and the word value shows that they
// belong together: {"name": "TOKEN", "value": …}, key="TOKEN" value="…",
// <name>TOKEN</name><value>….
func isPair(between string) bool {
	return strings.ContainsAny(between, ",{") || strings.HasPrefix(between, "</") || strings.Trim(between, `"' `) == "" && len(between) > 1 && between[0] != ' '
}

// isKeyLike says whether a value can be nothing but a key: 16 bytes or more in
// hexadecimal or base64 that nobody would write as a name. Digests of SHA-1 and the
// ids of OpenPGP's keys have other lengths.
func isKeyLike(v string) bool {
	v = strings.TrimRight(strings.Trim(v, `"',;`), ">;,}])")
	n := len(strings.TrimRight(v, "="))
	switch {
	case isUUID(v):
		return false
	case isHex(v):
		return n == 32 || n == 48 || n == 64 || n >= 96
	}
	for i := 0; i < len(v); i++ {
		if !isBase64(v[i]) && v[i] != '.' && v[i] != '~' {
			return false
		}
	}
	for _, public := range [...]string{"MFkw", "MCow", "MHYw", "MIIB", "MIIC", "MIGf", "ssh-", "AAAA"} {
		if strings.HasPrefix(v, public) {
			return false
		}
	}
	return n >= 20 && !looksNamed(v) && !isPath(v) && !isVersion(v) && strengthOf(v) == random && !isCamel(v)
}

// isStrong says whether a word is one that a manager of passwords makes, or a person
// where rules ask for it: three kinds of small letters, capitals, digits and signs.
func isStrong(v string) bool {
	return hasThreeKinds(v) && (strings.ContainsAny(v, strongSigns) || !isWordy(v))
}

const strongSigns = "!%+,=@#^&*~?$"

// hasThreeKinds is isStrong also of words with dots or dashes between.
func hasThreeKinds(v string) bool {
	var lower, upper, digit, sign int
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c >= 'a' && c <= 'z':
			lower = 1
		case c >= 'A' && c <= 'Z':
			upper = 1
		case c >= '0' && c <= '9':
			digit = 1
		case strings.IndexByte(strongSigns, c) >= 0:
			sign = 1
		case c <= ' ' || c >= 0x7f || strings.IndexByte(`()[]{}<>"'`+"`", c) >= 0:
			return false
		}
	}
	return len(v) >= 8 && len(v) <= 128 && digit == 1 && lower+upper+digit+sign > 2 && strengthOf(v) > word && !isPath(v) && !isVersion(v) && !strings.Contains(v, "://") && !isAssigned(v)
}

// isWordy says whether a word without signs is several with dots or dashes between, in
// each of which hardly anything changes: corev1.Secret, NODE.node-password.k3s.
func isWordy(v string) bool {
	parts := strings.FieldsFunc(v, func(r rune) bool { return r == '.' || r == '-' || r == '_' })
	for _, part := range parts {
		if _, _, _, changes, _ := classes(part); changes > 2 {
			return false
		}
	}
	return len(parts) > 1
}

// longestRun is the length of the longest run of small letters.
func longestRun(v string) int {
	best, run := 0, 0
	for i := 0; i < len(v); i++ {
		if run++; v[i] < 'a' || v[i] > 'z' {
			run = 0
		}
		best = max(best, run)
	}
	return best
}

// isAssigned says whether a word is name=value.
func isAssigned(v string) bool {
	i := strings.IndexByte(v, '=')
	if i < 2 || i == len(v)-1 {
		return false
	}
	for _, c := range []byte(v[:i]) {
		if !(c >= 'a' && c <= 'z' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// accounts finds the password of user:password where that is a word by itself, also
// before @host: login ci:… rejected, bad address 'svc:…@artifacts.example'.
func accounts(s string, hide []span) []span {
	for at := 0; at < len(s); {
		i := strings.IndexByte(s[at:], ':')
		if i < 0 {
			return hide
		}
		i += at
		at = i + 1
		from := i
		for from > 0 && isUserByte(s[from-1]) {
			from--
		}
		to := at
		for to < len(s) && to-at <= 160 && s[to] > ' ' && strings.IndexByte(`"'<>)]}`+"`", s[to]) < 0 {
			to++
		}
		if from == i || i-from > 48 || s[from] >= '0' && s[from] <= '9' || from > 0 && strings.IndexByte(` "'=(,[>`, s[from-1]) < 0 || isTime(s, from) {
			continue
		}
		v := strings.TrimRight(s[at:to], ".,;:")
		if n := strings.LastIndexByte(v, '@'); n > 0 && isHostName(v[n+1:]) {
			v = v[:n]
		}
		least := isStrong
		if from > 0 && (s[from-1] == '\'' || s[from-1] == '"') && hasAny(s[:from], "assword") { // changing password for ['ops:…']
			least = hasThreeKinds
		}
		if from > 0 && s[from-1] == '=' && isLoginName(s[:from-1]) {
			least = func(v string) bool { return strengthOf(v) >= mixed }
		}
		if n := strings.LastIndexByte(v, ':'); n > 0 && isUser(v[:n]) { // host:user:password
			at += n + 1
			v = v[n+1:]
		}
		if strings.HasPrefix(v, "//") || strings.HasPrefix(v, ":") || strings.Contains(v, ":") || isQuantity(v) || strings.ContainsAny(v, "/") && !strings.ContainsAny(v, "!%^*~") || !least(v) || isDigest(s[from:i]) || looksAddressed(v) {
			continue
		}
		hide = append(hide, span{at, at + len(v)})
		at = to
	}
	return hide
}

// isLoginName says whether what ends in front of user:password is a name for such.
func isLoginName(before string) bool {
	for _, end := range [...]string{"user", "login", "auth", "creds", "credentials", "userpwd", "account"} {
		if n := len(before) - len(end); n >= 0 && hasFold(before[n:], end) {
			return true
		}
	}
	return false
}

// isQuantity says whether a value is a number with its unit: 1893420kB.
func isQuantity(v string) bool {
	n := 0
	for n < len(v) && (v[n] >= '0' && v[n] <= '9' || v[n] == '.') {
		n++
	}
	return n > 0 && len(v)-n < 4
}

func isUserByte(c byte) bool {
	return isAlnum(c) || c == '.' || c == '_' || c == '-' || c == '@' || c == '\\'
}

// isTime says whether a word is of a time or an address with a port behind.
func isTime(s string, from int) bool { return from > 1 && s[from-1] == ',' && isAlnum(s[from-2]) }

func isDigest(name string) bool {
	return hasFold(name, "sha") || hasFold(name, "md5") || hasFold(name, "spki")
}

// isHostName says whether a word is a host's name, with a port or a path behind.
func isHostName(v string) bool {
	end := 0
	for end < len(v) && (isAlnum(v[end]) && (v[end] < 'A' || v[end] > 'Z') || v[end] == '.' || v[end] == '-') {
		end++
	}
	return end > 3 && strings.Contains(v[:end], ".") && (end == len(v) || v[end] == ':' || v[end] == '/')
}

// looksAddressed says whether a value has the digest or version of an image.
func looksAddressed(v string) bool {
	return strings.Contains(v, "@sha256") || strings.Contains(v, ".go") || len(v) > 1 && v[0] == 'v' && v[1] >= '0' && v[1] <= '9'
}

// directives finds the value behind the name of a password and a blank, also within a
// line: neighbor 10.0.0.9 password …, dev wifi connect X password …, user u there with
// password "…"; and behind any name of a secret where the line has nothing else.
func directives(s string, hide []span) []span {
	from := textOf(s)
	words := 0
	for at := from; at < len(s); words++ {
		at = skipBlanks(s, at)
		end := at
		for end < len(s) && s[end] != ' ' {
			end++
		}
		name := s[at:end]
		next := skipBlanks(s, end)
		if next >= len(s) || next == end {
			break
		}
		at = end
		if strings.EqualFold(strings.Trim(name, `"'`), "auth") && name[0] == '"' && s[next] == '"' { // what a client of Redis sends
			hide = append(hide, span{next + 1, len(strings.TrimRight(s, `" `))})
			break
		}
		if len(name) > 40 || name[0] == '-' || !isNameByte(name[len(name)-1]) || strings.ContainsAny(name, "=/") { // X_FILE=%d/token is no name
			continue
		}
		var buf [64]byte
		flat := string(flatten(&buf, name))
		alone := words == 0 && (secretName(flat) == secretValue || isShouted(name))
		if !alone && !isDirective(flat) {
			continue
		}
		v := wordAt(s, next)
		value := strings.TrimRight(s[v.from:v.to], ";,.")
		if flat == "basicauth" || flat == "password" && value == "root" { // user, then password
			v = wordAt(s, skipBlanks(s, v.to))
			value = strings.TrimRight(s[v.from:v.to], ";,.")
		}
		quoted := v.from > next
		if at := v.to + 2; quoted && flat == "password" && at < len(s) && s[at-1] == ' ' && s[at] == s[next] { // whose, then the password
			v = wordAt(s, at)
			value = s[v.from:v.to]
		}
		if len(value) < 6 {
			continue
		}
		rest := strings.Trim(s[v.to:], ` ;"'`) == ""
		switch {
		case quoted && s[v.from-1] == '"' && isPasswordName(flat) && strengthOf(value) >= mixed && isDistinct(value) && !isVersion(value) && !strings.ContainsAny(value, "/([{<"):
			hide = append(hide, v)
		case alone && rest && !isDirective(flat):
			if strengthOf(value) >= mixed && !isSpoken(value) && !isVersion(value) && !looksNamed(value) && !isPath(value) && !isCamel(value) && !strings.ContainsAny(value, "([{<$") {
				hide = append(hide, span{v.from, v.from + len(value)})
			}
		case isDirective(flat):
			if isStrong(value) && !looksNamed(value) || words == 0 && rest && strengthOf(value) >= mixed && isDistinct(value) && !looksNamed(value) && !isVersion(value) && !strings.ContainsAny(value, "(/[{<$=:") {
				hide = append(hide, span{v.from, v.from + len(value)})
			}
		}
	}
	return hide
}

// isDirective says whether a name has its value behind a blank, also within a line.
func isDirective(flat string) bool {
	switch flat {
	case "passwd", "passphrase", "secret", "pass", "md5", "rootpw", "bindpw", "authpass", "basicauth", "sharedsecret":
		return true
	}
	return strings.HasSuffix(flat, "password")
}

// schemed finds what follows a scheme of authorisation that is not of HTTP itself, and
// headers that a configuration sets: Authorization "Basic …", GenieKey …, SSWS ….
func schemed(s string, hide []span) []span {
	for _, mark := range [...]string{"basic ", "geniekey ", "ssws ", "sharedkey ", "api-token ", "apikey ", "token token="} {
		for at := 0; ; {
			i := indexFold(s[at:], mark)
			if i < 0 {
				break
			}
			i += at
			at = i + len(mark)
			v := wordAt(s, skipBlanks(s, at))
			value := strings.TrimRight(s[v.from:v.to], ",;)]}")
			if i > 0 && isAlnum(s[i-1]) || len(value) < 12 || strengthOf(value) < mixed || looksNamed(value) && !isUUID(value) || ordinary(value) || isPath(value) {
				continue
			}
			if mark == "basic " && !isBasic(value) {
				continue
			}
			hide = append(hide, span{v.from, v.from + len(value)})
		}
	}
	return hide
}

// recoveryKeys finds BitLocker's: eight numbers of six digits, each a multiple of 11 as
// Microsoft has it; of those that are shown here the form is enough.
func recoveryKeys(s string, hide []span) []span {
	const size = 8*7 - 1
	for i := 0; i+size <= len(s); i++ {
		if s[i] < '0' || s[i] > '9' || i > 0 && (isAlnum(s[i-1]) || s[i-1] == '-') {
			continue
		}
		ok := i+size == len(s) || !isAlnum(s[i+size]) && s[i+size] != '-'
		for j := 0; ok && j < size; j++ {
			if c := s[i+j]; j%7 == 6 {
				ok = c == '-'
			} else {
				ok = c >= '0' && c <= '9'
			}
		}
		if ok {
			hide = append(hide, span{i, i + size})
			i += size
		}
	}
	return hide
}

// flagAlone says whether a line is one element of a list that names a secret, whose
// value is the next: - --token, and "--password",.
func flagAlone(s string) bool {
	t := strings.Trim(s[textOf(s):], ` "',`)
	t = strings.TrimLeft(strings.TrimPrefix(t, "- "), ` "'-`)
	if t == "" || len(t) > 40 || !strings.Contains(s, "--"+t) {
		return false
	}
	for i := 0; i < len(t); i++ {
		if !isNameByte(t[i]) {
			return false
		}
	}
	var buf [64]byte
	return secretName(string(flatten(&buf, t))) == secretValue
}

// isPublic says whether the word before a name is public, or the name of one who gives
// keys to all: public key: …, host key: ….
func isPublic(before string) bool {
	before = strings.TrimRight(before, ` "'_-.`)
	for _, word := range [...]string{"public", "pub", "host", "primary", "signing", "gpg", "cache", "partition", "sort", "foreign"} {
		if n := len(before) - len(word); n >= 0 && hasFold(before[n:], word) {
			return true
		}
	}
	return false
}

// nameAlone says whether a line gives the name of a secret whose value the next line
// has, as in the environment of a container: - name: DB_PASSWORD.
func nameAlone(s string) bool {
	name, ok := strings.CutPrefix(strings.TrimLeft(s[textOf(s):], "- "), "name: ")
	name = strings.Trim(name, ` "'`)
	var buf [64]byte
	return ok && name != "" && !strings.Contains(name, " ") && (secretName(string(flatten(&buf, name))) == secretValue || isShouted(name))
}

// besides finds words that a manager of passwords makes in a line that speaks of such:
// A temporary password is generated for root@localhost: …. What is published may lose
// a name that looks so; a configuration's line may not, so the scan has no such rule.
func besides(s string, hide []span) []span {
	speaks := false
	for _, word := range [...]string{"passw", "passphrase", "passcode", "credential", "secret", "login", "token", "identified by", "pre-shared", "shared key", "psk"} {
		speaks = speaks || indexFold(s, word) >= 0
	}
	if !speaks {
		return hide
	}
	for at := 0; at < len(s); {
		if isGap(s[at]) {
			at++
			continue
		}
		from := at
		for at < len(s) && !isGap(s[at]) {
			at++
		}
		v := strings.TrimRight(s[from:at], ".,;:)]}*")
		if user, rest, ok := strings.Cut(v, "/"); ok && isUser(user) {
			from, v = from+len(user)+1, rest
		}
		if isStrong(v) && !isCamel(v) && !isUUID(v) && !strings.ContainsAny(v, "/:") && !isQuantity(v) && !isMarked(v) && (strings.ContainsAny(v, "!%+,=@#^&*~?$") || longestRun(v) < 6 && longestRun(v)*2 < len(v)) {
			hide = append(hide, span{from, from + len(v)})
		}
	}
	return hide
}

func isGap(c byte) bool { return c <= ' ' || strings.IndexByte(`"'()[]{}<>\\`+"`", c) >= 0 }

// isMarked says whether a word is a time, a flag or name=value.
func isMarked(v string) bool {
	return v[0] == '-' || v[0] == '$' || v[0] == '@' || strings.Contains(v, "=") && isVariable(v[:strings.IndexByte(v, '=')]) && (v[len(v)-1] != '=' || strings.Contains(v, "_") || len(v)%4 != 0) || len(v) > 10 && v[4] == '-' && v[7] == '-'
}

// announces says whether a line ends in the words that announce a password in the next.
func announces(s string) bool {
	s = strings.TrimRight(s, " ")
	return strings.HasSuffix(s, ":") && !strings.HasSuffix(s, "word:") && strings.Contains(s[textOf(s):], " ") && (indexFold(s, "password") >= 0 || indexFold(s, "secret key") >= 0 || indexFold(s, "token") >= 0)
}

// isAnnounced says whether a line is a password by itself.
func isAnnounced(s string) bool {
	v := strings.Trim(s[textOf(s):], " ")
	return v != "" && !strings.Contains(v, " ") && (isStrong(v) || isKeyLike(v) || isHex(v) && len(v) >= 16)
}
