package secrets

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const (
	donorName = "pool1-vmss000003"
	donorIP   = "10.240.0.7"
)

// class is what may be done about a secret.
type class string

const (
	identity class = "identity"
	pool     class = "pool"
	other    class = "other"
)

// plant is one secret in one file.
type plant struct {
	kind  string
	class class
	path  string // within the tree, without a leading slash
	wrap  string // how it is written, in words
	data  []byte
}

// plants is a list that is being made.
type plants []plant

func (p *plants) add(kind string, c class, path, wrap, text string) {
	*p = append(*p, plant{kind, c, path, wrap, []byte(text)})
}

// node is what the donor alone has.
type node struct {
	client   *ecdsa.PrivateKey // its kubelet's client certificate
	serving  *rsa.PrivateKey   // its kubelet's serving certificate
	hostEd   ed25519.PrivateKey
	hostRSA  *rsa.PrivateKey
	password string // k3s: proves to the server that it is the node of this name
}

func (g *gen) node() node {
	return node{g.ec(), g.rsa(), g.ed(), g.rsa(), g.hex(32)}
}

// clientPEM and hostPEM are the files as the kubelet and sshd have them.
func (n node) clientPEM(g *gen) []byte  { return g.ecPEM(n.client) }
func (n node) hostPEM(g *gen) []byte    { return g.opensshPEM(n.hostEd, "root@"+donorName) }
func (n node) hostRSAPEM(g *gen) []byte { return g.opensshPEM(n.hostRSA, "root@"+donorName) }

// system is a small node that joined by kubeadm and was a k3s agent before, without any plant.
func (n node) system(g *gen) map[string]string {
	cert := string(g.certificate("system:node:"+donorName, "system:nodes", n.client))
	return map[string]string{
		"etc/os-release":                            "NAME=Ubuntu\nPRETTY_NAME=\"Ubuntu 24.04.3 LTS\"\nID=ubuntu\nVERSION_ID=\"24.04\"\n",
		"etc/hostname":                              donorName + "\n",
		"etc/machine-id":                            g.hex(32) + "\n",
		"etc/hosts":                                 "127.0.0.1 localhost\n" + donorIP + " " + donorName + "\n",
		"etc/passwd":                                "root:x:0:0:root:/root:/bin/bash\nsshd:x:104:65534::/run/sshd:/usr/sbin/nologin\nazureuser:x:1000:1000:Ubuntu:/home/azureuser:/bin/bash\n",
		"etc/group":                                 "root:x:0:\nsudo:x:27:azureuser\n",
		"etc/fstab":                                 "UUID=" + g.uuid() + " / ext4 discard,errors=remount-ro 0 1\n",
		"etc/resolv.conf":                           "nameserver 168.63.129.16\n",
		"etc/ssh/sshd_config":                       "Include /etc/ssh/sshd_config.d/*.conf\nKbdInteractiveAuthentication no\nUsePAM yes\nSubsystem sftp /usr/lib/openssh/sftp-server\n",
		"etc/ssh/ssh_host_ed25519_key":              string(n.hostPEM(g)),
		"etc/ssh/ssh_host_ed25519_key.pub":          g.sshPublic(n.hostEd),
		"etc/ssh/ssh_host_rsa_key":                  string(n.hostRSAPEM(g)),
		"etc/ssh/ssh_host_rsa_key.pub":              g.sshPublic(n.hostRSA),
		"etc/cloud/cloud.cfg":                       "users:\n - default\ndisable_root: true\npreserve_hostname: false\ndatasource_list: [ Azure ]\n",
		"etc/containerd/config.toml":                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"mcr.microsoft.com/oss/kubernetes/pause:3.9\"\n",
		"etc/kubernetes/kubelet.conf":               kubeconfig("default-auth", "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem"),
		"etc/kubernetes/pki/ca.crt":                 string(g.certificate("kubernetes", "", g.ec())),
		"etc/kubernetes/manifests/.keep":            "",
		"etc/rancher/node/password":                 n.password + "\n",
		"etc/systemd/system/kubelet.service":        "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
		"var/lib/kubelet/pki/kubelet-client-a.pem":  cert + string(n.clientPEM(g)),
		"var/lib/kubelet/pki/kubelet.key":           string(rsaPEM(n.serving)),
		"var/lib/kubelet/pki/kubelet.crt":           string(g.certificate(donorName+"@1795000000", "", n.serving)),
		"var/lib/kubelet/config.yaml":               "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.0.0.10]\nrotateCertificates: true\n",
		"var/lib/kubelet/kubeadm-flags.env":         "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.10\"\n",
		"var/lib/dpkg/status":                       "Package: bash\nStatus: install ok installed\nVersion: 5.2.21-2ubuntu4\n",
		"var/log/syslog":                            "",
		"usr/bin/program":                           "\x7fELF\x02\x01\x01",
		"usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n",
		"opt/cni/bin/bridge":                        "\x7fELF\x02\x01\x01",
		"home/azureuser/.profile":                   "PATH=\"$HOME/bin:$PATH\"\n",
	}
}

func kubeconfig(user, auth string) string {
	return "apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\n  cluster:\n    server: https://10.0.0.1:6443\nusers:\n- name: " + user + "\n  user:\n    " + auth + "\ncontexts:\n- context: {cluster: default-cluster, user: " + user + "}\n  name: default-context\ncurrent-context: default-context\n"
}

func data(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

func write(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// plantIn makes the tree of the node with the plants on it.
func plantIn(t *testing.T, g *gen, n node, all []plant) string {
	t.Helper()
	dir := t.TempDir()
	used := map[string]bool{}
	for name, content := range n.system(g) {
		used[name] = true
		write(t, dir, name, []byte(content))
	}
	if err := os.Symlink("kubelet-client-a.pem", filepath.Join(dir, "var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if used[p.path] {
			t.Fatalf("two plants at %s", p.path)
		}
		used[p.path] = true
		write(t, dir, p.path, p.data)
	}
	return dir
}

// generalized lets the agent work on the tree and gives its report.
func generalized(t *testing.T, dir string, change func(*generalize.Options)) wire.GeneralizeReport {
	t.Helper()
	o := generalize.Options{Capture: "c-1", Donor: donorName, DonorAddresses: []netip.Addr{netip.MustParseAddr(donorIP)},
		At: issued, Bootstrap: generalize.Keep, Limits: generalize.Limits{Findings: 100_000}}
	if change != nil {
		change(&o)
	}
	disk, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := generalize.Run(t.Context(), disk, o, func(string) {}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if r.Outcome != wire.SecretsFound && r.Outcome != wire.Generalized {
		t.Fatalf("outcome %s: %s", r.Outcome, r.Message)
	}
	return r
}

// found lists the findings by path, without a leading slash.
func found(r wire.GeneralizeReport) map[string][]wire.SecretFinding {
	by := map[string][]wire.SecretFinding{}
	for _, f := range r.Findings {
		at := strings.TrimPrefix(f.Path, "/")
		by[at] = append(by[at], f)
	}
	return by
}

func (g *gen) jsonOf(v any) string {
	return string(check[[]byte](g)(json.MarshalIndent(v, "", "  "))) + "\n"
}

func yamlKey(name string, pem []byte, by string) string {
	return fmt.Sprintf("%s%s: |\n%s", by, name, indent(pem, by+"  "))
}
