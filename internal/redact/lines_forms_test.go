package redact

import (
	"strings"
	"testing"
)

// Nothing is left of what programs are given and print in forms of their own.
func TestFormsOfLinesAreHidden(t *testing.T) {
	for _, text := range []string{
		"+ nmcli con modify depot wifi-sec.key-mgmt wpa-psk wifi-sec.psk «amber-kite-rolls»",
		"+ nmcli connection add type wifi ssid depot 802-11-wireless-security.psk «amber-kite-rolls»",
		"+ nmcli dev wifi connect depot password «amber-kite-rolls» ifname wlp2s0",
		"+ nmcli con modify lan 802-1x.password «amber-kite»",
		"ops@n1's password: \nsend: sending \"«amber-kite»\\r\" to { exp4 }",
		"expect \"*assword:*\"\nsend -- \"«amber-kite»\\r\"",
		"expect \"Password: \" { send \"«amber-kite»\\r\" }",
		"ops:«amber-kite»:1001:1001:An Operator:/home/ops:/bin/bash",
		"cloud-init[812]: web:«amber-kite»:::Web,,,:/srv/web:/usr/sbin/nologin",
		"+ echo 'ops:«amber-kite»:::::/bin/sh' | newusers",
		"db1:*:12:12:«amber-kite»",
		"db1:*:12:12:«amber-kite:x»:/home/x",
		"headers: map[Accept:[*/*] Dd-Api-Key:[«" + hex32 + "»] User-Agent:[curl]]",
		"map[X-Vault-Token:[«q7rw2lx9zt4k»]]",
		"> Ocp-Apim-Subscription-Key: «" + hex32 + "»",
		"> X-Depot-Key: «" + rnd40 + "»",
		"+ curl -H 'x-depot-key: «amber-kite»' https://h",
		"+ curl -sS --header \"X-Depot-Token: «q7rw2lx9zt4k»\" https://h",
		"00000000: «7037 7277 326c 7839 7a74 346b» 0a        q7rw2lx9zt4k.",
		"+ od -A x -t x1 k\n000000 «71 37 72 77 32 6c 78 39 7a 74 34 6b 62 38 76 6e»\n000010 «33 6d 63 36 68 64 31 66»\n000018",
		"Nov 20 07:01:02 n1 sync[7]: 00000000  «71 37 72 77 32 6c 78 39  7a 74 34 6b»  |q7rw2lx9zt4k|",
		"[   12.345678] 00000000: «71 37 72 77 32 6c 78 39 7a 74 34 6b 62 38 76 6e»  q7rw2lx9zt4kb8vn",
	} {
		plain := strings.NewReplacer("«", "", "»", "").Replace(text)
		shown := strings.Join(Lines(strings.Split(plain, "\n")), "\n")
		for _, part := range strings.Split(text, "«")[1:] {
			secret, _, _ := strings.Cut(part, "»")
			if strings.Contains(shown, secret[:min(len(secret), 9)]) {
				t.Errorf("%q is left in %q", secret, shown)
			}
		}
		if strings.Contains(shown, "q7rw2lx9zt4k") {
			t.Errorf("the text of a dump is left in %q", shown)
		}
	}
}

// What looks like such forms and explains a failure stays.
func TestFormsOfLinesLeaveEvidence(t *testing.T) {
	for _, s := range []string{
		"LoadCredential=api-key:report.api-key",
		"LoadCredentialEncrypted=db-password:/etc/credstore.encrypted/db-password",
		"ops:x:1001:1001:An Operator:/home/ops:/bin/bash",
		"messagebus:*:101:101::/nonexistent:/usr/sbin/nologin",
		"n1 check[7]: nobody:*:65534:65534:No Body:/nonexistent:/usr/sbin/nologin",
		"root:*:19000:0:99999:7:::",
		"nmcli[812]: Error: Connection activation failed: Secrets were required, but not provided.",
		"+ nmcli con modify depot wifi-sec.key-mgmt wpa-psk",
		"0000:00:1f.2: device not responding",
		"deadbeef: command not found",
		"1763620000 42 17 99",
		"kubelet[812]: headers: map[Content-Type:[application/json]]",
		"Sort-Key: name",
		"send \"yes\"",
	} {
		if shown := Lines([]string{s}); shown[0] != s {
			t.Errorf("%q is shown as %q", s, shown[0])
		}
	}
}

// Of systemd's credentials, SetCredential alone has a secret: others name a file, or
// have what is encrypted.
func TestCredentialsOfSystemd(t *testing.T) {
	for unit, want := range map[string]int{
		"LoadCredential=token:/run/credstore/report.token\nEnvironment=TOKEN_FILE=%d/token PASSWORD_COMMAND=/usr/bin/pass\n": 0,
		"LoadCredential=api-key:report.api-key\nImportCredential=app.*\n":                                                    0,
		"LoadCredentialEncrypted=db-password:/etc/credstore.encrypted/db-password\n":                                         0,
		"SetCredentialEncrypted=db-password: k6iUCUh0RJCQyvL8k8q1UyAAAAABAAAADAAAABAAAAC1lFmbWAqW\n":                         0,
		"SetCredentialEncrypted=db-password: \\\n  k6iUCUh0RJCQyvL8k8q1UyAAAAABAAAADAAAABAAAAC1lFmbWAqW\n":                   0,
		"SetCredential=db-password:q7Rw2Lx9Zt4K\n":                                                                           1,
	} {
		if hits := Find(Piece{Path: "etc/systemd/system/x.service", Data: []byte("[Service]\n" + unit), Whole: true}); len(hits) != want {
			t.Errorf("%q: hits %v, want %d", unit, hits, want)
		}
	}
}
