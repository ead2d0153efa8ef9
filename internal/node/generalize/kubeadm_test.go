package generalize

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// TestKubeadmGuide has a donor as docs/how-to/kubeadm.md makes one: joined by kubeadm with the
// page's customData, and with the package's agent. Its image holds no token, takes no flag that
// accepts one, and its clones join by admission.
func TestKubeadmGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/how-to/kubeadm.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```yaml\n(#cloud-config\n.*?)^```$").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no cloud-config")
	}
	const id, secret = "q7x2mz", "k3f9d1p8w5t0c6hj"
	customData := string(block[1])
	for word, is := range map[string]string{"TOKEN": id + "." + secret, "HASH": "sha256:" + strings.Repeat("5f", 32)} {
		if !strings.Contains(customData, word) {
			t.Fatalf("%s is not in the page's customData: %s", word, customData)
		}
		customData = strings.ReplaceAll(customData, word, is)
	}
	const dropIn = "etc/systemd/system/kubelet.service.d/20-ortet.conf"
	shipped := func(name string) string {
		t.Helper()
		text, err := os.ReadFile("../../../deploy/systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	prepared := func(t *testing.T) *donor {
		d := newDonor(t).capz().azureAgent(customData, nil)
		d.write(map[string]string{
			"var/lib/cloud/instance/user-data.txt":      customData,
			"var/lib/cloud/instance/cloud-config.txt":   customData,
			"usr/lib/systemd/system/ortet-join.service": strings.ReplaceAll(shipped("ortet-join.service"), "/usr/local/bin/", "/usr/bin/"),
			"var/lib/kubelet/kubeadm-flags.env":         "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n",
			"usr/lib/systemd/system/kubelet.service":    "ExecStart=/usr/bin/kubelet\n",
			"etc/ortet/join.json":                       `{"servers":["https://10.0.0.4:8443"],"caHash":"sha256:5f","distribution":"kubelet"}`,
			"var/lib/ortet/identity.json":               `{"state":"joined","vmId":"11111111-2222-3333-4444-555555555555","nodeName":"donor"}`,
		})
		return d
	}
	baked := func(o *Options) { o.Bootstrap = Baked }

	d := prepared(t)
	d.write(map[string]string{dropIn: shipped("kubelet.service.d/20-ortet.conf")})
	r := d.run(baked)
	wantOutcome(t, r, wire.Generalized)
	if !slices.Equal(r.Joins, []string{"/" + dropIn}) {
		t.Errorf("clones join by %q, want the kubelet that waits for ortet-join", r.Joins)
	}
	for _, p := range []string{dropIn, "etc/ortet/join.json", "var/lib/kubelet/config.yaml", "var/lib/kubelet/kubeadm-flags.env", "etc/kubernetes/pki/ca.crt"} {
		if !d.paths()[p] {
			t.Errorf("/%s is gone, and a clone needs it", p)
		}
	}
	for p := range d.paths() {
		text, err := os.ReadFile(filepath.Join(d.dir, p))
		if err == nil && strings.Contains(string(text), secret) {
			t.Errorf("/%s holds the token's secret", p)
		}
	}

	// Packages have the unit on each node: without the drop-in nothing waits for it.
	if r := prepared(t).run(baked); r.Outcome != wire.DiskRefused || !strings.Contains(r.Message, "clones could not join") {
		t.Errorf("without the drop-in: %s (%s)", r.Outcome, r.Message)
	}
}
