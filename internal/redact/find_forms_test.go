package redact

import (
	"encoding/base64"
	"strings"
)

// formCases are forms that a held-out corpus showed missing, and what was taken for a
// secret and is none.
func formCases() []foundCase {
	keytab := "\x05\x02\x00\x00\x00\x40\x00\x02\x00\x0bEXAMPLE.ORG\x00\x04host\x00\x01n" + strings.Repeat("k7#Qz!p", 8)
	const name = "tiger-copper4520"
	return []foundCase{
		{ruleK3s, "opt/boot.sh", "curl -sfL https://get.k3s.io | K3S_URL=https://h:6443 K3S_TOKEN=«" + name + "» sh -\n", "K3S_TOKEN=$(cat /run/t) sh -\n"},
		{ruleK3s, "opt/notes.txt", "«K10" + hex32 + hex32 + "::abcdef.0123456789abcdef»\n", "K10" + hex32 + hex32 + "::\n"},
		{ruleK3s, "etc/rancher/k3s/token", "«" + name + "»\n", "/run/k3s/token\n"},
		{ruleWireGuard, "etc/wireguard/private.key", "«" + b32 + "»\n", "wg genkey\n"},
		{ruleCertificates, "opt/credentials/kubeadm_certificate_key.creds", "«" + hex32 + hex32 + "»\n", "none\n"},
		{ruleSecretFile, "etc/vault.d/secret-id", "«5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f»\n", "/run/secret-id\n"},
		{ruleSecretFile, "var/lib/tor/s/hs_ed25519_secret_key", "«== ed25519v1-secret: type0 ==\x00\x00\x00" + rnd40 + "»", "== ed25519v1-public: type0 ==\x00\x00\x00" + rnd40},
		{ruleNamed, "etc/kubernetes/token.csv", "«" + hex32 + "»,kubelet-bootstrap,10001,\"g\"\n", "token,user,uid,group\n"},
		{ruleNamed, "opt/Dockerfile", "FROM debian\nENV API_SECRET «" + rnd40 + "»\n", "FROM debian\nENV API_SECRET $API_SECRET\n"},
		{ruleNamed, "opt/decrypt.sh", "openssl enc -d -in b.enc -out b -k '«" + name + "»'\n", "openssl enc -d -in b.enc -out b -k \"$PASS\"\n"},
		{ruleNamed, "etc/fstab", "//fs.corp.io/s /mnt cifs vers=3.0,username=svc,password=«RILCnXNuDs9sTKmN»,dir_mode=0777 0 0\n", "//fs.corp.io/s /mnt cifs credentials=/etc/cifs.cred 0 0\n"},
		{ruleNamed, "etc/csh.login", "setenv DB_PASSWORD «" + name + "»\n", "setenv DB_PASSWORD_FILE /etc/db/password\n"},
		{ruleNamed, "root/.fetchmailrc", "poll h proto imap user \"u\" pass \"«" + name + "»\" ssl\n", "poll h proto imap user \"u\" pass \"$PASS\" ssl\n"},
		{ruleNamed, "srv/app/database.yml", "  password: <%= ENV.fetch('DB_PW', '«" + pw3 + "»') %>\n", "  password: <%= ENV.fetch('DB_PW', '') %>\n"},
		{ruleNamed, "srv/app/settings.py", "PW = os.environ.get(\"DB_PASSWORD\", \"«" + pw1 + "»\")\n", "DIR = os.getenv(\"SPOOL\", \"q7Rw2Lx9Zt4Kb8Vn\")\n"},
		{ruleKeytab, "opt/svc.b64", "«" + base64.StdEncoding.EncodeToString([]byte(keytab)) + "»\n", "BQIAAA\n"},
		{ruleNamed, "etc/app/a.yaml", "password: «" + name + "»\n", "password: ENC[AES256_GCM,data:" + rnd40 + ",iv:" + b32 + ",tag:" + rnd40 + ",type:str]\n"},
		{ruleNamed, "etc/app/b.tf", "password = \"«" + name + "»\"\n", "password = var.admin_password_0\n"},
		{ruleNamed, "etc/app/d.yaml", "encryptedData:\n    a: b\n---\ndata:\n    password: «" + strings.Repeat(rnd40, 9) + "»\n", "encryptedData:\n    a: b\n    password: " + strings.Repeat(rnd40, 9) + "\n"},
		{ruleNamed, "etc/app/c.yaml", "data:\n    password: «" + strings.Repeat(rnd40, 9) + "»\n", "encryptedData:\n    password: " + strings.Repeat(rnd40, 9) + "\n"},
		{ruleNamed, "etc/app/d.json", `{"password": "«` + name + `»"}`, `{"password": "Passwort"}`},
	}
}
