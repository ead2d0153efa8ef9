//go:build e2e

package recipe_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The server gets the chart's objects without helm; this keeps the two the same.
func TestAdmissionManifestIsTheChart(t *testing.T) {
	const root = "../../../"
	built, err := exec.CommandContext(t.Context(), root+"hack/helm/build.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	helm := exec.CommandContext(t.Context(), strings.TrimSpace(string(built)), "template", "ortet", root+"charts/ortet", "--namespace", "ortet-system",
		"--kube-version", "1.36.0", "--set", "image.repository=example.invalid/ortet", "--set-string", "image.tag=1", "--set", "controller.replicas=0", "--set", "admission.enabled=true",
		"--set", "admission.pools={/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p}",
		"--set", "admission.names={10.0.0.1}", "--set", "admission.server=https://10.0.0.1:6443", "--set", "admission.policy.exempt={server}",
		"--show-only", "templates/admission-policy.yaml", "--show-only", "templates/admission-rbac.yaml")
	helm.Stderr = os.Stderr
	objects, err := helm.Output()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../manifests/admission.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ortet-system\n"+withoutHelm(string(objects))))
}

// withoutHelm drops comments, and what helm writes about itself.
func withoutHelm(objects string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(objects, "  annotations:\n    helm.sh/resource-policy: keep\n", "")) {
		switch text := strings.TrimSpace(line); {
		case strings.HasPrefix(text, "#"), strings.HasPrefix(text, "helm.sh/"), text == "app.kubernetes.io/managed-by: Helm":
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestCloudInitSchema(t *testing.T) {
	program, err := exec.LookPath("cloud-init")
	if err != nil {
		t.Skip("cloud-init is not installed (apt-get install cloud-init)")
	}
	for name, c := range clusters() {
		for machine, document := range render(t, c, facts()).CloudInit {
			file := filepath.Join(t.TempDir(), name+"-"+machine+".yaml")
			if err := os.WriteFile(file, document, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), program, "schema", "--config-file", file).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Valid") {
				t.Errorf("%s, %s: %v: %s", name, machine, err, out)
			}
		}
	}
}
