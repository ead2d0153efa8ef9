package redact

import (
	"path"
	"strings"
)

// records finds passwords in files of fields, which the file's name makes known.
func (f *finder) records(at, name string) {
	field := func(n, least int) func([]string) string {
		return func(w []string) string {
			if n < 0 {
				n = len(w) + n
			}
			if len(w) < least || n >= len(w) || n < 0 {
				return ""
			}
			return strings.Trim(w[n], `"'`)
		}
	}
	colon := func(n, fields int) func([]string) string {
		return func(w []string) string {
			p := strings.SplitN(strings.Join(w, " "), ":", fields)
			if len(p) <= n {
				return ""
			}
			return p[n]
		}
	}
	switch {
	case name == "rsyncd.secrets", name == "rsync.secrets", name == "pool_passwd", name == "pcp.conf", name == "cups-passwd.md5":
		f.fields(ruleNamed, colon(1, 2))
	case name == "resource.cfg":
		f.fields(ruleNamed, func(w []string) string {
			if macro, value, ok := strings.Cut(w[0], "="); ok && strings.HasPrefix(macro, "$USER") && isStrong(value) {
				return value[strings.IndexByte(value, ':')+1:]
			}
			return ""
		})
	case strings.HasPrefix(name, "proxychains") && strings.HasSuffix(name, ".conf"):
		f.fields(ruleNamed, field(4, 5))
	case name == "passwd.client":
		f.fields(ruleNamed, colon(2, 3))
	case strings.HasSuffix(at, "davfs2/secrets"), name == "l2tp-secrets":
		f.fields(ruleNamed, field(2, 3))
	case name == "userlist.txt", name == ".cvspass":
		f.fields(ruleNamed, field(-1, 2))
	case name == "client.keys", name == "users.oath":
		f.fields(ruleNamed, field(3, 4))
	case name == "known_tokens.csv", name == "token_auth.csv", name == "tokens.csv", name == "basic_auth.csv":
		f.fields(ruleNamed, func(w []string) string { return strings.SplitN(w[0], ",", 2)[0] })
	case name == "token.csv": // token,user,uid,"groups"
		f.fields(ruleNamed, func(w []string) string {
			p := strings.Split(w[0], ",")
			if len(p) < 3 || strengthOf(p[0]) < random {
				return ""
			}
			return p[0]
		})
	case name == "pam_radius_auth.conf", strings.HasSuffix(at, "/raddb/server"), strings.HasSuffix(at, "radiusclient/servers"), strings.HasSuffix(at, "radiusclient-ng/servers"), strings.HasSuffix(at, "radcli/servers"):
		f.fields(ruleNamed, field(1, 2))
	case name == "smbpasswd":
		f.fields(ruleHash, func(w []string) string {
			p := strings.Split(w[0], ":")
			if len(p) < 4 || len(p[3]) != 32 || !isHex(p[3]) {
				return ""
			}
			return p[3]
		})
	case name == "tac_plus.conf":
		f.fields(ruleNamed, func(w []string) string {
			if w[0] != "key" && w[0] != "login" && w[0] != "password" || len(w) < 3 {
				return ""
			}
			return strings.Trim(w[len(w)-1], `"`)
		})
	case name == ".htpasswd", name == "htpasswd":
		f.fields(ruleHash, func(w []string) string {
			_, hash, ok := strings.Cut(w[0], ":")
			if !ok || len(hash) != 13 || strings.ContainsAny(hash, "!*$:{") { // of DES
				return ""
			}
			return hash
		})
	}
	if name == "cwallet.sso" || name == "passdb.tdb" || name == ".mylogin.cnf" || name == "elasticsearch.keystore" || name == "SerializedSystemIni.dat" || strings.HasPrefix(name, ".k5.") || strings.HasSuffix(name, "beat.keystore") || name == "logstash.keystore" {
		if len(f.Data) > 16 {
			f.hit(ruleSecretFile, 0, len(f.Data))
		}
	}
}

// oneWord finds a file that holds a secret and nothing else, where its name says that
// it is one: db_password, token, .vault_pass.txt, authtoken.secret, keyfile.
func (f *finder) oneWord(name string) {
	if !f.Whole || len(f.Data) > 4<<10 || f.kind == prose && path.Ext(name) != ".txt" || f.kind == opaque || len(f.hits) > 0 || f.place != "" && f.place != ruleK3s && f.place != ruleWireGuard {
		return
	}
	s := strings.TrimRight(string(f.Data), "\r\n\t ")
	from := len(s) - len(strings.TrimLeft(s, "\r\n\t "))
	s = s[from:]
	low := strings.ToLower(strings.TrimLeft(name, "."))
	ending := path.Ext(low)
	if ending == ".txt" || ending == ".conf" || ending == ".dat" || ending == ".b64" || ending == ".creds" {
		low, ending = strings.TrimSuffix(low, ending), ""
	}
	var buf [64]byte
	flat := string(flatten(&buf, low))
	keys := strings.HasSuffix(flat, "keyfile") || strings.HasSuffix(flat, "key") && !strings.HasSuffix(flat, "pubkey") && !strings.HasSuffix(flat, "publickey")
	switch {
	case strings.ContainsAny(s, "\r\n"): // a key in lines, as MongoDB has it
		if !keys || len(s) > 1100 {
			return
		}
		for _, line := range strings.Fields(s) {
			if !allBase64(line) || len(line) < 8 {
				return
			}
		}
		if !isToken([]byte(s)) || strings.Contains(s, " ") {
			return
		}
	case strings.ContainsAny(s, " \t") || strings.Count(s, ":") > 1 || len(s) < 6 || isPath(s) || strings.Contains(s, "://"):
		return
	case keys:
		if !isKeyLike(s) {
			return
		}
	case strings.HasSuffix(flat, "hash") || strings.HasSuffix(flat, "checksum"):
		return
	case isPasswordName(flat) || strings.HasSuffix(flat, "secret") || strings.HasSuffix(flat, "secrets") || strings.HasSuffix(flat, "secretid") || ending == ".pass" || ending == ".secret":
		if strengthOf(s) < word || isCamel(s) && strengthOf(s) < mixed && len(s) < 8 {
			return
		}
	case strings.HasSuffix(flat, "token") || strings.HasSuffix(flat, "credential") || strings.HasSuffix(flat, "credentials") || strings.HasSuffix(flat, "cookie") || strings.HasSuffix(flat, "pat") && strings.Contains(low, "pat") && len(low) < 6 || strings.HasSuffix(flat, "apitoken"):
		if strengthOf(s) < mixed || looksNamed(s) && !isUUID(s) && f.place != ruleK3s || isVersion(s) {
			return
		}
	default:
		return
	}
	rule := ruleSecretFile
	switch {
	case f.place != "":
		rule = f.place
	case strings.HasSuffix(flat, "certificatekey"):
		rule = ruleCertificates
	}
	f.hit(rule, from, from+len(s))
}
