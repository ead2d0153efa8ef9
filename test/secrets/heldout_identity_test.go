package secrets

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// heldOutIdentities is the node's own secrets in forms that people and programs leave on nodes.
func heldOutIdentities(g *gen, n node) []plant {
	var a plants
	heldOutInText(g, n, &a)
	heldOutInBase64(g, n, &a)
	heldOutInNumbers(g, n, &a)
	heldOutInContainers(g, n, &a)
	heldOutNodePassword(g, n, &a)
	return a
}

// heldOutInText is the armoured key with something done to its lines.
func heldOutInText(g *gen, n node, a *plants) {
	const kind = "own key, armour in text"
	add := func(path, wrap, text string) { a.add(kind, identity, path, wrap, text) }
	client, serving, host := n.clientPEM(g), rsaPEM(n.serving), n.hostPEM(g)
	add("etc/envoy/envoy.yaml", "inline_string of Envoy",
		"static_resources:\n  listeners:\n  - name: metrics\n    filter_chains:\n    - transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n          common_tls_context:\n            tls_certificates:\n            - private_key:\n                inline_string: "+heldOutQuoted(string(client))+"\n")
	add("opt/haproxy/certs/node.pem", "certificate and key with CRLF",
		strings.ReplaceAll(string(g.certificate(donorName, "", n.client))+string(client), "\n", "\r\n"))
	add("srv/salt/pillar/node.sls", "indented deeply in YAML", "node:\n  pki:\n    kubelet:\n      client:\n        key: |\n"+indent(client, "          "))
	add("usr/local/sbin/restore-kubelet", "heredoc with tabs",
		"#!/bin/sh\nset -e\nif [ ! -e /var/lib/kubelet/pki ]; then\n\tcat > /var/lib/kubelet/pki/k.pem <<-'EOF'\n"+indent(client, "\t\t")+"\tEOF\nfi\n")
	add("usr/lib/node/seed.bash", "ANSI-C string of bash", "key=$'"+strings.ReplaceAll(string(client), "\n", `\n`)+"'\nprintf %s \"$key\" > /run/k.pem\n")
	add("opt/node/settings.json", "JSON within a string of JSON",
		g.jsonOf(map[string]string{"name": "kubelet", "spec": g.jsonOf(map[string]string{"tls.key": string(client)})}))
	add("etc/default/node-agent", "line ends became spaces", "NODE_KEY=\""+strings.TrimSpace(strings.ReplaceAll(string(client), "\n", " "))+"\"\n")
	add("home/azureuser/mail/sent", "quoted-printable in a mailbox",
		"From root@"+donorName+" Fri Nov 20 07:10:00 2026\nSubject: key\nMIME-Version: 1.0\nContent-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\nhere it is:\n\n"+strings.ReplaceAll(string(client), "=", "=3D")+"\n")
	add("opt/ignition/config.ign", "percent-encoded data URL",
		`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/kubelet.key","mode":384,"contents":{"source":"data:,`+heldOutPercent(client)+`"}}]}}`+"\n")
	add("etc/ssl/private/bundle.pem", "attributes of openssl pkcs12 before PKCS#8",
		"Bag Attributes\n    friendlyName: kubelet\n    localKeyID: "+strings.ToUpper(strings.Join(lines(g.hex(40), 2), " "))+" \nKey Attributes: <No Attributes>\n"+string(g.pkcs8PEM(n.serving)))
	add("etc/cloud/cloud.cfg.d/99-ssh-keys.cfg", "ssh_keys of cloud-init",
		"#cloud-config\nssh_deletekeys: false\nssh_keys:\n  ed25519_private: |\n"+indent(host, "    ")+"  ed25519_public: "+g.sshPublic(n.hostEd))
	list := strings.Split(strings.TrimSuffix(string(host), "\n"), "\n")
	add("opt/packer/host.json", "list of lines in JSON", g.jsonOf(map[string]any{"path": "/etc/ssh/ssh_host_ed25519_key", "lines": list}))
	rsaHost := n.hostRSAPEM(g)
	add("root/etc.diff", "added lines of a patch",
		fmt.Sprintf("diff --git a/ssh/ssh_host_rsa_key b/ssh/ssh_host_rsa_key\nnew file mode 100600\n--- /dev/null\n+++ b/ssh/ssh_host_rsa_key\n@@ -0,0 +1,%d @@\n", strings.Count(string(rsaHost), "\n"))+
			heldOutEach(rsaHost, func(int) string { return "+" }))
	add("opt/node/logs/boot.txt", "time and program before each line",
		heldOutEach(host, func(i int) string { return fmt.Sprintf("2026-11-20T07:01:%02dZ cloud-init[812]: ", i) }))
	add("usr/share/node/serving.rtf", "lines end in \\par",
		`{\rtf1\ansi\deff0 {\fonttbl {\f0 Courier;}}`+"\n"+strings.ReplaceAll(string(serving), "\n", "\\par\n")+"}\n")
	*a = append(*a, plant{kind, identity, "home/azureuser/key.txt", "UTF-16 with a mark and CRLF", heldOutUTF16(string(client))})
}

// heldOutInBase64 is the key in base64 of many widths and depths.
func heldOutInBase64(g *gen, n node, a *plants) {
	const kind = "own key, in base64"
	add := func(path, wrap, text string) { a.add(kind, identity, path, wrap, text) }
	client, serving, host := n.clientPEM(g), rsaPEM(n.serving), n.hostPEM(g)
	embedded := kubeconfig("default-auth", "client-certificate-data: "+data(g.certificate("system:node:"+donorName, "system:nodes", n.client))+"\n    client-key-data: "+data(client))
	add("root/kubelet.conf.bak", "client-key-data", embedded)
	add("var/backups/kubelet-conf.json", "kubectl config view --raw -o json", g.jsonOf(map[string]any{"apiVersion": "v1", "kind": "Config",
		"users": []any{map[string]any{"name": "default-auth", "user": map[string]string{"client-key-data": data(client)}}}}))
	add("usr/local/bin/firstboot.sh", "base64 of a kubeconfig with base64", "#!/bin/sh\necho "+data([]byte(embedded))+" | base64 -d > /etc/kubernetes/kubelet.conf\n")
	add("usr/share/node/restore.py", "strings of Python side by side",
		"import base64\nKEY = (\n"+heldOutWrapped(client, 60, "    \"", "\"\n")+")\nopen(\"/run/key.pem\", \"wb\").write(base64.b64decode(KEY))\n")
	add("etc/cloud/cloud.cfg.d/90-restore.cfg", "gz+b64 of write_files",
		"#cloud-config\nwrite_files:\n- path: /var/lib/kubelet/pki/k.pem\n  permissions: '0600'\n  encoding: gz+b64\n  content: "+data(g.gzip(client))+"\n")
	add("etc/cloud/cloud.cfg.d/91-files.cfg", "!!binary of YAML", "#cloud-config\nwrite_files:\n- path: /etc/node.pem\n  content: !!binary |\n"+heldOutWrapped(client, 76, "    ", "\n"))
	add("usr/local/share/pki.tar.b64", "a tar in one line", data(g.tar("pki/kubelet.der", g.sec1(n.client)))+"\n")
	doc := g.jsonOf(map[string]string{"host": donorName, "serving": string(serving)})
	add("home/azureuser/export.b64u", "base64url of JSON, 100 columns", strings.Join(lines(base64.RawURLEncoding.EncodeToString([]byte(doc)), 100), "\n")+"\n")
	add("root/host_key.uue", "uuencode -m", "begin-base64 600 ssh_host_ed25519_key\n"+heldOutWrapped(host, 60, "", "\n")+"====\n")
	add("usr/lib/node/odd.env", "19 columns with continuation", "KEY=\\\n"+heldOutWrapped(g.pkcs8(n.serving), 19, "", "\\\n")+"\n")
	add("opt/terraform/main.tf.json", "user data with a MIME part", g.jsonOf(map[string]any{"resource": map[string]any{"azurerm_linux_virtual_machine_scale_set": map[string]any{"pool1": map[string]string{
		"custom_data": data([]byte("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n\n--b\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n" + heldOutWrapped([]byte("write_files:\n- path: /k\n  content: |\n"+indent(client, "    ")), 76, "", "\n") + "--b--\n"))}}}}))
}

// heldOutInNumbers is the key's numbers without PEM or DER about them, and DER.
func heldOutInNumbers(g *gen, n node, a *plants) {
	const kind = "own key, its numbers or DER"
	add := func(path, wrap string, data []byte) { *a = append(*a, plant{kind, identity, path, wrap, data}) }
	seed := n.hostEd.Seed()
	add("usr/lib/node/client.der", "SEC 1", g.sec1(n.client))
	add("opt/node/serving.pk8", "PKCS#8", g.pkcs8(n.serving))
	add("etc/ssl/private/client.p12", "PKCS#12, -keypbe NONE", g.plainPFX(n.client))
	add("opt/node/client.jwk", "JWK, P-256", []byte(heldOutECJWK(g, n.client)))
	add("opt/node/jwks-private.json", "JWKS, RSA", []byte(heldOutRSAJWK(g, n.serving)))
	add("root/client-key.txt", "openssl ec -text", []byte(heldOutECText(g, n.client)))
	add("root/serving-key.txt", "openssl rsa -text", []byte(heldOutRSAText(n.serving)))
	add("root/client.xxd", "xxd of DER", []byte(heldOutXXD(g.sec1(n.client))))
	add("root/client-pem.xxd", "xxd of PEM", []byte(heldOutXXD(n.clientPEM(g))))
	add("root/client.od", "od -An -tx1", []byte(heldOutOD(g.pkcs8(n.client))))
	add("usr/src/node/client_der.h", "xxd -i", []byte(heldOutC("client_der", g.sec1(n.client))))
	add("etc/tinyssh/sshkeydir/.ed25519.sk", "64 bytes of TinySSH", n.hostEd)
	add("etc/dropbear/dropbear_ed25519_host_key", "Dropbear, Ed25519", heldOutDropbearEd(n.hostEd))
	add("etc/dropbear/dropbear_rsa_host_key", "Dropbear, RSA", heldOutDropbearRSA(n.hostRSA))
	add("root/host.ppk", "PuTTY, version 3", g.putty(n.hostEd, "root@"+donorName))
	add("opt/node/identity.toml", "seed in hex", []byte("[host]\nname = \""+donorName+"\"\ned25519_seed = \""+hex.EncodeToString(seed)+"\"\n"))
	statement := "INSERT INTO kine VALUES(4711,'/registry/secrets/kube-system/node-tls',1,0,4711,0,NULL,X'"
	value := slices.Concat([]byte("k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\xf2\x02\n\x07tls.key\x12\xe3\x01"), n.clientPEM(g), []byte("\x1a\x06Opaque\x1a\x00\"\x00"))
	add("root/state.sql", "BLOB in a dump of SQLite", []byte("PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n"+statement+strings.ToUpper(hex.EncodeToString(value))+"',NULL);\nCOMMIT;\n"))
	// Go's math/big and OpenSSL keep a number's words with the lowest first.
	prime := n.serving.Primes[0].Bytes()
	slices.Reverse(prime)
	add("var/crash/kubelet.core", "a prime in memory, lowest word first", heldOutCore(g, 1<<20, 777_216, prime))
}

// heldOutInContainers is the key in files that hold files.
func heldOutInContainers(g *gen, n node, a *plants) {
	const kind = "own key, in an archive or image of memory"
	add := func(path, wrap string, data []byte) { *a = append(*a, plant{kind, identity, path, wrap, data}) }
	client, host := n.clientPEM(g), n.hostPEM(g)
	add("var/backups/pki.tgz", "tar.gz", g.gzip(g.tar("var/lib/kubelet/pki/kubelet-client-current.pem", client)))
	add("root/keys.zip", "zip, deflated", g.zip("ssh_host_rsa_key", n.hostRSAPEM(g), zip.Deflate))
	add("root/.kubelet.pem.swp", "swap file of Vim", heldOutSwap("/root/kubelet.pem", client))
	conf := kubeconfig("default-auth", "client-key-data: "+data(client))
	path, object := heldOutGitObject(g, []byte(conf))
	add("etc/.git/"+path, "object of etckeeper", object)
	path, object = heldOutGitObject(g, host)
	add("srv/backup/etc.git/"+path, "object of a bare repository", object)
	add("boot/initrd.img-6.8.0-49-azure", "cpio of dropbear-initramfs", heldOutCPIO("etc/dropbear/ssh_host_ed25519_key", host))
	add("boot/initrd-rescue.img", "cpio.gz", g.gzip(heldOutCPIO("etc/kubernetes/kubelet.pem", client)))
	add("var/crash/sshd.core", "core, over the border of 1 MiB", heldOutCore(g, 3<<20, 1<<20-200, host))
	layer := g.gzip(g.tar("root/.kube/node.pem", client))
	sum := sha256.Sum256(layer)
	add("var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/"+hex.EncodeToString(sum[:]), "image layer", layer)
	library := heldOutCore(g, 200_000, 65_536-31, append(client, 0))
	library[16] = 3 // a shared object
	add("usr/lib/x86_64-linux-gnu/libnode.so.1", "constant of a library", library)
	add("srv/backup/node.tar", "tar with a gzip in it", g.tar("pki.pem.gz", g.gzip(client)))
}

func heldOutNodePassword(g *gen, n node, a *plants) {
	const kind = "own node password"
	add := func(path, wrap, text string) { a.add(kind, identity, path, wrap, text) }
	add("usr/local/share/k3s/old", "alone", n.password+"\n")
	add("opt/node/join.http", "header of a request", "GET /v1-k3s/serving-kubelet.crt HTTP/1.1\r\nHost: 10.0.0.1:6443\r\nK3s-Node-Name: "+donorName+"\r\nK3s-Node-Password: "+n.password+"\r\n\r\n")
	add("opt/node/secret.yaml", "base64 of JSON in a Secret", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: k\ndata:\n  node.json: "+data([]byte(`{"name":"`+donorName+`","password":"`+n.password+`"}`))+"\n")
	add("opt/node/basic.conf", "after a name in base64", "header = \"Authorization: Basic "+data([]byte("node:"+n.password))+"\"\n")
	*a = append(*a, plant{kind, identity, "srv/backup/rancher.tgz", "tar.gz", g.gzip(g.tar("etc/rancher/node/password", []byte(n.password+"\n")))})
}
