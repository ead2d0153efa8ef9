//go:build e2e

package charts

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/controller"
	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/fleet"
)

// renderOrtet returns the chart's objects by kind.
func renderOrtet(t *testing.T, args ...string) map[string][][]byte {
	t.Helper()
	out, err := helm(t, append([]string{"template", "r", "ortet", "--namespace", "ortet-system"}, args...)...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, out)
	}
	objects := map[string][][]byte{}
	for _, doc := range strings.Split(out, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, doc)
		}
		if kind.Kind != "" {
			objects[kind.Kind] = append(objects[kind.Kind], []byte(doc))
		}
	}
	return objects
}

func TestOrtetChartIsWellFormed(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", "ortet"); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
}

func TestOrtetChartGrantsExactlyWhatIsUsed(t *testing.T) {
	for _, all := range []bool{true, false} {
		args := []string{"--set", "controller.liftTaint=true"}
		want := map[string][]rbacv1.PolicyRule{}
		if !all {
			args = []string{"--set", "clusterAPI=false,controller.firstPod=false,controller.liftTaint=false"}
		}
		for _, r := range controller.Rules("ortet-system") {
			if all || r.Needed == "always" {
				want[r.Namespace] = append(want[r.Namespace], rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names, Verbs: r.Verbs})
			}
		}
		objects := renderOrtet(t, args...)
		granted := map[string][]rbacv1.PolicyRule{}
		for _, kind := range []string{"ClusterRole", "Role"} {
			for _, doc := range objects[kind] {
				var r rbacv1.Role
				if err := yaml.Unmarshal(doc, &r); err != nil {
					t.Fatal(err)
				}
				granted[r.Namespace] = append(granted[r.Namespace], r.Rules...)
			}
		}
		if got, want := spelled(granted), spelled(want); !reflect.DeepEqual(got, want) {
			t.Errorf("the chart grants\n%s\nand the code uses\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestOrtetChartArgumentsAreTheCommandLines(t *testing.T) {
	pool := "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p"
	for name, c := range map[string]struct {
		args  []string
		root  bool
		azure string
	}{
		"defaults":          {nil, true, "--azure-config=/etc/azure/azure.json"},
		"a secret":          {[]string{"--set", "azure.configSecret=x"}, false, "--azure-config=/etc/azure/azure.json"},
		"workload identity": {[]string{"--set", "azure.workloadIdentity=11111111-2222-4333-8444-555555555555"}, false, ""},
		"pools":             {[]string{"--set", "controller.pools={" + pool + "},controller.resourceGroups={/subscriptions/s/resourceGroups/h},controller.armReads=30,controller.interval=1m"}, true, "--azure-config=/etc/azure/azure.json"},
	} {
		t.Run(name, func(t *testing.T) {
			var d appsv1.Deployment
			if err := yaml.UnmarshalStrict(renderOrtet(t, c.args...)["Deployment"][0], &d); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{fleet.TaintUnproven, fleet.TaintReadiness} {
				tolerated := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
				if !slices.Contains(d.Spec.Template.Spec.Tolerations, tolerated) {
					t.Errorf("where all nodes are new, no node takes the controller: it does not tolerate %s", key)
				}
			}
			container := d.Spec.Template.Spec.Containers[0]
			var out, complaint bytes.Buffer
			code := cli.Run(context.Background(), append(container.Args, "--help"), cli.Process{Out: &out, Err: &complaint, Getenv: func(string) string { return "" }, Version: "test"})
			if code != 0 {
				t.Errorf("ortet %q: exit %d: %s", container.Args, code, complaint.String())
			}
			if root := *container.SecurityContext.RunAsUser == 0; root != c.root {
				t.Errorf("root is %v", root)
			}
			given := ""
			for _, a := range container.Args {
				if strings.HasPrefix(a, "--azure-config") {
					given = a
				}
			}
			if given != c.azure {
				t.Errorf("credentials are given as %q, want %q", given, c.azure)
			}
			mounts := map[string]bool{}
			for _, v := range d.Spec.Template.Spec.Volumes {
				mounts[v.Name] = true
			}
			for _, m := range container.VolumeMounts {
				if !mounts[m.Name] {
					t.Errorf("no volume %s", m.Name)
				}
			}
		})
	}
}
