package secrets

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// attacked are kinds that an attack on the scan planted, and that no rule knew then.
func attacked(g *gen, n node) []plant {
	var p plants
	add := func(path, wrap, text string) { p.add("attacked", other, path, wrap, text) }
	var entries strings.Builder
	for i, l := range strings.Split(strings.TrimSpace(string(g.ecPEM(n.client))), "\n") {
		fmt.Fprintf(&entries, `{"__REALTIME_TIMESTAMP":"17636220621234%02d","_HOSTNAME":"n","SYSLOG_IDENTIFIER":"sh","MESSAGE":"%s","_PID":"812"}`+"\n", i, l)
	}
	p.add("attacked", identity, "opt/logs/boot.json", "journalctl -o json, a line in each entry", entries.String())
	add("root/.config/sops/age/pq.txt", "age, post-quantum", "AGE-SECRET-KEY-PQ-1"+g.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)+"\n")
	add("opt/db/authid.copy", "pg_authid, SCRAM", "10\tpostgres\tt\tt\tt\tt\tt\tt\tt\t-1\tSCRAM-SHA-256$4096:"+g.b64(16)+"$"+g.b64(32)+":"+g.b64(32)+"\t\\N\n")
	add("opt/db/authid-md5.copy", "pg_authid, MD5", "10\tpostgres\tt\tt\tt\tt\tt\tt\tt\t-1\tmd5"+g.hex(32)+"\t\\N\n")
	add("opt/db/userlist.txt", "pgbouncer, MD5", `"app" "md5`+g.hex(32)+"\"\n")
	add("opt/db/globals.sql", "pg_dumpall, MD5", "ALTER ROLE app WITH LOGIN PASSWORD 'md5"+g.hex(32)+"';\n")
	add("var/lib/postgresql/16/main/global/1260", "pg_authid's pages", string(g.bytes(200))+"postgres"+strings.Repeat("\x00", 56)+"\xffSCRAM-SHA-256$4096:"+g.b64(16)+"$"+g.b64(32)+":"+g.b64(32)+"\x00\x00"+string(g.bytes(64)))
	add("etc/nvme/config.json", "NVMe, in-band authentication", `[{"hostnqn":"nqn.2014-08.org.nvmexpress:uuid:x","dhchap_key":"DHHC-1:01:`+g.b64(36)+`:"}]`)
	add("etc/nvme/hostkey", "NVMe, alone", "DHHC-1:00:"+g.b64(36)+":\n")
	add("opt/consul/serf/local.keyring", "Consul's keyring", `["`+g.b64(32)+`","`+g.b64(16)+`"]`)
	add("etc/teleport.yaml", "Teleport's join token", "version: v3\nteleport:\n  join_params:\n    token_name: \""+g.hex(32)+"\"\n    method: token\n")
	add("opt/teleport/old.yaml", "Teleport's auth_token", "teleport:\n  auth_token: "+g.hex(32)+"\n")
	add("etc/redis/users.acl", "Redis' ACL", "user default off nopass\nuser app on >"+g.password(16)+" ~* +@all\n")
	add("etc/redis/redis.conf", "Redis' ACL in its configuration", "port 6379\nuser worker on sanitize-payload >"+g.password(16)+" ~jobs:* +get\n")
	add("opt/redis/users.acl", "Redis' ACL, a word as the password", "user app on >hunterhorse ~* &* +@all\n")
	add("etc/luks-keys/data", "LUKS' key file", string(g.bytes(64)))
	add("var/lib/app/keys/key-"+g.uuid()+".xml", "ASP.NET's DataProtection", "<?xml version=\"1.0\"?>\n<key id=\""+g.uuid()+"\" version=\"1\">\n  <descriptor>\n    <descriptor>\n      <masterKey p4:requiresEncryption=\"true\" xmlns:p4=\"http://schemas.asp.net/2015/03/dataProtection\">\n        <!-- Warning: the key below is in an unencrypted form. -->\n        <value>"+g.b64(64)+"</value>\n      </masterKey>\n    </descriptor>\n  </descriptor>\n</key>\n")
	add("var/lib/snmp/snmpd.conf", "SNMPv3, localised keys", "engineBoots 3\nusmUser 1 3 0x80001f88"+g.hex(26)+" \"ops\" \"ops\" NULL .1.3.6.1.6.3.10.1.1.3 0x"+g.hex(40)+" .1.3.6.1.6.3.10.1.2.4 0x"+g.hex(32)+" 0x\n")
	add("etc/snmp/snmpd.conf", "SNMPv3, createUser", "createUser ops SHA \""+g.password(14)+"\" AES \""+g.password(14)+"\"\n")
	add("etc/opt/microsoft/mdatp/mdatp_onboard.json", "Defender for Endpoint", "{\n  \"onboardingInfo\": \"{\\\"body\\\":\\\"{\\\\\\\"previousOrgIds\\\\\\\":[],\\\\\\\"orgId\\\\\\\":\\\\\\\""+g.uuid()+"\\\\\\\",\\\\\\\"geoLocationUrl\\\\\\\":\\\\\\\"https://winatp-gw-weu.microsoft.com/\\\\\\\",\\\\\\\"version\\\\\\\":\\\\\\\"1.43\\\\\\\"}\\\",\\\"sig\\\":\\\""+g.b64(256)+"\\\",\\\"sha256sig\\\":\\\""+g.b64(256)+"\\\"}\"\n}\n")
	return p
}

func TestAttackedImage(t *testing.T) {
	g := newGen(t)
	n := g.node()
	sum := measure(t, g, n, attacked(g, n))
	sum.print(t)
	for _, s := range sum.shipped {
		t.Errorf("shipped: %s", s)
	}
}

// What an attack found left in what is published.
func TestAttackedEvidence(t *testing.T) {
	g := newGen(t)
	acr := func() string { return g.b62(42) + "+ACR" + g.b62(6) }
	var a groups
	one, two := acr(), acr()
	a.add("ACR's credentials as a table", "USERNAME    PASSWORD                                              PASSWORD2\n----------  ----------------------------------------------------  ----------------------------------------------------\nreg         "+one+"  "+two, one, two)
	one = acr()
	a.add("ACR's token as a table", "CreationTime                      Name       Value\n--------------------------------  ---------  ----------------------------------------------------\n2026-11-20T07:01:02.123456+00:00  password1  "+one, one)
	letters := g.of(upper+lower, 20)
	a.add("GitLab's deploy token, letters alone", "remote: gldt-"+letters+" was refused", letters)
	for _, format := range []string{"%s", "remote: HTTP Basic: Access denied %s", "+ ./deploy %s", journal + "got %s from the environment", "['gitlab+deploy-token-1', '%s']"} {
		token := "gldt-" + g.of(urlSafe, 20)
		a.add("GitLab's deploy token", fmt.Sprintf(format, token), token[5:])
		pat := g.devops()
		a.add("Azure DevOps' token", fmt.Sprintf(format, pat), pat)
		old := g.of(lower+"234567", 52)
		a.add("Azure DevOps' token, old", fmt.Sprintf(format, old), old)
	}
	old := g.devops()
	a.add("Azure DevOps' token in a header", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte(":"+old)), base64.StdEncoding.EncodeToString([]byte(":"+old)))
	for _, s := range a {
		shown := published(s.text)
		if !strings.Contains(s.text, s.secrets[0]) {
			t.Fatalf("%s: the secret is not in %q", s.kind, s.text)
		}
		if slices.ContainsFunc(s.secrets, func(secret string) bool { return left(shown, secret) != "" }) {
			t.Errorf("%s: %s", s.kind, shown)
		}
	}
}
