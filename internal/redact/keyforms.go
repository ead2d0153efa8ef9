package redact

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// covered says whether a place lies in a hit: the rules that are told more of a file
// come first.
func (f *finder) covered(from, to int) bool {
	for _, h := range f.hits {
		if h.From < to && from < h.To {
			return true
		}
	}
	return false
}

// derKey finds a private key or a PKCS#12 file as the base64 of its DER, without the
// marks of PEM: the first bytes tell what it is (RFC 5958, RFC 8017, RFC 5915, RFC 7292).
func (f *finder) derKey(from, _ int) {
	if f.Data[from] != 'M' || f.kind == prose || from > 0 && isKeyByte(f.Data[from-1]) && f.Data[from-1] != '=' {
		return
	}
	raw := make([]byte, 0, 64)
	for at := from; at < len(f.Data) && at-from < 96 && len(raw) < 64; at++ {
		if c := f.Data[at]; isKeyByte(c) {
			raw = append(raw, c)
		} else if c != '\n' && c != '\r' && c != ' ' {
			break
		}
	}
	if len(raw) < 48 {
		return
	}
	der := make([]byte, 48)
	n, err := base64.StdEncoding.Decode(der, raw[:len(raw)&^3])
	if der = der[:n]; err != nil || n < 36 || der[0] != 0x30 {
		return
	}
	rule := rulePrivateKey
	switch {
	case isPFX(der):
		rule = rulePKCS12
	case !isPrivateDER(der) || !hasKeyOID(der):
		return
	}
	end := from
	for end < len(f.Data) && end-from < 16<<10 && (isKeyByte(f.Data[end]) || f.Data[end] == '\n' && end+1 < len(f.Data) && isKeyByte(f.Data[end+1]) && end-from > 40) {
		end++
	}
	if end-from >= 64 && !f.covered(from, end) {
		f.hit(rule, from, end)
	}
}

// encodedKeytab finds a Kerberos keytab in base64.
func (f *finder) encodedKeytab(from, _ int) {
	if from > 0 && isKeyByte(f.Data[from-1]) {
		return
	}
	head := make([]byte, 9)
	if end := f.run(from, isKeyByte); end-from >= 48 && keytabHead(head, f.Data[from:end]) {
		f.hit(ruleKeytab, from, end)
	}
}

func keytabHead(into, encoded []byte) bool {
	n, err := base64.StdEncoding.Decode(into, encoded[:base64.StdEncoding.EncodedLen(len(into))])
	return err == nil && n == len(into) && keytabEntry(into) > 0
}

// hasKeyOID says whether DER that may be a private key names an algorithm of such in
// PKCS#8, or goes on as PKCS#1 and SEC 1 do.
func hasKeyOID(der []byte) bool {
	i := 2
	if der[1] > 0x80 {
		i += int(der[1] & 0x7f)
	}
	if i+8 > len(der) {
		return false
	}
	switch der[i+3] {
	case 0x30:
		return bytes.Contains(der[i:], []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x01")) || bytes.Contains(der[i:], []byte("\x2a\x86\x48\xce\x3d\x02\x01")) || bytes.Contains(der[i:], []byte("\x06\x03\x2b\x65"))
	case 0x02: // a modulus of 1024 bits or more
		return der[i+4] == 0x82 || der[i+4] == 0x81
	}
	return der[i+4] >= 24 && der[i+4] <= 66
}

// jwk finds the private part of a JSON Web Key (RFC 7518): d, or k of a symmetric one.
func (f *finder) jwk(from, to int) {
	if f.kind == prose || from < f.ahead {
		return
	}
	open := bytes.LastIndexByte(f.Data[max(0, from-4<<10):from], '{')
	if open < 0 {
		return
	}
	open += max(0, from-4<<10)
	end := len(f.Data)
	if n := bytes.IndexByte(f.Data[to:min(len(f.Data), to+8<<10)], '}'); n >= 0 {
		end = to + n
	} else {
		end = min(end, to+8<<10)
	}
	f.ahead = end
	for _, name := range [...]string{`"d"`, `"k"`} {
		i := bytes.Index(f.Data[open:end], []byte(name))
		if i < 0 {
			continue
		}
		at := open + i + len(name)
		for at < end && strings.IndexByte(" \t\r\n:\"", f.Data[at]) >= 0 {
			at++
		}
		stop := f.run(at, func(c byte) bool { return isKeyByte(c) || c == '-' || c == '_' })
		if stop-at >= 21 && isToken(f.Data[at:stop]) {
			f.hit(rulePrivateKey, at, stop)
			return
		}
	}
}

// seed finds what stands between the marks of NATS' and cloudflared's credentials,
// which are no keys by their name.
func (f *finder) seed(_, to int) {
	at := to
	for at < len(f.Data) && at-to < 16 && strings.IndexByte("\r\n -", f.Data[at]) >= 0 {
		at++
	}
	if end := f.run(at, isKeyByte); end-at >= 40 && isToken(f.Data[at:end]) {
		f.hit(ruleService, at, end)
	}
}

// lineBelow finds the base64 in the line below a comment that names a secret key
// (minisign, signify).
func (f *finder) lineBelow(_, to int) {
	_, at := f.lineAt(to)
	if at++; at >= len(f.Data) || f.kind == prose {
		return
	}
	if end := f.run(at, isKeyByte); end-at >= 60 && isToken(f.Data[at:end]) {
		f.hit(rulePrivateKey, at, end)
	}
}

// dnssec finds the secret of a key of BIND's, as K*.private has it.
func (f *finder) dnssec(_, to int) {
	rest := f.Data[to:min(len(f.Data), to+4<<10)]
	for _, name := range [...]string{"\nKey: ", "\nPrivateKey: ", "\nPrivateExponent: ", "\nPrivate_value(x): "} {
		if i := bytes.Index(rest, []byte(name)); i >= 0 {
			at := to + i + len(name)
			if end := f.run(at, isKeyByte); end-at >= 16 {
				f.hit(rulePrivateKey, at, end)
				return
			}
		}
	}
}

// unseal finds Unseal Key 1: … of Vault and OpenBao, and the same of recovery keys.
func (f *finder) unseal(_, to int) {
	if f.kind == prose || f.kind == code {
		return
	}
	at := f.run(to, func(c byte) bool { return c >= '0' && c <= '9' })
	if at == to || at >= len(f.Data) || f.Data[at] != ':' {
		return
	}
	for at++; at < len(f.Data) && f.Data[at] == ' '; at++ {
	}
	if end := f.run(at, isKeyByte); end-at >= 32 && isToken(f.Data[at:end]) {
		f.hit(ruleVault, at, end)
	}
}

// telegram finds a bot's token: eight to ten digits, a colon, AA and 33 letters.
func (f *finder) telegram(from, to int) {
	if string(f.Data[from:to]) != ":AA" {
		return
	}
	at := from
	for at > 0 && from-at < 11 && f.Data[at-1] >= '0' && f.Data[at-1] <= '9' {
		at--
	}
	end := f.run(to, isWordByte)
	if n := from - at; n >= 8 && n <= 10 && end-to == 33 && isToken(f.Data[to:end]) {
		f.hit(ruleService, from+1, end)
	}
}

// hook finds addresses whose last part lets whoever has it post: incoming hooks of
// Mattermost and Rocket.Chat, Zapier's, IFTTT's.
func (f *finder) hook(from, to int) {
	if f.kind == prose || f.kind == opaque {
		return
	}
	before := f.Data[max(0, from-128):from]
	if i := bytes.LastIndex(before, []byte("://")); i < 0 || bytes.ContainsAny(before[i:], " \"'\n") {
		return
	}
	end := f.run(to, func(c byte) bool { return isWordByte(c) || c == '/' })
	v := f.Data[to:end]
	part := v[bytes.LastIndexByte(v, '/')+1:]
	if len(v) >= 20 && (len(part) == 26 || len(v) >= 24 && isToken(part)) && isToken(v) && !isPlaceholder(string(v)) {
		f.hit(ruleWebhook, to, end)
	}
}

// tokenBlock finds the tokens of an agent of Consul's in its block of that name: each
// is a UUID.
func (f *finder) tokenBlock(_, to int) {
	if f.kind != text || to < f.ahead {
		return
	}
	end := min(len(f.Data), to+2<<10)
	if n := bytes.IndexByte(f.Data[to:end], '}'); n >= 0 {
		end = to + n
	}
	f.ahead = end
	for at := to; at < end; at++ {
		if f.Data[at] == '"' && end-at > 37 && f.Data[at+37] == '"' && isUUID(string(f.Data[at+1:at+37])) {
			f.hit(ruleNamed, at+1, at+37)
			at += 37
		}
	}
}

// conda finds the token in a channel's address: https://host/t/TOKEN/channel.
func (f *finder) conda(from, to int) {
	end := f.run(to, isWordByte)
	before := f.Data[max(0, from-128):from]
	if i := bytes.LastIndex(before, []byte("://")); i < 0 || bytes.ContainsAny(before[i:], " \"'\n") || f.kind == prose || f.kind == opaque {
		return
	}
	if end < len(f.Data) && f.Data[end] == '/' && end-to >= 16 && isToken(f.Data[to:end]) && strengthOf(string(f.Data[to:end])) == random {
		f.hit(ruleURL, to, end)
	}
}

// openShift finds its tokens: sha256~ and 43 letters.
func (f *finder) openShift(from, to int) {
	if end := f.run(to, isWordByte); end-to == 43 && isToken(f.Data[to:end]) {
		f.hit(ruleService, from, end)
	}
}

// awsPair finds the secret key behind its id, as s3fs has it: ID:SECRET.
func (f *finder) awsPair(at int) {
	if at >= len(f.Data) || f.Data[at] != ':' {
		return
	}
	if end := f.run(at+1, isKeyByte); end-at-1 == 40 && isToken(f.Data[at+1:end]) {
		f.hit(ruleAWS, at+1, end)
	}
}

// dotNetKey finds the private exponent of a key that .NET wrote as XML.
func (f *finder) dotNetKey(from, to int) {
	if end := f.run(to, isKeyByte); end-to >= 80 && bytes.Contains(f.Data[max(0, from-8<<10):from], []byte("<RSAKeyValue>")) {
		f.hit(rulePrivateKey, to, end)
	}
}

// recovery finds a recovery key of BitLocker's.
func (f *finder) recovery(_, to int) {
	if to < f.ahead {
		return
	}
	part := f.Data[to:min(len(f.Data), to+2<<10)]
	f.ahead = to + len(part)
	for _, v := range recoveryKeys(strings.Map(oneBlank, string(part)), nil) {
		f.hit(ruleSecretFile, to+v.from, to+v.to)
	}
}

// oneBlank keeps the places of bytes: what is not ASCII may take no other number.
func oneBlank(r rune) rune {
	if r == '\n' || r == '\r' || r == '\t' {
		return ' '
	}
	return r
}

// clusterStore finds a Secret as etcd and kine keep it: its key, numbers, and its value
// in protobuf or encrypted.
func (f *finder) clusterStore(from, to int) {
	if f.kind != opaque {
		return
	}
	end := min(len(f.Data), to+512) // namespace and name, at most 253 bytes each
	for _, value := range [...]string{"k8s\x00", "k8s:enc:"} {
		if i := bytes.Index(f.Data[to:end], []byte(value)); i >= 0 {
			f.hit(ruleStore, from, to+i+len(value))
			return
		}
	}
}

// cilium finds the key behind an algorithm of the kernel's: ID ALGORITHM KEY [LENGTH], as
// Cilium reads it, and what ip xfrm prints.
func (f *finder) cilium(_, to int) {
	if f.kind == prose || f.kind == opaque {
		return
	}
	at := to
	for at < len(f.Data) && f.Data[at] == ' ' {
		at++
	}
	blank := at > to
	if bytes.HasPrefix(f.Data[at:], []byte("0x")) {
		at += len("0x")
	}
	if end := f.run(at, isAlnum); blank && end-at >= 32 && isHex(string(f.Data[at:end])) {
		f.hit(ruleCilium, at, end)
	}
}
