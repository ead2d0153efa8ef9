package charts

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cli"
)

// ofAdmission keeps of a kind's objects those of the admission server.
func ofAdmission(docs [][]byte) [][]byte {
	var out [][]byte
	for _, doc := range docs {
		if bytes.Contains(doc, []byte("app.kubernetes.io/component: admission")) {
			out = append(out, doc)
		}
	}
	return out
}

func TestAdmissionIsGrantedExactlyWhatIsUsed(t *testing.T) {
	objects := renderOrtet(t, admitting...)
	granted, want := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	for _, kind := range []string{"ClusterRole", "Role"} {
		for _, doc := range ofAdmission(objects[kind]) {
			var r rbacv1.Role
			if err := yaml.Unmarshal(doc, &r); err != nil {
				t.Fatal(err)
			}
			granted[r.Namespace] = append(granted[r.Namespace], r.Rules...)
		}
	}
	for _, r := range admissionkube.Rules("ortet-system") {
		want[r.Namespace] = append(want[r.Namespace], rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names, Verbs: r.Verbs})
	}
	if got, want := spelled(granted), spelled(want); !reflect.DeepEqual(got, want) {
		t.Errorf("the chart grants\n%s\nand the code uses\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Nothing but the admission server may approve what our tokens ask for.
func TestTokensMayOnlyAsk(t *testing.T) {
	for _, doc := range renderOrtet(t, admitting...)["ClusterRoleBinding"] {
		var b rbacv1.ClusterRoleBinding
		if err := yaml.UnmarshalStrict(doc, &b); err != nil {
			t.Fatal(err)
		}
		for _, s := range b.Subjects {
			if s.Kind == rbacv1.GroupKind && (s.Name != admissionkube.TokenGroup || b.RoleRef.Name != "system:node-bootstrapper") {
				t.Errorf("%s binds %s to %s", b.Name, b.RoleRef.Name, s.Name)
			}
		}
	}
}

func TestAdmissionIsOffByDefault(t *testing.T) {
	for kind, docs := range renderOrtet(t) {
		if got := ofAdmission(docs); len(got) > 0 {
			t.Errorf("%s: %s", kind, got[0])
		}
	}
}

func TestAdmissionRefuses(t *testing.T) {
	for why, args := range map[string][]string{
		"set admission.pools":           {"--set", "admission.enabled=true,admission.names={a}"},
		"set admission.names":           {"--set", "admission.enabled=true,admission.pools={/subscriptions/s}"},
		"Kubernetes 1.30 or later":      append([]string{"--kube-version", "1.29.5"}, admitting...),
		"admission.policy.exempt.0":     append([]string{"--set", `admission.policy.exempt={a"b}`}, admitting...),
		"admission.policy.exemptPrefix": append([]string{"--set", `admission.policy.exemptPrefixes={A_}`}, admitting...),
	} {
		out, err := helm(t, append([]string{"template", "r", "ortet"}, args...)...)
		if err == nil || !strings.Contains(strings.ReplaceAll(out, "/", "."), why) {
			t.Errorf("want %q: %v\n%s", why, err, out)
		}
	}
}

func TestAdmissionArgumentsAreTheCommandLines(t *testing.T) {
	for name, more := range map[string][]string{
		"defaults":          nil,
		"a secret":          {"--set", "azure.configSecret=x"},
		"workload identity": {"--set", "azure.workloadIdentity=11111111-2222-4333-8444-555555555555"},
		"k3s":               {"--set", "admission.supervisor=https://10.0.0.1:9345,admission.service.type=NodePort,admission.service.nodePort=30843,admission.networkPolicy.enabled=true,admission.networkPolicy.nodes={10.1.0.0/16}"},
		"spot":              {"--set", "admission.keepCapacity={/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p}"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := renderOrtet(t, append(append([]string{}, admitting...), more...)...)
			var d appsv1.Deployment
			if err := yaml.UnmarshalStrict(ofAdmission(objects["Deployment"])[0], &d); err != nil {
				t.Fatal(err)
			}
			container := d.Spec.Template.Spec.Containers[0]
			var out, complaint bytes.Buffer
			code := cli.Run(context.Background(), append(container.Args, "--help"), cli.Process{Out: &out, Err: &complaint, Getenv: func(string) string { return "" }, Version: "test"})
			if code != 0 {
				t.Errorf("ortet %q: exit %d: %s", container.Args, code, complaint.String())
			}
			volumes, ports := map[string]bool{}, map[string]bool{}
			for _, v := range d.Spec.Template.Spec.Volumes {
				volumes[v.Name] = true
			}
			for _, m := range container.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("no volume %s", m.Name)
				}
			}
			for _, p := range container.Ports {
				ports[p.Name] = true
			}
			for _, doc := range ofAdmission(objects["Service"]) {
				var s corev1.Service
				if err := yaml.UnmarshalStrict(doc, &s); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(s.Spec.Selector, d.Spec.Selector.MatchLabels) || !ports[s.Spec.Ports[0].TargetPort.StrVal] {
					t.Errorf("the Service leads elsewhere: %+v", s.Spec)
				}
			}
		})
	}
}
