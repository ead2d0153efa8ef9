package generalize

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" // Azure names certificates by it
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const (
	donorName    = "pool1-vmss000003"
	donorIP      = "10.240.0.7"
	donorMachine = "5c5e9f1e6d5b4f0e8a9d0c1b2a3f4e5d"
	donorMAC     = "00:0d:3a:12:34:56"
)

// ruleBootstrap is a rule of internal/redact.
const ruleBootstrap = "bootstrap-token"

var begun0 = time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)

// donor is a tree that looks like a node's disk.
type donor struct {
	t   *testing.T
	dir string
}

func newDonor(t *testing.T) *donor {
	t.Helper()
	d := &donor{t: t, dir: t.TempDir()}
	d.write(map[string]string{
		"etc/os-release":                            "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"etc/hostname":                              donorName + "\n",
		"etc/machine-id":                            donorMachine + "\n",
		"var/lib/dbus/machine-id":                   donorMachine + "\n",
		"etc/hosts":                                 "127.0.0.1 localhost\n127.0.1.1 " + donorName + ".internal " + donorName + "\n::1 ip6-localhost " + donorName + " # v6\n" + donorIP + " node\n10.240.0.70 other\n",
		"etc/passwd":                                "root:x:0:0::/root:/bin/bash\n",
		"etc/resolv.conf":                           "nameserver 168.63.129.16\n",
		"etc/netplan/50-cloud-init.yaml":            "macaddress: " + donorMAC + "\n",
		"etc/netplan/90-hotplug-azure.yaml":         "match: {driver: hv_netvsc}\n",
		"etc/udev/rules.d/70-persistent-net.rules":  "ATTR{address}==\"" + donorMAC + "\"\n",
		"etc/sysconfig/network-scripts/ifcfg-eth0":  "DEVICE=eth0\nHWADDR=" + donorMAC + "\nONBOOT=yes\n",
		"etc/cloud/cloud.cfg":                       "preserve_hostname: false\n",
		"etc/fstab":                                 "UUID=1 / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n",
		"etc/iscsi/initiatorname.iscsi":             "InitiatorName=iqn.1993-08.org.debian:01:abc\n",
		"etc/nvme/hostid":                           "id\n",
		"etc/nvme/hostnqn":                          "nqn\n",
		"swapfile":                                  strings.Repeat("\x00", 4086) + "SWAPSPACE2" + strings.Repeat("donor's memory ", 1000),
		"var/lib/dpkg/status":                       "",
		"var/lib/systemd/random-seed":               "seed",
		"var/lib/systemd/credential.secret":         "secret",
		"boot/efi/loader/random-seed":               "seed",
		"var/lib/dhcp/dhclient.eth0.leases":         "fixed-address " + donorIP + ";\n",
		"var/lib/dhclient/x.lease":                  "x",
		"var/lib/NetworkManager/a.lease":            "x",
		"var/lib/NetworkManager/secret_key":         "x",
		"var/lib/cloud/data/previous-hostname":      donorName + "\n",
		"var/lib/cloud/instance/user-data.txt":      "#!/bin/sh\n# join secret\n",
		"var/lib/cloud/sem/x":                       "",
		"var/lib/waagent/Incarnation":               "1",
		"var/lib/waagent/SharedConfig.xml":          "<x/>",
		"var/lib/waagent/GoalState.1.xml":           "<x/>",
		"var/lib/waagent/ExtensionsConfig.1.xml":    "<x/>",
		"var/lib/waagent/published_hostname":        donorName,
		"var/lib/waagent/fast_track.json":           "{}",
		"var/lib/waagent/provisioned":               "x",
		"var/lib/waagent/history/a/GoalState.xml":   "<x/>",
		"var/lib/waagent/events/1.tld":              "x",
		"var/lib/waagent/Certificates.p7m":          "x",
		"var/lib/waagent/WALinuxAgent-2.9/bin/a":    "agent",
		"var/log/journal/" + donorMachine + "/a":    "journal of " + donorName,
		"var/log/syslog":                            donorName + " said\n",
		"var/log/syslog.1":                          "old",
		"var/log/dpkg.log.2.gz":                     "old",
		"var/log/wtmp":                              "x",
		"var/log/btmp-20260101":                     "x",
		"var/log/lastlog":                           "x",
		"var/log/pods/ns_pod_uid/c/0.log":           "x",
		"var/log/ancestry.log":                      "2026-10-01T00:00:00Z pool1-vmss000001 earlier\n",
		"tmp/x":                                     "x",
		"tmp/.hidden":                               "x",
		"var/tmp/y":                                 "y",
		"root/.bash_history":                        "kubeadm join --token",
		"home/azureuser/.bash_history":              "x",
		"home/azureuser/.ssh/authorized_keys":       "ssh-ed25519 AAAA",
		"root/.ssh/authorized_keys":                 "ssh-ed25519 AAAA",
		"var/lib/cni/networks/cbr0/" + "10.244.1.2": "pod",
		"var/lib/cni/results/x":                     "x",
		"var/lib/cni/cache/results/x":               "x",
		"var/lib/calico/nodename":                   donorName,
		"usr/share/doc/openssl/test.key":            string(keyPEM(newKey(t))),
		"usr/bin/program":                           "\x7fELF...",
		"opt/cni/bin/bridge":                        "\x7fELF",
	})
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d.write(map[string]string{"etc/ssh/ssh_host_ed25519_key": string(keyPEM(key)), "etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 51))), "etc/ssh/sshd_config": "x"})
	return d
}

// capz makes the donor a kubeadm node of Cluster API.
func (d *donor) capz() *donor {
	cert, key := d.nodeCertificate()
	d.write(map[string]string{
		"var/lib/kubelet/pki/kubelet-client-2026-01-01.pem": cert + key,
		"var/lib/kubelet/pki/kubelet.key":                   key,
		"var/lib/kubelet/kubeadm-flags.env":                 "KUBELET_KUBEADM_ARGS=\"--node-ip=" + donorIP + "\"\n",
		"var/lib/kubelet/config.yaml":                       "kind: KubeletConfiguration\n",
		"var/lib/kubelet/cpu_manager_state":                 "{}",
		"var/lib/kubelet/pods/uid/volumes/x":                "x",
		"etc/kubernetes/kubelet.conf":                       kubeconfigYAML("default-auth", "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem"),
		"etc/kubernetes/pki/ca.crt":                         cert,
		"etc/kubernetes/manifests/.keep":                    "",
	})
	if err := os.Symlink("kubelet-client-2026-01-01.pem", filepath.Join(d.dir, "var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
		d.t.Fatal(err)
	}
	return d
}

// aksEngine makes the donor a node of AKS Engine, whose nodes share a client
// certificate and a service principal.
func (d *donor) aksEngine() *donor {
	key := newKey(d.t)
	d.write(map[string]string{
		"etc/kubernetes/azure.json":       `{"aadClientId":"0000","aadClientSecret":"very secret","tenantId":"x"}`,
		"etc/kubernetes/certs/client.key": string(keyPEM(key)),
		"etc/kubernetes/certs/client.crt": string(certPEM(d.t, "client", key)),
		"var/lib/kubelet/kubeconfig":      kubeconfigYAML("client", "client-certificate: /etc/kubernetes/certs/client.crt\n    client-key: /etc/kubernetes/certs/client.key"),
		"etc/default/kubelet":             "KUBELET_CONFIG=--kubeconfig=/var/lib/kubelet/kubeconfig\n",
	})
	return d
}

// tlsBootstrap makes the donor a node that joined by a bootstrap kubeconfig.
func (d *donor) tlsBootstrap() *donor {
	cert, key := d.nodeCertificate()
	d.write(map[string]string{
		"etc/kubernetes/bootstrap-kubelet.conf": kubeconfigYAML("tls-bootstrap-token-user", "token: abcdef.0123456789abcdef"),
		"etc/kubernetes/kubelet.conf": kubeconfigYAML("system:node:"+donorName,
			"client-certificate-data: "+base64.StdEncoding.EncodeToString([]byte(cert))+"\n    client-key-data: "+base64.StdEncoding.EncodeToString([]byte(key))),
		"var/lib/kubelet/pki/kubelet-client-current.pem": cert + key,
		"etc/systemd/system/kubelet.service":             "ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\n",
	})
	return d
}

// k3s makes the donor a k3s agent.
func (d *donor) k3s() *donor {
	cert, key := d.nodeCertificate()
	d.write(map[string]string{
		"etc/rancher/node/password":                                  "0123456789abcdef0123456789abcdef\n",
		"var/lib/rancher/k3s/agent/client-kubelet.crt":               cert,
		"var/lib/rancher/k3s/agent/client-kubelet.key":               key,
		"var/lib/rancher/k3s/agent/kubelet.kubeconfig":               kubeconfigYAML("user", "client-certificate: /var/lib/rancher/k3s/agent/client-kubelet.crt"),
		"var/lib/rancher/k3s/agent/etc/k3s-agent-load-balancer.json": `{"ServerAddresses":["10.0.0.1:6443"]}`,
		"var/lib/rancher/k3s/agent/images/airgap.tar":                "image",
		"etc/systemd/system/k3s-agent.service.env":                   "K3S_TOKEN='K10" + strings.Repeat("ab", 32) + "::server:secret'\nK3S_URL='https://10.0.0.1:6443'\n",
		"etc/systemd/system/k3s-agent.service":                       "ExecStart=/usr/local/bin/k3s agent\n",
		"var/lib/rancher/k3s/agent/pod-manifests/.keep":              "",
		"var/lib/rancher/k3s/agent/logs/kubelet-server.log":          donorName,
	})
	return d
}

// azureAgent adds customData and one extension with protected settings.
func (d *donor) azureAgent(customData string, settings map[string]string) *donor {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		d.t.Fatal(err)
	}
	pemCert := certPEM(d.t, "Windows Azure CRP Certificate Generator", key)
	block, _ := pem.Decode(pemCert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		d.t.Fatal(err)
	}
	thumb := fmt.Sprintf("%X", sha1.Sum(cert.Raw))
	plain, err := json.Marshal(settings)
	if err != nil {
		d.t.Fatal(err)
	}
	cms, err := pkcs7.Encrypt(plain, []*x509.Certificate{cert})
	if err != nil {
		d.t.Fatal(err)
	}
	const ext = "var/lib/waagent/Microsoft.Azure.Extensions.CustomScript-2.1.10/"
	d.write(map[string]string{
		"var/lib/waagent/ovf-env.xml":       ovf(customData),
		"var/lib/waagent/" + thumb + ".crt": string(pemCert),
		"var/lib/waagent/" + thumb + ".prv": string(keyPEM(key)),
		ext + "config/0.settings":           `{"runtimeSettings":[{"handlerSettings":{"publicSettings":{}}}]}`,
		ext + "config/1.settings": fmt.Sprintf(`{"runtimeSettings":[{"handlerSettings":{"protectedSettingsCertThumbprint":%q,"protectedSettings":%q,"publicSettings":{}}}]}`,
			thumb, base64.StdEncoding.EncodeToString(cms)),
		ext + "config/HandlerState":  "Enabled",
		ext + "config/HandlerStatus": "{}",
		ext + "status/1.status":      "[]",
		ext + "mrseq":                "1",
		ext + "bin/custom-script":    "\x7fELF",
	})
	return d
}

func ovf(customData string) string {
	return `<?xml version="1.0" encoding="utf-8"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:wa="http://schemas.microsoft.com/windowsazure"><wa:ProvisioningSection><LinuxProvisioningConfigurationSet xmlns="http://schemas.microsoft.com/windowsazure"><UserName>azureuser</UserName><CustomData>` +
		base64.StdEncoding.EncodeToString([]byte(customData)) + `</CustomData></LinuxProvisioningConfigurationSet></wa:ProvisioningSection></Environment>`
}

func (d *donor) nodeCertificate() (cert, key string) {
	k := newKey(d.t)
	return string(certPEM(d.t, nodeUserPrefix+donorName, k)), string(keyPEM(k))
}

func (d *donor) write(files map[string]string) {
	d.t.Helper()
	for name, content := range files {
		at := filepath.Join(d.dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *donor) read(name string) string {
	d.t.Helper()
	data, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

// paths lists every file and link of the tree.
func (d *donor) paths() map[string]bool {
	d.t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(d.dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found[strings.TrimPrefix(p, d.dir+"/")] = true
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return found
}

func (d *donor) run(change func(*Options)) wire.GeneralizeReport {
	d.t.Helper()
	o := Options{Capture: "c-1", Donor: donorName, DonorAddresses: []netip.Addr{netip.MustParseAddr(donorIP)}, At: begun0, Bootstrap: Keep}
	if change != nil {
		change(&o)
	}
	t, err := tree.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	r := Run(d.t.Context(), t, o, func(string) {}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := t.Close(); err != nil {
		d.t.Fatal(err)
	}
	line, err := json.Marshal(wire.GeneralizeLine{Report: &r})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := wire.ParseGeneralizeLine(line); err != nil {
		d.t.Errorf("the report does not parse: %v", err)
	}
	return r
}

func accept(o *Options) { o.AcceptPoolCredentials = true }

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keyPEM(key crypto.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func certPEM(t *testing.T, name string, key crypto.Signer) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: begun0, NotAfter: begun0.AddDate(1, 0, 0), KeyUsage: x509.KeyUsageKeyEncipherment}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func kubeconfigYAML(user, auth string) string {
	return "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: \"https://10.0.0.1:6443\"}\nusers:\n- name: " + user + "\n  user:\n    " + auth + "\ncontexts: []\n"
}

func sealKey(t *testing.T) *ecdh.PrivateKey {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
