package verdict

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/wire"
)

// secrets are of forms that are known by themselves, wherever they stand; what
// must not be shown is planted. None is of anybody.
var secrets = []struct{ name, text, planted string }{
	{"bootstrap token", "abcdef.0123456789abcdef", "0123456789abcdef"},
	{"k3s token", "K10b4b5f6e1c0a7d2398e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a::server:9f8e7d6c5b4a39281706f5e4d3c2b1a0", "9f8e7d6c5b4a39281706f5e4d3c2b1a0"},
	{"k3s node token", "K10b4b5f6e1c0a7d2398e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a::node:9f8e7d6c5b4a3928", "9f8e7d6c5b4a3928"},
	{"JWT", "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW06bm9kZSJ9.c2lnbmF0dXJl-bm90_cmVhbA", "c2lnbmF0dXJl-bm90_cmVhbA"},
	{"bearer", "Bearer 3f2a1b0c9d8e7f6a5b4c3d2e1f0a", "3f2a1b0c9d8e7f6a5b4c3d2e1f0a"},
	{"client secret", "x1z8Q~" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"},
	{"forge token", "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912E7710c838347Ae178B4a"},
	{"account key", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo="},
	{"URL's password", "https://bob:hunter2hunter2@registry.corp.io/v2/", "hunter2hunter2"},
	{"SAS", "https://a.blob.core.windows.net/c/f?sv=2024-11-04&sr=b&sig=k3Yz%2Babc%3D&se=2026", "k3Yz%2Babc%3D"},
	{"encoded SAS", "url=https%3A%2F%2Fa.blob.core.windows.net%2Fc%3Fsr%3Db%26sig%3Dk3Yzabc%26se%3D2026", "k3Yzabc"},
	{"key in one line", `-----BEGIN RSA PRIVATE KEY-----\nMIIEshortbody\nAAAA\n-----END RSA PRIVATE KEY-----\n`, "MIIEshortbody"},
}

// named are values that only their names show to be secrets.
const value = "s3cr3tValue"

var named = []string{
	"password=%", "PASSWORD: %", "--password=%", "--password %", `"password": "%"`, `\"password\": \"%\"`, "--token %", "--token=%", "-token=%",
	`["--token", "%"]`, `['kubeadm', 'join', '--token', '%']`, "--certificate-key %", "--certificate-key=%", "certificateKey: %", "--discovery-token %",
	"--tls-bootstrap-token=%", "K3S_TOKEN=%", "K3S_TOKEN='%'", `RKE2_TOKEN="%"`, "export AZURE_CLIENT_SECRET=%", `"aadClientSecret": "%"`, "client-key-data: %",
	"    token: %", `token: "%"`, "token: Bearer %", "Authorization: Basic %", "authorization: token %", `-H "Authorization: Bearer %"`, "AccountKey=%;EndpointSuffix=core.windows.net",
	"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=%", "SharedAccessKey=%", "connectionString: Endpoint=sb://a/;SharedAccessKeyName=b;SharedAccessKey=%", `"protectedSettings": "%"`,
	"https://h/p?x=1&sig=%&y=2", "?sig=%", "db-password := %", "passphrase: %", "api_key=%", "apiKey: %", ".dockerconfigjson: %", `"auth": "%"`, "Cookie: session=%", "hashed_passwd: %",
	"curl -u bob:% https://h/", "curl --proxy-user 'bob:%' https://h/", "docker login -u bob -p % corp.azurecr.io", `echo "root:%" | chpasswd`, "Ocp-Apim-Subscription-Key: %",
	"customData: b'%'", "https://user:%@host/", "registry://:%@host",
}

var around = []struct{ before, after string }{
	{"", ""}, {" ", " "}, {"+ kubeadm join 10.0.0.4:6443 ", " --v=5"}, {`level=info msg="got `, `"`}, {"Nov 21 06:58:31 pool1000003 cloud-init[812]: ", "."},
	{`{"a":"`, `"}`}, {"(", ")"}, {"x\x1b[31m ", "\x1b[0m\r"}, {"\xff\xfe ", " \xff"}, {strings.Repeat("before ", 50), strings.Repeat(" after", 400)},
	{"a,", ",b"}, {"'", "'"}, {"[", "]"}, {"\t", "\t"},
}

func TestSecretsDoNotSurvive(t *testing.T) {
	check := func(name, line, planted string) {
		t.Helper()
		if !strings.Contains(line, planted) {
			t.Fatalf("%s: nothing is planted in %q", name, line)
		}
		for _, got := range []string{Redact([]string{"x", line, "y"})[1], RedactText(line)} {
			if strings.Contains(got, planted) {
				t.Errorf("%s survives in %q", name, got)
			}
			checkShown(t, got)
		}
	}
	for _, a := range around {
		for _, s := range secrets {
			check(s.name, a.before+s.text+a.after, s.planted)
		}
		for _, n := range named {
			if strings.HasSuffix(a.before, "'") || strings.HasSuffix(a.before, `"`) {
				continue // their own quotes would end there
			}
			check(n, a.before+strings.Replace(n, "%", value, 1)+a.after, value)
		}
	}
}

func checkShown(t *testing.T, s string) {
	t.Helper()
	if len(s) > maxShown || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		t.Errorf("%q (%d bytes) cannot be shown", s, len(s))
	}
}

// A key goes over lines, with or without what a logger puts before each.
func TestPrivateKeysDoNotSurvive(t *testing.T) {
	body := []string{"MIIEpAIBAAKCAQEA1yu", "abcd", "Zm9v+YmFy/YmF6"}
	for _, kind := range []string{"RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED "} {
		for _, prefix := range []string{"", "    ", "Nov 21 06:58:31 pool1000003 cloud-init[812]: "} {
			lines := []string{"before", prefix + "-----BEGIN " + kind + "PRIVATE KEY-----"}
			for _, b := range body {
				lines = append(lines, prefix+b)
			}
			lines = append(lines, prefix+"-----END "+kind+"PRIVATE KEY----- and on", "after")
			got := Redact(lines)
			if len(got) != len(lines) || got[0] != "before" || got[len(got)-1] != "after" || !strings.HasSuffix(got[len(got)-2], " and on") {
				t.Errorf("what is around a key is gone: %q", got)
			}
			for _, b := range body {
				if strings.Contains(strings.Join(got, "\n"), b) {
					t.Errorf("%q survives in %q", b, got)
				}
			}
		}
	}
	// Certificates are no secrets; an end that is missing hides no whole log.
	lines := []string{"-----BEGIN EC PRIVATE KEY-----"}
	for range maxKeyLines + 2 {
		lines = append(lines, "a line")
	}
	if got := Redact(lines); got[1] != hidden || got[len(got)-1] != "a line" {
		t.Errorf("a key without an end: %q … %q", got[1], got[len(got)-1])
	}
	if got := Redact([]string{"-----BEGIN CERTIFICATE-----", "next"}); got[1] != "next" {
		t.Errorf("after a certificate: %q", got)
	}
}

// kubeadm gives the certificate key in a line of its own.
func TestAnnouncedKey(t *testing.T) {
	key := "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0"
	got := Redact([]string{"[upload-certs] Using certificate key:", key, "next " + key})
	if got[1] != hidden || got[2] != "next "+key {
		t.Errorf("%q", got)
	}
}

// Lines that show a cause must stay as they are.
func TestRedactLeavesEvidence(t *testing.T) {
	for _, l := range []string{
		`error execution phase preflight: couldn't validate the identity of the API Server: token id "abcdef" is invalid for this cluster or it has expired`,
		`could not find a JWS signature in the cluster-info ConfigMap for token ID "abcdef"`,
		`none of the public keys "sha256:4b1f7d0d2b35c0f1a9c3e0b0f6f2f0a7e2b7bd4c9d7c0c9a8b7a6f5e4d3c2b1a" are pinned`,
		`Get "https://capz-api.eastus.cloudapp.azure.com:6443/api/v1/namespaces/kube-public/configmaps/cluster-info?timeout=10s": dial tcp: lookup capz-api.eastus.cloudapp.azure.com: no such host`,
		`token CA hash does not match the Cluster CA certificate hash: 1f526b0c3b2d558faaa261356f96ffca0474ac91dc0c7a0bc1ed84750a11dfe3 != f3af`,
		`Command: ['/var/lib/cloud/instance/scripts/runcmd']`,
		`"Failed to create sandbox" containerID="4b1f7d0d2b35c0f1a9c3e0b0f6f2f0a7e2b7bd4c9d7c0c9a8b7a6f5e4d3c2b1a"`,
		`open /var/lib/kubelet/pods/0a5f3c6e-58f1-4d8f-9e39-2a0c7c1b2f11/volumes: no such file or directory`,
		`--discovery-token-ca-cert-hash sha256:4b1f7d0d2b35c0f1a9c3e0b0f6f2f0a7e2b7bd4c9d7c0c9a8b7a6f5e4d3c2b1a`,
		`Unable to register node with API server" err="Post \"https://10.0.0.4:6443/api/v1/nodes\": Unauthorized"`,
		`E: Failed to fetch https://pkgs.k8s.io/core:/stable:/v1.34/deb/InRelease  Could not connect to pkgs.k8s.io:443 (34.107.204.206)`,
		`mkdir -p /etc/kubernetes && systemctl --user status`,
		`kernel: EXT4-fs (sda1): Remounting filesystem read-only`,
		`Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry`,
	} {
		if got := RedactText(l); got != l {
			t.Errorf("%q became %q", l, got)
		}
	}
}

// Whatever is planted, the whole verdict has none of it.
func TestVerdictHoldsNoSecrets(t *testing.T) {
	var lines []string
	for _, s := range secrets {
		lines = append(lines, "got "+s.text)
	}
	for _, n := range named {
		lines = append(lines, "x "+strings.Replace(n, "%", value, 1))
	}
	lines = append(lines, "-----BEGIN PRIVATE KEY-----", "bm9ib2R5J3M", "-----END PRIVATE KEY-----", "error execution phase preflight: --token abcdef.0123456789abcdef")
	all := strings.Join(lines, "\n")
	f := Facts{
		CloudInit: &CloudInit{Done: true, Stages: []Stage{{Name: "init", Begin: 1, End: 2, Errors: lines, Recoverable: map[string][]string{"ERROR": lines}}}},
		Provision: &Provision{ExitCode: "50", Output: all, Error: all, SystemdSummary: all},
		Units:     []Unit{{Name: "a --token " + value, Asked: true, Active: "failed"}},
		Kubelet:   Kubelet{Wanted: true, Last: "token=" + value},
		Logs: []Log{
			{Source: "/var/log/cloud-init-output.log", Lines: lines}, {Source: "journal kubelet.service", Lines: lines},
			{Source: "journal containerd.service", Lines: lines}, {Source: "https://u:" + value + "@h", Lines: lines},
		},
	}
	for _, change := range []func(){func() {}, func() { f.Provision = nil }, func() { f.CloudInit = nil }, func() { f.Sentinel = true }, func() { f.Deadline = true }, func() { f.Units = nil }} {
		change()
		text, err := json.Marshal(verdictOf(Judge(f)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ParseVerdict(text); err != nil {
			t.Error(err)
		}
		for _, planted := range append([]string{value, "bm9ib2R5J3M"}, plantedOf()...) {
			if strings.Contains(string(text), planted) {
				t.Errorf("%s is in %s", planted, text)
			}
		}
	}
}

func plantedOf() []string {
	var all []string
	for _, s := range secrets {
		all = append(all, s.planted)
	}
	return all
}

func FuzzRedact(f *testing.F) {
	for i, a := range around {
		f.Add(a.before, a.after, uint8(i))
	}
	f.Fuzz(func(t *testing.T, before, after string, which uint8) {
		s := secrets[int(which)%len(secrets)]
		// What stands right beside may make it part of another word.
		lines := Redact([]string{before + " " + s.text + " " + after})
		for _, l := range lines {
			checkShown(t, l)
			if strings.Contains(l, s.planted) && !strings.Contains(before+after, s.planted) {
				t.Errorf("%s survives in %q", s.name, l)
			}
		}
		for _, l := range Redact(strings.Split(before+"\n"+s.text+"\n"+after, "\n")) {
			checkShown(t, l)
			if strings.Contains(l, s.planted) && !strings.Contains(before+after, s.planted) {
				t.Errorf("%s survives in %q", s.name, l)
			}
		}
		checkShown(t, RedactText(before+s.text+after))
	})
}
