//go:build e2e

package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Helm itself takes the charts from the registry, and renders the image by its digest
// without a value for it.
func TestHelmInstallsWhatIsPublished(t *testing.T) {
	built, err := exec.CommandContext(t.Context(), "../helm/build.sh").Output()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	helm := strings.TrimSpace(string(built))
	for _, folder := range []string{"CONFIG", "CACHE", "DATA"} {
		t.Setenv("HELM_"+folder+"_HOME", t.TempDir())
	}
	t.Setenv("KUBECONFIG", "/dev/null")
	c := buildTools(t)
	host, _ := serve(t, emptyRegistry())
	dist, image := c.dist(t, host+"/team", publishedVersion)
	if _, complaint, err := c.publish(t, dist, host+"/team"); err != nil {
		t.Fatalf("%v: %s", err, complaint)
	}
	for chart, set := range map[string]string{"ortet": "controller.replicas=2", "vmss-prototype": "kamino.targetNode=k8s-pool1-12345678-vmss000000"} {
		pulled := t.TempDir()
		must(t, helm, "pull", "oci://"+host+"/team/charts/"+chart, "--version", "1.2.3", "--plain-http", "--destination", pulled)
		packed := filepath.Join(pulled, chart+"-1.2.3.tgz")
		must(t, helm, "lint", "--strict", packed, "--set", set)
		rendered := must(t, helm, "template", "r", packed, "--set", set)
		if !strings.Contains(rendered, "image: "+image+"\n") || !strings.Contains(rendered, chart+"-1.2.3") {
			t.Errorf("%s does not render %s:\n%s", chart, image, rendered)
		}
	}
}
