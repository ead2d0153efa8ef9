package bootstrap

import (
	"os"
	"strings"
	"testing"
	"time"
)

const agentKubeconfig = `apiVersion: v1
clusters:
- cluster:
    server: https://127.0.0.1:6444
    certificate-authority: /var/lib/rancher/k3s/agent/server-ca.crt
  name: local
contexts:
- context:
    cluster: local
    user: user
  name: Default
current-context: Default
kind: Config
preferences: {}
users:
- name: user
  user:
    client-certificate: /var/lib/rancher/k3s/agent/client-kubelet.crt
    client-key: /var/lib/rancher/k3s/agent/client-kubelet.key
`

func TestParseKubeconfig(t *testing.T) {
	k, u, err := parseKubeconfig([]byte(agentKubeconfig))
	if err != nil || u.Host != "127.0.0.1:6444" || k.Users[0].User.Key != "/var/lib/rancher/k3s/agent/client-kubelet.key" {
		t.Errorf("k3s's: %+v, %v, %v", k, u, err)
	}
	// AKS's on Windows.
	k, u, err = parseKubeconfig([]byte(`{"clusters":[{"cluster":{"server":"https://c.hcp.example:443/sub","certificate-authority":"c:\\k\\ca.crt"}}],"users":[{"user":{"client-certificate":"c:\\k\\pki\\kubelet-client-current.pem","client-key":"c:\\k\\pki\\kubelet-client-current.pem"}}]}`))
	if err != nil || u.Path != "/sub" || k.Clusters[0].Cluster.CA != `c:\k\ca.crt` {
		t.Errorf("as JSON: %+v, %v, %v", k, u, err)
	}
	for name, text := range map[string]string{
		"empty": "", "binary": "\x00\xff", "a list": "- a", "an alias of itself": "a: &a [*a]", "deep": strings.Repeat("[", 20_000),
		"no https":        strings.Replace(agentKubeconfig, "https:", "http:", 1),
		"no address":      strings.Replace(agentKubeconfig, "https://127.0.0.1:6444", "https://", 1),
		"a password":      strings.Replace(agentKubeconfig, "https://", "https://u:p@", 1),
		"no CA":           strings.Replace(agentKubeconfig, "certificate-authority:", "x:", 1),
		"a token":         strings.Replace(strings.Replace(agentKubeconfig, "client-certificate:", "token:", 1), "client-key:", "x:", 1),
		"a proxy":         strings.Replace(agentKubeconfig, "    server:", "    proxy-url: http://proxy:3128\n    server:", 1),
		"two clusters":    strings.Replace(agentKubeconfig, "clusters:", "clusters:\n- cluster: {}\n  name: other", 1),
		"two users":       agentKubeconfig + "- name: other\n  user: {}\n",
		"other types":     "clusters: [{cluster: {server: {}}}]",
		"an endless line": "a: " + strings.Repeat("x", 1<<20),
	} {
		if k, u, err := parseKubeconfig([]byte(text)); err == nil {
			t.Errorf("%s: %+v, %v", name, k, u)
		}
	}
}

// Of several the one that was written last is the kubelet's of this boot.
func TestWhichKubeconfig(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o := r.options()
	if _, _, err := readKubeconfig(o); err == nil {
		t.Error("one where there is none")
	}
	r.write("/etc/kubernetes/kubelet.conf", agentKubeconfig)
	r.write("/var/lib/kubelet/kubeconfig", strings.Replace(agentKubeconfig, "127.0.0.1", "10.0.0.4", 1))
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(r.path("/etc/kubernetes/kubelet.conf"), old, old); err != nil {
		t.Fatal(err)
	}
	if k, u, err := readKubeconfig(o); err != nil || k.path != "/var/lib/kubelet/kubeconfig" || u.Host != "10.0.0.4:6444" {
		t.Errorf("%+v, %v, %v", k, u, err)
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	f.Add([]byte(agentKubeconfig))
	f.Add([]byte(`{"clusters":[{"cluster":{"server":"https://x","certificate-authority-data":"eA=="}}],"users":[{"user":{"client-certificate-data":"eA==","client-key-data":"eA=="}}]}`))
	f.Add([]byte("a: &a [*a]\nclusters: *a"))
	o := Options{Root: f.TempDir()}
	f.Fuzz(func(t *testing.T, text []byte) {
		k, u, err := parseKubeconfig(text)
		if err != nil {
			return
		}
		if u.Scheme != "https" || u.Hostname() == "" {
			t.Errorf("%v", u)
		}
		k.path = "/etc/kubernetes/kubelet.conf"
		if config, name, err := k.login(o); err == nil && (name == "" || config.RootCAs == nil) {
			t.Errorf("%q, %+v", name, config)
		}
	})
}
