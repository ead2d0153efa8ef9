package secrets

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"math/big"
	"strings"
)

// blindIdentities are the donor's own secrets, copied to places and written in forms
// that people and programs use. machine is the donor's machine-id.
func blindIdentities(g *gen, n node, machine string) []plant {
	var p plants
	blindClientKeys(g, n, &p)
	blindServingKeys(g, n, &p)
	blindHostKeys(g, n, &p)
	blindOwnOthers(g, n, machine, &p)
	return p
}

func blindClientKeys(g *gen, n node, p *plants) {
	key := n.clientPEM(g)
	text := strings.TrimSuffix(string(key), "\n")
	add := func(path, wrap, text string) { p.add("kubelet's client key", identity, path, wrap, text) }
	add("opt/backup/2026-11-01/pki/current.pem", "copied", string(key))
	add("root/kubelet.pem.txt", "lines end in CRLF", strings.ReplaceAll(string(key), "\n", "\r\n"))
	add("srv/ansible/host_vars/n3.yml", "YAML's !!binary", "kubelet_pem: !!binary |\n"+b64Lines(key, 70, 0, "  "))
	add("srv/ansible/facts/slurp.json", "Ansible's slurp", g.jsonOf(map[string]any{"changed": false, "encoding": "base64", "content": data(key), "source": "/var/lib/kubelet/pki/kubelet-client-current.pem"}))
	add("opt/puppetlabs/puppet/cache/client_data/catalog/node.json", "Puppet's catalog", g.jsonOf(map[string]any{"resources": []any{map[string]any{"type": "File", "title": "/etc/pki/k.pem", "parameters": map[string]string{"content": string(key), "mode": "0600"}}}}))
	add("opt/puppetlabs/puppet/cache/clientbucket/4/a/1/c/0/9/9/e/4a1c099e/contents", "Puppet's file bucket", string(key))
	add("srv/build/user-data.yaml", "cloud-init's gz+b64", "#cloud-config\nwrite_files:\n- path: /etc/k.pem\n  encoding: gz+b64\n  content: "+data(g.gzip(key))+"\n")
	add("srv/build/user-data.mime", "a part of a MIME message", "Content-Type: multipart/mixed; boundary=\"==B==\"\nMIME-Version: 1.0\n\n--==B==\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n"+b64Lines([]byte("#cloud-config\nwrite_files:\n- path: /etc/k.pem\n  content: |\n"+indent(key, "    ")), 76, 0, "")+"--==B==--\n")
	release := g.gzip([]byte(g.jsonOf(map[string]any{"name": "agent", "config": map[string]any{"tls": map[string]string{"key": string(key)}}, "version": 3})))
	add("srv/backup/helm-release.yaml", "a release of Helm: base64, base64, gzip, JSON", "apiVersion: v1\nkind: Secret\ntype: helm.sh/release.v1\nmetadata: {name: sh.helm.release.v1.agent.v3}\ndata:\n  release: "+data([]byte(data(release)))+"\n")
	add("srv/backup/etcd-snapshot.db", "in protobuf, in etcd's file", string(g.bytes(8192))+"k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\xf0\x01\n\x07tls.key\x12\xe3\x01"+string(key)+"\x1a\x11kubernetes.io/tls"+string(g.bytes(4096)))
	add("opt/k3s-backup/state.db", "in SQLite, over two pages", string(blindSQLite(g, key, 120)))
	add("opt/export/client.der", "PKCS#8 in DER", string(g.pkcs8(n.client)))
	add("opt/export/client.p12", "PKCS#12 without a password", string(g.plainPFX(n.client)))
	add("opt/export/jwks.json", "JWK", heldOutECJWK(g, n.client))
	add("opt/export/Kexample.+013+11021.private", "BIND's key file", blindBIND(g, n.client))
	add("var/spool/abrt/ccpp-2026-11-18/coredump", "in a core file", string(heldOutCore(g, 300_000, 131_077, g.sec1(n.client))))
	add("var/swap.old", "on a page of memory", strings.Repeat("\x00", 4096*6)+text+strings.Repeat("\x00", 4096*3))
	add("opt/provision/install.out", "each line behind syslog's head", blindEach(key, "Nov 20 07:00:01 localhost install.sh[2219]: %s\n"))
	add("srv/logs/3f1a-json.log", "each line in Docker's log", blindEach(key, `{"log":"%s\n","stream":"stdout","time":"2026-11-20T07:00:01.123456789Z"}`+"\n"))
	add("srv/logs/0.log", "each line in CRI's log", blindEach(key, "2026-11-20T07:00:01.123456789Z stdout F %s\n"))
	add("root/pki.diff", "added lines of a diff", "--- /dev/null\n+++ b/pki/k.pem\n@@ -0,0 +1,5 @@\n"+blindEach(key, "+%s\n"))
	add("root/grep.out", "grep -r", blindEach(key, "/var/lib/kubelet/pki/kubelet-client-current.pem:%s\n"))
	add("root/session.cast", "asciinema's events", "{\"version\": 2, \"width\": 120, \"height\": 32}\n"+blindEach(key, `[4.191822, "o", "%s\r\n"]`+"\n"))
	add("root/typescript", "script(1) with colours", "Script started on 2026-11-20 07:00:01+00:00\n\x1b[?2004h\x1b[01;32mroot@n\x1b[00m:~# cat k.pem\r\n\x1b[?2004l\r"+strings.ReplaceAll(string(key), "\n", "\r\n")+"\x1b[?2004h")
	add("root/capture.txt", "tcpdump -X", blindTcpdump(g, key))
	add("root/gdb.txt", "gdb's x/xb", blindGDB(g.sec1(n.client)))
	add("root/strace.out", "strace", `2219 write(1, "`+strings.ReplaceAll(string(key), "\n", `\n`)+fmt.Sprintf(`", %d) = %d`, len(key), len(key))+"\n")
	add("opt/app/debug.log", "repr of Python", "DEBUG body=b'"+strings.ReplaceAll(string(key), "\n", `\n`)+"'\n")
	add("opt/app/dump.log", "a list of decimal numbers", "I1120 07:00:01 2219 dump.go:41] key="+blindDecimal(g.sec1(n.client))+"\n")
	add("etc/systemd/system/agent.service", "SetCredential of a unit", "[Service]\nExecStart=/usr/bin/agent\nSetCredential=tls.key:"+blindTMPFiles(key)+"\n")
	add("etc/systemd/system/shipper.service.d/10-key.conf", "base64 in Environment", "[Service]\nEnvironment=\"TLS_MATERIAL="+data(key)+"\"\n")
	add("usr/lib/tmpfiles.d/agent.conf", "tmpfiles.d", "f /run/agent/k.pem 0600 root root - "+blindTMPFiles(key)+"\n")
	add("usr/lib/agent/setup.sh", "a here-document", "#!/bin/sh\ncat >/run/k.pem <<-EOF\n"+indent(key, "\t")+"\tEOF\n")
	add("home/azureuser/env.list", "unquoted echo: blanks instead of line ends", "TLS_KEY="+strings.ReplaceAll(text, "\n", " ")+"\n")
	add("srv/inspect.json", "JSON within JSON", g.jsonOf([]any{map[string]any{"Config": map[string]any{"Env": []string{"CONF=" + g.jsonOf(map[string]string{"key": string(key)})}}}}))
	add("root/ticket.html", "HTML with line breaks", "<html><body><pre>"+blindEach(key, "%s<br/>\n")+"</pre></body></html>\n")
	add("root/mail.txt", "quoted in a mail", "On Fri, support wrote:\n"+blindEach(key, "> %s\n"))
	add("opt/tools/key.sh", "KEY+= line by line", "K=''\n"+blindEach(key, "K+=\"%s\"$'\\n'\n"))
	add("opt/tools/Key.java", "strings joined by +", "class Key { static final String PEM =\n"+blindEach(key, "    \"%s\\n\" +\n")+"    \"\"; }\n")
	add("opt/stack/template.json", "Fn::Join of CloudFormation", `{"Fn::Join":["\n",[`+strings.TrimSuffix(blindEach(key, `"%s",`), ",")+"]]}\n")
	add("srv/backup/app.sql", "INSERT of MySQL", "INSERT INTO `certs` VALUES (1,'node','"+strings.ReplaceAll(string(key), "\n", `\n`)+"',0);\n")
	add("srv/backup/app.pg", "bytea of PostgreSQL", "COPY public.certs (id, pem) FROM stdin;\n1\t\\\\x"+hex.EncodeToString(key)+"\n\\.\n")
	add("srv/backup/ldap.ldif", "LDIF, folded", "dn: cn=n\nsshPrivateKey:: "+strings.TrimPrefix(b64Lines(key, 60, 0, " "), " "))
	add("opt/app/app.properties", "properties of Java, continued", "tls.key=\\\n"+blindEach(key, "    %s\\n\\\n"))
	add("opt/app/gson.json", "base64 as Gson escapes it", `{"k":"`+strings.NewReplacer("=", `\u003d`, "+", `\u002b`, "/", `\/`).Replace(data(key))+"\"}\n")
	add("lost+found/#131075", "left by fsck", string(key))
	add("etc/kubernetes/tmp/kubeadm-backup-kubelet/kubelet.old", "client-key-data of a kubeconfig", kubeconfig("default-auth", "client-key-data: "+data(key)))
	add("var/spool/postfix/deferred/A/A1B2C3", "quoted-printable in a mail", strings.NewReplacer("=", "=3D").Replace(string(key)))
	add("root/k.uu", "uuencode", blindUU("k.pem", key))
	add("etc/.git/objects/pack/pack-1.pack", "in a pack of git", string(blindPack(g, key)))
	add("srv/crash/heap.bin", "the number alone", string(g.bytes(70_001))+string(g.scalar(n.client))+string(g.bytes(30_000)))
	add("opt/app/state.msgpack", "the number in base64url", string(g.bytes(99))+"\xa1d\xd9+"+base64.RawURLEncoding.EncodeToString(g.scalar(n.client))+string(g.bytes(99)))
}

func blindServingKeys(g *gen, n node, p *plants) {
	key := rsaPEM(n.serving)
	add := func(path, wrap, text string) { p.add("kubelet's serving key", identity, path, wrap, text) }
	object, packed := heldOutGitObject(g, key)
	add("etc/.git/"+object, "a loose object of git", string(packed))
	add("var/backups/kubelet.tar.gz", "tar.gz", string(g.gzip(g.tar("var/lib/kubelet/pki/kubelet.key", key))))
	add("opt/support/bundle.zip", "zip", string(g.zip("pki/kubelet.key", key, 8)))
	add("srv/terraform/terraform.tfstate", "state of Terraform", g.jsonOf(map[string]any{"version": 4, "resources": []any{map[string]any{"type": "tls_private_key", "instances": []any{map[string]any{"attributes": map[string]string{"private_key_pem": string(key)}}}}}}))
	type rsaXML struct {
		XMLName                         xml.Name `xml:"RSAKeyValue"`
		Modulus, Exponent, P, Q, DP, DQ string
		InverseQ, D                     string
	}
	b := func(v *big.Int) string { return base64.StdEncoding.EncodeToString(v.Bytes()) }
	pre := n.serving.Precomputed
	text := check[[]byte](g)(xml.Marshal(rsaXML{Modulus: b(n.serving.N), Exponent: "AQAB", P: b(n.serving.Primes[0]), Q: b(n.serving.Primes[1]), DP: b(pre.Dp), DQ: b(pre.Dq), InverseQ: b(pre.Qinv), D: b(n.serving.D)}))
	add("opt/dotnet/key.xml", "XML of .NET", string(text)+"\n")
	add("root/openssl.txt", "openssl rsa -text", heldOutRSAText(n.serving))
	add("opt/app/key.py", "a decimal number in Python", fmt.Sprintf("d = %d\nn = %d\n", n.serving.D, n.serving.N))
	add("opt/app/key.rb", "a hexadecimal number in Ruby", fmt.Sprintf("D = 0x%x\n", n.serving.D))
	add("var/lib/docker/overlay2/1f/diff/app/tls.key", "in a layer of an image", string(key))
	add("opt/k3s-backup/kine.db", "in SQLite, over two pages", string(blindSQLite(g, key, 700)))
	add("srv/images/seed.iso", "in an image of a disk", string(blindISO(key)))
}

func blindHostKeys(g *gen, n node, p *plants) {
	ed, rsa := n.hostPEM(g), n.hostRSAPEM(g)
	add := func(path, wrap, text string) { p.add("SSH host key", identity, path, wrap, text) }
	add("var/chef/backup/etc/ssh/host_ed.chef-20261101", "Chef's backup", string(ed))
	add("var/backups/ssh.tar", "tar", string(g.tar("etc/ssh/ssh_host_rsa_key", rsa)))
	add("srv/keys/host.pem", "PKCS#8", string(g.pkcs8PEM(n.hostEd)))
	add("srv/keys/host_rsa.pem", "PKCS#1", string(rsaPEM(n.hostRSA)))
	add("srv/keys/host.ppk", "PuTTY", string(g.putty(n.hostEd, "host")))
	add("srv/keys/commented", "saved again by ssh-keygen -c", string(g.opensshPEM(n.hostEd, "another comment")))
	add("etc/cloud/cloud.cfg.d/91-keys.cfg", "ssh_keys of cloud-init", "ssh_keys:\n  ed25519_private: |\n"+indent(ed, "    "))
	add("srv/keys/sodium.hex", "seed and public key in hexadecimal", hex.EncodeToString(n.hostEd)+"\n")
	add("srv/keys/seed.json", "the seed in base64", g.jsonOf(map[string]string{"type": "ed25519", "seed": base64.StdEncoding.EncodeToString(n.hostEd.Seed())}))
	add("root/.config/sops/age/keys.txt", "ssh-to-age", "# created: 2026-11-20T07:00:00Z\n"+blindAge(n.hostEd)+"\n")
	add("root/core.2211", "memory of ssh-agent", string(heldOutCore(g, 200_000, 65_533, heldOutDropbearEd(n.hostEd))))
	add("boot/initrd.img-6.8.0-1017-azure", "an initial RAM disk: a plain archive, then one in gzip", string(heldOutCPIO("kernel/x86/microcode/GenuineIntel.bin", g.bytes(4096)))+string(g.gzip(heldOutCPIO("etc/dropbear/dropbear_rsa_host_key", heldOutDropbearRSA(n.hostRSA)))))
	add("var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/12/fs/etc/ssh/k", "in a snapshot", string(rsa))
	add("opt/golden/terraform.tfvars", "a heredoc of Terraform", "host_key = <<-EOT\n"+indent(rsa, "    ")+"  EOT\n")
	add("root/export.csv", "a field of CSV", "name,key\n\"host\",\""+string(rsa)+"\"\n")
	add("opt/nomad/job.json", "URL-encoded", g.jsonOf(map[string]string{"Template": "data:text/plain," + heldOutPercent(ed)}))
	first := g.tar("usr/share/blob", []byte(strings.Repeat("configuration of nothing at all\n", 400_000)))
	add("var/backups/etc-full.tar.gz", "in an archive, behind 12 MB of other files", string(g.gzip(append(first[:len(first)-1024], g.tar("etc/ssh/k", ed)...))))
}

func blindOwnOthers(g *gen, n node, machine string, p *plants) {
	password := n.password
	add := func(kind, path, wrap, text string) { p.add(kind, identity, path, wrap, text) }
	const k3s = "node password of k3s"
	add(k3s, "srv/backup/cred/node-passwd", "the server's list", password+",n3,n3,\n")
	add(k3s, "opt/tools/register.sh", "a header of curl", "curl -sk -H 'k3s-Node-Name: n3' -H 'k3s-Node-Password: "+password+"' https://10.0.0.1:6443/v1-k3s/serving-kubelet.crt\n")
	add(k3s, "root/password.txt", "PowerShell's UTF-16", string(heldOutUTF16(password+"\n")))
	add(k3s, "srv/build/rke2.b64", "base64 of a script", b64Lines([]byte("#!/bin/sh\nmkdir -p /etc/rancher/node\necho "+password+" >/etc/rancher/node/password\n"), 76, 0, ""))
	add(k3s, "var/backups/rancher.tgz", "tar.gz", string(g.gzip(g.tar("etc/rancher/node/password", []byte(password+"\n")))))
	add(k3s, "root/p.hex", "hexadecimal of the file", hexLines([]byte(password+"\n"), 60))
	add(k3s, "srv/vault-export.json", "JSON", g.jsonOf(map[string]any{"data": map[string]string{"value": password}}))
	add(k3s, "opt/cmdb/node.xml", "an attribute of XML", "<node name=\"n3\" pw=\""+password+"\"/>\n")
	add(k3s, "opt/cmdb/node.upper", "capitals", strings.ToUpper(password)+"\n")
	add(k3s, "root/od.txt", "od -c", " "+blindODC(password)+"\n")

	const id = "machine-id"
	add(id, "etc/default/telegraf", "in configuration", "MACHINE_ID="+machine+"\n")
	add(id, "etc/fluent-bit/conf.d/host.conf", "in configuration", "[FILTER]\n    Name record_modifier\n    Match *\n    Record machine_id "+machine+"\n")
	add(id, "etc/default/inventory", "with dashes", "HOST_UUID="+blindDashed(machine)+"\n")
	add(id, "etc/kernel/entry-token", "the boot loader's token", machine+"\n")
	add(id, "etc/default/agent-upper", "with dashes and in capitals", "UUID="+strings.ToUpper(blindDashed(machine))+"\n")
	add(id, "var/lib/NetworkManager/duid.state", "a DUID", "duid=00:02:00:00:ab:11:"+strings.TrimSuffix(blindColons(machine), ":")+"\n")

	agent := g.pkcs8PEM(g.rsa())
	const azure = "the Azure agent's key"
	add(azure, "var/lib/waagent/TransportPrivate.pem", "at its place", string(agent))
	add(azure, "opt/waagent-backup/TransportPrivate.pem", "copied", string(agent))
	add(azure, "srv/waagent.b64", "base64", b64Lines(agent, 64, 0, ""))

	const secret = "systemd's credential secret"
	host := g.bytes(4096)
	add(secret, "var/lib/systemd/credential.secret", "at its place", string(host))
	add(secret, "srv/backup/credential.secret", "copied", string(host))
	add(secret, "srv/backup/systemd.tgz", "tar.gz", string(g.gzip(g.tar("var/lib/systemd/credential.secret", host))))
	add(secret, "srv/backup/credential.b64", "base64", b64Lines(host, 76, 0, ""))

	const token = "a pod's token"
	sa := g.saToken()
	add(token, "var/lib/kubelet/pods/3b0a/volumes/kubernetes.io~projected/kube-api-access-x/token", "at its place", sa)
	add(token, "srv/debug/curl.sh", "a header", "curl -H 'Authorization: Bearer "+sa+"' https://10.0.0.1:6443/api\n")
	cni := g.saToken()
	add(token, "etc/cni/net.d/calico-kubeconfig", "at its place", kubeconfig("calico", "token: "+cni))
	add(token, "opt/cni/backup/calico.conf.gz", "a kubeconfig in gzip", string(g.gzip([]byte(kubeconfig("calico", "token: "+cni)))))
	add(token, "srv/debug/split.json", "its first two parts and its signature apart", g.jsonOf(map[string]string{"payload": cni[:strings.LastIndex(cni, ".")], "signature": cni[strings.LastIndex(cni, ".")+1:]}))

	old := g.ec()
	cert := string(g.certificate("system:node:"+donorName, "system:nodes", old))
	const other = "a node's key that its certificate shows"
	add(other, "opt/backup/old/kubelet-client-2025.pem", "certificate and key", cert+string(g.ecPEM(old)))
	add(other, "opt/backup/old/node.conf", "a kubeconfig", kubeconfig("system:node:"+donorName, "client-certificate-data: "+data([]byte(cert))+"\n    client-key-data: "+data(g.ecPEM(old))))
	add(other, "var/lib/rancher/rke2/agent.old/rke2.kubeconfig", "a kubeconfig of RKE2's agent", kubeconfig("user", "client-certificate-data: "+data([]byte(cert))+"\n    client-key-data: "+data(armor("EC PRIVATE KEY", check[[]byte](g)(x509.MarshalECPrivateKey(old))))))
}

// blindODC is one line of `od -An -c`.
func blindODC(text string) string {
	return strings.Join(strings.Split(text, ""), "   ")
}

func blindColons(hexadecimal string) string {
	var b strings.Builder
	for i := 0; i+1 < len(hexadecimal); i += 2 {
		b.WriteString(hexadecimal[i:i+2] + ":")
	}
	return b.String()
}
