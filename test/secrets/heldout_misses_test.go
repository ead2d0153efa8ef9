package secrets

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// heldOutMisses is files of clean systems that look like secrets and are none.
func heldOutMisses(g *gen) []plant {
	var a plants
	heldOutSums(g, &a)
	heldOutPublicKeys(g, &a)
	heldOutManuals(g, &a)
	heldOutReferences(g, &a)
	return a
}

// heldOutSums is checksums, names of objects and UUIDs.
func heldOutSums(g *gen, a *plants) {
	const kind = "checksums and identifiers"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	repeat := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	add("var/lib/dpkg/info/openssl.md5sums", "md5sums", repeat(20, func(i int) string { return g.hex(32) + fmt.Sprintf("  usr/share/doc/openssl/file%d\n", i) }))
	add("var/lib/apt/lists/archive.ubuntu.com_ubuntu_dists_noble_main_binary-amd64_Packages", "list of packages", repeat(12, func(i int) string {
		return fmt.Sprintf("Package: lib%s%d\nArchitecture: amd64\nVersion: 1.%d-2\nFilename: pool/main/l/lib%d.deb\nMD5sum: %s\nSHA1: %s\nSHA256: %s\nSHA512: %s\nDescription-md5: %s\n\n", g.of(lower, 6), i, i, i, g.hex(32), g.hex(40), g.hex(64), g.hex(128), g.hex(32))
	}))
	add("usr/share/doc/agent/go.sum", "go.sum", repeat(15, func(i int) string {
		return fmt.Sprintf("github.com/example/mod%d v1.%d.0 h1:%s\ngithub.com/example/mod%d v1.%d.0/go.mod h1:%s\n", i, i, g.b64(32), i, i, g.b64(32))
	}))
	add("usr/lib/node_modules/.package-lock.json", "integrity of npm", `{"name":"x","lockfileVersion":3,"packages":{`+strings.TrimSuffix(repeat(12, func(i int) string {
		return fmt.Sprintf(`"node_modules/p%d":{"version":"1.0.%d","resolved":"https://npm.example.org/p%d/-/p%d-1.0.%d.tgz","integrity":"sha512-%s","license":"MIT"},`, i, i, i, i, i, g.b64(64))
	}), ",")+"}}\n")
	add("usr/share/images/manifest.json", "manifest of an image", g.jsonOf(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": map[string]any{"digest": "sha256:" + g.hex(64), "size": 7023},
		"layers": []any{map[string]any{"digest": "sha256:" + g.hex(64), "size": 32654}, map[string]any{"digest": "sha256:" + g.hex(64), "size": 1201}}}))
	add("etc/lvm/backup/vg0", "identifiers of LVM", "vg0 {\n\tid = \""+g.b62(6)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(6)+"\"\n\tseqno = 3\n\tformat = \"lvm2\"\n\tphysical_volumes {\n\t\tpv0 {\n\t\t\tid = \""+g.b62(6)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(4)+"-"+g.b62(6)+"\"\n\t\t}\n\t}\n}\n")
	add("opt/tool/.git/packed-refs", "commits of git", "# pack-refs with: peeled fully-peeled sorted \n"+repeat(8, func(i int) string { return fmt.Sprintf("%s refs/tags/v1.%d.0\n^%s\n", g.hex(40), i, g.hex(40)) }))
	add("boot/grub/grub.cfg", "UUIDs of GRUB", "search --no-floppy --fs-uuid --set=root "+g.uuid()+"\nlinux /boot/vmlinuz root=PARTUUID="+g.uuid()+" ro console=ttyS0\n")
	add("usr/share/icons/logo.svg", "picture in base64", `<svg xmlns="http://www.w3.org/2000/svg"><image href="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABA`+g.b64(900)+`"/></svg>`+"\n")
}

// heldOutPublicKeys is what anybody may know of key pairs.
func heldOutPublicKeys(g *gen, a *plants) {
	const kind = "public keys, certificates, signatures"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	cert := func(name string) string { return string(g.certificate(name, "Example", g.ec())) }
	add("etc/ssl/certs/ca-certificates.crt", "bundle", cert("Root A")+cert("Root B")+cert("Root C"))
	prime := g.bytes(256)
	prime[0] |= 0x80
	add("etc/ssl/dhparams.pem", "parameters of Diffie-Hellman", string(armor("DH PARAMETERS", slices.Concat([]byte{0x30, 0x82, 0x01, 0x08, 0x02, 0x82, 0x01, 0x01, 0x00}, prime, []byte{2, 1, 2}))))
	add("etc/ssh/moduli", "moduli of sshd", "20260101000000 2 6 100 2047 2 "+strings.ToUpper(g.hex(512))+"\n20260101000011 2 6 100 3071 5 "+strings.ToUpper(g.hex(768))+"\n")
	add("home/azureuser/.ssh/authorized_keys", "authorized_keys", g.sshPublic(g.ed())+g.sshPublic(g.rsa()))
	add("home/azureuser/.ssh/known_hosts", "hashed known_hosts", "|1|"+g.b64(20)+"|"+g.b64(20)+" "+g.sshPublic(g.ed())+"|1|"+g.b64(20)+"|"+g.b64(20)+" "+g.sshPublic(g.ec()))
	add("usr/share/dns/root.key", "key of the root zone", ". 172800 IN DNSKEY 257 3 8 "+g.b64(260)+" ;{id = 38696 (ksk), size = 2048b}\n. IN DS 20326 8 2 "+strings.ToUpper(g.hex(64))+"\n")
	add("etc/apt/trusted.gpg.d/vendor.asc", "public key of PGP", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"+strings.Join(lines(g.b64(780), 64), "\n")+"\n="+g.b62(4)+"\n-----END PGP PUBLIC KEY BLOCK-----\n")
	modulus := g.bytes(512)
	modulus[0] |= 0x80
	body := slices.Concat([]byte{4}, binary.BigEndian.AppendUint32(nil, uint32(issued.Unix())), []byte{1, 0x10, 0x00}, modulus, []byte{0, 17, 1, 0, 1})
	keyring := slices.Concat([]byte{0x99}, binary.BigEndian.AppendUint16(nil, uint16(len(body))), body, []byte{0xb4, 22}, []byte("Vendor <ops@vendor.io>"))
	*a = append(*a, plant{kind, other, "etc/apt/keyrings/vendor.gpg", "public key of PGP, binary", keyring})
	add("var/lib/apt/lists/vendor_InRelease", "signed index", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nOrigin: Vendor\nSuite: stable\nSHA256:\n "+g.hex(64)+" 1024 main/binary-amd64/Packages\n-----BEGIN PGP SIGNATURE-----\n\n"+strings.Join(lines(g.b64(380), 64), "\n")+"\n="+g.b62(4)+"\n-----END PGP SIGNATURE-----\n")
	add("var/lib/snapd/assertions/asserts-v0/account-key.txt", "assertion of snapd", "type: account-key\nauthority-id: canonical\npublic-key-sha3-384: "+g.b64u(48)+"\naccount-id: canonical\nname: store\nsince: 2016-04-01T00:00:00.0Z\nbody-length: 717\nsign-key-sha3-384: "+g.b64u(48)+"\n\n"+strings.Join(lines(g.b64(540), 76), "\n")+"\n\n"+strings.Join(lines(g.b64(540), 76), "\n")+"\n")
	add("etc/wireguard/peers.list", "keys of peers", "# name public-key allowed-ips\nn1 "+g.b64(32)+" 10.9.0.1/32\nn2 "+g.b64(32)+" 10.9.0.2/32\n")
	enc := base64.RawURLEncoding.EncodeToString
	add("etc/oidc/jwks.json", "keys of an issuer", g.jsonOf(map[string]any{"keys": []any{map[string]string{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": g.b64u(20), "e": "AQAB", "n": enc(g.rsa().N.Bytes())}}}))
	add("usr/share/tuf/root.json", "root of TUF", g.jsonOf(map[string]any{"signatures": []any{map[string]string{"keyid": g.hex(64), "sig": g.hex(142)}}, "signed": map[string]any{"_type": "root", "version": 9, "keys": map[string]any{g.hex(64): map[string]any{"keytype": "ecdsa", "scheme": "ecdsa-sha2-nistp256", "keyval": map[string]string{"public": "04" + g.hex(128)}}}}}))
	add("etc/kubernetes/cluster-info.yaml", "authority of a cluster", "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    certificate-authority-data: "+data([]byte(cert("kubernetes")))+"\n    server: https://10.0.0.1:6443\nusers: []\n")
}

// heldOutManuals is texts about secrets.
func heldOutManuals(g *gen, a *plants) {
	const kind = "manuals, licences, translations, examples"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	man := ".TH MYSQLDUMP 1\n.SH OPTIONS\n.PP\n\\fB\\-\\-password[=\\fR\\fB\\fIpassword\\fR\\fR\\fB]\\fR, \\fB\\-p[\\fR\\fB\\fIpassword\\fR\\fR\\fB]\\fR\n.sp\nThe password of the account\\&. If you give none after \\-\\-password=, you are asked for one\\&.\n.nf\nshell> \\fBmysqldump \\-u root \\-\\-password=\\fR\\fB\\fIyour_pass\\fR\\fR db_name\n.fi\n"
	*a = append(*a, plant{kind, other, "usr/share/man/man1/mysqldump.1.gz", "page of a manual", g.gzip([]byte(man))})
	add("usr/share/doc/kubeadm/join.md", "token of kubeadm's manual", "To join, run:\n\n    kubeadm join 1.2.3.4:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:<hash>\n\nThe token has the form `[a-z0-9]{6}.[a-z0-9]{16}`.\n")
	add("usr/share/doc/awscli/configure.rst", "keys of AWS' manual", "For example::\n\n  [default]\n  aws_access_key_id = AKIAIOSFODNN7EXAMPLE\n  aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n")
	add("usr/share/doc/stunnel/README", "armour without a key", "Put both into one file, in this order:\n\n-----BEGIN RSA PRIVATE KEY-----\n[encoded key]\n-----END RSA PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n[encoded certificate]\n-----END CERTIFICATE-----\n")
	add("usr/share/common-licenses/GPL-3-excerpt", "licence", "\"Installation Information\" for a User Product means any methods,\nprocedures, authorization keys, or other information required to install\nand execute modified versions of a covered work in that User Product from\na modified version of its Corresponding Source.\n")
	add("usr/share/locale/de/messages.json", "translation", g.jsonOf(map[string]string{"password": "Passwort", "passwordHint": "Mindestens-zwoelf-Zeichen", "token": "Zugriffstoken", "clientSecret": "Geheimer Clientschluessel", "apiKey": "API-Schluessel", "login.password.error": "Falsches Passwort"}))
	add("var/lib/dpkg/info/slapd.templates", "questions of debconf", "Template: slapd/password1\nType: password\nDescription: Administrator password:\n Please enter the password for the admin entry in your LDAP directory.\n\nTemplate: slapd/internal/adminpw\nType: password\nDescription: Encrypted admin password:\n")
	add("usr/lib/python3/dist-packages/keyring/cli.py", "program", "def get_pass(self):\n    password = getpass.getpass(\"Password for '%(username)s' in '%(service)s': \" % vars(self))\n    token = self._token or os.environ.get('KEYRING_TOKEN')\n    secret = keyring.get_password(self.service, self.username)\n    return password\n")
	add("usr/share/app/app.min.js", "minified program", "!function(e,t){var n={password:\"Password\",apiKey:e.apiKey,token:t.getToken()};function r(e){return e.password===e.passwordConfirm&&n.secretAccessKey.length>0}e.exports={clientSecret:r(n).clientSecret,auth:\"Bearer \"+n.token}}();\n")
	add("etc/mysql/mysql.conf.d/mysqld.cnf", "example in a comment", "[client]\n# password\t= your_password\nport = 3306\nsocket = /var/run/mysqld/mysqld.sock\n[mysqld]\nvalidate_password.policy = STRONG\ndefault_password_lifetime = 0\n")
	add("usr/share/doc/node/values.example.yaml", "values to fill in", "auth:\n  username: admin\n  password: \"<your-password>\"\n  clientSecret: CHANGEME\n  token: xxxxxxxxxxxxxxxxxxxx\n  apiKey: YOUR_API_KEY_HERE\n  storageKey: \"********\"\n")
}

// heldOutReferences is settings that say where a secret is or how it is treated.
func heldOutReferences(g *gen, a *plants) {
	const kind = "settings without the secret"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("etc/pam.d/common-password", "PAM", "password\trequisite\t\t\tpam_pwquality.so retry=3\npassword\t[success=1 default=ignore]\tpam_unix.so obscure use_authtok try_first_pass yescrypt\npassword\trequired\t\t\tpam_permit.so\n")
	add("etc/systemd/system/report.service", "credentials loaded by systemd", "[Service]\nLoadCredential=token:/run/credstore/report.token\nEnvironmentFile=-/run/report/password.env\nEnvironment=TOKEN_FILE=%d/token PASSWORD_COMMAND=/usr/bin/pass\nExecStart=/usr/bin/report --password-file=${CREDENTIALS_DIRECTORY}/token\n")
	add("home/azureuser/.kube/config", "kubelogin", "apiVersion: v1\nkind: Config\nusers:\n- name: clusterUser\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1beta1\n      command: kubelogin\n      args: [get-token, --login, azurecli, --server-id, "+g.uuid()+"]\n- name: pod\n  user:\n    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token\n")
	add("root/.docker/config.json", "helpers of docker", g.jsonOf(map[string]any{"auths": map[string]any{"reg.example.com": map[string]any{}}, "credsStore": "secretservice", "credHelpers": map[string]string{"acme.azurecr.io": "acr-env"}}))
	add("var/lib/kubelet/credential-provider-config.yaml", "provider of AKS", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: acr-credential-provider\n  matchImages: [\"*.azurecr.io\"]\n  defaultCacheDuration: \"10m\"\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args:\n  - /etc/kubernetes/azure.json\n")
	add("etc/kubernetes/azure.json", "managed identity", g.jsonOf(map[string]any{"cloud": "AzurePublicCloud", "tenantId": g.uuid(), "subscriptionId": g.uuid(), "aadClientId": "msi", "aadClientSecret": "msi", "useManagedIdentityExtension": true, "userAssignedIdentityID": g.uuid()}))
	add("opt/manifests/app.yaml", "references to Secrets", "apiVersion: v1\nkind: Pod\nspec:\n  imagePullSecrets:\n  - name: registry-credentials\n  containers:\n  - name: app\n    env:\n    - name: DB_PASSWORD\n      valueFrom:\n        secretKeyRef: {name: db-auth, key: password}\n    - name: TOKEN_PATH\n      value: /var/run/secrets/tokens/vault-token\n")
	add("opt/ansible/site.yml", "variables of Ansible", "- hosts: all\n  vars:\n    db_password: \"{{ vault_db_password }}\"\n    api_token: \"{{ lookup('env', 'API_TOKEN') }}\"\n  tasks:\n  - user: {name: ops, password: \"{{ ops_pw | password_hash('sha512') }}\"}\n    no_log: true\n")
	add("usr/local/sbin/rotate", "variables of sh", "#!/bin/sh\nPASSWORD=$(cat /run/secrets/db)\nTOKEN=\"${TOKEN:?TOKEN is not set}\"\nPGPASSWORD=\"$PASSWORD\" psql -h db -c 'select 1'\ncurl -H \"Authorization: Bearer ${TOKEN}\" -u \"svc:$PASSWORD\" https://api.example.com/\n")
	add("etc/shadow", "accounts without a password", "root:*:19977:0:99999:7:::\ndaemon:*:19977:0:99999:7:::\nsshd:!:19977::::::\nazureuser:!:20000:0:99999:7:::\n")
}
