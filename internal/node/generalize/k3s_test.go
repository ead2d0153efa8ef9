package generalize

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// rke2 makes the donor an RKE2 agent. Source of what lies there: rancher/rke2's
// pkg/executor/staticpod and pkg/cli/defaults, and k3s's pkg/agent/config.
func (d *donor) rke2() *donor {
	cert, key := d.nodeCertificate()
	const agent = "var/lib/rancher/rke2/agent/"
	d.write(map[string]string{
		"etc/rancher/node/password":                    "0123456789abcdef0123456789abcdef\n",
		"etc/rancher/node/id":                          "1a2b3c4d\n",
		"etc/rancher/rke2/config.yaml":                 "server: https://10.0.0.1:9345\nnode-name: " + donorName + "\n",
		"etc/default/rke2-agent":                       "HOME=/root\nRKE2_NODE_NAME=" + donorName + "\n",
		agent + "client-kubelet.crt":                   cert,
		agent + "client-kubelet.key":                   key,
		agent + "client-rke2-controller.crt":           cert,
		agent + "client-rke2-controller.key":           key,
		agent + "kubelet.kubeconfig":                   kubeconfigYAML("user", "client-certificate: /"+agent+"client-kubelet.crt"),
		agent + "kubeproxy.kubeconfig":                 kubeconfigYAML("user", "client-certificate: /"+agent+"client-kube-proxy.crt"),
		agent + "etc/rke2-agent-load-balancer.json":    `{"ServerURL":"https://10.0.0.1:9345","ServerAddresses":["10.0.0.1:9345"]}`,
		agent + "etc/containerd/config.toml":           "version = 3\n",
		agent + "images/airgap.tar":                    "image",
		agent + "logs/kubelet.log":                     donorName,
		agent + "containerd/containerd.log":            "host " + donorName + "\n",
		agent + "containerd/containerd-2026-01.log.gz": "x",
		agent + "pod-manifests/kube-proxy.yaml":        "spec:\n  containers:\n  - args:\n    - --hostname-override=" + donorName + "\n",
		agent + "pod-manifests/users.yaml":             "kind: Pod\n",
	})
	return d
}

// A clone of an agent has nothing of the donor's, and what it needs to join under its own name.
func TestAgentsOfRancher(t *testing.T) {
	t.Parallel()
	k3sAgent := func(d *donor) {
		const agent = "var/lib/rancher/k3s/agent/"
		cert, key := d.k3s().nodeCertificate()
		d.write(map[string]string{
			"etc/rancher/k3s/config.yaml":       "token: secret\nnode-name: " + strings.ToUpper(donorName) + "\nnode-ip: " + donorIP + "\n",
			agent + "client-k3s-controller.crt": cert, agent + "client-k3s-controller.key": key,
			agent + "k3scontroller.kubeconfig":                kubeconfigYAML("user", "client-certificate: /"+agent+"client-k3s-controller.crt"),
			agent + "etc/k3s-agent-load-balancer.json":        `{"ServerURL":"https://10.0.0.1:6443"}`,
			agent + "pod-manifests/kube-proxy.yaml":           "kind: Pod\n",
			"etc/systemd/system/k3s-agent.service.env":        "K3S_NODE_NAME='" + donorName + "'\nK3S_TOKEN='K10" + strings.Repeat("ab", 32) + "::server:secret'\n",
			"var/lib/rancher/k3s/agent/images/k3s-images.tar": "image",
		})
	}
	for _, c := range []struct {
		name       string
		prepare    func(*donor)
		gone, kept []string // below agent/
		texts      map[string]string
	}{
		{"k3s", k3sAgent,
			[]string{"client-kubelet.crt", "client-kubelet.key", "client-k3s-controller.crt", "client-k3s-controller.key", "kubelet.kubeconfig", "k3scontroller.kubeconfig"},
			[]string{"etc/k3s-agent-load-balancer.json", "images/k3s-images.tar", "pod-manifests/kube-proxy.yaml"},
			map[string]string{
				"etc/rancher/k3s/config.yaml":              "token: secret\n",
				"etc/systemd/system/k3s-agent.service.env": "K3S_TOKEN='K10" + strings.Repeat("ab", 32) + "::server:secret'\n",
			}},
		{"rke2", func(d *donor) { d.rke2() },
			[]string{"client-kubelet.crt", "client-kubelet.key", "client-rke2-controller.crt", "client-rke2-controller.key", "kubelet.kubeconfig", "kubeproxy.kubeconfig",
				"logs/kubelet.log", "containerd/containerd.log", "containerd/containerd-2026-01.log.gz", "pod-manifests/kube-proxy.yaml"},
			[]string{"etc/rke2-agent-load-balancer.json", "etc/containerd/config.toml", "images/airgap.tar", "pod-manifests/users.yaml"},
			map[string]string{"etc/rancher/rke2/config.yaml": "server: https://10.0.0.1:9345\n", "etc/default/rke2-agent": "HOME=/root\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			c.prepare(d)
			before := d.snapshot()
			for _, looks := range []func(*Options){func(o *Options) { o.Inspect = true }, func(o *Options) { o.DryRun = true }} {
				r := d.run(looks)
				if found := unaccepted(r); slices.ContainsFunc(found, func(f string) bool {
					return strings.Contains(f, "/etc/rancher/") && !strings.HasPrefix(f, ruleK3sToken)
				}) {
					t.Errorf("before anything changed: %q", found)
				}
				if c.name == "k3s" && !slices.Contains(unaccepted(r), ruleK3sToken+" /etc/rancher/k3s/config.yaml") {
					t.Errorf("the token beside the donor's name was not found: %q", unaccepted(r))
				}
			}
			if d.snapshot() != before {
				t.Error("an inspection or a dry run changed the disk")
			}
			wantOutcome(t, d.run(accept), wire.Generalized)
			paths := d.paths()
			for _, p := range append([]string{"../../../../../etc/rancher/node/password"}, c.gone...) {
				if at := filepath.Join("var/lib/rancher", c.name, "agent", p); paths[at] {
					t.Errorf("/%s is still there", at)
				}
			}
			for _, p := range c.kept {
				if at := filepath.Join("var/lib/rancher", c.name, "agent", p); !paths[at] {
					t.Errorf("/%s is gone", at)
				}
			}
			for at, want := range c.texts {
				if got := d.read(at); got != want {
					t.Errorf("/%s is %q, want %q", at, got, want)
				}
			}
		})
	}
}

// Lines with the donor's values go, all others stay byte for byte; what would break the
// file, or is not the donor's, stays, and the scan refuses the donor's name there.
func TestOptionsOfTheDonor(t *testing.T) {
	t.Parallel()
	const other = "10.240.0.99"
	for name, c := range map[string]struct{ text, want string }{
		"comments and order":   {"# first\ntoken: a # b\n\nnode-name: " + donorName + " # mine\n# last\nnode-label:\n- a=b\n", "# first\ntoken: a # b\n\n# last\nnode-label:\n- a=b\n"},
		"its full name":        {"node-name: \"" + donorName + ".internal\"\nserver: x\n", "server: x\n"},
		"nothing else":         {"---\nnode-name: " + donorName + "\n", "---\n"},
		"CRLF, no end of line": {"server: x\r\nnode-ip: " + donorIP, "server: x\r\n"},
		"a list":               {"node-ip:\n# v4\n- " + donorIP + "\n- '" + donorIP + "'\nserver: x\n", "# v4\nserver: x\n"},
		"a part of a list":     {"node-ip+:\n  - " + donorIP + "\n  - " + other + "\n", "node-ip+:\n  - " + other + "\n"},
		"a list on a line":     {"node-external-ip: [" + donorIP + ", '" + donorIP + "']\nserver: x\n", "server: x\n"},
		"another's":            {"node-name: other\nnode-ip: " + other + "\n", ""},
		"a part of a line":     {"node-ip: " + donorIP + "," + other + "\n", ""},
		"a part of brackets":   {"node-ip: [" + donorIP + ", " + other + "]\n", ""},
		"over lines":           {"node-ip: [" + donorIP + ",\n  " + donorIP + "]\nserver: x\n", "server: x\n"},
		"a bracket below":      {"node-ip: [" + donorIP + "\n]\nserver: x\n", ""},
		"folded":               {"node-name: >-\n  " + donorName + "\nserver: x\n", ""},
		"within a text":        {"server: |\n  node-name: " + donorName + "\n", ""},
		"a comment in a text":  {"server: |\n  x\nnode-ip:\n  # v4\n  - " + donorIP + "\n", ""},
		"named elsewhere":      {"node-name: &n " + donorName + "\nserver: *n\n", ""},
		"below another":        {"a:\n  node-name: " + donorName + "\n", ""},
		"in braces":            {"{node-name: " + donorName + ", server: x}\n", ""},
		"no YAML":              {"node-name: " + donorName + "\n\tx: [\n", ""},
		"no options":           {"- node-name: " + donorName + "\n", ""},
		"a flag":               {"with-node-id: true\nserver: x\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.want == "" {
				c.want = c.text
			}
			d := newDonor(t).k3s()
			d.write(map[string]string{"etc/rancher/k3s/config.yaml.d/90-own.yaml": c.text})
			if err := os.Chmod(filepath.Join(d.dir, "etc/rancher/k3s/config.yaml.d/90-own.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := d.run(accept)
			if got := d.read("etc/rancher/k3s/config.yaml.d/90-own.yaml"); got != c.want {
				t.Errorf("is %q, want %q", got, c.want)
			}
			if info, err := os.Stat(filepath.Join(d.dir, "etc/rancher/k3s/config.yaml.d/90-own.yaml")); err != nil || info.Mode() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			left := strings.Contains(c.want, donorName) || strings.Contains(c.want, donorIP)
			if refused := r.Outcome == wire.SecretsFound; refused != left {
				t.Errorf("outcome %s (%s), with the donor's name left: %v", r.Outcome, r.Message, left)
			}
		})
	}
}

// A server is no donor, wherever its datastore is.
func TestServersOfRancherAreRefused(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"k3s/server/db/state.db", "k3s/server/tls/server-ca.key", "rke2/server/db/etcd/name", "rke2/server/tls/server-ca.key"} {
		d := newDonor(t)
		d.write(map[string]string{"var/lib/rancher/" + file: "x"})
		r := d.run(nil)
		if r.Outcome != wire.DiskRefused || !strings.Contains(r.Message, "control plane") {
			t.Errorf("%s: %s (%s)", file, r.Outcome, r.Message)
		}
	}
}

func FuzzOptionsOfTheDonor(f *testing.F) {
	f.Add([]byte("node-name: " + donorName + "\nserver: x\n"))
	f.Add([]byte("node-ip: [" + donorIP + ",\n x]\na: &a [*a]\n"))
	donor := facts{names: []string{donorName}}
	f.Fuzz(func(t *testing.T, data []byte) {
		drop := donorOptions(data, donor)
		if len(drop) == 0 {
			return
		}
		left := []byte(strings.Join(without(strings.Split(string(data), "\n"), drop), "\n"))
		if _, ok := topMapping(left); !ok {
			t.Errorf("%q became %q, which does not parse", data, left)
		}
		if len(donorOptions(left, donor)) > 0 {
			t.Errorf("%q: twice is not once", data)
		}
	})
}
