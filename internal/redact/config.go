package redact

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// readLine looks at a line of configuration, of a script or a shell's history with
// the rules that hide secrets in what is published, and keeps of what they give the
// values that nobody writes as an example.
func (f *finder) readLine(at int) {
	from, to := f.lineAt(at)
	f.line = to
	s := f.plainLine(from, to)
	if strings.HasPrefix(strings.TrimLeft(s, " "), "SetCredentialEncrypted=") { // of systemd: its name is followed by what is encrypted
		return
	}
	var room [16]span
	for _, v := range namedSecrets(s, room[:0]) {
		f.judge(s, v, from)
	}
	if f.kind != text {
		f.constant(s, from)
		return
	}
	for _, v := range arguments(s, nil) {
		v.from = max(v.from, lastWord(s, v))
		if v.from < len(s) && (s[v.from] == '\'' || s[v.from] == '"') {
			v = wordAt(s, v.from)
		}
		f.value(ruleCommand, s, v, from, word)
	}
	if reader(s) >= 0 && !isComment(s) {
		f.piped(s, from)
	}
	if strings.Contains(s, "oken") || strings.Contains(s, "OKEN") || strings.Contains(s, "kubeadm") {
		for _, v := range bootstrapTokens(s, nil) {
			if v.to-v.from == 16 && v.from > 6 && !isComment(s) {
				f.hit(ruleBootstrap, from+v.from-7, from+v.to)
			}
		}
	}
	f.directive(s, from)
	for _, find := range [...]func(string, []span) []span{accounts, directives, programCalls} {
		for _, v := range find(s, room[:0]) {
			f.value(ruleNamed, s, v, from, word)
		}
	}
	for _, v := range schemed(s, room[:0]) {
		f.value(ruleHeader, s, v, from, mixed)
	}
	f.below(s, to)
}

// lastWord is where the last word of a span begins, of those before a redirection.
func lastWord(s string, v span) int {
	t := strings.TrimRight(s[v.from:v.to], " ")
	if i := strings.IndexAny(t, "><"); i > 0 {
		t = strings.TrimRight(t[:i], " ")
	}
	return v.from + strings.LastIndexByte(t, ' ') + 1
}

// isComment says whether a line says something about a configuration, or has one that
// does not count. npm's settings of one registry and shares in fstab begin as comments of
// others do.
func isComment(s string) bool {
	s = strings.TrimLeft(s, " ")
	return s == "" || s[0] == '#' && !strings.HasPrefix(s, "#cloud") || s[0] == ';' || strings.HasPrefix(s, "//") && !strings.Contains(s, "/:_") && !strings.Contains(s, " cifs ") || strings.HasPrefix(s, "/*") || strings.HasPrefix(s, "* ") || strings.HasPrefix(s, "<!--") || strings.HasPrefix(s, "-- ") || strings.HasPrefix(s, "rem ")
}

// judge keeps what a name has as its value, where that looks like a secret.
func (f *finder) judge(s string, v span, line int) {
	name, given := nameBefore(s, v.from)
	least := mixed
	var buf [64]byte
	flat := string(flatten(&buf, name))
	if given || isPasswordName(flat) || isJoinName(flat) || flat == "k" && strings.Contains(s, "openssl enc") {
		least = word
	}
	if f.kind == code && secretName(flat) == secretRandom {
		return // of maps, in a program's source
	}
	rule := f.ruleOf(flat, s, given)
	if rule == "" {
		return
	}
	if t := strings.TrimLeft(s[v.to:], " "); !given && v.from > 0 && s[v.from-1] == ' ' && strings.Contains(s[:v.from], ": ") && strengthOf(s[v.from:v.to]) == word && t != "" && t[0] >= 'a' && t[0] <= 'z' {
		return // a sentence: passwd: dependency problems
	}
	if f.kind == code {
		quoted := v.from > 0 && (s[v.from-1] == '"' || s[v.from-1] == '\'') && v.to < len(s) && s[v.to] == s[v.from-1]
		if !quoted && !isWithinText(s, v) {
			return
		}
		least = max(least, mixed)
	}
	f.value(rule, s, v, line, least)
}

// isWithinText says whether a value is one of name=value in a text of a program's
// source: "host=h user=u password=…".
func isWithinText(s string, v span) bool {
	if v.from < 2 || s[v.from-1] != '=' || s[v.from-2] == ' ' || strings.ContainsAny(s[v.from:v.to], "{}%$+()<>") {
		return false
	}
	return strings.Count(s[:v.from], `"`)%2 == 1 || strings.Count(s[:v.from], "'")%2 == 1
}

// value keeps a value that is at least so much like a secret.
func (f *finder) value(rule, s string, v span, line int, least strength) {
	quoted := v.from > 0 && (s[v.from-1] == '"' || s[v.from-1] == '\'')
	whole := v.to
	if !quoted {
		v = trimmed(s, v)
	}
	if t := s[v.from:v.to]; hasFold(t, "bearer ") || hasFold(t, "basic ") || hasFold(t, "token ") {
		v.from = skipBlanks(s, v.from+strings.IndexByte(t, ' '))
		v.to = v.from + len(strings.Fields(s[v.from:v.to] + " x")[0])
	}
	if v.from >= v.to {
		return
	}
	value := s[v.from:v.to]
	if full := s[v.from:min(max(whole, v.to), wordEnd(s, v.from))]; !quoted && strengthOf(value) < max(least, mixed) && isStrong(strings.TrimRight(full, "),;}]. \\`")) && !hasOption(full) {
		v.to = v.from + len(strings.TrimRight(full, "),;}]. \\`"))
		value = s[v.from:v.to]
	}
	if isComment(s) || strings.Contains(s[:v.from], " # ") || f.inComment(line+v.from) {
		least = random
	}
	if f.kind == code && (len(value) < leastRandom || strings.Contains(value, " ") || strengthOf(value) < random) && (looksLikeCode(value) || hasAny(lower(value), "password", "secret", "token", "credential", "key")) {
		return
	}
	if strengthOf(value) < least || isVersion(value) || least > word && (looksNamed(value) || isGUIDName(s, v)) || !quoted && looksLikeCode(value) {
		return
	}
	if f.isSealed(value, line) {
		return
	}
	if rule == ruleRegistry && f.place != ruleRegistry && !isBasic(value) {
		if !isStrong(value) && !isKeyLike(value) {
			return
		}
		rule = ruleNamed
	}
	if rule == ruleSAS && !isSignature(value) {
		return
	}
	f.hit(rule, line+v.from, line+v.to)
}

// isSealed says whether a value is one of a SealedSecret, which the cluster alone opens.
func (f *finder) isSealed(value string, line int) bool {
	const least = 340 // base64 of a key of 2,048 bits
	before := f.Data[max(0, line-16<<10):line]
	sealed := bytes.LastIndex(before, []byte("encryptedData:"))
	if len(value) < least || !allBase64(value) || sealed < 0 {
		return false
	}
	// A Secret may follow in the same file.
	between := before[sealed:]
	return !bytes.Contains(between, []byte("\n---")) && !bytes.Contains(between, []byte("\ndata:")) && !bytes.Contains(between, []byte("stringData:"))
}

// hasOption says whether a value goes on with another of a list: a,uid=0.
func hasOption(v string) bool {
	for _, part := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ';' || r == '&' })[1:] {
		if isAssigned(part) {
			return true
		}
	}
	return false
}

// inComment says whether a place lies within a comment of XML.
func (f *finder) inComment(at int) bool {
	if at == 0 || f.Data[at-1] != '>' {
		return false
	}
	before := f.Data[max(0, at-4<<10):at]
	i := bytes.LastIndex(before, []byte("<!--"))
	return i >= 0 && !bytes.Contains(before[i:], []byte("-->"))
}

// isGUIDName says whether a value is an identifier rather than a key.
func isGUIDName(s string, v span) bool {
	return isUUID(s[v.from:v.to]) && hasFold(s[max(0, v.from-24):v.from], "instrumentationkey")
}

// trimmed is a value that has no quotes, without what ends it in a list, an object, a
// command or a connection string.
func trimmed(s string, v span) span {
	for v.from < v.to && s[v.from] == ' ' {
		v.from++
	}
	value := s[v.from:v.to]
	if i := strings.IndexAny(value, ";|<>,\"'"); i >= 0 {
		v.to = v.from + i
	}
	if i := strings.IndexByte(s[v.from:v.to], '&'); i > 0 {
		v.to = v.from + i
	}
	for braced := v.to > v.from && s[v.from] == '{'; v.to > v.from && strings.IndexByte("),;}]. \\`", s[v.to-1]) >= 0 && !(braced && s[v.to-1] == '}'); {
		v.to--
	}
	return v
}

// looksLikeCode says whether a value without quotes is an expression.
func looksLikeCode(v string) bool {
	if v != "" && v[0] == '{' && !isPlaceholder(v) {
		return false
	}
	return strings.ContainsAny(v, "({[") && strings.ContainsAny(v, ")}]") || strings.Contains(v, "::") && !strings.HasPrefix(v, "K10") || strings.Contains(v, "->") || strings.Contains(v, "//") && strings.Contains(v, ":")
}

// nameBefore is the name whose value begins at i; given says that a program is given
// the value in another way.
func nameBefore(s string, i int) (name string, given bool) {
	at := i
	for at > 0 && strings.IndexByte(" \"'\\=:[,(>{", s[at-1]) >= 0 {
		at--
	}
	to := at
	for at > 0 && isNameByte(s[at-1]) {
		at--
	}
	name = s[at:to]
	var buf [64]byte
	flat := string(flatten(&buf, name))
	if i == to && i > 0 { // -pVALUE
		return "", true
	}
	if flat == "value" || flat == "bearer" || flat == "basic" || flat == "token" && strings.HasSuffix(lower(s[:at]), "authorization: ") {
		// The name is before: {"name": "TOKEN", "value": …}, Authorization: Bearer ….
		for at > 0 && !isNameByte(s[at-1]) {
			at--
		}
		end := at
		for at > 0 && isNameByte(s[at-1]) {
			at--
		}
		if before := s[at:end]; before != "" {
			name = before
			flat = string(flatten(&buf, name))
		}
	}
	return name, secretName(flat) == notSecret && !isShouted(name)
}

// isPasswordName says whether a name is of a password: such may be a word.
func isPasswordName(flat string) bool {
	for _, end := range [...]string{"password", "passwd", "passphrase", "pwd", "pass", "pw", "psk", "community", "passcode", "authtok"} {
		if strings.HasSuffix(flat, end) {
			return true
		}
	}
	return false
}

// isJoinName says whether a name has nothing but a token of k3s or RKE2, which people
// make up too.
func isJoinName(flat string) bool {
	return strings.HasSuffix(flat, "k3stoken") || strings.HasSuffix(flat, "rke2token") || strings.HasSuffix(flat, "k3sagenttoken")
}

// ruleOf is the rule for the value of a name; "" for names that mean something else in
// files than in a program's messages.
func (f *finder) ruleOf(flat, s string, given bool) string {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(flat, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("publickey", "customdata", "userdata", "keyid", "partitionkey", "foreignkey", "sortkey"), flat == "secretname", flat == "gpgkey", flat == "signingkey" && f.place == "":
		return ""
	case has("k3stoken", "rke2token", "k3sagenttoken"), strings.HasSuffix(flat, "token") && (f.place == ruleK3s || hasAny(s, "k3s", "rke2")):
		return ruleK3s
	case (flat == "t" || flat == "") && hasAny(s, "k3s", "rke2", "- agent", "- server") && hasAny(s, " -t"):
		return ruleK3s
	case flat == "tokensecret" && bytes.Contains(f.Data, []byte("bootstrap.kubernetes.io/token")):
		return ruleBootstrap
	case has("certificatekey"):
		return ruleCertificates
	case flat == "sig":
		return ruleSAS
	case has("accountkey", "storagekey", "acctkey", "storageaccesskey"):
		return ruleStorageKey
	case has("aadclientsecret", "aadclientcertpassword"):
		return ruleAzureCloud
	case has("azureclientsecret", "armclientsecret", "azureclientcertificatepassword", "azuredevopsextpat", "azpat", "azptoken", "azureclientpassword"):
		return ruleAzureSecret
	case has("sharedaccesskey", "connectionstring", "accesssignature"), hasAny(s, "Server=", "Data Source=", "User Id=", "User ID=", "Uid=", "UID=", "Initial Catalog=", "Driver=") && isPasswordName(flat):
		return ruleConnection
	case has("authorization"):
		return ruleHeader
	case (flat == "auth" || flat == "password") && (f.place == ruleNPM || f.place == rulePyPI || f.place == ruleGoogle || f.place == ruleAWS):
		return f.place
	case flat == "auth" && strings.ContainsAny(s, ":\"'"), flat == "identitytoken", flat == "registrytoken", flat == "registrypassword", has("dockerconfigjson", "dockerpassword", "dockertoken"):
		return ruleRegistry
	case given && f.place == "" || hasAny(s, "docker login", "podman login", "registry login", "az login", "sshpass ", "crictl ", "skopeo "):
		return ruleCommand
	case has("awssecret", "awssession", "awsaccess"):
		return ruleAWS
	case has("githubtoken", "ghtoken", "githubpat", "ghpat"):
		return ruleGitHub
	case has("gitlab", "cijobtoken"):
		return ruleGitLab
	case has("slack"):
		return ruleSlack
	case has("npmtoken", "npmauth", "nodeauthtoken"):
		return ruleNPM
	case has("pypi", "twinepassword", "uvpublish"):
		return rulePyPI
	case has("stripe"):
		return ruleStripe
	case has("sendgrid"):
		return ruleSendGrid
	case has("twilio"):
		return ruleTwilio
	case has("datadog", "ddapikey", "ddappkey", "ddkey"):
		return ruleDatadog
	case has("vaulttoken", "vaultsecret", "vaultdevroot"):
		return ruleVault
	case has("tftoken", "terraform", "tfetoken"):
		return ruleTerraform
	case has("tailscale", "tsauthkey"):
		return ruleTailscale
	case has("mysql", "mariadb"):
		return ruleMySQL
	case flat == "psk" || has("wpapass", "wifipass"):
		return ruleWiFi
	case flat == "presharedkey" || flat == "privatekey" && f.place == ruleWireGuard:
		return ruleWireGuard
	}
	if f.place != "" {
		return f.place
	}
	return ruleNamed
}

func hasAny(s string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// isSignature says whether a value is a signature of SHA-256, with or without escapes.
func isSignature(v string) bool {
	n := 0
	for i := 0; i < len(v); i++ {
		if v[i] == '%' {
			i += 2
			if i < len(v) && strings.EqualFold(v[i-2:i+1], "%25") {
				i += 2
			}
		} else if !isBase64(v[i]) {
			return false
		}
		n++
	}
	return n >= 40 && n <= 46
}

// isBasic says whether a value is the base64 of user:password.
func isBasic(v string) bool {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
	return len(v) > 40 && err != nil || err == nil && strings.Contains(string(plain), ":") || err == nil && len(v) > 40
}

// directive finds values that stand behind their names with a blank between, as many
// daemons have it: requirepass …, rocommunity …, password ….
func (f *finder) directive(s string, line int) {
	if isComment(s) || f.place == ruleNetrc {
		return
	}
	t := strings.TrimLeft(s, " ")
	name, rest, ok := strings.Cut(t, " ")
	if !ok || len(name) > 40 {
		return
	}
	var buf [64]byte
	flat := string(flatten(&buf, name))
	rest = strings.TrimLeft(rest, " ")
	rule, most := ruleNamed, 1
	switch flat {
	case "requirepass", "masterauth", "bindpw", "rootbindpw", "authpass", "password", "passwd", "httppasswd", "adminpassword", "smtppassword", "ldapdefaultauthtok", "sharedkey", "apikey", "secretkey", "awssecretkey", "pass", "userpassword", "replpassword", "accesskey", "awskeyid", "awsseckey", "proxypassword", "secret", "insecurepassword":
	case "rocommunity", "rwcommunity", "rocommunity6", "rwcommunity6", "trapcommunity", "authcommunity":
		rule, most = ruleSNMP, 5
		if flat == "authcommunity" {
			_, rest, _ = strings.Cut(rest, " ")
		}
	case "com2sec", "com2sec6":
		rule, most = ruleSNMP, 6
		rest = rest[strings.LastIndexByte(strings.TrimRight(rest, " "), ' ')+1:]
	case "createuser", "usmuser", "defauthpassphrase", "defprivpassphrase", "defcommunity":
		rule, most = ruleSNMP, 12
		if flat == "createuser" {
			w := strings.Fields(rest)
			if len(w) < 3 {
				return
			}
			_, rest, _ = strings.Cut(rest, w[1]+" ")
			rest = strings.TrimLeft(rest, " ")
		}
	default:
		return
	}
	if rest = strings.TrimRight(rest, " ;"); rest == "" || len(strings.Fields(rest)) > most {
		return
	}
	v := wordAt(s, strings.LastIndex(s, rest))
	if rule == ruleNamed && f.place != "" {
		rule = f.place
	}
	least := word
	if flat == "secret" || flat == "sharedkey" || flat == "accesskey" || flat == "apikey" {
		least = mixed
	}
	if value := s[v.from:v.to]; rule == ruleSNMP && (value == "public" || value == "private") {
		return
	}
	f.value(rule, s, v, line, least)
}

// constant finds define('DB_PASSWORD', '…') of PHP.
func (f *finder) constant(s string, line int) {
	i := strings.Index(s, "define(")
	if i < 0 {
		return
	}
	name, rest, ok := strings.Cut(s[i+len("define("):], ",")
	name = strings.Trim(name, ` '"`)
	var buf [64]byte
	if !ok || secretName(string(flatten(&buf, name))) == notSecret && !isShouted(name) {
		return
	}
	v := wordAt(s, skipBlanks(s, len(s)-len(rest)))
	f.value(ruleNamed, s, v, line, mixed)
}

// piped finds what a program is given that reads a secret: echo … | chpasswd, <<< ….
func (f *finder) piped(s string, line int) {
	for _, v := range inputs(s, nil) {
		part := s[v.from:v.to]
		for _, program := range [...]string{"echo ", "printf ", "echo"} {
			if i := strings.LastIndex(part, program); i >= 0 {
				v.from += i + len(program)
				break
			}
		}
		part = strings.TrimRight(s[v.from:v.to], " )")
		v.to = v.from + len(part)
		for strings.HasPrefix(part, "-") || strings.HasPrefix(part, "'%s") || strings.HasPrefix(part, `"%s`) || strings.HasPrefix(part, "%s ") || strings.HasPrefix(part, " ") {
			_, after, ok := strings.Cut(part, " ")
			if !ok {
				return
			}
			part = after
		}
		part = strings.Trim(part, `"' `)
		i := strings.Index(s[v.from:v.to], part)
		if i < 0 || part == "" || strings.ContainsAny(part, "|") {
			continue
		}
		v = span{v.from + i, v.from + i + len(part)}
		if user, password, ok := strings.Cut(part, ":"); ok && !strings.Contains(user, " ") && hasAny(s, "chpasswd") {
			v.from += len(user) + 1
			part = password
		}
		if n := strings.IndexAny(part, " \\\"'"); n > 0 {
			v.to = v.from + n
		}
		if strings.HasPrefix(s[v.from:v.to], "cat ") || strings.HasPrefix(s[v.from:v.to], "/") {
			continue
		}
		f.value(ruleCommand, s, v, line, word)
	}
}
