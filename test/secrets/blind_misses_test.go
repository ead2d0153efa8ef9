package secrets

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"
)

// blindMisses are files that look like secrets and hold none.
func blindMisses(g *gen, n node) []plant {
	var p plants
	add := func(path, wrap, text string) { p.add("near miss", other, path, wrap, text) }
	certificate := string(g.certificate("node-agent", "", g.ec()))
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	// Public halves, digests and identifiers.
	add("etc/ssl/certs/agent.pem", "a certificate", certificate)
	add("etc/ssh/known_hosts.d/fleet", "public keys of hosts", "n "+g.sshPublic(n.hostEd))
	add("etc/ssh/sshd_hostkeys.pub", "the donor's public keys", g.sshPublic(n.hostRSA))
	add("etc/app/client.pub", "a public key in PEM", string(armor("PUBLIC KEY", g.public(n.client.Public()))))
	add("etc/app/request.csr", "a request", string(armor("CERTIFICATE REQUEST", g.bytes(400))))
	add("etc/app/dh.pem", "parameters", string(armor("DH PARAMETERS", g.bytes(268))))
	add("etc/app/ec.pem", "parameters of a curve", string(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}})))
	add("etc/app/jwks.json", "public JWK", g.jsonOf(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "x": g.b64u(32), "y": g.b64u(32), "kid": g.b64u(8)}}}))
	add("etc/wireguard/peers.conf", "public keys of peers", "[Peer]\nPublicKey = "+g.b64(32)+"\nAllowedIPs = 10.9.0.0/24\n")
	add("etc/app/age.pub", "an age recipient", "age1"+g.of("qpzry9x8gf2tvdw0s3jn54khce6mua7l", 58)+"\n")
	add("etc/app/fingerprints", "fingerprints of keys", "SHA256:"+base64.RawStdEncoding.EncodeToString(g.bytes(32))+" root@n (ED25519)\n")
	add("opt/app/go.sum", "go.sum", "golang.org/x/sys v0.30.0 h1:"+g.b64(32)+"\ngolang.org/x/sys v0.30.0/go.mod h1:"+g.b64(32)+"\n")
	add("opt/app/package-lock.json", "integrity", g.jsonOf(map[string]any{"packages": map[string]any{"node_modules/a": map[string]string{"version": "1.2.3", "integrity": "sha512-" + g.b64(64)}}}))
	add("opt/app/Cargo.lock", "checksums", "[[package]]\nname = \"token\"\nversion = \"1.0.0\"\nchecksum = \""+g.hex(64)+"\"\n")
	add("opt/app/poetry.lock", "hashes", "files = [\n  {file = \"secretstorage-3.3.3-py3-none-any.whl\", hash = \"sha256:"+g.hex(64)+"\"},\n]\n")
	add("opt/app/SHA256SUMS", "sums", g.hex(64)+"  keytool\n"+g.hex(64)+"  password-store.tar.gz\n")
	add("opt/app/.git/packed-refs", "commits", "# pack-refs with: peeled fully-peeled sorted\n"+g.hex(40)+" refs/heads/main\n")
	add("opt/app/image.txt", "an image by digest", "registry.example.org/token-service@sha256:"+g.hex(64)+"\n")
	add("etc/app/ids.yaml", "UUIDs", "subscriptionId: "+g.uuid()+"\ntenantId: "+g.uuid()+"\nclientId: "+g.uuid()+"\nkeyVaultKeyId: "+g.uuid()+"\n")
	add("etc/default/grub.d/50-cloudimg.cfg", "a kernel's command line", "GRUB_CMDLINE_LINUX=\"root=PARTUUID="+g.uuid()+" console=ttyS0\"\n")
	// Names of secrets without a value, with a reference, or with what stands for one.
	add("opt/app/values.yaml", "names of Secrets", "auth:\n  existingSecret: db-credentials\n  secretKeys:\n    adminPasswordKey: postgres-password\n  passwordFile: /run/secrets/db\n")
	add("opt/app/deploy.yaml", "secretKeyRef", "env:\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef: {name: db, key: password}\n")
	add("opt/app/compose.yaml", "a variable", "services:\n  db:\n    environment:\n      POSTGRES_PASSWORD: ${DB_PASSWORD:?set it}\n      POSTGRES_PASSWORD_FILE: /run/secrets/db\n")
	add("opt/app/run.sh", "asks for it", "#!/bin/bash\nread -rsp 'Password: ' PASSWORD\ncurl -u \"deploy:$PASSWORD\" https://files.example.org/\nTOKEN=$(cat /run/token)\nexport TOKEN\n")
	add("opt/app/keyvault.sh", "reads it from a vault", "PASSWORD=$(az keyvault secret show --vault-name v --name db-password --query value -o tsv)\nkubeadm join --token \"${JOIN_TOKEN}\" 10.0.0.1:6443\n")
	add("etc/app/config.ini.in", "a placeholder", "[db]\npassword = @DB_PASSWORD@\n")
	add("etc/app/a.conf", "angle brackets", "api_key = <your-api-key>\npassword = CHANGEME\n")
	add("etc/app/b.conf", "commented out", "#password = \n; secret=\n# token: \n")
	add("etc/app/c.conf", "empty", "password=\nrequirepass \"\"\ntoken: null\nsecret: ~\n")
	add("etc/app/d.conf", "stars", "password = ********\ntoken = xxxxxxxxxxxxxxxx\nkey: REDACTED\n")
	add("etc/app/e.yaml", "booleans and numbers", "disable_password: true\npasswordAuthentication: no\nmax_tokens: 4096\ntoken_ttl: 3600s\npassword_min_length: 14\nsecret_rotation: enabled\n")
	add("etc/app/f.yaml", "Jinja", "db_password: \"{{ lookup('env', 'DB_PASSWORD') }}\"\ntoken: \"{{ vault_token }}\"\n")
	add("etc/app/g.tf", "Terraform's references", "password = var.admin_password\nkey = azurerm_storage_account.a.primary_access_key\ntoken = data.external.t.result[\"token\"]\n")
	add("etc/app/h.yml", "GitHub's expressions", "env:\n  TOKEN: ${{ secrets.GITHUB_TOKEN }}\n")
	add("etc/app/vault.yml", "ansible-vault", "db_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n"+indent([]byte(hexLines([]byte(g.hex(120)), 80)), "  "))
	add("etc/app/sops.yaml", "sops", "password: ENC[AES256_GCM,data:"+g.b64(12)+",iv:"+g.b64(32)+",tag:"+g.b64(16)+",type:str]\n")
	add("etc/app/sealed.yaml", "a SealedSecret", "kind: SealedSecret\nspec:\n  encryptedData:\n    password: Ag"+g.b64(360)+"\n")
	add("etc/app/eyaml.yaml", "eyaml", "profile::db::password: ENC[PKCS7,"+g.b64(240)+"]\n")
	add("etc/pam.d/common-password", "PAM's words", "password\t[success=1 default=ignore]\tpam_unix.so obscure use_authtok try_first_pass yescrypt\npassword\trequisite\tpam_deny.so\n")
	add("etc/login.defs", "login.defs", "PASS_MAX_DAYS\t99999\nPASS_MIN_DAYS\t0\nENCRYPT_METHOD YESCRYPT\n")
	add("etc/shadow", "locked accounts", "root:*:20410:0:99999:7:::\nsshd:!:20410::::::\nazureuser:!:20410:0:99999:7:::\n")
	add("etc/sudoers.d/90-cloud-init-users", "sudo", "azureuser ALL=(ALL) NOPASSWD:ALL\n")
	add("etc/nsswitch.conf", "nsswitch", "passwd: files systemd\nshadow: files\npublickey: nis\n")
	add("etc/kubernetes/kubelet-file.conf", "a kubeconfig of paths", kubeconfig("agent", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"))
	add("var/lib/kubelet/kubeconfig-exec", "a kubeconfig of a program", kubeconfig("aks", "exec:\n      command: kubelogin\n      args: [get-token, --login, msi, --client-id, "+g.uuid()+", --server-id, "+g.uuid()+"]"))
	add("etc/kubernetes/azure-msi.json", "a managed identity", g.jsonOf(map[string]any{"aadClientId": "msi", "aadClientSecret": "msi", "useManagedIdentityExtension": true, "userAssignedIdentityID": g.uuid()}))
	add("etc/rancher/k3s/config.yaml", "k3s without a token", "server: https://10.0.0.1:6443\ntoken-file: /run/k3s/token\nnode-taint: [a=b:NoSchedule]\n")
	add("etc/containerd/certs.d/docker.io/hosts.toml", "a mirror", "server = \"https://registry-1.docker.io\"\n[host.\"https://mirror.example.org\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"/etc/ssl/certs/ca.pem\"\n")
	add("var/lib/kubelet/config-empty.json", "a credential helper", g.jsonOf(map[string]any{"auths": map[string]any{}, "credHelpers": map[string]string{"myacr.azurecr.io": "acr-env"}, "credsStore": "secretservice"}))
	add("etc/systemd/system/app.service", "LoadCredential", "[Service]\nLoadCredential=token:/run/keys/token\nEnvironment=TOKEN_PATH=%d/token PASSWORD_PROMPT=no\nExecStart=/usr/bin/app --token-file=${CREDENTIALS_DIRECTORY}/token\n")
	add("etc/haproxy/ok.cfg", "hashed by reference", "userlist u\n  user admin password \"${ADMIN_HASH}\"\n")
	add("etc/nginx/sites-enabled/app", "paths of keys", "ssl_certificate_key /etc/ssl/private/app.key;\nauth_basic_user_file /etc/nginx/.htpasswd;\nproxy_set_header Authorization $http_authorization;\n")
	add("etc/rsyslog.d/10-tls.conf", "paths of keys", "global(DefaultNetstreamDriverKeyFile=\"/etc/ssl/private/k.pem\")\n")
	add("etc/apt/auth.conf.d/README", "an explanation", "machine HOST login USER password PASSWORD\n")
	add("opt/app/messages.properties", "texts", "login.password.label=Password\nerror.token.expired=The token has expired, sign in again\nsecret.help=Enter the client secret here\n")
	add("opt/app/schema.sql", "columns", "CREATE TABLE users (id int, password varchar(255) NOT NULL, api_token varchar(64) DEFAULT NULL);\nGRANT SELECT ON users TO app;\n")
	add("opt/app/i18n.json", "texts", g.jsonOf(map[string]string{"password": "Passwort", "forgot_password": "Passwort vergessen?", "access_token": "Zugriffstoken"}))
	add("opt/app/client.go", "code", "package app\n\ntype Config struct {\n\tPassword string `json:\"password\"`\n\tToken    string `json:\"token,omitempty\"`\n}\n\nfunc (c Config) header() string { return \"Bearer \" + c.Token }\n")
	add("opt/app/test_auth.py", "code", "def login(user, password=None, token=os.environ['TOKEN']):\n    secret = get_secret('db/password')\n    return requests.get(URL, auth=(user, password))\n")
	add("opt/app/style.css", "data URL of an image", ".a { background: url(data:image/png;base64,"+base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), g.bytes(600)...))+") }\n")
	add("opt/app/font.b64", "base64 of a font", b64Lines(append([]byte("wOF2\x00\x01\x00\x00"), g.bytes(900)...), 76, 0, ""))
	add("opt/app/trace.json", "trace ids", g.jsonOf(map[string]string{"traceparent": "00-" + g.hex(32) + "-" + g.hex(16) + "-01", "etag": "W/\"" + g.hex(40) + "\"", "nonce": g.b64(16)}))
	add("opt/app/README.rst", "an example", "Run ``curl -u user:password https://files.example.org`` and set ``API_KEY=your_key_here``.\n")
	add("opt/app/urls.txt", "URLs with users", "ssh://git@github.com/o/r.git\nhttps://user@dev.azure.com/o\nhttps://example.org:8443/?token=\n")
	add("opt/app/pem.txt", "the words of a key without one", "A file that begins with -----BEGIN PRIVATE KEY----- must be mode 0600.\n")
	add("opt/app/minified.js", "minified code", fmt.Sprintf("!function(e,t){e.password=t.password,e.token=function(n){return n.accessToken||\"\"},e.k=\"%s\".split(\"\")}(this,{});\n", strings.Join([]string{lower, upper, digits}, "")))
	add("opt/app/arm.json", "ARM's parameters", g.jsonOf(map[string]any{"parameters": map[string]any{"adminPassword": map[string]any{"type": "securestring", "metadata": map[string]string{"description": "Password of the admin"}}}, "variables": map[string]string{"key": "[listKeys(variables('id'), '2023-01-01').keys[0].value]"}}))
	add("opt/app/hash.py", "another machine's id", "MACHINE = '"+sum(g.bytes(8))[:32]+"'\n")
	return p
}
