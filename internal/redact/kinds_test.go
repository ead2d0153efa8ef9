package redact

import (
	"strings"
	"testing"
)

// kindCase is a file as a program's documentation gives its format, with a secret
// between « and ».
type kindCase struct {
	of, path, text string
}

const (
	pw1 = "k,Xw7Lp+9vTq2R"
	pw2 = "h%Zr4Nt=6mBs1Y"
	pw3 = "e.Qc8Jd!3gFv5W"
	b32 = "q0Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyTuWeXaQio7mE=" // 32 bytes
)

// Each is found on a disk, and hidden where a program prints it.
func TestKindsAreFound(t *testing.T) {
	for _, c := range allKindCases() {
		text, from, to := planted(t, c.text)
		found := false
		hits := Find(Piece{Path: c.path, Data: []byte(text), Whole: true})
		for _, h := range hits {
			found = found || h.From < to && from < h.To
		}
		if !found {
			t.Errorf("%s, /%s: not found in %q: %v", c.of, c.path, text, hits)
		}
	}
}

func TestKindsAreHidden(t *testing.T) {
	for _, c := range allKindCases() {
		if strings.ContainsRune(c.of, '*') { // known by the file's name alone
			continue
		}
		text, from, to := planted(t, c.text)
		shown := strings.Join(Lines(strings.Split(text, "\n")), "\n")
		secret := text[from:to]
		size := min(len(secret), max(6, len(secret)/2), 20)
		for i := 0; i+size <= len(secret); i++ {
			if part := secret[i : i+size]; strings.Contains(shown, part) && !strings.Contains(part, "\n") {
				t.Errorf("%s: %q of %q is shown in\n%s", c.of, part, secret, shown)
				break
			}
		}
	}
}

// kindCases are formats of programs' configurations. A * marks those that only their
// file's name shows to be secrets.
func kindCases() []kindCase {
	return []kindCase{
		// XML
		{"tomcat-users", "etc/tomcat9/tomcat-users.xml", `<user username="admin" password="«` + pw1 + `»" roles="manager-gui"/>`},
		{"a connector of Tomcat", "etc/tomcat9/server.xml", `<Connector port="8443" keystorePass="«` + pw2 + `»" SSLEnabled="true"/>`},
		{"appSettings", "opt/app/app.config", `<appSettings><add key="ApiKey" value="«q7Rw2Lx9Zt4Kb8Vn»" /></appSettings>`},
		{"NuGet", "root/.nuget/NuGet/NuGet.Config", `<packageSourceCredentials><feed><add key="Username" value="ci" /><add key="ClearTextPassword" value="«` + pw3 + `»" /></feed></packageSourceCredentials>`},
		{"a bean of Spring", "opt/app/beans.xml", `<property name="password" value="«` + pw1 + `»"/>`},
		{"Hibernate", "opt/app/hibernate.cfg.xml", `<property name="hibernate.connection.password">«` + pw2 + `»</property>`},
		{"Hadoop", "etc/hadoop/conf/core-site.xml", "<property>\n  <name>fs.azure.account.key.logs.blob.core.windows.net</name>\n  <value>«" + rnd40 + rnd40 + "»</value>\n</property>\n"},
		{"FileZilla", "root/.config/filezilla/sitemanager.xml", "<Server><Host>h</Host><User>u</User><Pass encoding=\"base64\">«aHVudGVyMmh1bnRlcjI3»</Pass></Server>"},
		{"machine key", "opt/app/Web.config", `<machineKey validationKey="«` + strings.ToUpper(hex32+hex32) + `»" validation="SHA1" />`},
		{"Pacemaker's fencing", "var/lib/pacemaker/cib/cib.xml", `<nvpair id="f-1" name="passwd" value="«` + pw3 + `»"/>`},
		{"connectionStrings", "opt/app/web.config", `<add name="Db" connectionString="Server=s;Database=d;User Id=u;Password=«` + pw1 + `»;" />`},
		{"Maven", "root/.m2/settings.xml", "<server><id>x</id><password>«" + pw1 + "»</password></server>"},
		{"ClickHouse", "etc/clickhouse-server/users.xml", "<users><default><password>«" + pw2 + "»</password></default></users>"},
		{"a key of .NET's", "opt/app/key.xml", "<RSAKeyValue><Modulus>AAAA</Modulus><Exponent>AQAB</Exponent><D>«" + rnd40 + rnd40 + "»</D></RSAKeyValue>"},
		{"Jenkins' credentials", "var/lib/jenkins/credentials.xml", "<password>«{AQAAABAAAAAQq7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0Py=}»</password>"},
		// => and other separators
		{"Laravel", "srv/config/database.php", "<?php return [\n  'username' => 'app',\n  'password' => '«" + pw3 + "»',\n];\n"},
		{"Ruby's hash", "opt/app/config.rb", "config = { :user => 'app', :password => \"«" + pw1 + "»\" }\n"},
		{"Puppet", "etc/puppetlabs/code/site.pp", "mysql::db { 'app':\n  user     => 'app',\n  password => '«" + pw2 + "»',\n}\n"},
		{"Chef", "opt/chef/attributes/default.rb", "default['app']['db_password'] = '«" + pw3 + "»'\n"},
		{"Logstash", "etc/logstash/conf.d/out.conf", "output { elasticsearch { user => \"ls\" password => \"«" + pw1 + "»\" } }\n"},
		{"FreeRADIUS's users", "etc/freeradius/3.0/users", "bob Cleartext-Password := \"«" + pw2 + "»\"\n"},
		{"phpMyAdmin", "etc/phpmyadmin/config.inc.php", "<?php\n$cfg['blowfish_secret'] = '«q7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyT»';\n"},
		{"PHP's variable", "srv/www/db.php", "<?php\n$db_password = '«" + pw3 + "»';\n"},
		{"Django's databases", "opt/app/settings.py", "DATABASES = {'default': {'USER': 'app', 'PASSWORD': '«" + pw1 + "»'}}\n"},
		{"a key with brackets", "opt/app/prod.py", "SECRET_KEY = '«django-insecure-k3y(=)w2^x9&zt4[b8]n3@c6*hd1+g5$js0#»'\n"},
		{"Rails", "opt/app/config/secrets.yml", "production:\n  secret_key_base: «" + hex32 + hex32 + "»\n"},
		{"Erlang", "etc/rabbitmq/advanced.config", "[{rabbit, [{default_pass, <<\"«" + pw2 + "»\">>}]}].\n"},
		// code
		{"requests' auth", "opt/x.py", "r = requests.get(url, auth=('svc', '«" + pw3 + "»'))\n"},
		{"HTTPBasicAuth", "opt/x.py", "r = requests.get(url, auth=HTTPBasicAuth(\"svc\", \"«" + pw1 + "»\"))\n"},
		{"DBI", "opt/x.pl", "#!/usr/bin/perl\nmy $d = DBI->connect('dbi:mysql:app', 'app', '«" + pw2 + "»');\n"},
		{"PowerShell", "opt/x.ps1", "$Password = \"«" + pw3 + "»\"\n"},
		{"expect*", "opt/login.exp", "#!/usr/bin/expect\nspawn ssh u@h\nexpect \"assword:\"\nsend \"«" + pw1 + "»\\r\"\n"},
		// programs
		{"smbclient", "opt/x.sh", "smbclient //h/s -U 'DOM/svc%«" + pw1 + "»' -c ls\n"},
		{"net ads", "opt/x.sh", "net ads join -U Administrator%«" + pw3 + "»\n"},
		{"rpcclient", "root/.bash_history", "rpcclient --user=svc%«" + pw1 + "» h\n"},
		{"realm join", "opt/x.sh", "echo -n '«" + pw3 + "»' | realm join --user=join example.com\n"},
		{"adcli", "opt/x.sh", "printf %s '«" + pw1 + "»' | adcli join --stdin-password -U join example.com\n"},
		{"ipa-client-install", "opt/x.sh", "ipa-client-install --unattended -p admin -w '«" + pw3 + "»'\n"},
		{"ldapsearch", "opt/x.sh", "ldapsearch -x -D cn=a -w «" + pw1 + "» -b dc=x\n"},
		{"zip", "opt/x.sh", "zip -r -P «" + pw3 + "» b.zip /etc\n"},
		{"7z", "root/.bash_history", "7z x -p«" + pw1 + "» b.7z\n"},
		{"gpg", "opt/x.sh", "gpg --batch --passphrase '«" + pw3 + "»' -c f\n"},
		{"openssl enc", "opt/x.sh", "openssl enc -aes-256-cbc -k «" + pw1 + "» -in f\n"},
		{"openssl -pass", "opt/x.sh", "openssl enc -d -aes256 -pass pass:«" + pw1 + "» -in f\n"},
		{"ipmitool", "opt/x.sh", "ipmitool -I lanplus -H h -U root -P «" + pw3 + "» power status\n"},
		{"sqlplus", "opt/x.sh", "sqlplus -s app/«" + "q7Rw2Lx9Zt4K" + "»@db @x.sql\n"},
		{"rabbitmqctl", "opt/x.sh", "rabbitmqctl add_user app «" + pw3 + "»\n"},
		{"htpasswd", "opt/x.sh", "htpasswd -nbB admin «" + pw1 + "» > /etc/nginx/.htpasswd\n"},
		{"mkpasswd", "opt/x.sh", "mkpasswd -m sha-512 «" + pw3 + "»\n"},
		{"httpie", "opt/x.sh", "http -a svc:«" + pw1 + "» https://h/x\n"},
		{"splunk", "opt/x.sh", "/opt/splunkforwarder/bin/splunk add forward-server h:9997 -auth admin:«" + pw3 + "»\n"},
		{"skopeo", "opt/x.sh", "skopeo copy --src-creds ci:«" + pw1 + "» docker://a docker://b\n"},
		{"nmcli", "opt/x.sh", "nmcli dev wifi connect Office password «" + pw3 + "»\n"},
		{"kubectl", "root/.bash_history", "kubectl create secret docker-registry r --docker-server=h --docker-username=u --docker-password=«" + pw1 + "»\n"},
		{"oc login", "root/.bash_history", "oc login --token=«sha256~q7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyTuWeXaQio7mE» --server=https://h:6443\n"},
		{"debconf", "opt/x.sh", "debconf-set-selections <<< 'mysql-server mysql-server/root_password password «" + pw3 + "»'\n"},
		{"preseed", "opt/preseed.cfg", "d-i passwd/root-password password «" + pw1 + "»\n"},
		{"kickstart", "root/anaconda-ks.cfg", "rootpw --plaintext «" + pw3 + "»\n"},
		{"rsync's variable", "opt/x.sh", "RSYNC_PASSWORD='«" + pw1 + "»' rsync -a u@h::m /d\n"},
		{"lftp", "opt/x.sh", "lftp -u svc,«q7Rw2Lx9Zt4K» sftp://h\n"},
		{"Nessus", "opt/x.sh", "nessuscli agent link --key=«" + hex32 + hex32 + "» --host=h --port=8834\n"},
		{"NetBird", "opt/x.sh", "netbird up --setup-key «A1B2C3D4-E5F6-4711-8899-AABBCCDDEEFF»\n"},
		{"Teleport", "opt/x.sh", "teleport start --roles=node --token=«" + hex32 + "» --auth-server=h\n"},
		{"Jenkins' agent", "etc/systemd/system/agent.service", "[Service]\nExecStart=/usr/bin/java -jar agent.jar -url https://h -secret «" + hex32 + hex32 + "» -name n\n"},
		{"sudo -S", "opt/x.sh", "echo '«" + pw3 + "»' | sudo -S apt-get update\n"},
		{"openconnect", "opt/x.sh", "echo «" + pw1 + "» | openconnect --user=u --passwd-on-stdin vpn.corp.io\n"},
		{"passwd by lines", "opt/x.sh", "passwd ops <<EOF\n«" + pw3 + "»\n" + pw3 + "\nEOF\n"},
		{"a list of arguments in YAML", "var/lib/cloud/instance/x.cfg", "runcmd:\n- [ kubeadm, join, 10.0.0.1:6443, --token, abcdef.«0123456789abcdef», --discovery-token-unsafe-skip-ca-verification ]\n"},
		{"a list of arguments in lines", "opt/m.yaml", "args:\n- --token\n- «q7Rw2Lx9Zt4Kb8Vn3Mc6»\n"},
		{"a list of lists", "opt/m.yaml", "runcmd:\n- - kubeadm\n  - join\n  - --token\n  - abcdef.«0123456789abcdef»\n"},
		{"etcdctl", "opt/x.sh", "etcdctl --user root:«" + pw1 + "» get /x\n"},
		{"etcdctl's variable", "etc/default/etcdctl", "ETCDCTL_USER=root:«" + pw3 + "»\n"},
		{"user and password as a pair", "etc/default/x", "BASIC_AUTH=ops:«" + pw1 + "»\n"},
		// addresses and sources
		{"apt's source", "etc/apt/sources.list.d/corp.list", "deb [arch=amd64] https://svc:«" + pw1 + "»@apt.corp.io/ubuntu noble main\n"},
		{"apt's source, deb822", "etc/apt/sources.list.d/corp.sources", "Types: deb\nURIs: https://svc:«" + pw3 + "»@apt.corp.io/ubuntu\n"},
		{"yum's repository", "etc/yum.repos.d/corp.repo", "[corp]\nbaseurl=https://yum.corp.io/\nusername=svc\npassword=«" + pw1 + "»\n"},
		{"zypper", "etc/zypp/credentials.d/SCCcredentials", "username=SCC_x\npassword=«" + hex32 + "»\n"},
		{"conda", "root/.condarc", "channels:\n- https://conda.corp.io/t/«tk-q7Rw2Lx9-Zt4K-b8Vn-3Mc6-Hd1Fg5Js0PyT»/main\n"},
		{"pairs without a scheme", "etc/proxychains.conf", "http 10.0.0.9 3128 svc «" + pw3 + "»\n"},
		{"Squid's peer", "etc/squid/squid.conf", "cache_peer up.corp.io parent 3128 0 login=svc:«" + pw1 + "»\n"},
		{"tinyproxy", "etc/tinyproxy/tinyproxy.conf", "BasicAuth svc «" + pw3 + "»\n"},
		{"bundler", "root/.bundle/config", "---\nBUNDLE_GEMS__CORP__IO: \"svc:«" + pw1 + "»\"\n"},
		{"composer", "root/.composer/auth.json", `{"github-oauth": {"github.com": "«q7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyTuWeXaQio»"}}`},
		// one word
		{"a file named password*", "etc/app/db_password", "«" + pw1 + "»\n"},
		{"a file named token*", "opt/agent/token", "«q7Rw2Lx9Zt4Kb8Vn3Mc6»\n"},
		{"a file .secret*", "opt/app/.secret", "«" + pw3 + "»\n"},
		{"Hugging Face", "root/.cache/huggingface/token", "«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»\n"},
		{"Ansible's vault*", "root/.vault_pass.txt", "«" + pw3 + "»\n"},
		{"Jenkins' first password*", "var/lib/jenkins/secrets/initialAdminPassword", "«" + hex32 + "»\n"},
		{"Nexus*", "opt/sonatype-work/nexus3/admin.password", "«5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f»"},
		{"Wazuh*", "var/ossec/etc/authd.pass", "«" + pw1 + "»\n"},
		{"Rails' master key*", "opt/app/config/master.key", "«" + hex32 + "»"},
		{"ZeroTier's token*", "var/lib/zerotier-one/authtoken.secret", "«q7rw2lx9zt4kb8vn3mc6hd1f»"},
		{"Varnish*", "etc/varnish/secret", "«5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f»\n"},
		{"rsync's password*", "etc/rsync.pass", "«" + pw3 + "»\n"},
		{"restic's password*", "root/.restic-password", "«" + pw3 + "»\n"},
		{"a key of MongoDB's set*", "etc/mongodb/keyfile", "«" + rnd40 + rnd40 + "\n" + rnd40 + "»\n"},
		{"borg*", "root/.borg_passphrase", "«" + pw1 + "»\n"},
	}
}

func allKindCases() []kindCase {
	return append(append(kindCases(), daemonKindCases()...), cloudKindCases()...)
}
