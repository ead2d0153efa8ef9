package redact

import (
	"bytes"
	"path"
	"sync"
)

const (
	// maxHits limits the hits of one piece.
	maxHits = 64
	// lineBefore and lineAfter limit how much of a long line is read around a mark.
	lineBefore = 512
	lineAfter  = 1536
)

// Find returns the secrets in a piece that are known by their form, in the order of
// From, at most one per rule and value, at most 64. Vendor and Program pieces are
// not searched by form: programs hold the words, not the secrets.
func Find(p Piece) []Hit {
	if p.Vendor || p.Program || len(p.Data) == 0 {
		return nil
	}
	f := finder{Piece: p, kind: kindOf(p), place: placeOf(p), index: formIndex()}
	f.byFile()
	f.index.marks.each(p.Data, f.mark)
	f.unwrap()
	f.oneWord(path.Base(p.Path))
	return f.sorted()
}

// formIndex is built once: it depends on nothing.
var formIndex = sync.OnceValue(newIndex)

// What a mark shows.
const (
	markToken   uint8 = iota // begins as one of tokenForms
	markName                 // ends as the name of a secret
	markProgram              // a program that is given secrets
	markOf                   // one of special
)

type index struct {
	marks *marks
	kind  []uint8
	of    []uint16 // which of tokenForms, or which special
	forms []tokenForm
	look  []func(f *finder, from, to int)
	words []string
}

func newIndex() *index {
	x := &index{forms: tokenForms()}
	var words []string
	add := func(word string, kind uint8, of int) {
		words, x.kind, x.of = append(words, word), append(x.kind, kind), append(x.of, uint16(of))
	}
	for i, t := range x.forms {
		add(lower(t.begin), markToken, i)
	}
	for _, w := range [...]string{
		"password", "passwd", "passphrase", "passcode", "secret", "token", "key", "pwd", "pass", "psk", "pw", "auth", "credential", "credentials", "sig", "sas", "authorization", "cookie", "signature", "secretid", "secret_id",
		"keydata", "key-data", "connectionstring", "connection_string", "pat", "license", "dockerconfigjson", "secret_key_base", "clientcontent", "authtok", "community", "bindpw", "creds", "cred", "authpass", "userpwd", "secrets", "pin", "access_key_id", "_user", "user", "login", "encrypt", "macaroon", "key0", "key1", "key_b64", "key_base64", "key_hex", "private", "pass_phrase", "pass-phrase", "honeycomb-team", "activationid", "peerpass", "salt", "rootpw", "bearer",
	} {
		add(w, markName, 0)
	}
	for _, w := range [...]string{
		"curl ", "wget ", "sshpass", "mysql", "mariadb", "useradd", "usermod", "login ", "chpasswd", "passwd --stdin", "openssl passwd", "htpasswd", "redis-cli", "ldap", "unzip ", "smbclient", "kinit", "cryptsetup", "-creds", "crictl ", "ctr ",
		"net user", "vault ", "onboard", "omsadmin", "pro attach", "ua attach", "sqlcmd", "ssh-keygen", "kubeadm join", "k3s ", "rke2 ", "--stdin", "sudo -s", "| passwd", "|passwd", "securestring", "setup-key", "mongo", "psql ", "createuser", "com2sec", "usmuser",
		"realm join", "adcli ", "net ads", "net rpc", "openconnect", "smbpasswd", "ipmitool ", "ipa-client-install", "7z ", "zip -", "openssl enc", "sqlplus ", "rabbitmqctl ", "mkpasswd ", "nmcli ", "rootpw ", "password password ", "lftp ", "splunk ", "etcdctl ",
		"basicauth ", "mc alias ", "mc config host", "http -", "https -", "xh -", "rpcclient ", "winexe ", "bundle_", "passwd ", "authinfo:", "password root ", "message-digest-key ", "geniekey ", "ssws ", "rar ", "allow ", "skopeo ", "nerdctl ", "bcp ", "setuser ", "user ", "account.key.", "iscsiadm ", "snmpget ", "snmpwalk ", "snmpset ", "snmpbulk", "snmptrap ", "acl set-agent-token ", "-y hmac", "oracle:thin:", "fence_", "pcs ", "wpa_passphrase",
	} {
		add(w, markProgram, 0)
	}
	for _, s := range specials() {
		x.look = append(x.look, s.look)
		for _, w := range s.words {
			add(w, markOf, len(x.look)-1)
		}
	}
	x.marks, x.words = newMarks(words), words
	return x
}

func lower(s string) string { return string(bytes.ToLower([]byte(s))) }

// finder is a search of one piece.
type finder struct {
	Piece
	kind  fileKind
	place string // the rule of what the file is for, "" where that is not known
	index *index
	hits  []Hit
	line  int    // the end of the last line that was read for names
	token int    // the end of the last token
	seen  int    // the end of the last block that was read
	ahead int    // the end of what the last form looked at ahead
	inner bool   // what is searched was within an address
	buf   []byte // the line that is read
}

func (f *finder) mark(word, from, to int) {
	if len(f.hits) >= 4*maxHits {
		return
	}
	x := f.index
	switch x.kind[word] {
	case markToken:
		t := &x.forms[x.of[word]]
		if from < f.token {
			return
		}
		if end := t.end(f.Data, from); end > 0 {
			f.token = end
			if !isPlaceholder(string(f.Data[from:end])) && isToken(f.Data[from+len(t.begin):end]) {
				f.hit(t.rule, from, end)
				if t.rule == ruleAWS {
					f.awsPair(end)
				}
			}
		}
	case markName:
		if f.kind != text && f.kind != code || to <= f.line || to >= len(f.Data) || !f.gives(to) {
			return
		}
		f.readLine(from)
	case markProgram:
		if f.kind == text && to > f.line {
			f.readLine(from)
		}
	default:
		x.look[x.of[word]](f, from, to)
	}
}

// isToken says whether what follows a token's beginning is no word of a program.
func isToken(v []byte) bool {
	letters, digits, distinct, seen := 0, 0, 0, [256]bool{}
	for _, c := range v {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c != '_' && c != '-' && c != '.':
			letters++
		}
		if !seen[c] {
			seen[c] = true
			distinct++
		}
	}
	if digits == 0 { // some services use letters alone
		upper, lower, _, changes, pairs := classes(string(v))
		return distinct > 7 && len(v) >= 32 && upper > 0 && lower > 0 && changes*3 > pairs
	}
	return distinct > 7 && letters > 0
}

// gives says whether the name of a secret that ends at i may have a value beside it.
func (f *finder) gives(i int) bool {
	d := f.Data
	switch c := d[i]; c {
	case '=', ':', '>':
		return true
	case ',': // - [kubeadm, join, --token, …]; {password, "…"}
		return f.kind == text
	case '"', '\'', '\\', ' ', '\t', ']', '}', ')':
		for i++; i < len(d) && (d[i] == ' ' || d[i] == '"' || d[i] == '\'' || d[i] == '\t'); i++ {
			c = d[i]
		}
		if i >= len(d) {
			return false
		}
		if d[i] == '=' || d[i] == ':' || d[i] == ']' {
			return true
		}
		if d[i] == ',' && c != ' ' { // "--token", "…"; define('DB_PASSWORD', '…')
			return true
		}
		return f.kind == text && d[i] > ' ' // --password …; requirepass …
	case '\r', '\n':
		return f.kind == text // name: X_PASSWORD, and its value below
	}
	return false
}

// hit keeps a secret, unless the same rule has that value already.
func (f *finder) hit(rule string, from, to int) {
	if from >= to || len(f.hits) >= 4*maxHits {
		return
	}
	for _, h := range f.hits {
		if h.From < to && from < h.To && (h.Rule == rule || rule == ruleNamed || rule == ruleCommand || rule == ruleHeader) {
			return
		}
		if h.Rule == rule && bytes.Equal(f.Data[h.From:h.To], f.Data[from:to]) {
			return
		}
	}
	f.hits = append(f.hits, Hit{rule, classOf(rule), from, to})
}

// sorted are the hits, without those of names where a better rule has the value.
func (f *finder) sorted() []Hit {
	var out []Hit
	for _, h := range f.hits {
		better := false
		for _, o := range f.hits {
			better = better || (h.Rule == ruleNamed || h.Rule == ruleCommand || h.Rule == ruleHeader) && o.Rule != h.Rule && o.Rule != ruleNamed && o.From < h.To && h.From < o.To
		}
		if better {
			continue
		}
		if (h.Rule == ruleRegistry || h.Rule == ruleHeader && f.place == ruleRegistry) && isPullFile(f.Path) {
			h.Rule, h.Class = rulePull, classOf(rulePull)
		}
		i := len(out)
		out = append(out, h)
		for ; i > 0 && out[i-1].From > h.From; i-- {
			out[i] = out[i-1]
		}
		out[i] = h
	}
	return out[:min(len(out), maxHits)]
}

// lineAt are the bounds of the line around a place, cut where it is long.
func (f *finder) lineAt(at int) (from, to int) {
	lo := max(0, at-lineBefore)
	from = lo + bytes.LastIndexByte(f.Data[lo:at], '\n') + 1
	hi := min(len(f.Data), at+lineAfter)
	to = hi
	if n := bytes.IndexByte(f.Data[at:hi], '\n'); n >= 0 {
		to = at + n
	}
	return from, to
}

// plainLine is a line as the rules of lines read it: one kind of blank, and every byte
// where it was.
func (f *finder) plainLine(from, to int) string {
	f.buf = append(f.buf[:0], f.Data[from:to]...)
	for i, c := range f.buf {
		if c == '\t' || c == '\r' || c == 0 {
			f.buf[i] = ' '
		}
	}
	return string(f.buf)
}
