package recipe_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// The server runs one cluster-autoscaler of the file's image with its own identity; all of its
// objects are valid, and nothing of it is there without the option.
func TestAutoscalerManifest(t *testing.T) {
	content := func(c *k3s.Cluster) string {
		var settings struct {
			Files []struct{ Path, Content string }
		}
		if err := json.Unmarshal(render(t, c, facts()).Settings, &settings); err != nil {
			t.Fatal(err)
		}
		for _, f := range settings.Files {
			if strings.HasSuffix(f.Path, "/server/manifests/cluster-autoscaler.yaml") {
				return f.Content
			}
		}
		return ""
	}
	if text := content(minimal()); text != "" {
		t.Errorf("without the option: %s", text)
	}
	c := full()
	kinds := ""
	var deployment appsv1.Deployment
	for _, document := range strings.Split(content(c), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"ServiceAccount": &corev1.ServiceAccount{}, "ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}, "Deployment": &deployment}[kind.Kind]
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
		kinds += kind.Kind + " "
	}
	if want := "ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding Deployment "; kinds != want {
		t.Errorf("objects %q, want %q", kinds, want)
	}
	for driver, want := range map[string]bool{k3s.Extension: true, k3s.InImage: false, k3s.None: false} {
		other := full()
		other.Spec.Pools[len(other.Spec.Pools)-1].GPU.Driver = driver
		if got := strings.Contains(content(other), "--max-node-provision-time=45m0s"); got != want {
			t.Errorf("driver %s: new agents have 45 minutes: %t, want %t", driver, got, want)
		}
	}
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	identity := ""
	for _, e := range container.Env {
		if e.Name == "ARM_USER_ASSIGNED_IDENTITY_ID" {
			identity = e.Value
		}
	}
	if container.Image != c.Spec.Options.ClusterAutoscaler || !pod.HostNetwork || !strings.HasSuffix(identity, "/resourceGroups/shared/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+recipe.AutoscalerIdentity) ||
		!slices.Contains(container.Command, "--max-node-provision-time=45m0s") || !slices.Contains(container.Command, "--node-group-auto-discovery=label:cluster-autoscaler-enabled=true,cluster-autoscaler-name=full") {
		t.Errorf("image %s, host's network %t, identity %q, command %q", container.Image, pod.HostNetwork, identity, container.Command)
	}
}
