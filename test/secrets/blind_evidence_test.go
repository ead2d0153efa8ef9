package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// blindEvidence are groups of lines of logs, journals and consoles with secrets in them.
func blindEvidence(g *gen) []group {
	var a groups
	blindNodeLogs(g, &a)
	blindTraces(g, &a)
	blindPrinted(g, &a)
	return a
}

func blindNodeLogs(g *gen, a *groups) {
	add := func(name, format string, secrets ...string) {
		args := make([]any, len(secrets))
		for i, s := range secrets {
			args[i] = s
		}
		a.add("logs of a node: "+name, fmt.Sprintf(format, args...)+"\n", secrets...)
	}
	basic := func(password string) string { return data([]byte("puller:" + password)) }
	add("kubeadm's command line", "Nov 20 07:00:01 n kubeadm[812]: I1120 07:00:01 join.go:413] args: [join 10.0.0.1:6443 --token %s --discovery-token-unsafe-skip-ca-verification]", g.kubeadm())
	add("k3s exits", `level=fatal msg="starting kubernetes: preparing server: failed to validate token %s: https://10.0.0.1:6443/cacerts: 401"`, g.k3s())
	add("k3s's command in systemctl status", "             └─1022 /usr/local/bin/k3s agent --server https://10.0.0.1:6443 --token %s", g.b62(32))
	add("rke2's environment", "Nov 20 07:00:01 n rke2[912]: level=info msg=\"env RKE2_TOKEN=%s RKE2_URL=https://10.0.0.1:9345\"", g.b62(40))
	add("containerd's registry error", `E1120 07:00:01.000000 812 kuberuntime_image.go:55] "Failed to pull image" err="failed to fetch oauth token: Post \"https://puller:%s@registry.example.org/oauth2/token\": 401 Unauthorized"`, g.b62(32))
	add("containerd's debug of a request", `time="2026-11-20T07:00:01Z" level=debug msg="do request" request.header.authorization="Basic %s" request.method=HEAD url="https://registry.example.org/v2/"`, basic(g.password(18)))
	add("CRI-O's auth", `time="2026-11-20T07:00:01Z" level=debug msg="PullImageRequest: &PullImageRequest{Auth:&AuthConfig{Username:puller,Password:%s,Auth:,ServerAddress:,IdentityToken:,},}"`, g.password(18))
	add("waagent's protected settings", `2026-11-20T07:00:01.000000Z INFO ExtHandler Command: {"runtimeSettings":[{"handlerSettings":{"publicSettings":{},"protectedSettings":{"storageAccountKey":"%s"}}}]}`, g.storage())
	add("waagent downloads a script", "2026-11-20T07:00:01Z ERROR ExtHandler Failed to download https://acct.blob.core.windows.net/s/run.sh?sv=2024-11-04&sp=r&sr=b&se=2027-01-01T00:00:00Z&sig=%s: [Errno 110]", strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(g.b64(32)))
	add("cloud-init runs a part", "[   31.221922] cloud-init[1021]: + az login --service-principal -u 0f3b8c1e -p %s --tenant contoso", g.entra())
	add("cloud-init's random password", "ci-info: Set the following 'random' passwords\nazureuser:%s", g.b62(20))
	add("cloud-init's chpasswd module", "2026-11-20 07:00:01,022 - cc_set_passwords.py[DEBUG]: Changing password for ['ops:%s']", g.phrase())
	add("sudo's journal", "Nov 20 07:00:01 n sudo[991]: azureuser : TTY=pts/0 ; PWD=/home/azureuser ; USER=root ; COMMAND=/usr/bin/mysql -uroot -p%s -e status", g.b62(14))
	add("audit's arguments", `type=EXECVE msg=audit(1763622001.221:91): argc=4 a0="curl" a1="-u" a2="deploy:%s" a3="https://files.example.org"`, g.password(14))
	proctitle := strings.ToUpper(hex.EncodeToString([]byte(g.b62(20))))
	a.add("logs of a node: audit's proctitle", "type=PROCTITLE msg=audit(1763622001.221:91): proctitle="+
		strings.ToUpper(hex.EncodeToString([]byte("psql\x00postgresql://app:")))+proctitle+strings.ToUpper(hex.EncodeToString([]byte("@db/app")))+"\n", proctitle)
	add("the kernel's command line", "[    0.000000] Kernel command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 ignition.config.url=https://boot:%s@ign.example.org/worker.ign console=ttyS0", g.b62(20))
	add("the kernel's key of a console", "[    0.000000] Kernel command line: root=LABEL=r rancher.token=%s quiet", g.b62(30))
	add("mount of CIFS", "Nov 20 07:00:01 n mount[881]: mount.cifs kernel mount options: ip=10.0.0.8,unc=\\\\fs\\s,vers=3.0,user=svc,pass=%s", g.b62(16))
	add("ps of a shipper", "root       912  0.1  0.2 1230 991 ?  Ssl 07:00 0:01 /usr/bin/shipper --api-key %s --site eu", g.hex(32))
	add("kubelet's env of a pod", `Nov 20 07:00:01 n kubelet[812]: E1120 pod_workers.go:1301] "Error syncing pod" err="container env: [{Name:DB_PASSWORD Value:%s ValueFrom:nil}]"`, g.password(16))
	add("a volume's secret", `E1120 07:00:01 812 nestedpendingoperations.go:348] Operation for "smb" failed: MountVolume.MountDevice failed: rpc error: mount failed: Mounting arguments: -t cifs -o username=acct,password=%s,vers=3.1.1`, g.storage())
	add("wpa_supplicant -K", "wpa_supplicant[331]: PSK (ASCII passphrase) - passphrase='%s'", g.phrase())
	add("openvpn's management", "ovpn-site[412]: MANAGEMENT: CMD 'password \"Auth\" \"%s\"'", g.phrase())
	add("charon's dump", "charon: 05[CFG] loaded IKE secret for site.example.org: secret = \"%s\"", g.phrase())
	add("Vault agent", "vault[771]: error=\"Error making API request. URL: PUT https://vault/v1/auth/approle/login body={\\\"role_id\\\":\\\"r\\\",\\\"secret_id\\\":\\\"%s\\\"}\"", g.uuid())
	add("consul's flags", "consul[771]: ==> Starting with: agent -encrypt=%s -retry-join 10.0.0.1", g.b64(32))
	add("postgres logs a statement", "postgres[612]: [3-1] STATEMENT:  ALTER ROLE app WITH PASSWORD '%s';", g.password(14))
	add("redis' monitor", "1763622001.022 [0 10.0.0.9:51422] \"AUTH\" \"%s\"", g.password(20))
	add("a Java stack trace", "java.sql.SQLException: Cannot connect to jdbc:sqlserver://sql.example.org:1433;databaseName=app;user=app;password=%s;encrypt=true", g.b62(18))
	add("an instance's metadata token", `HTTP 200 {"access_token":"%s","client_id":"","expires_in":"86399","resource":"https://management.azure.com/","token_type":"Bearer"}`, g.entraToken())
}

func blindTraces(g *gen, a *groups) {
	add := func(name, format string, secrets ...string) {
		args := make([]any, len(secrets))
		for i, s := range secrets {
			args[i] = s
		}
		a.add("a script's output: "+name, fmt.Sprintf(format, args...)+"\n", secrets...)
	}
	add("export", "+ export ARM_ACCESS_KEY=%s\n+ terraform init", g.storage())
	add("a quoted assignment", "++ DB_PW='%s'", g.phrase())
	add("helm --set", "+ helm upgrade --install app corp/app --set postgresql.auth.password=%s,replicas=2", g.password(14))
	add("kubectl create secret", "+ kubectl create secret generic db --from-literal=password=%s -n app", g.phrase())
	add("kubectl create docker-registry", "+ kubectl create secret docker-registry r --docker-server=registry.example.org --docker-username=u --docker-password=%s", g.b62(32))
	add("docker login", "+ docker login registry.example.org -u puller -p %s", g.acr())
	add("nerdctl login", "+ nerdctl login -u puller --password %s registry.example.org", g.password(20))
	add("crictl pull", "+ crictl pull --creds puller:%s registry.example.org/a:1", g.b62(24))
	add("ctr pull", "+ ctr -n k8s.io images pull --user puller:%s registry.example.org/a:1", g.b62(24))
	add("skopeo", "+ skopeo copy --src-creds puller:%s docker://registry.example.org/a:1 dir:/srv", g.b62(24))
	add("oras", "+ echo %s\n+ oras login registry.example.org -u puller --password-stdin", g.b62(30))
	add("curl's bearer", "+ curl -fsSL -H 'Authorization: token %s' https://api.github.com/repos/o/r/tarball", g.hex(40))
	add("curl's private token", "+ curl --header 'PRIVATE-TOKEN: %s' https://gitlab.example.org/api/v4/projects", g.b62(20))
	add("curl -v", "> PUT /v1/agent HTTP/1.1\n> Host: consul:8500\n> X-Consul-Token: %s\n> Accept: */*", g.uuid())
	add("wget", "+ wget --header=X-JFrog-Art-Api:%s https://jfrog.example.org/a.tgz", g.b62(73))
	add("git clone", "fatal: unable to access 'https://ci:%s@dev.azure.com/o/p/_git/r/': Could not resolve host", g.devops())
	add("pip", "Looking in indexes: https://ci:%s@pypi.example.org/simple", g.b62(24))
	add("npm", "npm verb cli argv \"install\" \"--//npm.example.org/:_authToken=%s\"", g.uuid())
	add("sshpass", "+ sshpass -p %s scp a u@10.0.0.9:", g.password(14))
	add("realm join", "+ echo '%s'\n+ realm join -U joiner corp.example.org", g.phrase())
	add("adcli", "+ adcli join -D corp.example.org -U joiner --stdin-password <<< %s", g.phrase())
	add("cryptsetup", "+ printf %%s %s\n+ cryptsetup luksOpen --key-file - /dev/sdc data", g.b62(32))
	add("usermod", "+ usermod -p '%s' ops", "$6$"+g.b62(16)+"$"+g.of(base62+"./", 86))
	add("useradd", "+ useradd -m -p $(openssl passwd -6 %s) ops", g.phrase())
	add("aws configure", "+ aws configure set aws_secret_access_key %s", g.awsKey())
	add("az storage", "+ az storage blob download --account-name a --account-key %s -c c -n n -f f", g.storage())
	add("azcopy", "INFO: Scanning... https://acct.blob.core.windows.net/b?%s", g.sas())
	add("ansible -vvv", "ok: [n] => {\"changed\": false, \"invocation\": {\"module_args\": {\"login_password\": \"%s\", \"name\": \"app\"}}}", g.password(14))
	add("ansible's connection", "<10.0.0.9> SSH: EXEC sshpass -d13 ssh -o ... ansible_become_pass=%s", g.phrase())
	add("puppet's diff", "Notice: /Stage[main]/File[/etc/app.conf]/content:\n--- /etc/app.conf\n+++ /tmp/puppet-file\n@@ -1 +1 @@\n-password: %s\n+password: %s", g.password(14), g.password(14))
	add("chef", "       +bind_password \"%s\"", g.phrase())
	add("terraform's plan", "  + admin_password = \"%s\"\n  + size           = \"Standard_D4s_v5\"", g.password(16))
	add("tailscale", "+ tailscale up --authkey tskey-auth-%s --ssh", "k"+g.b62(11)+"CNTRL-"+g.b62(32))
	add("vault login", "+ vault login -no-print %s", g.vault())
	add("etcdctl", "+ etcdctl --user root:%s endpoint health", g.password(14))
	add("mongosh", "+ mongosh mongodb://admin:%s@10.0.0.9/admin --eval 'db.stats()'", g.b62(20))
	add("rabbitmqctl", "+ rabbitmqctl add_user app %s", g.password(16))
	add("htpasswd -b", "+ htpasswd -bc /etc/nginx/.htpasswd ops %s", g.password(14))
	add("openssl pkcs12", "+ openssl pkcs12 -export -in a.crt -inkey a.key -out a.p12 -passout pass:%s", g.phrase())
	add("keytool", "+ keytool -genkeypair -keystore a.jks -storepass %s -alias a", g.phrase())
	add("Slack's webhook", "+ curl -d @m https://hooks.slack.com/services/%s", "T"+g.of(upper+digits, 8)+"/B"+g.of(upper+digits, 10)+"/"+g.b62(24))
	add("PowerShell", "VERBOSE: Connect-AzAccount -ServicePrincipal -Credential (New-Object PSCredential('app', (ConvertTo-SecureString '%s' -AsPlainText -Force)))", g.entra())
	add("restic", "+ RESTIC_PASSWORD=%s restic snapshots", g.phrase())
	add("snmpget", "+ snmpget -v3 -u ops -l authPriv -a SHA -A %s -x AES -X %s 10.0.0.1 sysUpTime.0", g.password(12), g.password(12))
}

func blindPrinted(g *gen, a *groups) {
	add := func(name, text string, secrets ...string) { a.add("a printed file: "+name, text, secrets...) }
	key := func(text []byte) []string {
		all := strings.Split(strings.TrimSpace(string(text)), "\n")
		return all[1 : len(all)-1]
	}
	ec, rsa, ed := g.ecPEM(g.ec()), rsaPEM(g.rsa()), g.opensshPEM(g.ed(), "c")
	add("a key behind the journal's head", blindEach(ec, "Nov 20 07:00:01 n bash[912]: %s\n"), key(ec)...)
	add("a key behind the console's head", blindEach(rsa, "[   12.345678] cloud-init[912]: %s\n"), key(rsa)...)
	add("a key in JSON's log", `{"level":"error","msg":"bad key","key":"`+strings.ReplaceAll(string(ed), "\n", `\n`)+"\"}\n", key(ed)...)
	flat := base64.StdEncoding.EncodeToString(g.ecPEM(g.ec()))
	add("client-key-data", "users:\n- name: a\n  user:\n    client-key-data: "+flat+"\n", flat)
	wg := g.b64(32)
	add("wg showconf", "[Interface]\nListenPort = 51820\nPrivateKey = "+wg+"\n", wg)
	dump := g.b64(32)
	add("wg show dump", "wg0\t"+dump+"\t"+g.b64(32)+"\t51820\toff\n", dump)
	pg := g.password(14)
	add("pgpass", "db.example.org:5432:*:app:"+pg+"\n", pg)
	rc := g.password(14)
	add("netrc", "machine files.example.org\n  login ci\n  password "+rc+"\n", rc)
	mail := g.password(14)
	add("msmtprc", "host smtp.example.org\nuser u\npassword "+mail+"\n", mail)
	shadow := g.of(base62+"./", 43)
	add("shadow with yescrypt", "ops:$y$j9T$"+g.of(base62+"./", 22)+"$"+shadow+":20410:0:99999:7:::\n", shadow)
	ht := g.of(base62+"./", 53)
	add("htpasswd with bcrypt", "ops:$2y$10$"+ht+"\n", ht)
	env := g.b62(32)
	add("env", "HOME=/root\nAPP_SIGNING_SECRET="+env+"\nPATH=/usr/bin\n", env)
	declared := g.password(16)
	add("declare -p", "declare -x PGPASSWORD=\""+declared+"\"\n", declared)
	xml := g.password(16)
	add("Maven's settings", "<server><id>corp</id><username>ci</username><password>"+xml+"</password></server>\n", xml)
	auth := data([]byte("puller:" + g.password(18)))
	add("docker's config", "\t\"auths\": {\n\t\t\"registry.example.org\": {\n\t\t\t\"auth\": \""+auth+"\"\n\t\t}\n\t}\n", auth)
	name, id := g.phrase(), g.of(lower+digits, 16)
	add("a Kubernetes Secret in clear", "stringData:\n  username: app\n  password: "+name+"\n", name)
	add("a bootstrap Secret", "  token-id: abcdef\n  token-secret: "+id+"\n", id)
	sops := blindAge(g.ed())
	add("an age key", "# public key: age1"+g.of(lower+digits, 58)+"\n"+sops+"\n", sops)
	ceph := "AQ" + g.b62(36) + "=="
	add("Ceph's keyring", "[client.admin]\n\tkey = "+ceph+"\n", ceph)
	ppp := g.b62(12)
	add("chap-secrets", "user * "+ppp+" *\n", ppp)
	first, second := g.b64(33), g.b64(33)
	add("Vault's unseal keys", "Unseal Key 1: "+first+"\nUnseal Key 2: "+second+"\n", first, second)
	bind := g.b64(32)
	add("rndc.key", "key \"rndc-key\" {\n\talgorithm hmac-sha256;\n\tsecret \""+bind+"\";\n};\n", bind)
	core := g.ecPEM(g.ec())
	add("hexdump of a key", heldOutXXD(core), heldOutRows(core)...)
	acl := g.password(20)
	add("redis ACL", "user app on >"+acl+" ~* +@all\n", acl)
	toml := g.b62(40)
	add("runner's TOML", "[[runners]]\n  name = \"r\"\n  token = \""+toml+"\"\n", toml)
	psk := g.phrase()
	add("ipsec.secrets", "10.0.0.1 10.0.0.2 : PSK \""+psk+"\"\n", psk)
}

// heldOutRows are the columns of text of a dump.
func heldOutRows(data []byte) []string {
	var out []string
	for at := 32; at+16 <= len(data)-32; at += 16 {
		if row := string(data[at : at+16]); !strings.Contains(row, "\n") {
			out = append(out, row)
		}
	}
	return out
}

// blindReadable are lines that say why a node does not come up, and what has to stay of them.
func blindReadable(g *gen) []line {
	digest, uid, container := g.hex(64), g.uuid(), g.hex(64)
	return []line{
		{`E1120 07:00:01.000000 812 kubelet.go:3011] "Container runtime network not ready" networkReady="NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"`, []string{"NetworkPluginNotReady", "cni plugin not initialized"}},
		{`W1120 07:00:01.000000 812 reflector.go:561] failed to list *v1.Node: Get "https://aks-dns-1a2b3c4d.hcp.westeurope.azmk8s.io:443/api/v1/nodes": dial tcp: lookup aks-dns-1a2b3c4d.hcp.westeurope.azmk8s.io on 168.63.129.16:53: no such host`, []string{"aks-dns-1a2b3c4d.hcp.westeurope.azmk8s.io", "no such host"}},
		{"failed to pull registry.example.org/team/app@sha256:" + digest + ": not found", []string{digest, "not found"}},
		{`"SyncLoop ADD" pod="kube-system/coredns-7db6d8ff4d-x7lpn" podUID="` + uid + `"`, []string{"coredns-7db6d8ff4d-x7lpn", uid}},
		{`"Failed to create sandbox" containerID="containerd://` + container + `" err="no space left on device"`, []string{"no space left on device", container[:12]}},
		{"kubeadm: error execution phase preflight: couldn't validate the identity of the API Server: token id \"abc123\" is invalid for this cluster or it has expired", []string{"is invalid for this cluster", "expired"}},
		{"k3s: Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry", []string{"Node password rejected", "/etc/rancher/node/password"}},
		{"cloud-init[912]: util.py[WARNING]: Failed loading yaml blob. Invalid format at line 41 column 3: \"could not find expected ':'\"", []string{"line 41 column 3", "could not find expected"}},
		{"AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '" + uid + "'.", []string{"AADSTS7000215", "Invalid client secret provided", uid}},
		{"AADSTS7000222: The provided client secret keys for app '" + uid + "' are expired.", []string{"are expired", uid}},
		{"open /var/lib/kubelet/pki/kubelet-client-current.pem: no such file or directory", []string{"/var/lib/kubelet/pki/kubelet-client-current.pem"}},
		{"x509: certificate has expired or is not yet valid: current time 2026-11-20T07:00:01Z is before 2026-11-21T00:00:00Z", []string{"2026-11-20T07:00:01Z is before 2026-11-21T00:00:00Z"}},
		{"Unable to register node with API server: nodes is forbidden: User \"system:bootstrap:abc123\" cannot create resource \"nodes\"", []string{"cannot create resource", "is forbidden"}},
		{"chronyd[412]: System clock wrong by 3611.291823 seconds", []string{"3611.291823"}},
		{"EXT4-fs (sda1): mounted filesystem " + uid + " r/w with ordered data mode", []string{uid}},
		{"systemd[1]: kubelet.service: Main process exited, code=exited, status=1/FAILURE", []string{"status=1/FAILURE"}},
		{"Get \"https://mcr.microsoft.com/v2/oss/kubernetes/pause/manifests/3.9\": proxyconnect tcp: dial tcp 10.0.0.20:3128: connect: connection refused", []string{"proxyconnect tcp", "10.0.0.20:3128"}},
		{"/etc/rancher/k3s/config.yaml: yaml: unmarshal errors: line 3: field tokenn not found", []string{"line 3", "tokenn"}},
		{"ExtensionHandler Microsoft.Azure.Extensions.CustomScript-2.1.10 exited with 53 (ERR_IMDS_FETCH_FAILED)", []string{"CustomScript-2.1.10", "ERR_IMDS_FETCH_FAILED"}},
		{"Failed to load environment files: No such file or directory: EnvironmentFile=/etc/default/kubelet-token", []string{"/etc/default/kubelet-token"}},
		{"sshd[912]: error: Could not load host key: /etc/ssh/ssh_host_ed25519_key", []string{"/etc/ssh/ssh_host_ed25519_key"}},
		{"failed to run Kubelet: unable to load bootstrap kubeconfig: stat /etc/kubernetes/bootstrap-kubelet.conf: no such file or directory", []string{"/etc/kubernetes/bootstrap-kubelet.conf"}},
		{"dpkg: error processing package linux-image-6.8.0-1017-azure (--configure)", []string{"linux-image-6.8.0-1017-azure"}},
		{"E1120 credential_provider: exec plugin /opt/bin/acr-credential-provider: exit status 1: no password returned for registry myacr.azurecr.io", []string{"acr-credential-provider", "no password returned", "myacr.azurecr.io"}},
		{"iptables v1.8.10 (nf_tables): Chain 'KUBE-SEP-7XTNQJ3UQWZ5C2ZV' does not exist", []string{"KUBE-SEP-7XTNQJ3UQWZ5C2ZV"}},
	}
}
