package secrets

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// nearMisses are files that look like secrets and hold none.
func nearMisses(g *gen, n node) []plant {
	var p plants
	publicKeys(g, n, &p)
	examples(g, &p)
	identifiers(g, &p)
	references(g, &p)
	return p
}

func publicKeys(g *gen, n node, p *plants) {
	add := func(path, wrap, text string) { p.add("public key or certificate", other, path, wrap, text) }
	key := g.ec()
	cert := g.certificate("site.example", "", key)
	public := strings.TrimSpace(g.sshPublic(g.ed()))
	add("etc/ssl/certs/site.pem", "certificate", string(cert))
	add("etc/ssl/certs/bundle.crt", "bundle of certificates", strings.Repeat(string(cert), 5))
	add("etc/kubernetes/certs/ca.crt", "CA's certificate", string(g.certificate("kubernetes-ca", "", g.ec())))
	add("opt/tls/donor.crt", "certificate of the donor's key in another place", string(g.certificate("node", "", n.client)))
	add("opt/tls/donor.pub.pem", "public key of the donor's key", string(armor("PUBLIC KEY", g.public(&n.client.PublicKey))))
	add("opt/tls/serving.pub.b64", "public key, RSA, in base64", data(g.public(&n.serving.PublicKey))+"\n")
	add("etc/ssh/ssh_known_hosts", "known hosts", "github.com "+public+"\n|1|"+g.b64(20)+"|"+g.b64(20)+" "+public+"\n")
	add("etc/ssh/trusted_ca.pub", "public key of an SSH CA", public+" ca@example\n")
	add("etc/kubernetes/trust.yaml", "CA in a kubeconfig without user", "clusters:\n- cluster:\n    certificate-authority-data: "+data(cert)+"\n  name: c\n")
	add("opt/tls/request.csr", "request for a certificate", "-----BEGIN CERTIFICATE REQUEST-----\n"+strings.Join(lines(g.b64(280), 64), "\n")+"\n-----END CERTIFICATE REQUEST-----\n")
	add("usr/share/keyrings/repo.asc", "public PGP key", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"+strings.Join(lines(g.b64(900), 64), "\n")+"\n=ab12\n-----END PGP PUBLIC KEY BLOCK-----\n")
	add("usr/share/keyrings/repo.gpg", "public PGP key, binary", "\x99\x02\x0d\x04"+string(g.bytes(1000)))
	add("usr/share/doc/x/Release.gpg", "PGP signature", "-----BEGIN PGP SIGNATURE-----\n\n"+strings.Join(lines(g.b64(500), 64), "\n")+"\n-----END PGP SIGNATURE-----\n")
	add("etc/ssl/dhparam.pem", "DH parameters", "-----BEGIN DH PARAMETERS-----\n"+strings.Join(lines(g.b64(268), 64), "\n")+"\n-----END DH PARAMETERS-----\n")
	add("etc/wireguard/peers.conf", "WireGuard's peer without a secret", "[Peer]\nPublicKey = "+g.b64(32)+"\nAllowedIPs = 10.9.0.0/24\n")
	add("opt/keys/jwks.json", "JWKS of public keys", fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"%s","n":"%s","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"%s","y":"%s"}]}`, g.b64u(20), g.b64u(256), g.b64u(32), g.b64u(32)))
	add("opt/keys/recipients.txt", "age's recipient", "age1"+g.of("qpzry9x8gf2tvdw0s3jn54khce6mua7l", 58)+"\n")
	add("opt/keys/minisign.pub", "minisign's public key", "untrusted comment: minisign public key\nRW"+g.b64(40)+"\n")
	add("opt/keys/cosign.pub", "cosign's public key", string(armor("PUBLIC KEY", g.public(&key.PublicKey))))
	add("opt/keys/unlocked.hint", "names of PEM's lines in a script", "grep -q 'BEGIN RSA PRIVATE KEY' \"$1\" && echo 'this is a private key'\n")
}

func examples(g *gen, p *plants) {
	add := func(path, wrap, text string) { p.add("example or placeholder", other, path, wrap, text) }
	add("opt/app/.env.example", "dotenv's example", "DB_PASSWORD=changeme\nAPI_TOKEN=your-token-here\nSECRET_KEY=<secret>\nSTRIPE_SECRET_KEY=sk_live_xxxxxxxxxxxxxxxxxxxxxxxx\n")
	add("opt/app/config.tmpl", "Go's template", "password: {{ .Values.db.password | quote }}\ntoken: {{ required \"token\" .Values.token }}\n")
	add("opt/ansible/roles/app/templates/app.j2", "Jinja's template", "db_password={{ vault_db_password }}\napi_key = \"{{ lookup('env', 'API_KEY') }}\"\n")
	add("etc/default/telegraf", "comments only", "# INFLUX_TOKEN=\"\"\n# PASSWORD=secret\n")
	add("etc/containerd/example.toml", "an example commented out", "#[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"gcr.io\".auth]\n#  username = \"\"\n#  password = \"\"\n")
	add("usr/share/doc/kubeadm/README.md", "kubeadm's example", "Run `kubeadm join --token abcdef.0123456789abcdef 10.0.0.1:6443 --discovery-token-ca-cert-hash sha256:1234..cdef`\n")
	add("usr/share/doc/aws/README", "AWS's example", "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE\nexport AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n")
	add("usr/share/doc/azure/storage.md", "Azure's example", "DefaultEndpointsProtocol=https;AccountName=<account>;AccountKey=<key>;EndpointSuffix=core.windows.net\n")
	add("usr/share/doc/jwt/README.md", "the example of jwt.io", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c\n")
	add("usr/share/doc/curl/manual.txt", "curl's manual", "curl -u name:passwd https://example.com\ncurl ftp://user:passwd@my.site.com/README\n")
	add("usr/share/man/man5/netrc.5.txt", "a page of the manual", "machine host.domain.com login myself password secret\n")
	add("usr/share/doc/openssh/PROTOCOL.key", "description of a format", "#define AUTH_MAGIC      \"openssh-key-v1\"\n\n-----BEGIN OPENSSH PRIVATE KEY-----\nbase64...\n-----END OPENSSH PRIVATE KEY-----\n")
	add("usr/share/doc/mysql/my.cnf", "an example of my.cnf", "[client]\n#password = your_password\nport = 3306\n")
	add("etc/rancher/k3s/config.yaml.example", "k3s' placeholder", "server: https://my.server:6443\ntoken: \"<your-token>\"\n")
	add("opt/join.sh.tpl", "placeholders in a script", "kubeadm join ${ENDPOINT} --token ${TOKEN} --discovery-token-ca-cert-hash ${HASH}\n")
	add("opt/terraform/variables.tf", "Terraform's variable", "variable \"client_secret\" {\n  type      = string\n  sensitive = true\n}\nprovider \"azurerm\" {\n  client_secret = var.client_secret\n}\n")
	add("opt/app/test_auth.py", "a test's password", "def test_login(client):\n    client.login(username='admin', password='password')\n")
	add("etc/nginx/conf.d/auth.conf", "names of files", "auth_basic \"Restricted\";\nauth_basic_user_file /etc/nginx/.htpasswd;\nssl_certificate_key /etc/ssl/private/site.key;\n")
	add("opt/app/schema.json", "JSON schema", `{"properties":{"password":{"type":"string","format":"password","minLength":12},"token":{"type":"string","pattern":"^[a-z0-9]{6}\\.[a-z0-9]{16}$"}}}`)
	add("etc/redacted.yaml", "hidden values", "password: '********'\ntoken: REDACTED\nsecret: [hidden]\n")
}

func identifiers(g *gen, p *plants) {
	add := func(path, wrap, text string) { p.add("digest or identifier", other, path, wrap, text) }
	sri := func() string { return "sha512-" + g.b64(64) }
	add("opt/app/package-lock.json", "npm's lock file", `{"lockfileVersion":3,"packages":{"node_modules/a":{"version":"1.0.0","resolved":"https://npm.example.org/a/-/a-1.0.0.tgz","integrity":"`+sri()+`"},"node_modules/js-tokens":{"version":"4.0.0","integrity":"`+sri()+`"}}}`)
	add("opt/app/yarn.lock", "yarn's lock file", "js-tokens@^4.0.0:\n  version \"4.0.0\"\n  resolved \"https://registry.yarnpkg.com/js-tokens/-/js-tokens-4.0.0.tgz#"+g.hex(40)+"\"\n  integrity "+sri()+"\n")
	add("opt/app/go.sum", "go.sum", "github.com/x/oauth2 v0.30.0 h1:"+g.b64(32)+"\ngithub.com/x/oauth2 v0.30.0/go.mod h1:"+g.b64(32)+"\n")
	add("opt/app/Cargo.lock", "cargo's lock file", "[[package]]\nname = \"secrecy\"\nversion = \"0.10.3\"\nchecksum = \""+g.hex(64)+"\"\n")
	add("opt/app/poetry.lock", "poetry's lock file", "[[package]]\nname = \"keyring\"\nfiles = [\n    {file = \"keyring-25.tar.gz\", hash = \"sha256:"+g.hex(64)+"\"},\n]\n")
	add("opt/app/composer.lock", "composer's lock file", `{"content-hash":"`+g.hex(32)+`","packages":[{"name":"paragonie/random","dist":{"reference":"`+g.hex(40)+`"}}]}`)
	add("var/lib/dpkg/info/libsecret.md5sums", "sums of a package", strings.Repeat(g.hex(32)+"  usr/share/doc/libsecret/copyright\n", 9))
	add("opt/SHA256SUMS", "sums", g.hex(64)+"  passwords.tar.gz\n"+g.hex(64)+" *token-tool\n")
	add("opt/images.txt", "images by digest", "registry.k8s.io/pause@sha256:"+g.hex(64)+"\nmcr.microsoft.com/oss/x:1@sha256:"+g.hex(64)+"\n")
	add("opt/ids.json", "identifiers of Azure", `{"subscriptionId":"`+g.uuid()+`","tenantId":"`+g.uuid()+`","clientId":"`+g.uuid()+`","keyVaultSecretId":"https://v.vault.azure.net/secrets/db/`+g.hex(32)+`"}`)
	add("etc/azure-identity.json", "azure.json with a managed identity", `{"useManagedIdentityExtension":true,"userAssignedIdentityID":"`+g.uuid()+`","aadClientId":"msi","aadClientSecret":"msi"}`)
	add("opt/repo/.git/packed-refs", "git's refs", "# pack-refs with: peeled fully-peeled sorted \n"+g.hex(40)+" refs/heads/main\n"+g.hex(40)+" refs/tags/token-v1\n")
	add("opt/app/index.html", "integrity of a page", `<script src="https://cdn.example/jquery.min.js" integrity="sha384-`+g.b64(48)+`" crossorigin="anonymous"></script>`)
	add("opt/app/style.css", "an image in a page", "a{background:url(data:image/png;base64,iVBORw0KGgoAAAANSUhEUg"+g.b64(600)+")}\n")
	add("opt/app/font.js", "a font in a script", "const tokenFont='data:font/woff2;base64,d09GMgABAAAAA"+g.b64(3000)+"';\n")
	add("opt/app/main.js.map", "map of a script", `{"version":3,"mappings":"`+strings.Repeat("AAAA,SAASA,GAAG,CAACC,KAAK;", 90)+`","names":["password","token","apiKey"]}`)
	add("opt/app/main.min.js", "minified script", "function l(e){return{password:e.password,token:e.token,secret:null}}var apiKey=process.env.API_KEY||\"\";"+strings.Repeat("function a(b){return b.token?b.token.length:0}", 50)+"\n")
	add("var/lib/app/random.bin", "random bytes", string(g.bytes(100_000)))
	add("var/lib/app/random.b64", "random bytes in base64", strings.Join(lines(g.b64(30_000), 76), "\n")+"\n")
	add("usr/lib/python3/dist-packages/x-1.dist-info/RECORD", "Python's RECORD", "x/token.py,sha256="+g.b64u(32)+",1200\nx/secrets.py,sha256="+g.b64u(32)+",900\n")
	add("opt/hex/table.h", "table of numbers", "static const unsigned char sbox[] = {\n"+indent([]byte(hexTable(g.bytes(512))), "  ")+"};\n")
}

func references(g *gen, p *plants) {
	add := func(path, wrap, text string) { p.add("name or reference", other, path, wrap, text) }
	add("etc/systemd/system/app.service", "a unit with variables", "[Service]\nEnvironmentFile=/etc/default/app\nLoadCredential=token:/run/credentials/token\nExecStart=/usr/bin/app --token=${API_TOKEN} --password-file=%d/password\n")
	add("etc/systemd/system/refresh.service", "paths of tokens", "[Service]\nEnvironment=TOKEN_FILE=/run/secrets/token\nEnvironment=AZURE_CLIENT_ID="+g.uuid()+"\nExecStart=/usr/bin/refresh\n")
	add("opt/scripts/login.sh", "password from elsewhere", "#!/bin/sh\nPASSWORD=\"$(az keyvault secret show --vault-name v --name db --query value -o tsv)\"\nTOKEN=$(curl -s -H Metadata:true 'http://169.254.169.254/metadata/identity/oauth2/token?resource=x' | jq -r .access_token)\ncurl -u \"$USER:$PASSWORD\" -H \"Authorization: Bearer $TOKEN\" https://api.example\n")
	add("opt/scripts/docker.sh", "login from a variable", "echo \"$REGISTRY_PASSWORD\" | docker login -u \"$REGISTRY_USER\" --password-stdin reg.example\n")
	add("opt/manifests/ref.yaml", "secretKeyRef", "env:\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db\n      key: password\nimagePullSecrets:\n- name: registry-token\n")
	add("opt/manifests/rbac.yaml", "rules for secrets", "kind: Role\nrules:\n- apiGroups: [\"\"]\n  resources: [secrets, serviceaccounts/token]\n  verbs: [get, create]\n")
	add("opt/manifests/bundle.yaml", "ConfigMap of kube-root-ca", "kind: ConfigMap\ndata:\n  ca.crt: |\n"+indent(g.certificate("kubernetes", "", g.ec()), "    "))
	add("etc/pam.d/common-password", "PAM", "password [success=1 default=ignore] pam_unix.so obscure use_authtok try_first_pass yescrypt\npassword requisite pam_deny.so\n")
	add("etc/login.defs", "login.defs", "PASS_MAX_DAYS 99999\nPASS_WARN_AGE 7\nENCRYPT_METHOD SHA512\n")
	add("etc/security/pwquality.conf", "pwquality", "# minlen = 8\ndictpath = /usr/share/dict\n")
	add("usr/share/i18n/passwords.po", "translations", "msgid \"Enter password: \"\nmsgstr \"Passwort eingeben: \"\nmsgid \"Invalid token\"\nmsgstr \"Ungültiges Token\"\n")
	add("usr/share/bash-completion/completions/app", "completions", "opts='--token= --password= --secret-key= --client-secret='\nCOMPREPLY=( $(compgen -W \"$opts\" -- \"$cur\") )\n")
	add("usr/lib/python3/dist-packages/auth.py", "a library", "class Auth:\n    def __init__(self, username, password=None, token=None):\n        self.password = password\n        self.token = token or os.environ.get('AUTH_TOKEN')\n        self.headers = {'Authorization': 'Bearer ' + self.token}\n")
	add("usr/share/vim/syntax/ssh.vim", "words of a syntax", "syn keyword sshKeyword PasswordAuthentication PubkeyAuthentication IdentityFile HostKey\n")
	add("var/lib/dpkg/packages.list", "names of packages", "libsecret-1-0 install\npassword-store install\ngnome-keyring install\nlibpam-cap install\napg-token-tools install\n")
	add("etc/cloud/templates/users.tmpl", "cloud-init without passwords", "#cloud-config\nusers:\n- name: ops\n  lock_passwd: true\n  ssh_authorized_keys:\n  - "+strings.TrimSpace(g.sshPublic(g.ed()))+"\nssh_pwauth: false\n")
	add("etc/shadow.template", "locked accounts", "root:*:19000:0:99999:7:::\ndaemon:!:19000:0:99999:7:::\nsshd:!*:19000::::::\n")
	add("opt/notes/words.txt", "base64 of plain text", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 9)))+"\n")
	add("opt/app/errors.go", "texts of errors", "var ErrToken = errors.New(\"token: invalid signature\")\nconst msg = \"password=%s is too short\"\n")
	add("etc/kubernetes/kubelet.conf.d/10-x.conf", "names of files in a kubeconfig", kubeconfig("a", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"))
	add("etc/kubernetes/exec.kubeconfig", "exec in a kubeconfig", kubeconfig("a", "exec: {apiVersion: client.authentication.k8s.io/v1, command: kubelogin, args: [get-token, --login, msi]}"))
	add("var/log/ancestry-notes.log", "a log's words", "token expired; password prompt shown; secret \"db\" not found in namespace \"app\"\n")
}

func hexTable(raw []byte) string {
	var b strings.Builder
	for i, c := range raw {
		fmt.Fprintf(&b, "0x%02x,", c)
		if i%12 == 11 {
			b.WriteString("\n")
		}
	}
	return b.String() + "\n"
}
