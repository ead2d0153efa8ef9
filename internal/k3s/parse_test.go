package k3s_test

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
)

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// minimal is the smallest cluster.yaml; line numbers of the tests are its.
const minimal = `apiVersion: ortet.io/v1alpha1
kind: Cluster
metadata:
  name: demo
spec:
  location: westeurope
  artifacts:
    k3s: {url: "https://example.org/k3s", sha256: "` + zeros + `"}
    ortet: {url: "file:///srv/ortet", sha256: "` + zeros + `"}
    ortetNode: {url: "http://10.0.0.1:8000/ortet-node", sha256: "` + zeros + `"}
  pools:
  - name: agents
    count: 2
  storage:
    account: demo12345
`

func TestParseSetsDefaults(t *testing.T) {
	c, err := k3s.Parse("cluster.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Spec
	for _, test := range []struct{ what, got, want string }{
		{"storage group", s.Groups.Storage, "demo-storage"},
		{"compute group", s.Groups.Compute, "demo-compute"},
		{"server image", s.Server.Image.Offer + ":" + s.Server.Image.Version, "ubuntu-24_04-lts:latest"},
		{"pool image", s.Pools[0].Image.Publisher, "Canonical"},
		{"pool size", s.Pools[0].Size, "Standard_D2s_v5"},
		{"priority", s.Pools[0].Priority + s.Pools[0].EvictionPolicy, "SpotDelete"},
		{"agents", s.Network.Agents, "10.16.16.0/20"},
		{"shares", strings.Join(s.Storage.Shares, " "), "config data registry"},
		{"mount", s.Storage.Mount, "data"},
		{"key", s.Access.SSHKey, "demo.pub"},
		{"ssh", strings.Join(s.Access.SSH, " "), "own"},
		{"api", strings.Join(s.Access.API, " "), "own"},
		{"ingress", strings.Join(s.Access.Ingress, " "), ""},
	} {
		if test.got != test.want {
			t.Errorf("%s is %q, not %q", test.what, test.got, test.want)
		}
	}
	if *s.Pools[0].Count != 2 || s.Access.SSHPort != 22 || s.Server.DiskGB != 32 {
		t.Errorf("count %d, port %d, disk %d", *s.Pools[0].Count, s.Access.SSHPort, s.Server.DiskGB)
	}
}

func TestParseKeepsWhatIsSet(t *testing.T) {
	c, err := k3s.Parse("cluster.yaml", []byte(strings.Replace(minimal, "    count: 2\n",
		"    min: 0\n    max: 5\n    priority: Regular\n    size: Standard_B2s\n    labels: {disk: ssd, node.kubernetes.io/x: y}\n    taints: [\"a=b:NoSchedule\", \"a:NoExecute\"]\n"+
			"  access: {ssh: [any], api: [], ingress: [cloudflare, 192.0.2.1, \"2001:db8::/32\"]}\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Spec.Pools[0]
	if p.Count != nil || *p.Max != 5 || p.EvictionPolicy != "" || p.Labels["disk"] != "ssd" || len(p.Taints) != 2 {
		t.Errorf("pool is %+v", p)
	}
	if c.Spec.Access.API == nil || len(c.Spec.Access.API) != 0 {
		t.Errorf("api: [] became %q", c.Spec.Access.API)
	}
}

// A pool with GPUs has a taint, its own one of that key first, unless the file says that it has none.
func TestParseTaintsGPUs(t *testing.T) {
	for pool, want := range map[string]string{
		"gpu: {driver: image}":               "nvidia.com/gpu=present:NoSchedule",
		"gpu: {driver: image, taint: false}": "",
		"gpu: {driver: image}\n    taints: [\"nvidia.com/gpu=mine:NoSchedule\"]":        "nvidia.com/gpu=mine:NoSchedule",
		"gpu: {driver: image}\n    taints: [\"nvidia.com/gpu=mine:NoExecute\"]":         "nvidia.com/gpu=mine:NoExecute nvidia.com/gpu=present:NoSchedule",
		"gpu: {driver: image, taint: false}\n    taints: [\"example.org/a:NoExecute\"]": "example.org/a:NoExecute",
	} {
		c, err := k3s.Parse("cluster.yaml", []byte(strings.Replace(minimal, "    count: 2\n", "    count: 2\n    "+pool+"\n  options: {devicePlugin: 'r.example/p@sha256:"+ones+"'}\n", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if p := c.Spec.Pools[0]; strings.Join(p.Taints, " ") != want || p.Labels[k3s.GPULabel] != "true" || p.Labels[k3s.GPUWaits] != "nvidia" {
			t.Errorf("%s: taints %q, want %q; labels %v", pool, p.Taints, want, p.Labels)
		}
	}
}
