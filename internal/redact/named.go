package redact

import "strings"

// namedSecrets finds values by the name before them: password=…, "token": "…",
// --certificate-key …, Authorization: …; by the program that is given them with a
// flag of one letter: useradd -p …; by a tag: <Password>…</Password>; and
// {"name": "TOKEN", "value": "…"}. What a sentence goes on with behind a name (failed
// to fetch token: unexpected status), and the path of a file, is none.
func namedSecrets(s string, hide []span) []span {
	var (
		letter      byte // of the flag that gives the program a secret, 0 where there is none
		pro, attach bool // after "pro", "pro attach"
		asked       = -1 // where the name of a secret ended that has no value beside it
	)
	for i := 0; i < len(s); {
		if !isNameByte(s[i]) {
			if s[i] == ';' || s[i] == '|' || strings.HasPrefix(s[i:], "&&") {
				letter, attach = 0, false
			}
			i++
			continue
		}
		from := i
		for i < len(s) && isNameByte(s[i]) {
			i++
		}
		name := s[from:i]
		flag := name[0] == '-' && (from == 0 || isBreak(s[from-1]))
		var buf [64]byte
		flat := string(flatten(&buf, name))
		switch flat { // of systemd: names with paths, and what is encrypted
		case "loadcredential", "loadcredentialencrypted", "importcredential":
			i = wordEnd(s, i)
			continue
		case "setcredentialencrypted":
			return hide
		}
		kind := secretName(flat)
		if kind == notSecret && !flag {
			kind = headerKey(s, from, i)
		}
		if strings.HasSuffix(name, "-psk") && strings.HasSuffix(s[:from], "key-mgmt ") { // of NetworkManager: a kind of network
			kind = notSecret
		}
		blank := flag
		if kind == secretRandom && (flag || isPublic(s[:from])) {
			kind = notSecret
		}
		query := from > 0 && (s[from-1] == '?' || s[from-1] == '&')
		switch {
		case attach && !flag:
			attach = false
			if !ordinary(name) {
				kind, i = notSecret, wordAt(s, from).to
				hide = append(hide, span{from, i})
			}
		case flat == "value" && asked >= 0 && from-asked < 12 && isPair(s[asked:from]):
			kind = secretValue
		case query && (flat == "code" || flat == "key"):
			kind = secretValue
		case flag && kind == notSecret:
			kind = secretFlag(flat)
			if letter == 'u' && name[len(name)-1] == 'u' { // -fsSLu u:…
				kind = secretAfterColon
			}
			if flat == "key" {
				kind = secretRandom
			}
			if flat == "k" && strings.Contains(behind(s, from), "openssl enc") {
				kind = secretValue
			}
			if flat == "value" && strings.Contains(behind(s, from), "secret set ") {
				kind = secretValue
			}
			if letter == 0 || len(name) < 2 || name[1]|0x20 != letter {
				break
			}
			kind = secretValue
			if letter == 'u' {
				kind = secretAfterColon
			}
			// The value may stand right beside: -pX, -p'X'.
			quoted := from > 0 && (s[from-1] == '"' || s[from-1] == '\'')
			if len(name) > 2 || !quoted && skipQuotes(s, i) > i {
				hide, i = found(s, wordAt(s, from+2), kind, hide, i)
				continue
			}
		case flag:
		case kind == notSecret:
			if isShouted(name) && i < len(s) && (s[i] == '=' || s[i] == ':' && !strings.HasSuffix(name, "LICENSE")) {
				kind = secretValue
			}
			if l := flagOf(flat); l != 0 {
				letter = l
			} else if (flat == "agent" || flat == "server") && strings.HasSuffix(s[:from], "- ") { // k3s: | sh -s - agent -t …
				letter = 't'
			}
			attach = pro && flat == "attach"
			pro = flat == "pro" || flat == "ua" || flat == "ubuntuadvantage"
		default:
			// Some take it after a blank; of others the name is in sentences too.
			blank = strings.HasSuffix(name, ".psk") || strings.HasSuffix(name, "-psk") || kind == secretArgument || assigns(behind(s, from), flat)
			if i < len(s) && s[i] == '=' && kind == secretArgument {
				kind = secretValue
			}
			if at := skipBlanks(s, i); kind == secretArgument && (at == i || at == len(s) || s[at] == ':' || flat[0] == 'c' && s[at] >= 'a' && ordinary(s[at:wordEnd(s, at)])) {
				kind = notSecret
			}
		}
		if kind == notSecret {
			continue
		}
		if kind == secretRandom && !flag && (i >= len(s) || s[i] == ' ' && !strings.HasPrefix(strings.TrimLeft(s[i:], " "), "=")) {
			continue
		}
		if v, ok := tagged(s, from, i); ok {
			hide, i = append(hide, v), v.to
			continue
		}
		until := len(s)
		if query && kind == secretValue {
			if n := strings.IndexByte(s[i:], '&'); n >= 0 {
				until = i + n
			}
		}
		v, ok := valueAt(s[:until], i, blank)
		if !ok {
			asked = i
			continue
		}
		if kind == secretValue && isSaid(s, v) || kind == secretRandom && !isKeyLike(s[v.from:v.to]) {
			continue
		}
		hide, i = found(s, v, kind, hide, i)
	}
	return hide
}

// behind is what stands before a name, as far as it matters.
func behind(s string, name int) string { return s[max(0, name-96):name] }

// assigns says whether what stands before the name of a secret has its value
// follow after a blank: npm config set …, aws configure set …, setx …, an
// argument of SetEnvironmentVariable, ENV …, nmcli … wifi-sec.psk …, and machine H login U
// password ….
func assigns(before, flat string) bool {
	if words := strings.Fields(before); flat == "password" && len(words) > 1 && words[len(words)-2] == "login" {
		return true
	}
	if strings.Contains(before, "onfig set ") || strings.Contains(before, "onfigure set ") || strings.Contains(before, "nmcli ") {
		return true
	}
	if strings.HasSuffix(before, "ENV ") || strings.HasSuffix(before, "setenv ") { // of a Dockerfile, and of csh
		return true
	}
	before = strings.TrimRight(before, `'"`)
	return hasFold(before[max(0, len(before)-5):], "setx ") || hasFold(before[max(0, len(before)-20):], "environmentvariable(")
}

// tagged is what a tag of XML has within, of which the name is at from to i.
func tagged(s string, from, i int) (span, bool) {
	if i >= len(s) || from == 0 {
		return span{}, false
	}
	switch {
	case (s[i] == '"' || s[i] == '\'') && strings.HasPrefix(s[i+1:], ">") && s[from-1] != '>': // <property name="x.password">…
		i++
	case s[from-1] != '<' && s[from-1] != ':':
		return span{}, false
	case s[i] == ' ' && s[from-1] == '<': // <Pass encoding="base64">…
		n := strings.IndexByte(s[i:min(len(s), i+96)], '>')
		if n < 0 || s[i+n-1] == '/' {
			return span{}, false
		}
		i += n
	case s[i] != '>':
		return span{}, false
	}
	i++
	if strings.HasPrefix(s[i:], "<Value>") { // as in Windows' answer files
		i += len("<Value>")
	}
	n := strings.Index(s[i:min(len(s), i+maxShown)], "</")
	return span{i, i + n}, n > 0
}

// said are words that sentences go on with behind the name of a secret.
const said = " post get put patch delete dial unexpected failed failure error rpc open stat lstat read no not invalid unauthorized unauthenticated forbidden" +
	" timeout context cannot can't could couldn't unable pod secret secrets token configmap configmaps expired unknown missing required unsupported duplicate rejected" +
	" denied permission connection x509 tls http oauth2 state is are was via flag flags must and or bad authentication operation incorrect "

// isSaid says whether the value of a name is none: a word of a sentence, the path of
// a file, or true, false and nothing.
func isSaid(s string, v span) bool {
	word := strings.TrimRight(s[v.from:v.to], ":,;.)}]")
	if isPath(word) {
		return true
	}
	switch word {
	case "true", "false", "null", "none", "nil":
		return true
	}
	return v.from > 0 && s[v.from-1] == ' ' && isSpoken(word)
}

func isSpoken(word string) bool {
	return strings.HasPrefix(word, "AADSTS") || word != "" && len(word) <= len("unauthenticated") && strings.Contains(said, " "+strings.ToLower(word)+" ")
}

// isPath says whether a word is the path of a file, rather than base64.
func isPath(word string) bool {
	for _, dir := range [...]string{"/etc/", "/var/", "/run/", "/usr/", "/opt/", "/home/", "/root/", "/tmp/", "/mnt/"} {
		if strings.HasPrefix(word, dir) {
			return true
		}
	}
	return false
}

// found takes over the value of a name that ends at i, and gives where to go on.
func found(s string, v span, kind int, hide []span, i int) ([]span, int) {
	switch kind {
	case secretAfterColon:
		n := strings.IndexByte(s[v.from:v.to], ':')
		if n < 0 { // smbclient's user%password, lftp's user,password
			n = strings.IndexAny(s[v.from:v.to], "%,")
			if n <= 0 || v.to-v.from-n < 5 || s[v.from] == '$' || s[v.from+n] == ',' && !strings.Contains(behind(s, v.from), "lftp") {
				return hide, i
			}
		}
		v.from += n + 1
	case secretToEnd, secretArgument:
		v.to = len(s)
	}
	if v.to > v.from {
		hide = append(hide, v)
	}
	return hide, max(i, v.to)
}

const (
	notSecret = iota
	secretValue
	secretToEnd      // what follows has blanks within
	secretArgument   // the same, after a blank only
	secretAfterColon // user:password
	secretRandom     // of names such as key, where the value is one
)

// secretFlag says the same of a flag that is too short to tell by itself.
func secretFlag(flat string) int {
	switch {
	case flat == "u", flat == "user", flat == "proxyuser", flat == "basicauth", flat == "login", flat == "credentials", strings.HasSuffix(flat, "creds"):
		return secretAfterColon
	case flat == "license", flat == "pat", flat == "oauth2bearer", flat == "fromliteral":
		return secretValue
	}
	return notSecret
}

// flagOf is the letter of the flag by which a program is given a secret.
func flagOf(program string) byte {
	for _, p := range [...]string{
		"plogin", "psshpass", "pmysql", "pmariadb", "puseradd", "pusermod", "pmongo", "ucurl", "sonboardagent", "somsa", "arediscli", "wldap",
		"tk3s", "trke2", "punzip", "psqlcmd", "nsshkeygen", "p7z", "pipmitool", "wipaclientinstall", "prar", "punrar", "pbcp", "pnerdctl", "pfence",
	} {
		if strings.HasPrefix(program, p[1:]) {
			return p[0]
		}
	}
	if program == "zip" || program == "pcs" {
		return 'p'
	}
	return 0
}

// isShouted says whether a name is one of a secret in the environment.
func isShouted(name string) bool {
	if strings.HasSuffix(name, "PUBLIC_KEY") {
		return false
	}
	for i := 0; i < len(name); i++ {
		if name[i] >= 'a' && name[i] <= 'z' {
			return false
		}
	}
	return strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_PAT") || name == "SSHPASS" || strings.HasSuffix(name, "_PWD") || strings.HasSuffix(name, "LICENSE")
}

// ordinary says whether a word may be one of a sentence, rather than a token.
func ordinary(word string) bool {
	for i := 0; i < len(word); i++ {
		if c := word[i]; c >= '0' && c <= '9' || i > 0 && c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

// flatten makes a name one without regard to case, dashes, underscores and dots
// (client-secret, AZURE_CLIENT_SECRET); of long ones the end.
func flatten(buf *[64]byte, name string) []byte {
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
	return buf[:n]
}

// secretName says whether a name, made flat, is one of a secret: by its end.
func secretName(flat string) int {
	flat = strings.TrimPrefix(flat, "u0026") // & in JSON
	for _, form := range [...]string{"base64", "b64", "hex"} {
		flat = strings.TrimSuffix(flat, form)
	}
	if n := len(flat); n > 4 && flat[n-1] >= '0' && flat[n-1] <= '9' { // password2, wep-key0
		flat = flat[:n-1]
	}
	switch flat {
	case "key", "private", "encrypt", "credentials", "credential", "bearer", "routingkey", "macaroon", "skey", "k", "d":
		return secretRandom
	case "sig", "sas", "auth", "identitytoken", "pwd":
		return secretValue
	case "authorization", "proxyauthorization", "cookie", "setcookie":
		return secretToEnd
	case "converttosecurestring", "wpapassphrase":
		return secretArgument
	case "chpasswd": // a program
		return notSecret
	}
	if stem, ok := strings.CutSuffix(flat, "key"); ok {
		for _, end := range [...]string{
			"account", "access", "api", "certificate", "private", "storage", "encryption", "shared", "master", "host", "secret", "signing", "client", "subscription",
			"functions", "workspace", "primary", "secondary", "auth", "activation", "license", "product", "registration", "agent", "instrumentation",
			"app", "application", "integration", "setup", "symm", "service", "validation", "decryption", "machine", "join", "wep", "unseal", "recovery", "gossip", "encrypt", "jwt", "hmac", "cookie", "session",
			"enrollment", "provisioning", "webhook", "deploy", "backup", "fernet", "user", "admin", "sas", "seal",
		} {
			if strings.HasSuffix(stem, end) {
				return secretValue
			}
		}
		return notSecret
	}
	for _, end := range [...]string{
		"password", "passwd", "passphrase", "secret", "token", "clientkeydata", "accesssignature", "dockerconfigjson", "secretdata", "credential", "psk",
		"pass", "pw", "pwd", "pswd", "passcode", "passwort", "secretid", "secretkeybase", "clientcontent", "filecontent", "authtok", "passwordhash", "xamzsignature", "xgoogsignature",
		"honeycombteam", "activationid", "authsalt", "noncesalt", "insalt", "ticketsalt",
	} {
		if strings.HasSuffix(flat, end) {
			if end == "pwd" && flat == "oldpwd" {
				return notSecret
			}
			if end == "pass" && (strings.HasSuffix(flat, "bypass") || strings.HasSuffix(flat, "compass") || flat == "sshpass") {
				return notSecret
			}
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
	case quoted && i+1 < len(s) && s[i] == ']' && skipBlanks(s, i+1) < len(s) && s[skipBlanks(s, i+1)] == '=': // config['password'] = …
		i = skipBlanks(s, i+1) + 1
	case i < len(s) && (s[i] == '=' || s[i] == ':'):
		i++
		if i < len(s) && (s[i] == '=' || s[i] == '>') { // := and =>
			i++
		}
	case !quoted && strings.HasPrefix(s[i:], ", <<\"") || strings.HasPrefix(s[i:], ", \"") && strings.LastIndexByte(s[:name], '{') > strings.LastIndexByte(s[:name], ' '): // Erlang's {password, <<"…">>}
		i = skipBlanks(s, i+1)
		for i < len(s) && s[i] == '<' {
			i++
		}
	case flag && i < len(s) && s[i] == ',': // ["--token", "…"]
		i++
	case flag && blank: // --token …
	case flag && quoted && i < len(s): // '--token' '…'
	default:
		return span{}, false
	}
	i = skipBlanks(s, i)
	for range 2 { // (string) (len=14) "…": how Go programs print what they have
		if end := strings.IndexByte(s[i:], ')'); i < len(s) && s[i] == '(' && end > 1 && end < 16 && isVariable(strings.Replace(s[i+1:i+end], "=", "", 1)) && strings.HasPrefix(s[i+end:], ") ") {
			i = skipBlanks(s, i+end+1)
		}
	}
	if i >= len(s) || strings.HasPrefix(s[i:], "Invalid value: ") { // Kubernetes names the field, then what is wrong
		return span{}, false
	}
	if s[i] == '[' && skipQuotes(s, i+1) > i+1 { // ["…"]
		i++
	}
	if end := strings.IndexByte(s[i:], ']'); s[i] == '[' && s[i-1] == ':' && end > 1 && isAlnum(s[i+1]) && !isPlaceholder(s[i+1:i+end]) && !strings.HasPrefix(s[i:], hidden) { // Name:[…], as Go prints headers
		return span{i + 1, i + end}, true
	}
	// An object: what is within has names too. So has what makes one of a text.
	if s[i] == '{' && isPlaceholder(s[i:wordEnd(s, i)]) || s[i] == '[' || hasFold(strings.TrimPrefix(s[i:], "("), "convertto-") {
		return span{}, false
	}
	v := wordAt(s, i)
	// A value may begin with a scheme: token: Bearer ….
	if isScheme(s[v.from:v.to]) && v.from == i {
		if at := skipBlanks(s, v.to); at < len(s) {
			v.to = wordEnd(s, at)
		}
	}
	return v, true
}

// wordAt is the word that begins at i, within its quotes.
func wordAt(s string, i int) span {
	n := skipQuotes(s, i)
	if n == i {
		return span{i, wordEnd(s, i)}
	}
	quote := s[n-1]
	escaped := n-i > 1
	for i = n; i < len(s); i++ {
		if quote == '\'' && strings.HasPrefix(s[i:], `'\''`) { // a quote within, as shells write it
			i += len(`'\''`) - 1
		} else if s[i] == quote && (escaped || s[i-1] != '\\' || i == n) {
			break
		}
	}
	if escaped && i > n && s[i-1] == '\\' {
		i--
	}
	return span{n, min(i, len(s))}
}

func wordEnd(s string, i int) int {
	for begin := i; i < len(s) && (s[i] != ' ' || i > begin && s[i-1] == '\\') && s[i] != '"' && s[i] != '\''; {
		i++
	}
	return i
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
