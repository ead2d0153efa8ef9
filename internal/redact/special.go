package redact

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

// A special is a form that is known by a word within, and proved by what is around.
type special struct {
	words []string
	look  func(f *finder, from, to int)
}

func specials() []special {
	return []special{
		{[]string{"-----begin ", "---- begin "}, (*finder).pem},
		{base64Of("-----BEGIN "), (*finder).encodedPEM},
		{[]string{"putty-user-key-file-"}, (*finder).putty},
		{[]string{"://"}, (*finder).url},
		{[]string{"$1$", "$5$", "$6$", "$y$", "$7$", "$gy$", "$2a$", "$2b$", "$2y$", "$apr1$", "$argon2", "{ssha}", "{ssha256}", "{ssha512}", "{sha}", "{sha256}", "{sha512}", "{smd5}", "{pbkdf2", "$pbkdf2", "$scrypt$", "$p$b", "$s$d", "pbkdf2_sha256$", "grub.pbkdf2.sha512."}, (*finder).hash},
		{[]string{"scram-sha-256$", "scram-sha-1$"}, (*finder).scram},
		{[]string{"md5"}, (*finder).postgresMD5},
		{[]string{"dhhc-1:"}, (*finder).nvme},
		{[]string{"<masterkey"}, (*finder).masterKey},
		{[]string{"usmuser "}, (*finder).usmUser},
		{[]string{"onboardinginfo"}, (*finder).onboarding},
		{[]string{"token_name:"}, (*finder).teleport},
		{[]string{" on >", "sanitize-payload >"}, (*finder).redisACL},
		{[]string{"q~"}, (*finder).clientSecret},
		{[]string{".atlasv1."}, (*finder).atlas},
		{[]string{"::server:", "::node:", "::agent:"}, (*finder).k3s},
		{[]string{"k10"}, (*finder).k3sShort},
		{[]string{"bqiaaa"}, (*finder).encodedKeytab},
		{[]string{"env.fetch(", "environ.get(", "getenv("}, (*finder).fallback},
		{[]string{"eyj"}, (*finder).jwt},
		{[]string{":25000/"}, (*finder).microk8s},
		{[]string{"hooks.slack.com/services/t", "hooks.slack.com/workflows/t", "webhook.office.com/webhookb2/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "api.telegram.org/bot"}, (*finder).webhook},
		{[]string{"azdo"}, (*finder).devOps},
		{[]string{"privatekey", "private-key", "private_key", "presharedkey"}, (*finder).wireGuard},
		{[]string{"azureml", "+acr", "+ast", "acdb", "azca", "azfu", "azse", "+aeh", "aiot", "+asb", "+aba", "+amc"}, (*finder).azureKey},
		{[]string{"/registry/secrets/", "kubernetes.io/secrets/"}, (*finder).clusterStore},
		{[]string{"rfc4106(gcm(aes))", "cbc(aes)", "hmac(sha1)", "hmac(sha256)", "hmac(sha512)"}, (*finder).cilium},
		{[]string{": psk ", ":psk ", ": eap ", ": xauth ", ": ntlm "}, (*finder).ipsec},
		{[]string{"identified by", "identified with", "with password", "login password", "encrypted password"}, (*finder).sql},
		{[]string{":ommysql:", ":ompgsql:", "stats auth ", "insecure-password "}, (*finder).lastWord},
		{[]string{"mii", "mig", "mhcc", "mc4c"}, (*finder).derKey},
		{[]string{"\"kty\""}, (*finder).jwk},
		{[]string{"nkey seed-----", "argo tunnel token-----"}, (*finder).seed},
		{[]string{"minisign encrypted secret key", "minisign secret key", "signify secret key"}, (*finder).lineBelow},
		{[]string{"private-key-format:"}, (*finder).dnssec},
		{[]string{"unseal key ", "recovery key "}, (*finder).unseal},
		{[]string{":aa"}, (*finder).telegram},
		{[]string{"/hooks/", "/trigger/", "/catch/"}, (*finder).hook},
		{[]string{"tokens {", "tokens = {", "\"tokens\": {", "\"tokens\":{"}, (*finder).tokenBlock},
		{[]string{"loginmodule"}, (*finder).jaas},
		{[]string{"auth=(", "auth = (", "basicauth(", "basic_auth(", "->connect(", ".connect(", "mysqli(", "mysqli_connect(", "pdo(", ".login(", ".authenticate("}, (*finder).callArguments},
		{[]string{"send \"", "send -- \""}, (*finder).expect},
		{[]string{"\npassword\nv "}, (*finder).subversion},
		{[]string{"data:,"}, (*finder).dataAddress},
		{[]string{"<d>"}, (*finder).dotNetKey},
		{[]string{"sha256~"}, (*finder).openShift},
		{[]string{"{plain}", "{cleartext}"}, (*finder).plainScheme},
		{[]string{"<master>{"}, (*finder).braced},
		{[]string{"<auth-user-pass>"}, (*finder).secondLine},
		{[]string{"bitlocker"}, (*finder).recovery},
		{[]string{"/t/"}, (*finder).conda},
		{[]string{"github-oauth", "gitlab-token", "http-basic"}, (*finder).composer},
		{[]string{"<key>", "<tls-auth>", "<tls-crypt>"}, (*finder).openVPN},
	}
}

// base64Of are the three texts in lower case that a text's base64 has within, by where
// the text begins.
func base64Of(s string) []string {
	var out []string
	for pad := range 3 {
		e := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:pad] + s))
		out = append(out, lower(e[(pad*8+5)/6:(pad+len(s))*8/6]))
	}
	return out
}

const (
	// maxRun and maxBack limit how far a form is followed, so that a file full of marks
	// takes no longer than others.
	maxRun  = 4 << 10
	maxBack = 96
)

// run is how far the bytes go on, from a place, that has gives.
func (f *finder) run(from int, has func(byte) bool) int {
	at := from
	for at < len(f.Data) && at-from < maxRun && has(f.Data[at]) {
		at++
	}
	return at
}

// back is the same to the front.
func (f *finder) back(to int, has func(byte) bool) int {
	at := to
	for at > 0 && to-at < maxBack && has(f.Data[at-1]) {
		at--
	}
	return at
}

func isKeyByte(c byte) bool { return isAlnum(c) || c == '+' || c == '/' || c == '=' }

func isWordByte(c byte) bool { return isAlnum(c) || c == '_' || c == '-' }

// pem finds a private key in PEM, with whatever is before each of its lines.
func (f *finder) pem(from, to int) {
	head := f.Data[to:min(len(f.Data), to+64)]
	end := bytes.Index(head, []byte("----"))
	if end < 0 {
		return
	}
	kind := string(head[:end])
	rule := rulePrivateKey
	switch {
	case strings.HasPrefix(kind, "PGP PRIVATE"):
		rule = rulePGP
	case strings.HasPrefix(kind, "OpenVPN Static key"):
		rule = ruleOpenVPN
	case bytes.Contains(f.Data[max(0, from-512):from], []byte("\"service_account\"")):
		rule = ruleGoogle
	case strings.HasPrefix(kind, "OPENSSH PRIVATE"), strings.HasPrefix(kind, "SSH2 ENCRYPTED PRIVATE"), strings.Contains(f.Path, ".ssh/") && strings.Contains(kind, "PRIVATE KEY"):
		rule = ruleSSH
	case !strings.HasSuffix(kind, "PRIVATE KEY"):
		return
	}
	body := f.Data[to+end : min(len(f.Data), to+end+16<<10)]
	if next := bytes.Index(body, []byte("-----BEGIN ")); next >= 0 {
		body = body[:next]
	}
	stop := bytes.Index(body, []byte("-----END"))
	if stop < 0 {
		stop = min(len(body), 4<<10)
	}
	// A program's text has a mark alone, or words behind it.
	for at, run := 0, 0; at < stop; at++ {
		if !isKeyByte(body[at]) {
			run = 0
		} else if run++; run == 24 && isToken(body[at-23:at+1]) {
			f.hit(rule, from, to+end+stop)
			return
		}
	}
}

// encodedPEM finds the same in base64, in lines of any length.
func (f *finder) encodedPEM(from, _ int) {
	if from < f.seen {
		return
	}
	at := f.back(from, isKeyByte)
	if from-at > 4 {
		at = from - 4
	}
	raw := make([]byte, 0, 256)
	end := at
	for ; end < len(f.Data) && len(raw) < 256; end++ {
		if c := f.Data[end]; isKeyByte(c) {
			raw = append(raw, c)
		} else if c != '\n' && c != '\r' && c != ' ' && c != '\\' {
			break
		}
	}
	f.seen = end
	raw = bytes.TrimRight(raw, "=")
	for skip := range min(4, len(raw)) {
		plain := make([]byte, len(raw))
		n, _ := base64.RawStdEncoding.Decode(plain, raw[skip:len(raw)-(len(raw)-skip)%4])
		i := bytes.Index(plain[:n], []byte("-----BEGIN "))
		if i < 0 {
			continue
		}
		inner := finder{Piece: Piece{Data: plain[:n], Path: f.Path}}
		inner.pem(i, i+len("-----BEGIN "))
		if len(inner.hits) > 0 {
			f.hit(inner.hits[0].Rule, from, end)
		}
		return
	}
}

// putty finds the private lines of a key of PuTTY's.
func (f *finder) putty(_, to int) {
	rest := f.Data[to:min(len(f.Data), to+16<<10)]
	i := bytes.Index(rest, []byte("Private-Lines:"))
	if i < 0 {
		return
	}
	_, from := f.lineAt(to + i)
	end := min(len(f.Data), from+8<<10)
	if n := bytes.Index(f.Data[from:end], []byte("Private-MAC")); n >= 0 {
		end = from + n
	}
	f.hit(rulePuTTY, min(from+1, end), end)
}

// url finds user:password@, and a token before an @.
func (f *finder) url(from, to int) {
	if f.kind == prose || f.kind == opaque {
		return
	}
	end, at := to, -1
	for end < len(f.Data) && end-to < 512 {
		c := f.Data[end]
		if c == '@' {
			at = end
		}
		if c <= ' ' || c == '"' || c == '\'' || c == '/' || c == '?' || c == '`' || c == '<' || c == ')' || c == '|' {
			break
		}
		end++
	}
	if at < 0 {
		return
	}
	info := string(f.Data[to:at])
	a, b := f.lineAt(from)
	s := f.plainLine(a, b)
	least := word
	if f.kind == code || isComment(s) {
		least = random
	}
	user, password, ok := strings.Cut(info, ":")
	v := span{at - len(password), at}
	if !ok || strings.HasPrefix(password, "x-oauth") || password == "" {
		v, password, least = span{to, to + len(user)}, user, random
	}
	if strengthOf(password) < least || strings.HasPrefix(password, "$") && isVariable(password[1:]) {
		return
	}
	rule := ruleURL
	if f.place == ruleGit {
		rule = ruleGit
	}
	f.hit(rule, v.from, v.to)
}

// hash finds what crypt(5) makes, unless it is of an account that is locked.
func (f *finder) hash(from, to int) {
	if f.kind == prose || f.kind == opaque || from < f.token || from > 0 && (f.Data[from-1] == '!' || f.Data[from-1] == '*') {
		return
	}
	end := f.run(to, func(c byte) bool {
		return isAlnum(c) || c == '.' || c == '/' || c == '$' || c == '=' || c == ',' || c == '+' || c == '-' || c == '_'
	})
	f.token = end
	v := f.Data[from:end]
	last := v[max(bytes.LastIndexByte(v, '$'), bytes.LastIndexByte(v, '.'), 0):]
	if f.Data[from] == '{' {
		last = v[to-from:]
	}
	least := 22
	if bytes.Contains(v[:to-from], []byte("2")) && len(v) < 60 && v[0] == '$' && v[1] == '2' || bytes.HasPrefix(v, []byte("$6$")) && len(v) < 80 {
		return
	}
	if v[0] == '$' && v[1] != '2' {
		last = v[bytes.LastIndexByte(v, '$')+1:]
		least = 21
	} else if v[0] == '$' {
		last = v[to-from:]
	}
	if len(last) >= least && isToken(last) {
		f.hit(ruleHash, from, end)
	}
}

// clientSecret finds the secrets of Entra ID's applications, which have Q~ within.
func (f *finder) clientSecret(from, to int) {
	if f.Data[from] != 'Q' || from < f.token {
		return
	}
	has := func(c byte) bool { return isWordByte(c) || c == '~' || c == '.' }
	a, b := f.back(from, has), f.run(to, has)
	a, f.token = max(a, from-5), b
	if n := b - a; n >= 36 && n <= 44 && from-a >= 3 && isToken(f.Data[a:b]) && !isPlaceholder(string(f.Data[a:b])) && !f.ofCloud(a, b) {
		f.hit(ruleAzureSecret, a, b)
	}
}

// ofCloud reports whether a value is known by its field as the cloud provider's, which the
// pool's nodes share.
func (f *finder) ofCloud(from, to int) bool {
	return slices.ContainsFunc(f.hits, func(h Hit) bool { return h.Rule == ruleAzureCloud && h.From < to && from < h.To })
}

func (f *finder) atlas(from, to int) {
	a, b := f.back(from, isAlnum), f.run(to, isWordByte)
	if from-a == 14 && b-to >= 60 {
		f.hit(ruleTerraform, a, b)
	}
}

func (f *finder) k3s(from, to int) {
	a, b := f.back(from, isAlnum), f.run(to, func(c byte) bool { return isWordByte(c) || c == '.' })
	if from-a >= 60 && f.Data[a] == 'K' && b-to >= 8 {
		f.hit(ruleK3s, a, b)
	}
}

// k3sShort finds K10 with the hash of the cluster's certificate and a bootstrap token.
func (f *finder) k3sShort(from, to int) {
	const hash = 64 // hexadecimal digits of SHA-256
	if f.Data[from] != 'K' || from > 0 && isAlnum(f.Data[from-1]) || len(f.Data)-to < hash+2 || string(f.Data[to+hash:to+hash+2]) != "::" || !isHex(string(f.Data[to:to+hash])) {
		return
	}
	if end := f.run(to+hash+2, func(c byte) bool { return isWordByte(c) || c == '.' }); end-to-hash-2 >= 8 {
		f.hit(ruleK3s, from, end)
	}
}

func (f *finder) jwt(from, to int) {
	if string(f.Data[from:to]) != "eyJ" || from > 0 && isWordByte(f.Data[from-1]) {
		return
	}
	a := f.run(to, isWordByte)
	if a-from < 16 || !bytes.HasPrefix(f.Data[a:], []byte(".eyJ")) {
		return
	}
	b := f.run(a+1, isWordByte)
	if b >= len(f.Data) || f.Data[b] != '.' {
		return
	}
	c := f.run(b+1, isWordByte)
	plain, err := base64.RawURLEncoding.DecodeString(string(f.Data[a+1 : b]))
	if c-b < 20 || err != nil || len(plain) == 0 || plain[0] != '{' || bytes.Contains(plain, []byte("system:serviceaccount:")) || f.kind == prose {
		return
	}
	rule := ruleJWT
	if f.place == ruleAzureCache || f.place == ruleGoogle || f.place == ruleRegistry {
		rule = f.place
	}
	f.hit(rule, from, c)
}

// microk8s finds HOST:25000/TOKEN/HASH.
func (f *finder) microk8s(_, to int) {
	if end := f.run(to, isAlnum); end-to >= 24 && isHex(string(f.Data[to:end])) {
		f.hit(ruleJoin, to, end)
	}
}

func (f *finder) webhook(_, to int) {
	end := f.run(to, func(c byte) bool { return isWordByte(c) || c == '/' || c == '@' || c == ':' || c == '%' })
	v := f.Data[to:end]
	if i := bytes.LastIndexByte(v, '/'); i > 0 && bytes.HasPrefix(v[i:], []byte("/send")) {
		v = v[:i]
	}
	if len(v) >= 30 && isToken(v) && !isPlaceholder(string(v)) && bytes.Count(v, []byte("XXX")) == 0 {
		f.hit(ruleWebhook, to, to+len(v))
	}
}

// devOps finds personal access tokens of Azure DevOps, which have AZDO within.
func (f *finder) devOps(from, to int) {
	if from < f.token {
		return
	}
	a, b := f.back(from, isAlnum), f.run(to, isAlnum)
	f.token = b
	if string(f.Data[from:to]) == "AZDO" && b-a == 84 {
		f.hit(ruleAzureSecret, a, b)
	}
}

// azureKey finds keys of Azure's services, which have what they are of near their end.
func (f *finder) azureKey(from, to int) {
	if from < f.token {
		return
	}
	has := func(c byte) bool { return isAlnum(c) || c == '+' || c == '/' }
	a, b := f.back(from, has), f.run(to, isKeyByte)
	n := b - a
	if n > 88 {
		f.token = b
	}
	sign := f.Data[from:to]
	if a > 0 && f.Data[a-1] == '-' || (n != 88 && n != 44 && n != 52 && n != 56 && n != 84) || b-to > 12 || from-a < n/2 || f.kind == prose {
		return
	}
	switch string(sign) {
	case "+ASt":
		f.hit(ruleStorageKey, a, b)
	case "+ACR":
		f.hit(ruleRegistry, a, b)
	case "ACDb", "AzCa", "AzFu", "AzSe", "+AEh", "AIoT", "+ASb", "+ABa":
		f.hit(ruleConnection, a, b)
	}
}

// wireGuard finds PrivateKey = …, of 32 bytes in base64.
func (f *finder) wireGuard(from, to int) {
	if f.kind != text {
		return
	}
	at := to
	for at < len(f.Data) && at-to < 8 && strings.IndexByte(" \t=:\"'", f.Data[at]) >= 0 {
		at++
	}
	end := f.run(at, isKeyByte)
	if at == to || end-at != 44 || f.Data[end-1] != '=' || !isToken(f.Data[at:end]) {
		return
	}
	if a, b := f.lineAt(from); isComment(f.plainLine(a, b)) {
		return
	}
	f.hit(ruleWireGuard, at, end)
}

// ipsec finds HOST : PSK "…".
func (f *finder) ipsec(from, to int) {
	if f.kind != text || !strings.Contains(f.Path, "ipsec") {
		return
	}
	a, b := f.lineAt(from)
	s := f.plainLine(a, b)
	f.value(ruleNamed, s, wordAt(s, skipBlanks(s, to-a)), a, word)
}

// sql finds IDENTIFIED BY '…'.
func (f *finder) sql(from, to int) {
	if f.kind == prose || f.kind == opaque {
		return
	}
	a, b := f.lineAt(from)
	s := f.plainLine(a, b)
	i := to - a
	if n := indexFold(s[i:], " by "); n >= 0 && n < 40 && hasFold(s[from-a:], "identified with") {
		i += n + len(" by ")
	}
	if i = skipBlanks(s, i); i < len(s) && (s[i] == '\'' || s[i] == '"') {
		f.value(ruleCommand, s, wordAt(s, i), a, word)
	}
}

// openVPN finds an inline key without the marks of PEM.
func (f *finder) openVPN(_, to int) {
	if to <= f.seen {
		return
	}
	body := f.Data[to:min(len(f.Data), to+16<<10)]
	end := bytes.Index(body, []byte("</"))
	f.seen = to + max(end, 0)
	if end < 0 {
		f.seen += len(body)
	}
	if end < 0 || bytes.Contains(body[:end], []byte("-----BEGIN")) || f.kind != text || f.place == "" && !strings.HasSuffix(f.Path, ".ovpn") && !strings.Contains(f.Path, "openvpn") {
		return
	}
	if v := bytes.TrimSpace(body[:end]); len(v) > 100 && isToken(v) {
		i := bytes.Index(body, v)
		f.hit(ruleOpenVPN, to+i, to+i+len(v))
	}
}

// lastWord finds a password that ends a line's word: :ommysql:host,database,user,…,
// stats auth user:….
func (f *finder) lastWord(from, to int) {
	if f.kind != text {
		return
	}
	a, b := f.lineAt(from)
	s := f.plainLine(a, b)
	v := wordAt(s, skipBlanks(s, to-a))
	if i := strings.LastIndexAny(strings.TrimRight(s[v.from:v.to], ";"), ",:"); i >= 0 {
		v.from += i + 1
	} else if s[to-a-1] != ' ' {
		return
	}
	if v.to > v.from && s[v.to-1] == ';' {
		v.to--
	}
	f.value(ruleNamed, s, v, a, word)
}
