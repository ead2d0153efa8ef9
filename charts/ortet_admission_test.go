//go:build e2e

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
	for name, c := range map[string]struct {
		args []string
		want []string // what is told of it, and what to do
	}{
		"nothing set": {[]string{"--set", "admission.enabled=true"}, []string{
			"set admission.pools", "az vmss show", "set admission.names", "those of the control plane's nodes"}},
		"a pool by its name": {append([]string{"--set", "admission.pools={pool1}"}, admittingAt...), []string{
			`"pool1" under admission.pools`, "virtualMachineScaleSets/NAME", "az vmss show"}},
		"capacity kept of something else": {append([]string{"--set", "admission.keepCapacity={/subscriptions/s}"}, admitting...), []string{
			`"/subscriptions/s" under admission.pools or keepCapacity`}},
		"names with scheme and port": {append(admitting, "--set", "admission.names={https://10.0.0.4:8443,10.0.0.5:8443,fd00::4,api.example.com}"), []string{
			`"https://10.0.0.4:8443" under admission.names`, `"10.0.0.5:8443" under admission.names`, "without https:// and without the port"}},
		"an API server without scheme": {append(admitting, "--set", "admission.server=10.0.0.4:6443"), []string{
			`admission.server is "10.0.0.4:6443": want https://HOST:PORT`}},
		"a Service that is not made": {append(admitting, "--set", "admission.service.loadBalancerIP=10.0.0.9"), []string{
			"Set admission.onControlPlane=false to have the Service"}},
		"a network policy that does nothing": {append(admitting, "--set", "admission.networkPolicy.enabled=true"), []string{
			"narrow port 8443 in the subnet's security group"}},
		"a duration without unit": {append(admitting, "--set-string", "admission.tokenTTL=10"), []string{`admission.tokenTTL is "10": want a duration such as 10m`}},
		"a port twice":            {append(admitting, "--set", "admission.ports.health=8443"), []string{"want three different ones"}},
		"a file's name for its text": {append(admitting, "--set", "admission.intermediates=/tmp/issuer.pem"), []string{
			"--set-file admission.intermediates=FILE"}},
		"an old cluster":       {append([]string{"--kube-version", "1.29.5"}, admitting...), []string{"Kubernetes 1.30 or later"}},
		"a name's letters":     {append([]string{"--set", `admission.policy.exempt={a"b}`}, admitting...), []string{"admission.policy.exempt.0"}},
		"a prefix's":           {append([]string{"--set", `admission.policy.exemptPrefixes={A_}`}, admitting...), []string{"admission.policy.exemptPrefix"}},
		"a value that is none": {append([]string{"--set", "admission.pool=x"}, admitting...), []string{"pool"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, append([]string{"template", "r", "ortet"}, c.args...)...)
			if err == nil {
				t.Fatal("it is rendered")
			}
			for _, want := range c.want {
				if !strings.Contains(strings.ReplaceAll(out, "admission/", "admission."), want) && !strings.Contains(strings.ReplaceAll(out, "/", "."), want) {
					t.Errorf("%q is not told: %s", want, out)
				}
			}
			for _, good := range []string{"fd00::4", "api.example.com"} {
				if strings.Contains(out, good) {
					t.Errorf("%s is refused: %s", good, out)
				}
			}
		})
	}
}

// On the control plane's nodes machines reach it before there is any network of pods;
// elsewhere it is kept off nodes that load balancers leave out.
func TestAdmissionIsWhereMachinesReachIt(t *testing.T) {
	for name, c := range map[string]struct {
		args        []string
		hostNetwork bool
		operators   map[string]corev1.NodeSelectorOperator
		service     bool
	}{
		"on the control plane": {nil, true, map[string]corev1.NodeSelectorOperator{"node-role.kubernetes.io/control-plane": corev1.NodeSelectorOpExists}, false},
		"behind a load balancer": {[]string{"--set", "admission.onControlPlane=false"}, false, map[string]corev1.NodeSelectorOperator{
			"node-role.kubernetes.io/control-plane":                   corev1.NodeSelectorOpDoesNotExist,
			"node.kubernetes.io/exclude-from-external-load-balancers": corev1.NodeSelectorOpDoesNotExist,
		}, true},
		"at ports of the nodes": {[]string{"--set", "admission.onControlPlane=false,admission.service.type=NodePort"}, false, map[string]corev1.NodeSelectorOperator{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := renderOrtet(t, append(append([]string{}, admitting...), c.args...)...)
			var d appsv1.Deployment
			if err := yaml.UnmarshalStrict(ofAdmission(objects["Deployment"])[0], &d); err != nil {
				t.Fatal(err)
			}
			pod := d.Spec.Template.Spec
			if pod.HostNetwork != c.hostNetwork || pod.DNSPolicy != corev1.DNSDefault {
				t.Errorf("host network %v, DNS %s", pod.HostNetwork, pod.DNSPolicy)
			}
			operators := map[string]corev1.NodeSelectorOperator{}
			if affinity := pod.Affinity.NodeAffinity; affinity != nil {
				for _, e := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions {
					operators[e.Key] = e.Operator
				}
			}
			if !reflect.DeepEqual(operators, c.operators) {
				t.Errorf("nodes %v, want %v", operators, c.operators)
			}
			if services := len(ofAdmission(objects["Service"])); (services == 2) != c.service {
				t.Errorf("%d Services", services)
			}
			for _, v := range pod.Volumes {
				if h := v.HostPath; h != nil && *h.Type != corev1.HostPathFile {
					t.Errorf("%s is mounted, with what lies in it", h.Path)
				}
			}
		})
	}
}

func TestAdmissionArgumentsAreTheCommandLines(t *testing.T) {
	for name, more := range map[string][]string{
		"defaults":          nil,
		"a secret":          {"--set", "azure.configSecret=x"},
		"workload identity": {"--set", "azure.workloadIdentity=11111111-2222-4333-8444-555555555555"},
		"k3s":               {"--set", "admission.supervisor=https://10.0.0.1:9345,admission.onControlPlane=false,admission.service.type=NodePort,admission.service.nodePort=30843,admission.networkPolicy.enabled=true,admission.networkPolicy.nodes={10.1.0.0/16}"},
		"closed network":    {"--set", "admission.arguments={--rate-per-address=500}", "--set", "admission.env.HTTPS_PROXY=http://10.0.0.9:3128", "--set", "admission.intermediates=-----BEGIN CERTIFICATE-----"},
		"older agents":      {"--set-string", `admission.callbackPort=340\,9440`},
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
