package generalize

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// Each rule finds its secret wherever it hides, and a node's identity fails the
// scan even where pool credentials are accepted.
func TestScan(t *testing.T) {
	t.Parallel()
	jwt := "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:ns:sa"}`)) + "." + strings.Repeat("s", 40)
	for _, c := range []struct {
		name    string
		prepare func(*donor) string // returns the path that has to be named
		rule    string
		class   wire.SecretClass
	}{
		{"the kubelet's key, copied elsewhere, without its certificate", func(d *donor) string {
			cert, key := d.nodeCertificate()
			d.write(map[string]string{"var/lib/kubelet/pki/kubelet-client-current.pem": cert + key, "opt/backup/k.pem": key})
			return "/opt/backup/k.pem"
		}, ruleKubeletKey, wire.NodeIdentity},
		{"key and certificate of a node in two files", func(d *donor) string {
			cert, key := d.nodeCertificate()
			d.write(map[string]string{"srv/a.crt": cert, "srv/b.key": key})
			return "/srv/b.key"
		}, ruleKubeletKey, wire.NodeIdentity},
		{"a node's key among the distribution's files", func(d *donor) string {
			cert, key := d.nodeCertificate()
			d.write(map[string]string{"usr/share/x.pem": cert + key})
			return "/usr/share/x.pem"
		}, ruleKubeletKey, wire.NodeIdentity},
		{"a node's kubeconfig at an odd place", func(d *donor) string {
			cert, key := d.nodeCertificate()
			d.write(map[string]string{"srv/old.conf": kubeconfigYAML("x", "client-certificate-data: "+base64.StdEncoding.EncodeToString([]byte(cert))+"\n    client-key-data: "+base64.StdEncoding.EncodeToString([]byte(key)))})
			return "/srv/old.conf"
		}, ruleNodeKubecfg, wire.NodeIdentity},
		{"deep in a large binary file", func(d *donor) string {
			cert, key := d.nodeCertificate()
			d.write(map[string]string{"srv/blob": strings.Repeat("\x00\x01", 1<<20-100) + cert + key + strings.Repeat("\x02", 3<<20)})
			return "/srv/blob"
		}, ruleKubeletKey, wire.NodeIdentity},
		{"the node password, copied", func(d *donor) string {
			d.write(map[string]string{"etc/rancher/node/password": "0123456789abcdef01", "srv/notes": "pw=0123456789abcdef01\n"})
			return "/srv/notes"
		}, ruleNodePassword, wire.NodeIdentity},
		{"the donor's name", func(d *donor) string {
			d.write(map[string]string{"etc/app.conf": "x\nhost: " + donorName + "\n"})
			return "/etc/app.conf"
		}, ruleName, wire.NodeIdentity},
		{"the donor's address", func(d *donor) string {
			d.write(map[string]string{"etc/app.conf": "bind " + donorIP + ":80\n"})
			return "/etc/app.conf"
		}, ruleAddress, wire.NodeIdentity},
		{"the donor's machine-id", func(d *donor) string {
			d.write(map[string]string{"var/lib/kubelet/x": donorMachine})
			return "/var/lib/kubelet/x"
		}, ruleMachineID, wire.NodeIdentity},
		{"the donor's machine-id as a UUID", func(d *donor) string {
			id := donorMachine
			d.write(map[string]string{"etc/default/x": "HOST=" + id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:] + "\n"})
			return "/etc/default/x"
		}, ruleMachineID, wire.NodeIdentity},
		{"a service account's token", func(d *donor) string {
			d.write(map[string]string{"opt/x": "token " + jwt + "\n"})
			return "/opt/x"
		}, ruleSAToken, wire.NodeIdentity},
		{"azure.json", func(d *donor) string {
			d.write(map[string]string{"etc/kubernetes/azure.json": `{"aadClientId":"x","aadClientSecret":"y"}`})
			return "/etc/kubernetes/azure.json"
		}, ruleAzureJSON, wire.PoolCredential},
		{"a bootstrap token in a join configuration", func(d *donor) string {
			d.write(map[string]string{"etc/kubernetes/join.yaml": "discovery:\n  bootstrapToken:\n    token: abcdef.0123456789abcdef\n"})
			return "/etc/kubernetes/join.yaml"
		}, ruleBootstrap, wire.PoolCredential},
		{"a k3s token in its configuration", func(d *donor) string {
			d.write(map[string]string{"etc/rancher/k3s/config.yaml": "server: https://x\ntoken: secret\n"})
			return "/etc/rancher/k3s/config.yaml"
		}, ruleK3sToken, wire.PoolCredential},
		{"any other private key", func(d *donor) string {
			d.write(map[string]string{"etc/ssl/private/ssl-cert-snakeoil.key": string(keyPEM(newKey(d.t)))})
			return "/etc/ssl/private/ssl-cert-snakeoil.key"
		}, rulePrivateKey, wire.PoolCredential},
		{"an encrypted or unknown key", func(d *donor) string {
			d.write(map[string]string{"home/u/.ssh/id": "-----BEGIN OPENSSH PRIVATE KEY-----\n" + githubToken("any")[4:] + "\n-----END OPENSSH PRIVATE KEY-----\n"})
			return "/home/u/.ssh/id"
		}, ruleSSHKey, wire.OtherSecret},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			want := c.prepare(d)
			r := d.run(nil)
			wantOutcome(t, r, wire.SecretsFound)
			found := false
			for _, f := range r.Findings {
				found = found || (f.Path == want && f.Rule == c.rule && f.Class == c.class && !f.Accepted)
			}
			if !found || !strings.Contains(r.Message, want) {
				t.Errorf("%s at %s is not among %+v (%s)", c.rule, want, r.Findings, r.Message)
			}
			outcome := wire.SecretsFound
			if c.class == wire.PoolCredential {
				outcome = wire.Generalized
			}
			wantOutcome(t, d.run(accept), outcome)
		})
	}
}

func TestScanLetsPass(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	d.write(map[string]string{
		"etc/kubernetes/azure.json":  `{"aadClientId":"msi","aadClientSecret":"msi","userAssignedIdentityID":"x"}`,
		"etc/other-node":             donorName + "1 and x-" + donorName + " and 10.240.0.70 and 110.240.0.7\n",
		"usr/local/bin/tool":         "\x7fELF" + string(keyPEM(newKey(t))), // net/http's test key is in every such program
		"etc/rancher/k3s/a.yaml":     "server: https://10.0.0.4:6443\ntoken-file: /run/k3s/token\n",
		"etc/motd":                   "your token is important, see systems.documentation\n",
		"usr/lib/python3/tests/a.pm": "aadClientSecret: example",
	})
	wantOutcome(t, d.run(nil), wire.Generalized)
}

// A mention outside configuration and state is told and does not fail.
func TestMentions(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	d.write(map[string]string{"var/cache/x": donorName})
	r := d.run(nil)
	wantOutcome(t, r, wire.Generalized)
	if len(r.Mentions) != 1 || r.Mentions[0] != "/var/cache/x" {
		t.Errorf("mentions %v", r.Mentions)
	}
}

func TestScanFailsClosed(t *testing.T) {
	t.Parallel()
	t.Run("snapshots without their database", func(t *testing.T) {
		t.Parallel()
		d := newDonor(t)
		cert, key := d.nodeCertificate()
		d.write(map[string]string{"var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/x": cert + key})
		wantOutcome(t, d.run(accept), wire.SecretsFound)
	})
	t.Run("beyond its bound", func(t *testing.T) {
		t.Parallel()
		d := newDonor(t)
		r := d.run(func(o *Options) { o.Limits.Bytes = 10 })
		wantOutcome(t, r, wire.SecretsFound)
	})
	t.Run("more findings than are kept", func(t *testing.T) {
		t.Parallel()
		d := newDonor(t)
		for i := range 20 {
			d.write(map[string]string{"srv/" + strings.Repeat("k", i+1) + ".key": string(keyPEM(newKey(t)))})
		}
		r := d.run(func(o *Options) { o.Limits.Findings = 3 })
		wantOutcome(t, r, wire.SecretsFound)
		if len(r.Findings) != 3 || !strings.Contains(r.Message, "20 secrets") {
			t.Errorf("%d findings, message %q", len(r.Findings), r.Message)
		}
	})
}
