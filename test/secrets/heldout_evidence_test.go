package secrets

import (
	"encoding/hex"
	"strings"
)

// heldOutEvidence is what consoles and logs of a node show, with secrets in it. A
// group's kind has its name after a colon.
func heldOutEvidence(g *gen) []group {
	var a groups
	heldOutCommands(g, &a)
	heldOutOutputs(g, &a)
	heldOutPrinted(g, &a)
	heldOutDaemons(g, &a)
	heldOutTokens(g, &a)
	return a
}

// heldOutCommands is command lines, traced or in a list of processes.
func heldOutCommands(g *gen, a *groups) {
	one := func(name, before, secret, after string) {
		a.add("commands: "+name, before+secret+after, secret)
	}
	one("kubectl docker-registry", "+ kubectl create secret docker-registry reg --docker-server=r.example.com --docker-username=ci --docker-password=", g.password(18), " -n kube-system")
	one("skopeo --src-creds", "+ skopeo copy --src-creds ci:", g.password(18), " docker://r.example.com/a:1 dir:/opt/a")
	one("curl --proxy-user", "+ curl -sSf --proxy-user svc-node:", g.b62(14), " -x proxy.example.com:3128 https://packages.example.com/key")
	one("curl form", "+ curl -s -d 'grant_type=password&client_id=cli&username=node&password=", g.b62(16), "' https://sso.example.com/token")
	one("ldapsearch -w", "+ ldapsearch -x -H ldaps://ldap.example.com -D cn=node,dc=example,dc=com -w ", g.password(15), " -b dc=example,dc=com uid=ops")
	one("redis-cli -a", "+ redis-cli -h cache -a ", g.b62(32), " ping")
	one("smbclient -U", "+ smbclient //files/share -U 'EXAMPLE\\svc%", g.b62(15), "' -c ls")
	one("ipmitool -P", "+ ipmitool -I lanplus -H 10.0.0.250 -U admin -P ", g.b62(14), " chassis status")
	one("iscsiadm -v", "+ iscsiadm -m node -T iqn.2026-01.com.example:lun0 -o update -n node.session.auth.password -v ", g.b62(16), "")
	one("nmcli wifi", "+ nmcli device wifi connect depot password ", g.phrase(), " ifname wlp2s0")
	one("gpg --passphrase", "+ gpg --batch --yes --passphrase ", g.phrase(), " -o /opt/a.tar -d /opt/a.tar.gpg")
	one("ansible become", "+ ansible-playbook -i hosts site.yml -e ansible_become_pass=", g.password(14), " --limit n1")
	one("helm --set", "+ helm upgrade --install db oci://r.example.com/pg --set auth.postgresPassword=", g.b62(16), ",primary.persistence.size=8Gi")
	one("terraform -var", "+ terraform apply -auto-approve -var subscription=prod -var client_secret=", g.entra(), "")
	one("snmpget version 3", "+ snmpget -v3 -l authPriv -u mon -a SHA -A authpw -x AES -X ", g.b62(16), " 10.0.0.4 sysUpTime.0")
	one("pipe into kinit", "+ echo ", g.password(16), "\n+ kinit svc-join@EXAMPLE.COM")
	one("pipe into cryptsetup", "+ echo -n ", g.phrase(), "\n+ cryptsetup luksOpen /dev/disk/azure/scsi1/lun0 data -")
	first, second := g.password(14), g.password(14)
	a.add("commands: chpasswd list", "+ printf '%s\\n' root:"+first+" ops:"+second+"\n+ chpasswd -c SHA512", first, second)
	one("list of processes", "root      4711  0.0  0.1 /usr/bin/cloudflared --no-autoupdate tunnel run --token ", data([]byte(`{"a":"`+g.hex(32)+`","t":"`+g.uuid()+`","s":"`+g.b64(32)+`"}`)), "")
}

// heldOutOutputs is what commands print.
func heldOutOutputs(g *gen, a *groups) {
	one := func(name, before, secret, after string) { a.add("outputs: "+name, before+secret+after, secret) }
	one("systemctl show", "Type=simple\nEnvironment=DD_SITE=datadoghq.eu DD_API_KEY=", g.hex(32), " LANG=C.UTF-8\nUMask=0022")
	one("docker inspect", "            \"Env\": [\n                \"PATH=/usr/bin\",\n                \"REDIS_PASSWORD=", g.b62(20), "\",\n                \"TZ=UTC\"\n            ],")
	one("crictl inspect", "      \"envs\": [\n        {\n          \"key\": \"OIDC_CLIENT_SECRET\",\n          \"value\": \"", g.b62(32), "\"\n        }\n      ],")
	one("git remote -v", "origin\thttps://x-access-token:", "ghs_"+g.checked62(30), "@github.com/org/node-config.git (fetch)")
	one("terraform output", "Apply complete! Resources: 3 added, 0 changed, 0 destroyed.\n\nOutputs:\n\nadmin_password = \"", g.password(18), "\"\nlocation = \"westeurope\"")
	one("az create-for-rbac", "{\n  \"appId\": \""+g.uuid()+"\",\n  \"displayName\": \"node\",\n  \"password\": \"", g.entra(), "\",\n  \"tenant\": \""+g.uuid()+"\"\n}")
	one("az storage keys", "CreationTime                      KeyName    Permissions    Value\n--------------------------------  ---------  -------------  -----\n2026-11-01T08:00:00.000000+00:00  key1       FULL           ", g.storage(), "")
	one("vault login", "Success! You are now authenticated.\n\nKey                  Value\n---                  -----\ntoken                ", g.vault(), "\ntoken_duration       768h")
	one("vault kv get", "====== Data ======\nKey         Value\n---         -----\npassword    ", g.password(20), "\nusername    app")
	join := g.kubeadm()
	a.add("outputs: kubeadm token list", "TOKEN                     TTL         EXPIRES                USAGES\n"+join+"   23h         2026-11-21T07:01:02Z   authentication,signing", last(join))
	one("klist -K", "Keytab name: FILE:/etc/krb5.keytab\nKVNO Principal\n---- --------------------------------------------------------------------------\n   2 host/n1.example.com@EXAMPLE.COM (aes256-cts-hmac-sha1-96)  (0x", g.hex(64), ")")
	private, shared := g.b64(32), g.b64(32)
	a.add("outputs: wg showconf", "[Interface]\nListenPort = 51820\nPrivateKey = "+private+"\n\n[Peer]\nPublicKey = "+g.b64(32)+"\nPresharedKey = "+shared+"\nAllowedIPs = 10.9.0.0/24", private, shared)
	one("expect", "spawn su - ops\nPassword: \nsend: sending \"", g.password(14), "\\r\" to { exp4 }")
}

// heldOutPrinted is files that a script or a person printed.
func heldOutPrinted(g *gen, a *groups) {
	one := func(name, before, secret, after string) {
		a.add("printed files: "+name, before+secret+after, secret)
	}
	one("netrc of three lines", "+ cat /root/.netrc\nmachine artifacts.example.com\n    login node-reader\n    password ", g.password(18), "\n+ apt-get update")
	first, second := g.b62(16), g.password(18)
	a.add("printed files: pgpass of two lines", "localhost:*:*:postgres:"+first+"\ndb.example.com:5432:replication:repl:"+second, first, second)
	one("newusers", "ops:", g.password(14), ":1001:1001:Operator:/home/ops:/bin/bash")
	one("fstab", "//files.example.com/share /mnt/share cifs vers=3.0,username=svc,password=", g.b62(18), ",uid=1000,_netdev 0 0")
	one("swanctl.conf", "secrets {\n  ike-peer {\n    id = peer.example.com\n    secret = \"", g.password(24), "\"\n  }\n}")
	one("hosts.toml", "[host.\"https://r.example.com\".header]\n  authorization = \"Basic ", data([]byte("puller:"+g.password(20))), "\"")
	pfx := lines(data(g.lockedPFX()), 76)
	a.add("printed files: PFX in base64", "+ base64 bundle.pfx\n"+strings.Join(pfx, "\n"), pfx[3], pfx[9])
	pem := strings.TrimSpace(string(rsaPEM(g.rsa())))
	rows := strings.Split(pem, "\n")
	a.add("printed files: PEM with rsyslog's #012", journal+"key is "+strings.ReplaceAll(pem, "\n", "#012"), rows[8], rows[12])
	short := lines(data(g.pkcs8(g.ec())), 32)
	a.add("printed files: key in lines of 32", "contents of key file follow\n> -----BEGIN PRIVATE KEY-----\n> "+strings.Join(short, "\n> ")+"\n> -----END PRIVATE KEY-----", short[1:3]...)
	dump := strings.TrimSpace(hex.Dump(g.opensshPEM(g.ed(), "root@n1")))
	rows = strings.Split(dump, "\n")
	a.add("printed files: hexdump -C", "+ hexdump -C /etc/ssh/ssh_host_ed25519_key\n"+dump, rows[16][10:58], rows[17][10:58])
	admin := data(rsaPEM(g.rsa()))
	a.add("printed files: kubectl config view --raw", "users:\n- name: kubernetes-admin\n  user:\n    client-key-data: "+admin, admin[700:760], admin[1500:1560])
}

// heldOutDaemons is lines that daemons write.
func heldOutDaemons(g *gen, a *groups) {
	one := func(name, before, secret, after string) { a.add("daemons: "+name, before+secret+after, secret) }
	one("struct of Go", kubelet+"\"Failed to pull image\" err=\"401 Unauthorized\" auth=\"&AuthConfig{Username:ci,Password:", g.b62(20), ",Auth:,ServerAddress:r.example.com,IdentityToken:,RegistryToken:,}\"")
	one("MongoDB URL", "Nov 20 07:01:02 n1 app[77]: MongoServerError: connect failed for mongodb+srv://app:", g.b62(18), "@cluster0.ab1cd.mongodb.net/prod?retryWrites=true")
	one("AMQP URL", "Nov 20 07:01:02 n1 worker[78]: [ERROR] Cannot connect to amqps://worker:", g.b62(18), "@mq.example.com:5671//: timed out. Trying again in 2.00 seconds...")
	one("Service Bus", "Nov 20 07:01:02 n1 app[79]: connecting: Endpoint=sb://prod.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=", g.b64(32), ";EntityPath=q")
	token := g.jwt(`{"sub":"agent","exp":1795000000}`)
	a.add("daemons: token in a URL", "Nov 20 07:01:02 n1 agent[80]: websocket: bad handshake: wss://hub.example.com/agents/connect?id=7&access_token="+token+"&v=2", last(token))
	one("Python's dict", "Nov 20 07:01:02 n1 sync.py[81]: DEBUG:conn:{'host': 'db', 'user': 'app', 'passwd': '", g.password(16), "', 'port': 3306}")
	one("Java's properties", "Nov 20 07:01:02 n1 java[82]: sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username=\"app\" password=\"", g.password(18), "\";")
	one("DD-API-KEY header", "2026-11-20 07:01:02 UTC | CORE | ERROR | Too many errors for endpoint: POST /api/v2/series headers: map[Content-Type:[application/json] Dd-Api-Key:[", g.hex(32), "]]")
	one("cloud-init user data", journal+"__init__.py[DEBUG]: user-data: b'#cloud-config\\nchpasswd: {expire: false, users: [{name: ops, password: ", g.b62(14), ", type: text}]}\\n'")
}

// heldOutTokens is tokens with a form of their own and no name.
func heldOutTokens(g *gen, a *groups) {
	for _, s := range [][2]string{
		{"DigitalOcean", "dop_v1_" + g.hex(64)},
		{"Slack app", "xapp-1-A" + g.of(upper+digits, 10) + "-" + g.of(digits[1:], 13) + "-" + g.hex(64)},
		{"Atlassian", "ATATT3xFfGF0" + g.of(urlSafe, 171) + "=" + strings.ToUpper(g.hex(8))},
		{"Pulumi", "pul-" + g.hex(40)},
		{"Sentry", "sntrys_eyJpYXQiOjE3" + g.of(base62, 60) + "_" + g.of(base62, 43)},
		{"Doppler", "dp.st.prd." + g.b62(40)},
		{"Tailscale client", "tskey-client-k" + g.b62(12) + "CNTRL-" + g.b62(32)},
		{"Docker organisation", "dckr_oat_" + g.of(urlSafe, 32)},
	} {
		a.add("tokens: "+s[0], "+ /opt/agent/bin/enroll "+s[1]+" --yes", s[1])
	}
}
