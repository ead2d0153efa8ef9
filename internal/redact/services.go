package redact

import (
	"bytes"
	"strings"
)

// Forms of single programs' files that neither a name nor a beginning shows.

// scram finds the verifier of a password, as Postgres keeps it (pg_authid, pg_dumpall):
// SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER. It is text in the pages of a database too.
func (f *finder) scram(from, to int) {
	end := f.run(to, func(c byte) bool { return isKeyByte(c) || c == '$' || c == ':' })
	if v := f.Data[to:end]; f.kind != prose && len(v) >= 64 && bytes.IndexByte(v, ':') > 0 && isToken(v) {
		f.hit(ruleHash, from, end)
	}
}

// postgresMD5 finds md5 and 32 digits as a whole value, in text between quotes or tabs.
func (f *finder) postgresMD5(from, to int) {
	if string(f.Data[from:to]) != "md5" || len(f.Data)-to < 32 || !isHex(string(f.Data[to:to+32])) || f.kind == prose {
		return
	}
	end := to + 32
	whole := from > 0 && end < len(f.Data) && strings.IndexByte("\t\"'", f.Data[from-1]) >= 0 && f.Data[end] == f.Data[from-1]
	if (whole && f.kind != opaque || strings.HasSuffix("/"+f.Path, "/global/1260")) && isToken(f.Data[to:end]) {
		f.hit(ruleHash, from, end)
	}
}

// nvme finds a key of NVMe's in-band authentication: DHHC-1:HASH:BASE64:.
func (f *finder) nvme(from, to int) {
	at := f.run(to, isAlnum) + 1
	if at != to+3 || f.kind == prose {
		return
	}
	if end := f.run(at, isKeyByte); end-at >= 44 && isToken(f.Data[at:end]) {
		f.hit(ruleService, from, end)
	}
}

// masterKey finds a key of ASP.NET's DataProtection that is not encrypted.
func (f *finder) masterKey(_, to int) {
	rest := f.Data[to:min(len(f.Data), to+1<<10)]
	if i := bytes.Index(rest, []byte("<value>")); i >= 0 {
		at := to + i + len("<value>")
		if end := f.run(at, isKeyByte); end-at >= 60 && isToken(f.Data[at:end]) {
			f.hit(ruleNamed, at, end)
		}
	}
}

// usmUser finds the localised keys of a user of SNMPv3, behind the engine's id.
func (f *finder) usmUser(_, to int) {
	_, end := f.lineAt(to)
	for n, at := 0, to; at < end; n++ {
		i := bytes.Index(f.Data[at:end], []byte(" 0x"))
		if i < 0 {
			return
		}
		at += i + len(" 0x")
		if stop := f.run(at, isAlnum); n > 0 && stop-at >= 32 && isHex(string(f.Data[at:stop])) {
			f.hit(ruleSNMP, at, stop)
		}
	}
}

// onboarding finds what Microsoft Defender for Endpoint joins a tenant by.
func (f *finder) onboarding(_, to int) {
	end := min(len(f.Data), to+1<<10)
	if i := bytes.Index(f.Data[to:end], []byte("orgId")); f.kind == text && i >= 0 && bytes.Contains(f.Data[to:to+i], []byte("body")) {
		f.hit(ruleService, to, end)
	}
}

// teleport finds the token by which an agent of Teleport's joins: elsewhere a name of a
// token is no secret.
func (f *finder) teleport(from, to int) {
	around := f.Data[max(0, from-256):min(len(f.Data), to+256)]
	if f.kind != text || !strings.Contains(f.Path, "teleport") && !bytes.Contains(around, []byte("method: token")) {
		return
	}
	for to < len(f.Data) && strings.IndexByte(" \"'", f.Data[to]) >= 0 {
		to++
	}
	if end := f.run(to, isWordByte); end-to >= 16 && isToken(f.Data[to:end]) {
		f.hit(ruleNamed, to, end)
	}
}

// redisACL finds the password of a user: user NAME on >PASSWORD.
func (f *finder) redisACL(from, to int) {
	a, _ := f.lineAt(from)
	if f.kind != text || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(string(f.Data[a:from]))), "user ") {
		return
	}
	if end := f.run(to, func(c byte) bool { return c > ' ' }); end-to >= 4 && !isPlaceholder(string(f.Data[to:end])) {
		f.hit(ruleNamed, to, end)
	}
}
