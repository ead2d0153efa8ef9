package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"path"
	"strings"
)

// byFile are the rules on what a file is, by its name and its first bytes.
func (f *finder) byFile() {
	d := f.Data
	at, name := "/"+f.Path, path.Base(f.Path)
	switch {
	case f.Path == "":
		return
	case f.place == ruleNetrc:
		f.netrc()
	case f.place == rulePgpass:
		f.pgpass()
	case f.place == ruleVault, strings.HasSuffix(at, "/server/token") && f.place == ruleK3s, strings.HasSuffix(at, "/server/node-token"), strings.HasSuffix(at, "/server/agent-token"):
		rule := cmp.Or(f.place, ruleK3s)
		f.firstLine(rule)
	case name == "tailscaled.state", name == "identity.secret" && strings.Contains(at, "/zerotier"), name == ".credentials_rsaparams", name == "secrets.tdb", name == "crypto_keyfile.bin", name == "encrypted_data_bag_secret",
		name == "local.keyring", name == "remote.keyring", // of Consul's and Nomad's gossip
		strings.HasPrefix(f.Path, "etc/cryptsetup-keys.d/"), strings.HasPrefix(f.Path, "etc/luks-keys/"), strings.HasPrefix(f.Path, "etc/credstore/"), strings.HasPrefix(f.Path, "var/lib/sss/secrets/"):
		if len(d) > 8 {
			f.hit(ruleSecretFile, 0, len(d))
		}
	case strings.HasSuffix(at, "/member/snap/db"), strings.Contains(at, "/member/wal/") && path.Ext(name) == ".wal", strings.HasSuffix(at, "/server/db/state.db"), strings.HasSuffix(at, "/server/db/state.db-wal"):
		f.hit(ruleStore, 0, len(d))
	case path.Ext(name) == ".psk", name == ".erlang.cookie", name == ".google_authenticator", name == "munge.key", strings.HasSuffix(at, "/corosync/authkey"), name == ".vnc_passwd", strings.HasSuffix(at, "/.vnc/passwd"), name == "ldap.secret", name == "pam_ldap.secret", name == "libnss-ldap.secret", name == ".htdigest",
		strings.HasSuffix(at, "/server/cred/passwd"), name == "pwd.db" && strings.Contains(at, "/etc/"):
		f.firstLine(ruleSecretFile)
	case strings.HasSuffix(at, "/etc/postfix/sasl_passwd"), name == "passwd.client", name == "sasl_passwd":
		f.fields(ruleNamed, func(w []string) string {
			if len(w) < 2 || !strings.Contains(w[1], ":") {
				return ""
			}
			return w[1][strings.IndexByte(w[1], ':')+1:]
		})
	case strings.HasSuffix(at, "/var/cache/debconf/passwords.dat"):
		f.fields(ruleNamed, func(w []string) string {
			if len(w) != 2 || w[0] != "Value:" {
				return ""
			}
			return w[1]
		})
	case path.Ext(name) == ".keyring" && strings.Contains(at, "/ceph/"):
		f.fields(ruleNamed, func(w []string) string {
			if len(w) != 3 || w[0] != "key" || len(w[2]) < 30 {
				return ""
			}
			return w[2]
		})
	case name == ".curlrc":
		f.fields(ruleCommand, func(w []string) string {
			value := strings.Trim(w[len(w)-1], `"`)
			if !hasAny(strings.TrimLeft(w[0], "-"), "user", "proxy-user") && w[0] != "-u" {
				return ""
			}
			_, password, _ := strings.Cut(value, ":")
			return password
		})
	case strings.Contains(at, "/openvpn/") && path.Ext(name) == ".txt", strings.HasPrefix(f.Path, "etc/openvpn/") && hasAny(name, "auth", "login", "pass", "credential") && path.Ext(name) != ".conf":
		// The user's name in the first line, the password in the second.
		if _, end := f.lineAt(0); bytes.Count(bytes.TrimSpace(d), []byte("\n")) == 1 && end < len(d) {
			from, to := f.lineAt(end + 1)
			f.hit(ruleOpenVPN, from, to)
		}
	case name == "chap-secrets", name == "pap-secrets":
		f.fields(ruleNamed, func(w []string) string {
			if len(w) < 3 {
				return ""
			}
			return strings.Trim(w[2], `"`)
		})
	case strings.HasSuffix(at, "/etc/racoon/psk.txt"), strings.HasSuffix(at, "/etc/chrony.keys"), strings.HasSuffix(at, "/etc/chrony/chrony.keys"), strings.HasSuffix(at, "/etc/ntp.keys"), strings.HasSuffix(at, "/etc/ntp/keys"):
		f.fields(ruleNamed, func(w []string) string { return w[len(w)-1] })
	case strings.Contains(at, ".gnupg/private-keys-v1.d/"), name == "secring.gpg":
		if len(d) > 64 {
			f.hit(rulePGP, 0, len(d))
		}
	case strings.HasPrefix(f.Path, "etc/") && (name == "shadow" || name == "shadow-" || name == "gshadow" || name == "opasswd"):
		f.fields(ruleHash, func(w []string) string {
			p := strings.Split(w[0], ":")
			if len(p) < 3 || len(p[1]) != 13 || strings.ContainsAny(p[1], "!*$") { // of DES; the others are known by themselves
				return ""
			}
			return p[1]
		})
	}
	f.records(at, name)
	f.byMagic(name)
}

// byMagic finds files of keys by their first bytes.
func (f *finder) byMagic(name string) {
	d := f.Data
	if len(d) < 32 {
		return
	}
	low := strings.ToLower(path.Ext(name))
	switch {
	case d[0] == 0x80 && bytes.Contains(d[:min(len(d), 4<<10)], []byte("cloudinit.sources")): // a pickle
		f.hit(ruleInstance, 0, len(d))
	case d[0] == 5 && d[1] == 2 && f.Whole:
		if n := keytabEntry(d); n > 0 && n <= len(d)-6 {
			f.hit(ruleKeytab, 0, len(d))
		}
	case bytes.HasPrefix(d, []byte("== ed25519v1-secret: ")): // of a service of Tor
		f.hit(ruleSecretFile, 0, len(d))
	case bytes.HasPrefix(d, []byte("\xfe\xed\xfe\xed\x00\x00\x00")), bytes.HasPrefix(d, []byte("\xce\xce\xce\xce\x00\x00\x00")):
		if hasPrivateEntry(d) {
			f.hit(ruleJKS, 0, len(d))
		}
	case bytes.HasPrefix(d, []byte("\x03\xd9\xa2\x9a\x67\xfb\x4b\xb5")):
		f.hit(ruleSecretFile, 0, len(d))
	case d[0] == 0x30 && isPFX(d):
		// Key bags lie in the clear beside the encrypted certificates; a file without
		// one has certificates alone, as Java's cacerts.
		if low == ".pfx" || low == ".p12" || bytes.Contains(d, []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x02")) || bytes.Contains(d, []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x01")) {
			f.hit(rulePKCS12, 0, len(d))
		}
	case d[0] == 0x30 && (low == ".der" || low == ".key" || low == ".pk8" || low == ".p8") && isPrivateDER(d):
		f.hit(rulePrivateKey, 0, len(d))
	}
}

// keytabEntry is how long the first entry of a keytab is (a length, then the number of a
// principal's parts), 0 where there is none.
func keytabEntry(d []byte) int {
	if n := binary.BigEndian.Uint32(d[2:]); d[0] == 5 && d[1] == 2 && n > 16 && n < 4096 && d[6] == 0 && d[7] > 0 && d[7] < 8 {
		return int(n)
	}
	return 0
}

// isPFX says whether DER begins as a PKCS#12 file: version 3, then data.
func isPFX(d []byte) bool {
	i := bytes.Index(d[:min(len(d), 12)], []byte("\x02\x01\x03\x30"))
	return i > 0 && bytes.Contains(d[i:min(len(d), i+32)], []byte("\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"))
}

// isPrivateDER says whether DER begins as a private key: a version, then an algorithm
// (PKCS#8), a modulus (PKCS#1) or an octet string (SEC 1).
func isPrivateDER(d []byte) bool {
	i := 2
	if d[1] > 0x80 {
		i += int(d[1] & 0x7f)
	}
	if i+6 > len(d) || d[i] != 2 || d[i+1] != 1 {
		return false
	}
	version, next := d[i+2], d[i+3]
	return version == 0 && (next == 0x30 || next == 0x02) || version == 1 && next == 0x04
}

// hasPrivateEntry says whether a Java keystore has an entry that is no certificate.
func hasPrivateEntry(d []byte) bool {
	at := 12
	skip := func(n int) bool {
		if n < 0 || len(d)-at < n {
			return false
		}
		at += n
		return true
	}
	for len(d)-at > 6 {
		if d[at+3] != 2 { // of a trusted certificate
			return d[at] == 0 && d[at+1] == 0 && d[at+2] == 0 && (d[at+3] == 1 || d[at+3] == 3)
		}
		if !skip(4) || !skip(2+int(binary.BigEndian.Uint16(d[at:]))) || !skip(8) || len(d)-at < 2 || !skip(2+int(binary.BigEndian.Uint16(d[at:]))) || len(d)-at < 4 || !skip(4+int(binary.BigEndian.Uint32(d[at:]))) {
			return false
		}
	}
	return false
}

// firstLine keeps the first line of a file that holds a secret alone.
func (f *finder) firstLine(rule string) {
	from, to := f.lineAt(0)
	for to > from && f.Data[to-1] == '\r' {
		to--
	}
	if to-from >= 6 {
		f.hit(rule, from, to)
	}
}

// fields keeps the value that pick finds among the words of each line.
func (f *finder) fields(rule string, pick func(words []string) string) {
	for at := 0; at < len(f.Data) && len(f.hits) < maxHits; {
		from, to := f.lineAt(at)
		at = to + 1
		s := f.plainLine(from, to)
		w := strings.Fields(s)
		if len(w) == 0 || w[0][0] == '#' || w[0][0] == ';' {
			continue
		}
		if v := pick(w); len(v) >= 4 && strengthOf(v) > noSecret {
			i := strings.LastIndex(s, v)
			f.hit(rule, from+i, from+i+len(v))
		}
	}
}

// netrc finds the word behind password, wherever its lines end.
func (f *finder) netrc() {
	expected := false
	for at := 0; at < len(f.Data) && len(f.hits) < maxHits; {
		c := f.Data[at]
		if c <= ' ' {
			at++
			continue
		}
		end := f.run(at, func(c byte) bool { return c > ' ' })
		switch w := string(f.Data[at:end]); {
		case c == '#':
			_, end = f.lineAt(at)
		case expected:
			if strengthOf(w) > noSecret {
				f.hit(ruleNetrc, at, end)
			}
			expected = false
		default:
			expected = w == "password" || w == "passwd"
		}
		at = end
	}
}

// pgpass finds the fifth field of host:port:database:user:password.
func (f *finder) pgpass() {
	f.fields(rulePgpass, func(w []string) string {
		p := strings.SplitN(strings.Join(w, " "), ":", 5)
		if len(p) < 5 {
			return ""
		}
		return p[4]
	})
}
