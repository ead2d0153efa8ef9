package secrets

import (
	"strconv"
	"strings"
)

func heldOutMonitors(g *gen, a *plants) {
	const kind = "agents that watch"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("etc/datadog-agent/datadog.yaml", "api_key of Datadog", "## @param api_key - string - required\napi_key: "+g.hex(32)+"\nsite: datadoghq.eu\nlogs_enabled: true\n")
	add("etc/systemd/system/datadog-agent.service.d/10-key.conf", "key in a drop-in", "[Service]\nEnvironment=\"DD_SITE=datadoghq.eu\" \"DD_API_KEY="+g.hex(32)+"\"\n")
	add("etc/newrelic-infra.yml", "license_key of New Relic", "license_key: eu01xx"+g.hex(30)+"NRAL\ndisplay_name: n1\nlog:\n  level: info\n")
	add("opt/splunkforwarder/etc/apps/out/local/outputs.conf", "token of Splunk's HTTP collector", "[httpout]\nhttpEventCollectorToken = "+g.uuid()+"\nuri = https://hec.example.com:8088\n")
	add("etc/prometheus/prometheus.yml", "remote_write of Prometheus",
		"global:\n  scrape_interval: 30s\nremote_write:\n- url: https://prometheus-prod-01.grafana.net/api/prom/push\n  basic_auth:\n    username: 123456\n    password: glc_"+data([]byte(`{"o":"123456","n":"node","k":"`+g.b62(24)+`","m":{"r":"eu"}}`))+"\n")
	add("etc/fluent-bit/fluent-bit.conf", "Shared_Key of Fluent Bit", "[SERVICE]\n    Flush 5\n[INPUT]\n    Name systemd\n[OUTPUT]\n    Name        azure\n    Match       *\n    Customer_ID "+g.uuid()+"\n    Shared_Key  "+g.b64(64)+"\n")
	add("etc/telegraf/telegraf.d/out.conf", "token of InfluxDB", "[[outputs.influxdb_v2]]\n  urls = [\"https://influx.example.com:8086\"]\n  token = \""+g.of(urlSafe, 86)+"==\"\n  organization = \"ops\"\n  bucket = \"nodes\"\n")
	add("etc/filebeat/filebeat.yml", "api_key of Elasticsearch", "filebeat.inputs:\n- type: filestream\n  id: sys\n  paths: [/var/log/*.log]\noutput.elasticsearch:\n  hosts: [\"https://es.example.com:9200\"]\n  api_key: \""+g.of(urlSafe, 20)+":"+g.of(urlSafe, 22)+"\"\n")
	add("var/ossec/etc/client.keys", "key of a Wazuh agent", "014 "+donorName+" any "+g.hex(64)+"\n")
	add("etc/zabbix/zabbix_agentd.psk", "PSK of Zabbix", g.hex(64)+"\n")
	add("opt/notify/alert.sh", "webhook of Slack", "#!/bin/sh\ncurl -s -X POST -H 'Content-type: application/json' --data '{\"text\":\"down\"}' https://hooks.slack.com/services/T"+g.of(upper+digits, 10)+"/B"+g.of(upper+digits, 10)+"/"+g.b62(24)+"\n")
}

func heldOutBackups(g *gen, a *plants) {
	const kind = "backups and stores"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("root/.config/rclone/rclone.conf", "remote of rclone", "[offsite]\ntype = s3\nprovider = Wasabi\naccess_key_id = "+g.of(upper+digits, 20)+"\nsecret_access_key = "+g.b62(40)+"\nendpoint = s3.eu-central-1.wasabisys.com\n")
	add("etc/restic/env", "exports for restic", "export RESTIC_REPOSITORY=b2:nodes:n1\nexport RESTIC_PASSWORD='"+g.phrase()+"'\nexport B2_ACCOUNT_ID=003"+g.hex(22)+"\nexport B2_ACCOUNT_KEY=K003"+g.of(base62+"/+", 27)+"\n")
	add("etc/borgmatic/config.yaml", "passphrase of borgmatic", "source_directories: [/etc, /home]\nrepositories:\n- path: ssh://u1@b.example.com/./repo\n  label: b\nencryption_passphrase: \""+g.phrase()+"\"\nkeep_daily: 7\n")
	add("root/.config/borg/keys/b_example_com_repo", "key file of Borg", "BORG_KEY "+g.hex(64)+"\n"+strings.Join(lines("hqlhbGdvcml0aG2mc2hhMjU2pGRhdGHaAN6B"+g.b64(390), 70), "\n")+"\n")
	add("etc/ceph/ceph.client.admin.keyring", "keyring of Ceph", "[client.admin]\n\tkey = AQ"+g.of(base62+"/+", 36)+"==\n\tcaps mds = \"allow *\"\n\tcaps mon = \"allow *\"\n")
}

func heldOutKeyFiles(g *gen, a *plants) {
	const kind = "files of keys"
	text := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	bytes := func(path, wrap string, data []byte) { *a = append(*a, plant{kind, other, path, wrap, data}) }
	bytes("etc/squid/HTTP.keytab", "keytab", g.keytab("EXAMPLE.COM", "HTTP", "proxy.example.com"))
	bytes("opt/app/tls.pfx", "PFX with a password", g.lockedPFX())
	public := lines(strings.Fields(g.sshPublic(g.rsa()))[1], 64)
	private := lines(g.b64(600), 64)
	text("home/azureuser/jump.ppk", "PuTTY, version 2, without a passphrase",
		"PuTTY-User-Key-File-2: ssh-rsa\r\nEncryption: none\r\nComment: rsa-key-20261120\r\nPublic-Lines: "+strconv.Itoa(len(public))+"\r\n"+strings.Join(public, "\r\n")+"\r\nPrivate-Lines: "+strconv.Itoa(len(private))+"\r\n"+strings.Join(private, "\r\n")+"\r\nPrivate-MAC: "+g.hex(40)+"\r\n")
	text("root/.gnupg/private-keys-v1.d/"+strings.ToUpper(g.hex(40))+".key", "GnuPG, without a passphrase",
		"Created: 20261120T070000\nKey: (private-key (ecc (curve Ed25519)(flags eddsa)(q\n  #40"+strings.ToUpper(g.hex(64))+"#)\n (d #"+strings.ToUpper(g.hex(64))+"#)\n ))\n")
	bytes("srv/keys/release.asc", "PGP, armoured", g.pgp())
	bytes("home/azureuser/.ssh/id_ecdsa", "a user's key for SSH", g.opensshPEM(g.ec(), "azureuser@jump"))
	bytes("etc/salt/pki/minion/minion.pem", "key of a Salt minion", rsaPEM(g.rsa()))
	text("root/.kube/config", "client-key-data of an administrator", kubeconfig("kubernetes-admin", "client-certificate-data: "+data(g.certificate("kubernetes-admin", "system:masters", g.ec()))+"\n    client-key-data: "+data(rsaPEM(g.rsa()))))
	text("etc/kubernetes/enc/enc.yaml", "EncryptionConfiguration", "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - secretbox:\n      keys:\n      - name: key1\n        secret: "+g.b64(32)+"\n  - identity: {}\n")
}

func heldOutPods(g *gen, a *plants) {
	const kind = "volumes of pods and system services"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	pod := "var/lib/kubelet/pods/" + g.uuid() + "/volumes/"
	add(pod+"kubernetes.io~projected/kube-api-access-x7lpn/..2026_11_20_07_01_02.123456789/token", "token of a service account", g.saToken())
	add(pod+"kubernetes.io~secret/db-auth/..2026_11_20_07_01_02.987654321/password", "value of a Secret", g.password(16))
	add("etc/systemd/system/report.service", "SetCredential of systemd", "[Service]\nSetCredential=smtp-password:"+g.b62(18)+"\nExecStart=/usr/bin/report\n")
	add("etc/systemd/system/containerd.service.d/http-proxy.conf", "proxy with a password", "[Service]\nEnvironment=\"HTTPS_PROXY=http://svc-node:"+g.b62(16)+"@proxy.example.com:3128\"\nEnvironment=\"NO_PROXY=10.0.0.0/8\"\n")
}

func heldOutPeople(g *gen, a *plants) {
	const kind = "what people leave"
	add := func(path, wrap, text string) { a.add(kind, other, path, wrap, text) }
	add("home/azureuser/.zsh_history", "history of zsh", ": 1763620000:0;kubectl get nodes\n: 1763620010:0;mysql -h db -u root -p"+g.b62(14)+" -e 'show tables'\n: 1763620020:0;exit\n")
	add("root/.bash_history", "history of bash", "cd /etc\nexport ARM_CLIENT_SECRET="+g.entra()+"\nterraform plan\nhistory\n")
	add("root/.netrc", "netrc over several lines", "machine artifacts.example.com\n\tlogin node\n\tpassword "+g.password(16)+"\n")
	add("root/.cache/huggingface/token", "token of a hub", "hf_"+g.of(upper+lower, 34))
	add("root/TODO", "a note", "- ask Ben about the switch\n- root pw of the BMC: "+g.phrase()+"\n- order disks\n")
}
