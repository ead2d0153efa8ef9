package secrets

import (
	"archive/zip"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	kubeletKey   = "kubelet's client key"
	servingKey   = "kubelet's serving key"
	hostKey      = "SSH host key"
	nodePassword = "node password of k3s"
)

// identities plants the donor's own keys and password, in files of other programs.
func identities(g *gen, n node) []plant {
	var p plants
	kubeletAsText(g, n, &p)
	kubeletAsBase64(g, n, &p)
	kubeletAsBytes(g, n, &p)
	hostKeys(g, n, &p)
	passwords(g, n, &p)
	return p
}

func kubeletAsText(g *gen, n node, p *plants) {
	key := n.clientPEM(g)
	add := func(path, wrap, text string) { p.add(kubeletKey, identity, path, wrap, text) }
	add("opt/backup/kubelet.pem", "as it is", string(key))
	add("usr/lib/kubelet-backup/client.pem", "as it is, in /usr/lib", string(key))
	add("lib/node-agent/tls.key", "as it is, in /lib", string(key))
	add("usr/share/doc/node-agent/examples/tls.pem", "as it is, among documents", string(key))
	add("root/client.bak", "PEM with CRLF", strings.ReplaceAll(string(key), "\n", "\r\n"))
	add("srv/tls/one-line.txt", "PEM without line ends", strings.ReplaceAll(string(key), "\n", " "))
	add("etc/monitoring/agent.yaml", "YAML block, 2 blanks", "server: https://metrics.example:8443\ntls:\n"+yamlKey("key", key, "  ")+"interval: 30s\n")
	add("opt/monitoring/values.yaml", "YAML block, 10 blanks", "agent:\n  extra:\n    tls:\n      client:\n"+yamlKey("keyPem", key, "        ")+"  replicas: 1\n")
	add("etc/telegraf/telegraf.d/tabs.conf", "indented by tabs", "[[inputs.prometheus]]\n\ttls_key_pem = '''\n"+indent(key, "\t\t")+"'''\n")
	add("etc/node-agent/config.json", "JSON string", `{"server":"https://10.0.0.1:6443","clientKey":"`+g.jsonText(key)+`","interval":30}`)
	add("var/lib/node-agent/state.json", "JSON string within a JSON string", `{"msg":"`+g.jsonText([]byte(`{"key":"`+g.jsonText(key)+`"}`))+`"}`)
	add("etc/node-agent/quoted.yaml", "YAML in double quotes", `key: "`+strings.ReplaceAll(string(key), "\n", `\n`)+"\"\n")
	add("etc/node-agent/folded.yaml", "folded YAML, an empty line for each line end", "key: >-\n"+indent([]byte(strings.ReplaceAll(strings.TrimSpace(string(key)), "\n", "\n\n")), "  "))
	add("etc/node-agent/continued.yaml", "YAML in double quotes over several lines", "key: \""+strings.Join(lines(strings.ReplaceAll(string(key), "\n", `\n`), 50), "\\\n  \\")+"\"\n")
	add("etc/systemd/system/node-agent.service.d/10-tls.conf", "Environment= of a unit", "[Service]\nEnvironment=\"TLS_KEY="+strings.ReplaceAll(string(key), "\n", `\n`)+"\"\n")
	add("etc/default/node-agent", "several lines in an environment file", "SERVER=https://10.0.0.1\nTLS_KEY=\""+string(key)+"\"\nINTERVAL=30\n")
	add("usr/local/bin/restore-kubelet.sh", "heredoc in a script", "#!/bin/bash\nset -euo pipefail\ncat > /var/lib/kubelet/pki/kubelet-client-current.pem <<'PEM'\n"+string(key)+"PEM\nsystemctl restart kubelet\n")
	add("usr/local/bin/restore-indented.sh", "heredoc indented by tabs", "#!/bin/sh\nif true; then\n\tcat >/tmp/k <<-EOF\n"+indent(key, "\t\t")+"\tEOF\nfi\n")
	add("usr/local/sbin/echoes.sh", "an echo for each line", "#!/bin/sh\n{\n"+echoes(key)+"} > /tmp/k\n")
	add("usr/local/sbin/ansi-c.sh", "ANSI-C quotes of a shell", "#!/bin/bash\nKEY=$'"+strings.ReplaceAll(string(key), "\n", `\n`)+"'\n")
	add("opt/agent/settings.py", "Python, strings in lines", "KEY = (\n"+quotedLines(key)+")\n")
	add("opt/agent/main.c", "C, one literal", "static const char key[] = \""+strings.ReplaceAll(string(key), "\n", `\n`)+"\";\nint main(void) { return 0; }\n")
	add("etc/agent/config.xml", "XML with &#10;", "<config><key>"+strings.ReplaceAll(string(key), "\n", "&#10;")+"</key></config>\n")
	add("var/lib/agent/form.txt", "percent escapes", "name=node&key="+percent(key)+"&x=1\n")
	add("opt/notes/commented.conf", "behind comment signs", "# old key, do not use\n"+indent(key, "# ")+"listen 8080\n")
	add("opt/notes/mail.txt", "quoted in a mail", "On Friday azureuser wrote:\n"+indent(key, "> ")+"Thanks!\n")
	add("opt/notes/patch.diff", "removed lines of a patch", "--- a/k.pem\n+++ /dev/null\n@@ -1,5 +0,0 @@\n"+indent(key, "-"))
	add("opt/notes/body.txt", "PEM's inside only", body(key))
	add("opt/notes/width40.pem", "PEM with lines of 40", rewrapped(key, 40))
	add("opt/notes/width76.pem", "PEM with lines of 76", rewrapped(key, 76))
	add("opt/notes/joined.env", "PEM's inside in one line", "KEY="+strings.ReplaceAll(body(key), "\n", "")+"\n")
	add("opt/tls/pkcs8.pem", "PEM as PKCS#8", string(g.pkcs8PEM(n.client)))
	add("opt/tls/pkcs8.yaml", "PEM as PKCS#8 in YAML", "tls:\n"+yamlKey("tls.key", g.pkcs8PEM(n.client), "    "))
	add("opt/tls/key.txt", "openssl's text", "Private-Key: (256 bit)\npriv:"+hexColons(g.scalar(n.client))+"ASN1 OID: prime256v1\n")
	add("opt/tls/jwk.json", "JWK", fmt.Sprintf(`{"kty":"EC","crv":"P-256","d":"%s","use":"sig"}`, base64.RawURLEncoding.EncodeToString(g.scalar(n.client))))
	add("var/lib/collector/far.log", "behind 5 MiB of lines", string(g.after(5<<20, key)))
	for i, at := range []int{64 << 10, 1 << 20, 4 << 20} {
		add(fmt.Sprintf("var/lib/collector/edge%d.txt", i), fmt.Sprintf("over the edge at %d KiB", at>>10), string(g.after(at-len(key)/2, key)))
	}
	p.add(servingKey, identity, "opt/tls/serving-pkcs8.pem", "PKCS#1 key as PKCS#8", string(g.pkcs8PEM(n.serving)))
	p.add(servingKey, identity, "opt/tls/serving.pem", "behind its certificate", string(g.certificate(donorName, "", n.serving))+string(rsaPEM(n.serving)))
	p.add(servingKey, identity, "etc/haproxy/node.json", "JSON string", `{"key":"`+g.jsonText(rsaPEM(n.serving))+`"}`)
}

func echoes(key []byte) string {
	var b strings.Builder
	for l := range strings.Lines(string(key)) {
		fmt.Fprintf(&b, "  echo '%s'\n", strings.TrimSpace(l))
	}
	return b.String()
}

func quotedLines(key []byte) string {
	var b strings.Builder
	for l := range strings.Lines(string(key)) {
		fmt.Fprintf(&b, "    \"%s\\n\"\n", strings.TrimSpace(l))
	}
	return b.String()
}

func kubeletAsBase64(g *gen, n node, p *plants) {
	key := n.clientPEM(g)
	add := func(path, wrap, text string) { p.add(kubeletKey, identity, path, wrap, text) }
	add("root/.kube/config", "client-key-data", kubeconfig("node", "client-certificate-data: "+data(g.certificate("system:node:"+donorName, "system:nodes", n.client))+"\n    client-key-data: "+data(key)))
	for i, width := range []int{60, 64, 76, 20, 57, 101} {
		add(fmt.Sprintf("opt/secrets/lines%d.b64", width), fmt.Sprintf("base64 in lines of %d, offset %d", width, i%3), b64Lines(key, width, i%3, ""))
	}
	for skew := range 3 {
		add(fmt.Sprintf("opt/secrets/whole%d.txt", skew), fmt.Sprintf("base64 in one line, offset %d", skew), "KEY="+b64Lines(key, 1<<20, skew, ""))
	}
	add("opt/secrets/secret.yaml", "base64 in lines of 76, indented", "apiVersion: v1\nkind: Secret\ndata:\n  tls.key: |\n"+b64Lines(key, 76, 0, "    ")+"type: Opaque\n")
	add("opt/secrets/url.txt", "base64url in one line", base64.RawURLEncoding.EncodeToString(key)+"\n")
	add("opt/secrets/url-lines.txt", "base64url in lines of 72, offset 1", strings.Join(lines(base64.URLEncoding.EncodeToString(append([]byte("x"), key...)), 72), "\n")+"\n")
	add("opt/secrets/escaped.json", "base64 in JSON with \\n", `{"data":"`+strings.ReplaceAll(b64Lines(key, 76, 2, ""), "\n", `\n`)+`"}`)
	add("opt/secrets/crlf.txt", "base64 in lines of 76 with CRLF", strings.ReplaceAll(b64Lines(key, 76, 0, ""), "\n", "\r\n"))
	add("opt/secrets/behind.b64", "base64 of a file with lines before the key", data(append([]byte("node: "+donorName+"\nkey: |\n"), indent(key, "  ")...))+"\n")
	add("opt/secrets/twice.b64", "base64 of base64", data([]byte(data(key)+"\n"))+"\n")
	add("opt/secrets/config.b64", "base64 of a kubeconfig", data([]byte(kubeconfig("node", "client-key-data: "+data(key))))+"\n")
	add("opt/secrets/der.b64", "base64 of the DER, offset 1", base64.StdEncoding.EncodeToString(append([]byte("-"), g.sec1(n.client)...))+"\n")
	add("opt/secrets/der8.b64", "base64 of the PKCS#8 DER in lines of 48", b64Lines(g.pkcs8(n.client), 48, 0, "\t"))
	add("etc/cloud/cloud.cfg.d/90-restore.cfg", "write_files, encoding: b64", "#cloud-config\nwrite_files:\n- path: /var/lib/kubelet/pki/k.pem\n  encoding: b64\n  content: "+data(key)+"\n")
	add("etc/cloud/cloud.cfg.d/91-restore.cfg", "write_files, encoding: gz+b64", "#cloud-config\nwrite_files:\n- path: /var/lib/kubelet/pki/k.pem\n  encoding: gz+b64\n  content: "+data(g.gzip(key))+"\n")
	add("etc/cloud/cloud.cfg.d/92-restore.cfg", "write_files, !!binary in lines", "#cloud-config\nwrite_files:\n- path: /k\n  content: !!binary |\n"+b64Lines(key, 76, 0, "    "))
	add("usr/local/bin/unpack.sh", "base64 in a heredoc, piped", "#!/bin/sh\nbase64 -d <<EOF | tar xz\n"+b64Lines(g.gzip(g.tar("k.pem", key)), 76, 0, "")+"EOF\n")
	p.add(servingKey, identity, "opt/secrets/serving.b64", "base64 of the PEM in lines of 64, offset 2", b64Lines(rsaPEM(n.serving), 64, 2, ""))
}

func kubeletAsBytes(g *gen, n node, p *plants) {
	key := n.clientPEM(g)
	add := func(path, wrap string, content []byte) {
		*p = append(*p, plant{kubeletKey, identity, path, wrap, content})
	}
	add("opt/tls/client.der", "DER", g.sec1(n.client))
	add("opt/tls/client8.der", "DER as PKCS#8", g.pkcs8(n.client))
	add("opt/tls/client.p12", "PKCS#12 without encryption", g.plainPFX(n.client))
	add("opt/hex/pem.hex", "hex in one line", []byte(hex.EncodeToString(key)+"\n"))
	add("opt/hex/upper.hex", "hex in capitals, in lines of 60", []byte(strings.ToUpper(hexLines(key, 60))))
	add("opt/hex/der.hex", "hex of the DER in lines of 64", []byte(hexLines(g.sec1(n.client), 64)))
	add("opt/hex/dump.txt", "hexdump -C", []byte(xxd(key)))
	add("opt/hex/colons.txt", "hex with colons", []byte("key:"+hexColons(g.sec1(n.client))))
	add("opt/packed/client.pem.gz", "gzip", g.gzip(key))
	add("opt/packed/pki.tar", "tar", g.tar("var/lib/kubelet/pki/k.pem", key))
	add("opt/packed/pki.tar.gz", "tar.gz", g.gzip(g.tar("var/lib/kubelet/pki/k.pem", key)))
	add("opt/packed/pki.zip", "zip, stored", g.zip("k.pem", key, zip.Store))
	add("opt/packed/twice.gz", "gzip within gzip", g.gzip(g.gzip(key)))
	add("opt/packed/config.json.gz", "JSON in gzip", g.gzip([]byte(`{"k":"`+g.jsonText(key)+`"}`)))
	add("opt/wide/le.txt", "UTF-16, little endian with a mark", utf16Bytes(string(key), binary.LittleEndian, true))
	add("opt/wide/be.txt", "UTF-16, big endian with a mark", utf16Bytes(string(key), binary.BigEndian, true))
	add("opt/wide/unmarked.txt", "UTF-16 without a mark", utf16Bytes("key:\n"+string(key), binary.LittleEndian, false))
	add("usr/bin/bundled", "in the middle of a program", g.elf(key))
	add("usr/lib/libbundled.so.1", "DER in the middle of a library", g.elf(g.pkcs8(n.client)))
	add("var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs/etc/k.pem", "an image's layer", key)
	add("var/lib/docker/overlay2/"+g.hex(64)+"/diff/app/k.pem", "an image's layer (docker)", key)
	add("var/lib/journald-copy/system.journal", "a journal's field", append(append([]byte("LPKSHHRH\x00\x00\x00\x00"), g.bytes(500)...), append([]byte("MESSAGE="), key...)...))
}

func hostKeys(g *gen, n node, p *plants) {
	ed, rsa := n.hostPEM(g), n.hostRSAPEM(g)
	add := func(path, wrap, text string) { p.add(hostKey, identity, path, wrap, text) }
	add("opt/backup/ssh_host_ed25519_key", "as it is", string(ed))
	add("etc/cloud/cloud.cfg.d/95-keys.cfg", "ssh_keys of cloud-init", "#cloud-config\nssh_keys:\n  ed25519_private: |\n"+indent(ed, "    ")+"  ed25519_public: "+g.sshPublic(n.hostEd))
	add("opt/backup/keys.json", "JSON string", `{"ed25519":"`+g.jsonText(ed)+`","rsa":"`+g.jsonText(rsa)+`"}`)
	add("opt/backup/keys.b64", "base64 in lines of 76, offset 1", b64Lines(ed, 76, 1, ""))
	add("opt/backup/rsa.b64", "base64 in one line, offset 2", b64Lines(rsa, 1<<20, 2, ""))
	add("usr/share/sshd/host.pem", "OpenSSH key as PKCS#8", string(g.pkcs8PEM(n.hostEd)))
	add("usr/share/sshd/host-rsa.pem", "OpenSSH key as PKCS#1", string(rsaPEM(n.hostRSA)))
	add("opt/backup/dropbear.bin", "seed and public key as dropbear has them", "\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x40"+string(n.hostEd))
	add("opt/backup/host.ppk", "PuTTY's form", string(g.putty(n.hostEd, donorName)))
	add("opt/backup/host.tar.gz", "tar.gz", string(g.gzip(g.tar("etc/ssh/ssh_host_ed25519_key", ed))))
	add("opt/backup/host.hex", "hex", hexLines(ed, 72))
	add("opt/backup/host.yaml", "YAML, 6 blanks", "hosts:\n  n1:\n"+yamlKey("key", rsa, "    "))
	add("opt/backup/seed.txt", "the seed in hex", "seed="+hex.EncodeToString(n.hostEd.Seed())+"\n")
	add("root/host.utf16", "UTF-16", string(utf16Bytes(string(ed), binary.LittleEndian, true)))
}

func passwords(g *gen, n node, p *plants) {
	add := func(path, wrap, text string) { p.add(nodePassword, identity, path, wrap, text) }
	add("opt/k3s/password", "as it is", n.password+"\n")
	add("etc/k3s-restore/env", "environment file", "NODE_NAME="+donorName+"\nNODE_PASSWORD="+n.password+"\n")
	add("opt/k3s/node.json", "JSON", `{"name":"`+donorName+`","password":"`+n.password+`"}`)
	add("usr/local/bin/k3s-restore", "argument in a script", "#!/bin/sh\nprintf '%s\\n' "+n.password+" > /etc/rancher/node/password\n")
	for skew := range 3 {
		add(fmt.Sprintf("opt/k3s/skew%d.b64", skew), fmt.Sprintf("base64, offset %d", skew), b64Lines([]byte(n.password+"\n"), 1<<20, skew, ""))
	}
	add("opt/k3s/lines.b64", "base64 of a file in lines of 76", b64Lines([]byte("NODE_NAME="+donorName+"\nNODE_ROLE=agent\nNODE_PASSWORD="+n.password+"\n"), 76, 0, ""))
	add("opt/k3s/url.b64", "base64url, offset 1", base64.RawURLEncoding.EncodeToString([]byte("x"+n.password))+"\n")
	add("opt/k3s/hex", "hex of its text", hex.EncodeToString([]byte(n.password))+"\n")
	add("opt/k3s/headers.txt", "header of a request", "GET /v1-k3s/serving-kubelet.crt HTTP/1.1\r\nK3s-Node-Name: "+donorName+"\r\nK3s-Node-Password: "+n.password+"\r\n\r\n")
	add("opt/k3s/values.yaml", "YAML, single quotes", "node:\n  password: '"+n.password+"'\n")
	add("opt/k3s/wide", "UTF-16", string(utf16Bytes("password "+n.password, binary.LittleEndian, true)))
	add("opt/k3s/env.gz", "gzip", string(g.gzip([]byte("NODE_PASSWORD="+n.password+"\n"))))
	add("opt/k3s/basic.yaml", "basic authentication", "headers:\n  Authorization: Basic "+data([]byte("node:"+n.password))+"\n")
	add("etc/systemd/system/restore.service.d/env.conf", "Environment= of a unit", "[Service]\nEnvironment=\"A=1\" \"NODE_PASSWORD="+n.password+"\"\n")
	add("opt/k3s/user-data.b64", "gzip and base64 of cloud-init", data(g.gzip([]byte("#cloud-config\nruncmd:\n- echo "+n.password+" > /etc/rancher/node/password\n")))+"\n")
	add("usr/lib/k3s/seed.conf", "in /usr/lib", "password = \""+n.password+"\"\n")
}
