package secrets

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// others plants secrets of a node's users and programs that no node needs to join.
func others(g *gen) []plant {
	var p plants
	vendorTokens(g, &p)
	clouds(g, &p)
	programs(g, &p)
	scripts(g, &p)
	keyFiles(g, &p)
	databases(g, &p)
	return p
}

func vendorTokens(g *gen, p *plants) {
	add := func(kind, path, wrap, text string) { p.add(kind, other, path, wrap, text) }
	const forge = "token of a forge"
	add(forge, "root/.git-credentials", "git's store", "https://bot:"+g.github()+"@github.com\n")
	add(forge, "home/azureuser/.config/gh/hosts.yml", "gh", "github.com:\n    user: bot\n    oauth_token: gho_"+g.checked62(30)+"\n    git_protocol: https\n")
	add(forge, "opt/ci/env", "GitHub, fine-grained", "GITHUB_TOKEN="+g.ghFine()+"\n")
	add(forge, "opt/ci/app.env", "GitHub, of an app", "GH_TOKEN=ghs_"+g.checked62(30)+"\n")
	add(forge, "opt/ci/clone.sh", "GitLab in an address", "git clone https://oauth2:"+g.gitlab()+"@gitlab.example/infra/node.git\n")
	add(forge, "etc/gitlab-runner/config.toml", "GitLab's runner", "concurrent = 4\n[[runners]]\n  name = \"node\"\n  url = \"https://gitlab.example\"\n  token = \"glrt-"+g.of(urlSafe, 20)+"\"\n  executor = \"shell\"\n")
	add(forge, "opt/ci/deploy.env", "GitLab, deploy token", "CI_DEPLOY_PASSWORD=gldt-"+g.of(urlSafe, 20)+"\n")
	add(forge, "opt/vsts-agent/pat.txt", "Azure DevOps", "./config.sh --auth pat --token "+g.devops()+"\n")
	add(forge, "opt/vsts-agent/old.sh", "Azure DevOps, old", "export AZURE_DEVOPS_EXT_PAT="+g.of(lower+"234567", 52)+"\n")
	add(forge, "opt/repo/.git/config", "git, header", "[remote \"origin\"]\n\turl = https://dev.azure.com/org/p/_git/r\n[http]\n\textraheader = AUTHORIZATION: basic "+data([]byte(":"+g.devops()))+"\n")
	add(forge, "opt/atlantis.env", "Bitbucket", "ATLANTIS_BITBUCKET_TOKEN=ATBB"+g.b62(24)+g.of(hexes[:10]+"ABCDEF", 8)+"\n")

	const packages = "token of a package registry"
	add(packages, "root/.npmrc", "npm", "registry=https://npm.example.org/\n//npm.example.org/:_authToken="+g.npm()+"\n")
	add(packages, "home/azureuser/.npmrc", "npm's _auth", "//pkgs.dev.azure.com/org/_packaging/f/npm/:_password="+data([]byte(g.devops()))+"\n//pkgs.dev.azure.com/org/_packaging/f/npm/:username=org\n")
	add(packages, "root/.pypirc", "PyPI", "[pypi]\nusername = __token__\npassword = pypi-AgEIcHlwaS5vcmc"+g.of(urlSafe, 150)+"\n")
	add(packages, "etc/pip.conf", "address in pip.conf", "[global]\nextra-index-url = https://build:"+g.password(20)+"@pkgs.example/simple\n")
	add(packages, "etc/apt/auth.conf.d/mirror.conf", "apt's auth.conf", "machine mirror.example/debian login node password "+g.password(16)+"\n")
	add(packages, "etc/apt/sources.list.d/private.list", "apt's source", "deb https://node:"+g.password(16)+"@apt.example/ubuntu noble main\n")
	add(packages, "root/.m2/settings.xml", "Maven", "<settings><servers><server><id>nexus</id><username>ci</username><password>"+g.password(16)+"</password></server></servers></settings>\n")
	add(packages, "root/.cargo/credentials.toml", "cargo", "[registry]\ntoken = \"cio"+g.b62(32)+"\"\n")
	add(packages, "root/.gem/credentials", "RubyGems", "---\n:rubygems_api_key: rubygems_"+g.hex(48)+"\n")

	const chat = "token of a chat or pager"
	add(chat, "etc/alertmanager/alertmanager.yml", "Slack's webhook", "receivers:\n- name: ops\n  slack_configs:\n  - api_url: https://hooks.slack.com/services/T"+g.of(upper+digits, 10)+"/B"+g.of(upper+digits, 10)+"/"+g.b62(24)+"\n")
	add(chat, "opt/notify/env", "Slack's bot", "SLACK_BOT_TOKEN="+g.slack()+"\n")
	add(chat, "opt/notify/app.yaml", "Slack's app", "slack:\n  appToken: xapp-1-A"+g.of(upper+digits, 10)+"-"+g.of(digits, 13)+"-"+g.hex(64)+"\n")
	add(chat, "opt/notify/telegram.sh", "Telegram", "curl -s https://api.telegram.org/bot"+g.of(digits[1:], 10)+":AA"+g.of(urlSafe, 33)+"/sendMessage -d chat_id=1\n")
	add(chat, "opt/notify/teams.conf", "Teams' webhook", "webhook=https://org.webhook.office.com/webhookb2/"+g.uuid()+"@"+g.uuid()+"/IncomingWebhook/"+g.hex(32)+"/"+g.uuid()+"\n")
	add(chat, "opt/notify/pagerduty.yml", "PagerDuty", "pagerduty:\n  routing_key: "+g.hex(32)+"\n")
	add(chat, "opt/notify/discord.json", "Discord's webhook", `{"url":"https://discord.com/api/webhooks/`+g.of(digits[1:], 19)+`/`+g.of(urlSafe, 68)+`"}`)

	const service = "key of a service"
	for _, s := range []struct{ name, path, text string }{
		{"Datadog", "etc/datadog-agent/datadog.yaml", "site: datadoghq.eu\napi_key: " + g.hex(32) + "\n"},
		{"New Relic", "etc/newrelic-infra.yml", "license_key: eu01xx" + g.hex(30) + "NRAL\n"},
		{"New Relic, user", "opt/newrelic.env", "NEW_RELIC_API_KEY=NRAK-" + g.of(upper+digits, 27) + "\n"},
		{"Grafana", "etc/alloy/config.alloy", "basic_auth {\n  username = \"123456\"\n  password = \"glc_" + g.b64(90) + "\"\n}\n"},
		{"Grafana, service account", "opt/grafana.sh", "curl -H 'Authorization: Bearer glsa_" + g.b62(32) + "_" + g.hex(8) + "' https://grafana.example/api/org\n"},
		{"Dynatrace", "opt/dynatrace/install.sh", "wget --header='Authorization: Api-Token dt0c01." + g.of(base32, 24) + "." + g.of(base32, 64) + "' https://x.live.dynatrace.com/api\n"},
		{"Splunk's collector", "opt/splunkforwarder/etc/apps/hec/local/inputs.conf", "[http://node]\ntoken = " + g.uuid() + "\n"},
		{"SendGrid", "etc/default/mailer", "SENDGRID_API_KEY=SG." + g.of(urlSafe, 22) + "." + g.of(urlSafe, 43) + "\n"},
		{"Stripe", "opt/shop/.env", "STRIPE_SECRET_KEY=sk_live_" + g.b62(24) + "\n"},
		{"OpenAI", "opt/assist/.env", "OPENAI_API_KEY=sk-proj-" + g.of(urlSafe, 74) + "T3BlbkFJ" + g.of(urlSafe, 74) + "\n"},
		{"Anthropic", "opt/assist/keys.toml", "anthropic = \"sk-ant-api03-" + g.of(urlSafe, 93) + "AA\"\n"},
		{"Hugging Face", "root/.cache/huggingface/token", "hf_" + g.of(upper+lower, 34) + "\n"},
		{"Vault", "root/.vault-token", g.vault()},
		{"Vault, in a unit", "etc/systemd/system/vault-agent.service.d/env.conf", "[Service]\nEnvironment=VAULT_TOKEN=" + g.vault() + "\n"},
		{"Vault, AppRole", "etc/vault.d/secret-id", "role_id=" + g.uuid() + "\nsecret_id=" + g.uuid() + "\n"},
		{"Consul", "etc/consul.d/consul.hcl", "acl {\n  tokens {\n    agent = \"" + g.uuid() + "\"\n  }\n}\nencrypt = \"" + g.b64(32) + "\"\n"},
		{"Terraform Cloud", "root/.terraform.d/credentials.tfrc.json", `{"credentials":{"app.terraform.io":{"token":"` + g.b62(14) + ".atlasv1." + g.of(urlSafe, 67) + `"}}}`},
		{"Doppler", "etc/default/doppler", "DOPPLER_TOKEN=dp.st.prd." + g.b62(43) + "\n"},
		{"Tailscale", "opt/tailscale-up.sh", "tailscale up --authkey tskey-auth-k" + g.b62(9) + "CNTRL-" + g.b62(32) + "\n"},
		{"Cloudflare", "etc/cloudflared/ini", "dns_cloudflare_api_token = " + g.of(urlSafe, 40) + "\n"},
		{"Sentry", "opt/sentry/.sentryclirc", "[auth]\ntoken=sntryu_" + g.hex(64) + "\n"},
		{"Postman", "opt/postman.env", "POSTMAN_API_KEY=PMAK-" + g.hex(24) + "-" + g.hex(34) + "\n"},
		{"Databricks", "root/.databrickscfg", "[DEFAULT]\nhost = https://adb-1.2.azuredatabricks.net\ntoken = dapi" + g.hex(32) + "-2\n"},
	} {
		add(service, s.path, s.name, s.text)
	}
}

func clouds(g *gen, p *plants) {
	add := func(kind, path, wrap, text string) { p.add(kind, other, path, wrap, text) }
	const aws = "AWS key"
	add(aws, "root/.aws/credentials", "the CLI's file", "[default]\naws_access_key_id = "+g.awsID()+"\naws_secret_access_key = "+g.awsKey()+"\n")
	add(aws, "etc/default/velero", "environment file", "AWS_ACCESS_KEY_ID="+g.awsID()+"\nAWS_SECRET_ACCESS_KEY="+g.awsKey()+"\n")
	add(aws, "etc/passwd-s3fs", "s3fs", g.awsID()+":"+g.awsKey()+"\n")
	add(aws, "root/.s3cfg", "s3cmd", "[default]\naccess_key = "+g.awsID()+"\nsecret_key = "+g.awsKey()+"\n")
	add(aws, "root/.config/rclone/rclone.conf", "rclone", "[s3]\ntype = s3\naccess_key_id = "+g.awsID()+"\nsecret_access_key = "+g.awsKey()+"\n")
	const gcp = "Google key"
	key := g.pkcs8PEM(g.rsa())
	add(gcp, "opt/gcp/sa.json", "service account", g.jsonOf(map[string]string{"type": "service_account", "project_id": "nodes", "private_key_id": g.hex(40), "private_key": string(key), "client_email": "n@nodes.iam.gserviceaccount.com"}))
	add(gcp, "opt/gcp/key.env", "API key", "MAPS_KEY=AIza"+g.of(urlSafe, 35)+"\n")
	add(gcp, "root/.config/gcloud/application_default_credentials.json", "a user's refresh token", g.jsonOf(map[string]string{"client_id": g.of(digits, 12) + "-" + g.of(lower+digits, 32) + ".apps.googleusercontent.com", "client_secret": "GOCSPX-" + g.of(urlSafe, 28), "refresh_token": "1//0" + g.of(urlSafe, 99), "type": "authorized_user"}))
	const azure = "Azure key or token"
	add(azure, "root/.azure/msal_token_cache.json", "the CLI's cache", g.jsonOf(map[string]any{"AccessToken": map[string]any{"k": map[string]string{"secret": g.entraToken(), "credential_type": "AccessToken"}}, "RefreshToken": map[string]any{"k": map[string]string{"secret": "1.A" + g.of(urlSafe, 800), "credential_type": "RefreshToken"}}}))
	add(azure, "root/.azure/service_principal_entries.json", "the CLI's principals", `[{"client_id":"`+g.uuid()+`","tenant":"`+g.uuid()+`","client_secret":"`+g.entra()+`"}]`)
	add(azure, "opt/cosmos.env", "Cosmos DB", "COSMOS=AccountEndpoint=https://d.documents.azure.com:443/;AccountKey="+g.b64(64)+";\n")
	add(azure, "etc/default/eventhub", "Event Hub", "EH=\"Endpoint=sb://logs.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey="+g.b64(32)+"\"\n")
	add(azure, "etc/aziot/config.toml", "IoT Edge", "[provisioning]\nsource = \"manual\"\nconnection_string = \"HostName=h.azure-devices.net;DeviceId=n;SharedAccessKey="+g.b64(32)+"\"\n")
	add(azure, "opt/func.sh", "function's key", "curl -s 'https://f.azurewebsites.net/api/run?code="+g.of(urlSafe, 54)+"=='\n")
	add(azure, "opt/appconfig.env", "App Configuration", "AZURE_APPCONFIG=Endpoint=https://c.azconfig.io;Id=ab-l0-s0:"+g.b62(20)+";Secret="+g.b64(32)+"\n")
	add(azure, "opt/search.json", "AI Search", `{"endpoint":"https://s.search.windows.net","api-key":"`+g.b62(42)+"AzSe"+g.b62(6)+`"}`)
	add(azure, "opt/insights.env", "Azure OpenAI", "AZURE_OPENAI_API_KEY="+g.hex(32)+"\n")
	const token = "service account's token"
	add(token, "var/lib/kubelet/pods/"+g.uuid()+"/volumes/kubernetes.io~projected/kube-api-access-x/token", "a pod's volume", g.saToken())
	add(token, "opt/sa/token", "copied", g.saToken())
	add(token, "opt/sa/call.sh", "header of curl", "curl -H \"Authorization: Bearer "+g.saToken()+"\" https://10.0.0.1:6443/api\n")
	add(token, "etc/prometheus/prometheus.yml", "bearer_token", "scrape_configs:\n- job_name: k\n  bearer_token: "+g.saToken()+"\n")
	add(token, "var/lib/kubelet/pods/"+g.uuid()+"/volumes/kubernetes.io~secret/db/password", "a pod's Secret", g.password(24))
	add(token, "opt/dump/secrets.yaml", "dump of Secrets", "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Secret\n  data:\n    password: "+data([]byte(g.password(18)))+"\n    username: YWRtaW4=\n")
}

func keyFiles(g *gen, p *plants) {
	const kind = "private key"
	add := func(path, wrap, text string) { p.add(kind, other, path, wrap, text) }
	locked := func() string { return string(g.lockedPFX()) }
	add("root/.ssh/id_ed25519", "OpenSSH", string(g.opensshPEM(g.ed(), "azureuser@laptop")))
	add("home/azureuser/.ssh/id_ecdsa", "SEC 1", string(g.ecPEM(g.ec())))
	add("etc/ssl/private/site.key", "PKCS#1", string(rsaPEM(g.rsa())))
	add("etc/nginx/tls/site.pem", "behind its certificate", string(g.certificate("site.example", "", g.ec()))+string(g.pkcs8PEM(g.ec())))
	add("etc/ssl/private/locked.pem", "encrypted PKCS#8", string(g.lockedPEM()))
	add("opt/app/values.yaml", "YAML block", "ingress:\n  tls:\n"+yamlKey("key", g.pkcs8PEM(g.ec()), "    "))
	add("opt/app/tls.json", "JSON string", `{"key":"`+g.jsonText(g.pkcs8PEM(g.ec()))+`"}`)
	add("opt/app/secret.yaml", "Secret of Kubernetes", "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\ndata:\n  tls.crt: "+data(g.certificate("a", "", g.ec()))+"\n  tls.key: "+data(g.pkcs8PEM(g.ec()))+"\n")
	add("opt/app/site.pfx", "PKCS#12", locked())
	add("opt/app/site.pfx.b64", "PKCS#12 in base64", b64Lines(g.lockedPFX(), 76, 0, ""))
	add("opt/app/client.jks", "Java key store", string(g.jks()))
	add("opt/app/key.der", "PKCS#8 as DER", string(g.pkcs8(g.rsa())))
	add("home/azureuser/laptop.ppk", "PuTTY", string(g.putty(g.ed(), "laptop")))
	add("root/signing.asc", "PGP", string(g.pgp()))
	add("etc/krb5.keytab", "keytab", string(g.keytab("EXAMPLE.COM", "host", "node.example")))
	add("etc/wireguard/wg0.conf", "WireGuard", "[Interface]\nAddress = 10.9.0.2/32\nPrivateKey = "+g.b64(32)+"\n\n[Peer]\nPublicKey = "+g.b64(32)+"\nPresharedKey = "+g.b64(32)+"\nEndpoint = vpn.example:51820\n")
	add("etc/systemd/network/wg0.netdev", "WireGuard of systemd", "[NetDev]\nName=wg0\nKind=wireguard\n[WireGuard]\nPrivateKey="+g.b64(32)+"\n")
	add("etc/openvpn/client.ovpn", "OpenVPN, inline", "client\nremote vpn.example\n<key>\n"+string(g.pkcs8PEM(g.ec()))+"</key>\n")
	add("etc/openvpn/ta.key", "OpenVPN's static key", "#\n# 2048 bit OpenVPN static key\n#\n-----BEGIN OpenVPN Static key V1-----\n"+strings.Join(lines(g.hex(512), 32), "\n")+"\n-----END OpenVPN Static key V1-----\n")
	add("root/.config/sops/age/keys.txt", "age", "# created: 2026-01-01\nAGE-SECRET-KEY-1"+g.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)+"\n")
	add("etc/bind/rndc.key", "rndc", "key \"rndc-key\" {\n\talgorithm hmac-sha256;\n\tsecret \""+g.b64(32)+"\";\n};\n")
	add("etc/ipsec.secrets", "IPsec", "203.0.113.1 %any : PSK \""+g.password(24)+"\"\n")
	add("etc/NetworkManager/system-connections/w.nmconnection", "pre-shared key of a wireless net", "[wifi-security]\nkey-mgmt=wpa-psk\npsk="+g.phrase()+"\n")
	add("opt/app/jwk.json", "JWK", fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","x":"%s","y":"%s","d":"%s"}]}`, g.b64u(32), g.b64u(32), g.b64u(32)))
	add("opt/app/key.txt.b64", "PEM in base64, one line", base64.StdEncoding.EncodeToString(g.ecPEM(g.ec()))+"\n")
	add("etc/kubernetes/encryption.yaml", "EncryptionConfiguration", "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc:\n      keys:\n      - name: key1\n        secret: "+g.b64(32)+"\n")
}
