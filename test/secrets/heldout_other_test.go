package secrets

import (
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/url"
	"strings"
)

// heldOutOthers is the secrets of users and of programs that run beside the kubelet.
func heldOutOthers(g *gen) []plant {
	var a plants
	heldOutRegistries(g, &a)
	heldOutAzure(g, &a)
	heldOutClouds(g, &a)
	heldOutForges(g, &a)
	heldOutDatabases(g, &a)
	heldOutNetworks(g, &a)
	heldOutMonitors(g, &a)
	heldOutBackups(g, &a)
	heldOutKeyFiles(g, &a)
	heldOutPods(g, &a)
	heldOutPeople(g, &a)
	return a
}

// heldOutName is a word of a kind that passwords are not.
func heldOutName(g *gen) string { return g.of(lower, 1) + g.of(lower+digits, 7) }

func heldOutRegistries(g *gen, a *plants) {
	const kind = "registries"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	host := heldOutName(g) + ".azurecr.io"
	basic := func(user, password string) string { return data([]byte(user + ":" + password)) }
	add("etc/containerd/certs.d/"+host+"/hosts.toml", "header in hosts.toml",
		"server = \"https://"+host+"\"\n\n[host.\"https://"+host+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n\n[host.\"https://"+host+"\".header]\n  authorization = \"Basic "+basic("puller", g.acr())+"\"\n")
	add("etc/containerd/conf.d/registry.toml", "config.toml of version 3",
		"version = 3\n\n[plugins]\n  [plugins.'io.containerd.cri.v1.images'.registry]\n    [plugins.'io.containerd.cri.v1.images'.registry.configs]\n      [plugins.'io.containerd.cri.v1.images'.registry.configs.'"+host+"'.auth]\n        username = 'puller'\n        password = '"+g.password(24)+"'\n        auth = ''\n        identitytoken = ''\n")
	add("etc/rancher/k3s/registries.yaml", "configs of k3s",
		"mirrors:\n  docker.io:\n    endpoint:\n    - \"https://"+host+"\"\nconfigs:\n  \""+host+"\":\n    auth:\n      username: puller\n      password: "+g.b62(20)+"\n    tls:\n      ca_file: /etc/ssl/certs/reg.pem\n")
	add("root/.config/containers/auth.json", "auth.json of Podman", `{`+"\n\t"+`"auths": {`+"\n\t\t"+`"quay.io": {`+"\n\t\t\t"+`"auth": "`+basic("org+robot", g.of(upper+digits, 64))+`"`+"\n\t\t}\n\t}\n}")
	add("home/azureuser/.docker/config.json", "identitytoken of docker login",
		`{"auths":{"`+host+`":{"auth":"MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwOg==","identitytoken":"`+g.entraToken()+`"}}}`)
	add("etc/kubernetes/credential-provider-config.yaml", "environment of a provider",
		"apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: ecr-credential-provider\n  matchImages:\n  - \"*.dkr.ecr.*.amazonaws.com\"\n  defaultCacheDuration: 12h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args: [get-credentials]\n  env:\n  - name: AWS_ACCESS_KEY_ID\n    value: "+g.awsID()+"\n  - name: AWS_SECRET_ACCESS_KEY\n    value: "+g.awsKey()+"\n")
	add("usr/local/sbin/pull-images", "docker login from a pipe", "#!/bin/sh\necho 'dckr_pat_"+g.of(urlSafe, 27)+"' | docker login -u acme --password-stdin\ndocker pull acme/agent:3\n")
}

func heldOutAzure(g *gen, a *plants) {
	const kind = "Azure"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	account, home := heldOutName(g), g.uuid()+"."+g.uuid()
	client := "04b07795-8ddb-461a-bbee-02f9e1bf7b46"
	add("home/azureuser/.azure/msal_token_cache.json", "refresh token of az",
		g.jsonOf(map[string]any{"RefreshToken": map[string]any{home + "-login.microsoftonline.com-refreshtoken-" + client + "--": map[string]string{
			"credential_type": "RefreshToken", "secret": "1.A" + g.of(urlSafe, 60) + "." + g.of(urlSafe, 900), "home_account_id": home,
			"environment": "login.microsoftonline.com", "client_id": client, "target": "https://management.core.windows.net//.default", "last_modification_time": "1763622062", "family_id": "1"}}}))
	add("root/.azure/service_principal_entries.json", "service principal of az",
		g.jsonOf([]map[string]string{{"client_id": g.uuid(), "tenant": g.uuid(), "client_secret": g.entra()}}))
	add("etc/blobfuse2/config.yaml", "account-key of Blobfuse2",
		"logging:\n  type: syslog\ncomponents: [libfuse, file_cache, azstorage]\nazstorage:\n  type: block\n  account-name: "+account+"\n  account-key: "+g.storage()+"\n  mode: key\n  container: data\n")
	add("etc/cron.daily/ship-logs", "signature for azcopy",
		"#!/bin/sh\nexec azcopy sync /srv/export \"https://"+account+".blob.core.windows.net/logs?"+g.sas()+"\" --delete-destination=true\n")
	add("etc/default/queue-worker", "connection of Service Bus",
		"SB_CONN=Endpoint=sb://"+account+".servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey="+g.of(base62+"/+", 32)+"+ASb"+g.of(base62, 7)+"=\n")
	add("etc/iotedge/config.yaml", "connection of a device",
		"provisioning:\n  source: \"manual\"\n  device_connection_string: \"HostName="+account+".azure-devices.net;DeviceId=edge1;SharedAccessKey="+g.b64(32)+"\"\nagent:\n  name: \"edgeAgent\"\n")
	add("etc/systemd/system/uploader.service.d/storage.conf", "connection of a storage account",
		"[Service]\nEnvironment=\"AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=https;AccountName="+account+";AccountKey="+g.storage()+";EndpointSuffix=core.windows.net\"\n")
	add("etc/systemd/system/blobfuse.service", "client secret in a unit",
		"[Unit]\nAfter=network-online.target\n[Service]\nType=forking\nEnvironment=AZURE_STORAGE_AUTH_TYPE=SPN\nEnvironment=AZURE_STORAGE_SPN_CLIENT_ID="+g.uuid()+"\nEnvironment=AZURE_STORAGE_SPN_CLIENT_SECRET="+g.entra()+"\nExecStart=/usr/bin/blobfuse2 mount /mnt/b\n")
}

func heldOutClouds(g *gen, a *plants) {
	const kind = "other clouds and what provisions"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("root/.aws/credentials", "session of AWS", "[default]\naws_access_key_id = ASIA"+g.of(base32, 16)+"\naws_secret_access_key = "+g.awsKey()+"\naws_session_token = IQoJb3JpZ2luX2Vj"+g.b64(480)+"\n")
	add("home/azureuser/.config/gcloud/application_default_credentials.json", "refresh token of Google",
		g.jsonOf(map[string]string{"account": "", "client_id": "764086051850-6qr4p6gpi6hn506pt8ejuq83di341hur.apps.googleusercontent.com", "client_secret": "d-" + g.of(urlSafe, 22), "refresh_token": "1//0" + g.of(urlSafe, 99), "type": "authorized_user", "universe_domain": "googleapis.com"}))
	account := heldOutName(g)
	add("opt/infra/terraform.tfstate", "attributes of a state", g.jsonOf(map[string]any{"version": 4, "terraform_version": "1.9.8", "serial": 12, "lineage": g.uuid(), "resources": []any{
		map[string]any{"mode": "managed", "type": "random_password", "name": "db", "instances": []any{map[string]any{"attributes": map[string]any{"length": 20, "result": g.password(20), "special": true}}}},
		map[string]any{"mode": "managed", "type": "azurerm_storage_account", "name": account, "instances": []any{map[string]any{"attributes": map[string]any{"name": account, "primary_access_key": g.storage()}}}}}}))
	add("root/.terraform.d/credentials.tfrc.json", "token of HCP Terraform", g.jsonOf(map[string]any{"credentials": map[string]any{"app.terraform.io": map[string]string{"token": g.b62(14) + ".atlasv1." + g.b62(67)}}}))
	add("etc/ansible/.vault_pass", "a file with a word", g.phrase()+"\n")
	add("root/.vault-token", "token of Vault", g.vault())
	add("etc/consul.d/consul.hcl", "gossip key and token of Consul",
		"datacenter = \"dc1\"\nencrypt = \""+g.b64(32)+"\"\nacl {\n  enabled = true\n  tokens {\n    agent = \""+g.uuid()+"\"\n  }\n}\n")
	add("root/anaconda-ks.cfg", "rootpw of a kickstart", "lang en_US.UTF-8\nkeyboard us\ntimezone UTC --utc\nrootpw --plaintext "+g.password(14)+"\nreboot\n")
	add("etc/cloud/cloud.cfg.d/50-users.cfg", "chpasswd of cloud-init",
		"#cloud-config\nchpasswd:\n  expire: false\n  users:\n  - {name: azureuser, password: "+g.b62(14)+", type: text}\n")
}

func heldOutForges(g *gen, a *plants) {
	const kind = "forges, builds and packages"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("root/.git-credentials", "store of git", "https://deploy:"+g.gitlab()+"@gitlab.example.com\n")
	add("home/azureuser/.config/gh/hosts.yml", "token of gh", "github.com:\n    users:\n        octo:\n            oauth_token: gho_"+g.checked62(30)+"\n    git_protocol: https\n    user: octo\n")
	add("etc/gitlab-runner/config.toml", "token of a runner",
		"concurrent = 1\ncheck_interval = 0\n\n[[runners]]\n  name = \""+donorName+"\"\n  url = \"https://gitlab.example.com/\"\n  id = 42\n  token = \"glrt-"+g.of(urlSafe, 20)+"\"\n  executor = \"shell\"\n")
	key := g.rsa()
	number := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	add("opt/actions-runner/.credentials_rsaparams", "key of an Actions runner", string(check[[]byte](g)(json.Marshal(map[string]string{"d": number(key.D), "dp": number(key.Precomputed.Dp), "dq": number(key.Precomputed.Dq),
		"exponent": "AQAB", "inverseQ": number(key.Precomputed.Qinv), "modulus": number(key.N), "p": number(key.Primes[0]), "q": number(key.Primes[1])}))))
	add("etc/systemd/system/jenkins-agent.service", "secret of an agent",
		"[Service]\nUser=jenkins\nExecStart=/usr/bin/java -jar /opt/jenkins/agent.jar -url https://ci.example.com/ -secret "+g.hex(64)+" -name linux1 -workDir /var/lib/jenkins\n")
	add("root/.npmrc", "_auth of a registry", "registry=https://pkgs.example.com/npm/\n//pkgs.example.com/npm/:_auth="+data([]byte("ci:"+g.password(20)))+"\nalways-auth=true\n")
	add("etc/pip.conf", "extra-index-url", "[global]\ntimeout = 30\nextra-index-url = https://feed:"+g.devops()+"@pkgs.dev.azure.com/org/_packaging/feed/pypi/simple/\n")
	add("etc/apt/auth.conf.d/90mirror.conf", "one line of apt's netrc", "machine apt.example.com/ubuntu login "+donorName+" password "+g.b62(18)+"\n")
	add("etc/apt/apt.conf.d/95proxy", "proxy with a password", "Acquire::http::Proxy \"http://svc-apt:"+g.b62(14)+"@proxy.example.com:3128/\";\n")
	add("var/lib/ubuntu-advantage/private/machine-token.json", "token of Ubuntu Pro", `{"machineToken": "`+g.b62(30)+`", "machineTokenInfo": {"machineId": "`+g.hex(32)+`", "contractInfo": {"id": "cAA`+g.b62(20)+`"}}, "resourceTokens": [{"type": "esm-infra", "token": "`+g.b62(30)+`"}]}`)
}

func heldOutDatabases(g *gen, a *plants) {
	const kind = "databases and mail"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("root/.pgpass", "two lines of pgpass", "# hostname:port:database:username:password\ndb1.example.com:5432:*:replica:"+g.password(18)+"\n*:*:app:app:"+g.b62(16)+"\n")
	add("root/.my.cnf", "quoted password of mysqldump", "[mysqldump]\nuser     = backup\npassword = \""+g.password(16)+"\"\nsingle-transaction\n")
	add("etc/redis/redis.conf.d/auth.conf", "requirepass", "bind 127.0.0.1 -::1\nrequirepass "+g.b62(40)+"\n")
	add("opt/app/.env", "URL of a database", "APP_ENV=production\nDATABASE_URL=postgresql+psycopg://app:"+url.QueryEscape(g.password(16))+"@db.example.com:5432/app?sslmode=require\n")
	add("etc/postfix/sasl_passwd", "relay of Postfix", "[smtp.sendgrid.net]:587 apikey:SG."+g.of(urlSafe, 22)+"."+g.of(urlSafe, 43)+"\n")
	add("etc/sssd/conf.d/ldap.conf", "ldap_default_authtok", "[domain/example.com]\nid_provider = ldap\nldap_uri = ldaps://ldap.example.com\nldap_default_bind_dn = cn=node,ou=svc,dc=example,dc=com\nldap_default_authtok_type = password\nldap_default_authtok = "+g.password(18)+"\n")
}

func heldOutNetworks(g *gen, a *plants) {
	const kind = "networks"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("etc/systemd/network/99-wg0.netdev", "WireGuard of networkd", "[NetDev]\nName=wg0\nKind=wireguard\n\n[WireGuard]\nListenPort=51820\nPrivateKey="+g.b64(32)+"\n\n[WireGuardPeer]\nPublicKey="+g.b64(32)+"\nAllowedIPs=10.9.0.0/24\n")
	add("etc/netplan/60-wifi.yaml", "access point of netplan", "network:\n  version: 2\n  wifis:\n    wlp2s0:\n      dhcp4: true\n      access-points:\n        \"depot\":\n          password: \""+g.phrase()+"\"\n")
	add("etc/NetworkManager/system-connections/depot.nmconnection", "psk of NetworkManager", "[connection]\nid=depot\nuuid="+g.uuid()+"\ntype=wifi\n\n[wifi]\nssid=depot\n\n[wifi-security]\nkey-mgmt=wpa-psk\npsk="+g.password(16)+"\n")
	add("etc/ipsec.secrets", "PSK of strongSwan", "# /etc/ipsec.secrets\n10.0.0.7 203.0.113.9 : PSK \""+g.password(24)+"\"\n")
	add("etc/chrony/chrony.keys", "keys of chrony", "1 SHA256 HEX:"+strings.ToUpper(g.hex(64))+"\n20 AES128 HEX:"+strings.ToUpper(g.hex(32))+"\n")
	add("etc/snmp/snmpd.conf", "user of SNMPv3", "agentaddress udp:161\ncreateUser monitor SHA-256 "+g.b62(16)+" AES "+g.b62(16)+"\nrouser monitor authPriv\n")
	add("etc/samba/backup.cred", "credentials of mount.cifs", "username=svc-backup\npassword="+g.password(18)+"\ndomain=EXAMPLE\n")
	add("etc/iscsi/iscsid.conf", "CHAP of open-iscsi", "node.startup = automatic\nnode.session.auth.authmethod = CHAP\nnode.session.auth.username = iqn.2026-01.com.example:n1\nnode.session.auth.password = "+g.b62(16)+"\n")
	add("etc/systemd/system/cloudflared.service", "token of a tunnel", "[Service]\nType=notify\nExecStart=/usr/bin/cloudflared --no-autoupdate tunnel run --token "+data([]byte(`{"a":"`+g.hex(32)+`","t":"`+g.uuid()+`","s":"`+g.b64(32)+`"}`))+"\n")
	add("var/lib/tailscale/tailscaled.state", "machine key of Tailscale", "{\n  \"_machinekey\": \""+data([]byte("privkey:"+g.hex(64)))+"\",\n  \"_current-profile\": \""+data([]byte("profile-a1b2"))+"\"\n}")
	add("etc/openvpn/client/tc.key", "static key of OpenVPN", "#\n# 2048 bit OpenVPN static key\n#\n-----BEGIN OpenVPN Static key V1-----\n"+strings.Join(lines(g.hex(512), 32), "\n")+"\n-----END OpenVPN Static key V1-----\n")
}
