//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// readmeCommands are those of a first try without the playground's variables, on a real
// control plane, and its mistakes. README's own text is run by hack/demo's TestCommands.
func readmeCommands(t *testing.T, w *world) {
	p := w.pool(t, "first", 2)
	donor := p.nodes[0]
	before := p.node(t, donor)
	timed := func(run func() outcome) outcome {
		t.Helper()
		began := time.Now()
		o := run()
		t.Logf("exit %d after %.1f s: ortet %v", o.code, time.Since(began).Seconds(), o.args)
		return o
	}
	ours := func(args ...string) outcome {
		return timed(func() outcome { return p.ortet(t, nil, args...) })
	}

	// No image is published: nothing is pulled unless it is named.
	for _, more := range []string{"--dry-run", "--image="} {
		o := timed(func() outcome {
			return p.run(t, nil, "capture", donor, more, "--azure-config="+p.azureConfig, "--kubeconfig="+p.cp.Kubeconfig)
		})
		o.exits(t, exitRefused).says(t, "make image", "bin/ortet-image.tar", "--image REGISTRY/ortet:TAG")
		p.whole(t, donor, before)
	}
	// The pool's nodes share a bootstrap token, and the donor has it.
	for _, args := range [][]string{{"capture", donor, "--dry-run"}, {"capture", donor}} {
		ours(args...).exits(t, exitRefused).says(t, "/etc/kubernetes/bootstrap-kubelet.conf", "--accept-pool-credentials", "nothing was changed")
		p.whole(t, donor, before)
	}
	ours("capture", donor, "--accept-pool-credentials", "--dry-run").exits(t, exitDone).says(t, "Inspect "+donor)
	p.whole(t, donor, before)
	ours("capture", donor, "--accept-pool-credentials").exits(t, exitDone)
	p.whole(t, donor, before)
	ours("status", string(p.id())).exits(t, exitDone).says(t, donor)
	ours("nodes", "--pool", string(p.id())).exits(t, exitDone).says(t, donor)
	p.clean(t)

	if o := ours("status", string(p.id())+"x").exits(t, exitRefused); o.stdout != "" {
		t.Errorf("a mistyped id has a status:\n%s", o.stdout)
	}
	if o := ours("nodes", "--pool", string(p.id())+"x").exits(t, exitRefused).says(t, "no such scale set"); strings.Contains(o.stdout, donor) {
		t.Errorf("a mistyped pool has nodes:\n%s", o.stdout)
	}
	foreign, err := os.ReadFile(p.azure.Endpoint.CAFile)
	must(t, err)
	for name, mistake := range map[string]func(c *api.Cluster){
		"x509":               func(c *api.Cluster) { c.CertificateAuthority, c.CertificateAuthorityData = "", foreign },
		"connection refused": func(c *api.Cluster) { c.Server = "https://127.0.0.1:1" },
	} {
		config, err := clientcmd.LoadFromFile(p.cp.Kubeconfig)
		must(t, err)
		for _, c := range config.Clusters {
			mistake(c)
		}
		file := filepath.Join(t.TempDir(), "kubeconfig")
		must(t, clientcmd.WriteToFile(*config, file))
		for _, args := range [][]string{{"capture", donor}, {"status"}} {
			began := time.Now()
			o := timed(func() outcome {
				return p.run(t, nil, append(args, "--azure-config="+p.azureConfig, "--kubeconfig="+file)...)
			})
			o.exits(t, exitFailed).says(t, name)
			if took := time.Since(began); took > 20*time.Second || o.stdout != "" {
				t.Errorf("after %s, with the result %q", took, o.stdout)
			}
		}
	}
}
