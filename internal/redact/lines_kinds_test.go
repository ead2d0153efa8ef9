package redact

import (
	"strings"
	"testing"
)

// What programs say of secrets while a node starts: nothing of them is left.
func TestSpokenSecretsAreHidden(t *testing.T) {
	for _, text := range []string{
		"type=PROCTITLE msg=audit(1.1:1): proctitle=«6375726C002D75007376633A68756E74657232313233»",
		"config: &{User:admin Pass:«" + pw3 + "» Host:h}",
		" Password: (string) (len=14) \"«" + pw1 + "»\",",
		"\"Env\": [\"DB_PASSWORD=«" + pw3 + "»\", \"X=y\"]",
		"+ docker run -d -e DB_PASSWORD=«" + pw1 + "» app",
		"cc_set_passwords.py[DEBUG]: Changing password for ['ops:«tiger-Sesam4520»']",
		"MANAGEMENT: CMD 'password \"Auth\" \"«tiger-Zurich2013»\"'",
		"1763622001.022 [0 10.0.0.9:51422] \"AUTH\" \"«q7Rw.vMs!3BK0I»\"",
		"       +bind_password \"«delta_monday1683»\"",
		"user * «hse1Xw9dSbIQ» *",
		"  + admin_password = \"«" + pw3 + "»\"",
		"[Note] A temporary password is generated for root@localhost: «" + pw3 + "»",
		"Your new password is: «" + pw1 + "»",
		"Generated password «q7Rw2Lx9Zt4K» for user admin",
		"Administrator password has been set to «q7Rw2Lx9Zt4K»",
		"Password for 'elastic' user: «q7Rw2Lx9Zt4K»",
		"Please use the following password to proceed to installation:\n\n«" + hex32 + "»\n\nThis may also be found at: /var/lib/jenkins/secrets/initialAdminPassword",
		"Unseal Key 1: «" + b32 + "»",
		"Initial Root Token: «hvs.CAESIq7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0»",
		"Enrollment token: «q7Rw2Lx9Zt4Kb8Vn3Mc6»",
		"PBKDF2 hash of your password is grub.pbkdf2.sha512.10000.«" + strings.ToUpper(hex32+hex32) + "»",
		"  private key: «" + b32 + "»",
		"  preshared key: «" + b32 + "»",
		"SNMP community string: «q7Rw2Lx9»",
		"> X-Auth-Token: «" + hex32 + "»",
		"> DD-API-KEY: «" + hex32 + "»",
		"> X-Consul-Token: «5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f»",
		"> X-JFrog-Art-Api: «AKCp" + rnd40 + rnd40 + "»",
		"> X-Amz-Security-Token: «" + rnd40 + rnd40 + "»",
		"> Proxy-Authorization: Basic «c3ZjOmh1bnRlcjI=»",
		"POST body: grant_type=password&username=u&password=«q7Rw2Lx9Zt4K»&scope=x",
		"POST body: client_id=x&client_assertion=«eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0." + rnd40 + "»",
		"invalid password '«q7Rw2Lx9Zt4K»' for user app",
		"authentication failed with token «q7Rw2Lx9Zt4Kb8Vn»",
		"bad credentials: svc/«" + pw3 + "»",
		"FATAL: could not parse connection string \"host=h password=«q7Rw2Lx9Zt4K»\"",
		"+ read -r PASS\n+ PASS=«q7Rw2Lx9Zt4K»\n+ '[' -z «q7Rw2Lx9Zt4K» ']'",
		"+ su - postgres -c 'psql -c \"ALTER USER app PASSWORD '\\''«q7Rw2Lx9Zt4K»'\\''\"'",
		"+ mysql -e \"CREATE USER 'app'@'%' IDENTIFIED BY '«q7Rw2Lx9Zt4K»'\"",
		"+ install -m 600 /dev/stdin /root/.pgpass\n+ echo 'db:5432:*:app:«q7Rw2Lx9Zt4K»'",
		"+ tee /etc/app/secret\n+ echo «q7Rw2Lx9Zt4Kb8Vn»",
		"+ azcopy login --service-principal --application-id x\n+ AZCOPY_SPA_CLIENT_SECRET=«abc8Q~q7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyTuW»",
		"+ git config --global url.https://«ghp_q7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyTuWeX»@github.com/.insteadOf https://github.com/",
		"+ npm config set //r.io/:_authToken «q7Rw2Lx9Zt4Kb8Vn3Mc6»",
		"+ pip install --index-url https://u:«q7Rw2Lx9Zt4K»@h/simple x",
		"+ ansible-playbook -e 'db_password=«" + pw1 + "»' x.yml",
		"+ helm install x y --set auth.password=«" + pw3 + "» --wait",
		"+ kubectl -n x create secret generic y --from-literal 'token=«q7Rw2Lx9Zt4Kb8Vn»'",
		"+ java -Djavax.net.ssl.keyStorePassword=«q7Rw2Lx9Zt4K» -jar x.jar",
		"+ keytool -importkeystore -srcstorepass «q7Rw2Lx9Zt4K» -deststorepass «hT5mBs1YzX2c» -noprompt",
		"+ openssl pkcs12 -export -passout pass:«q7Rw2Lx9Zt4K» -in x",
		"+ gpg --batch --yes --passphrase «q7Rw2Lx9Zt4K» -d x",
		"+ cryptsetup open /dev/sdc x\n+ echo -n «" + pw1 + "»",
		"+ mount -t davfs -o username=u,password=«q7Rw2Lx9Zt4K» https://h /m",
		"+ snmpget -v3 -u u -A «q7Rw2Lx9Zt4K» -X «hT5mBs1YzX2c» h x",
		"+ snmpwalk -v2c -c «s3cr3tComm» h",
		"+ ipmitool -H h -U root -P «q7Rw2Lx9Zt4K» power on",
		"+ influx -username u -password «q7Rw2Lx9Zt4K»",
		"+ vault kv put secret/x password=«q7Rw2Lx9Zt4K»",
		"+ consul acl set-agent-token agent «5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f»",
		"+ nomad operator api -token «5b3c1f2e-7d4a-4c9b-8e1f-0a2b3c4d5e6f» x",
		"+ aws configure set aws_secret_access_key «wJalrXUtnFEMIK7MDENGbPxRfiCYq7Rw2Lx9Zt4K»",
		"+ gcloud auth activate-service-account --key-file /tmp/k\n{\"private_key\": \"-----BEGIN PRIVATE KEY-----\\n«" + rnd40 + rnd40 + "»\\n-----END PRIVATE KEY-----\\n\"}",
		"+ rclone config create x s3 secret_access_key «" + rnd40 + "»",
		"+ borg init --encryption repokey\n+ BORG_PASSPHRASE=«" + pw3 + "»",
		"+ curl -k --user «»svc:«q7Rw2Lx9Zt4K» https://h",
		"+ curl -sS --data-urlencode 'password=«q7Rw2Lx9Zt4K»' https://h",
		"+ curl -X POST https://h -d '{\"username\":\"u\",\"password\":\"«" + pw1 + "»\"}'",
		"+ curl 'https://h/api?api_key=«q7Rw2Lx9Zt4Kb8Vn»&x=1'",
		"+ wget --header 'X-API-Key: «q7Rw2Lx9Zt4Kb8Vn»' https://h",
		"+ http --auth u:«q7Rw2Lx9Zt4K» h",
		"+ ssh-keygen -q -t ed25519 -N «q7Rw2Lx9Zt4K» -f x",
		"+ passwd --stdin u\n+ echo «" + pw1 + "»",
		"COMMAND=/usr/bin/sshpass -p «q7Rw2Lx9Zt4K» scp x y",
		"cloud-init[812]: passwords: {'root': '«" + pw3 + "»'}",
		"level=info msg=\"using credentials\" username=u password=\"«" + pw3 + "»\"",
		"{\"msg\":\"login\",\"user\":\"u\",\"pass\":\"«q7Rw2Lx9Zt4K»\"}",
		"login attempt u/«" + pw3 + "» failed",
		"LDAP bind as cn=admin,dc=x with password «q7Rw2Lx9Zt4K» failed",
		"radius: shared secret «q7Rw2Lx9Zt4K» rejected",
		"pre-shared key: «" + pw1 + "»",
		"SecretString: «" + pw3 + "»",
		"webhook https://prod-1.westeurope.logic.azure.com/workflows/x/triggers/manual/paths/invoke?api-version=1&sig=«q7Rw2Lx9Zt4Kb8Vn3Mc6Hd1Fg5Js0PyTuWeXaQio7mE»",
	} {
		var secrets []string
		plain := text
		for {
			_, rest, ok := strings.Cut(plain, "«")
			if !ok {
				break
			}
			secret, _, _ := strings.Cut(rest, "»")
			if secret != "" {
				secrets = append(secrets, secret)
			}
			plain = strings.Replace(strings.Replace(plain, "«", "", 1), "»", "", 1)
		}
		shown := strings.Join(Lines(strings.Split(plain, "\n")), "\n")
		for _, secret := range secrets {
			size := min(len(secret), max(6, len(secret)/2), 20)
			for i := 0; i+size <= len(secret); i++ {
				if part := secret[i : i+size]; strings.Contains(shown, part) {
					t.Errorf("%q is left of %q in %q", part, secret, shown)
					break
				}
			}
		}
	}
}
