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
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/cluster/kube"
)

// ofOperator keeps of a kind's objects those of the operator.
func ofOperator(docs [][]byte) (out [][]byte) {
	for _, doc := range docs {
		if bytes.Contains(doc, []byte("app.kubernetes.io/component: operator")) {
			out = append(out, doc)
		}
	}
	return out
}

func TestOperatorIsGrantedExactlyWhatIsUsed(t *testing.T) {
	objects := renderOrtet(t, operating...)
	granted := map[string][]rbacv1.PolicyRule{}
	for _, kind := range []string{"ClusterRole", "Role"} {
		for _, doc := range ofOperator(objects[kind]) {
			var r rbacv1.Role
			if err := yaml.Unmarshal(doc, &r); err != nil {
				t.Fatal(err)
			}
			granted[r.Namespace] = append(granted[r.Namespace], r.Rules...)
		}
	}
	want := kube.PolicyRules(slices.Concat(kube.Rules(kube.Everything("ortet-system")), kube.OperatorRules()))
	if got, want := spelled(granted), spelled(want); !reflect.DeepEqual(got, want) {
		t.Errorf("the chart grants\n%s\nand the code uses\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOperatorIsOffByDefault(t *testing.T) {
	for kind, docs := range renderOrtet(t) {
		if got := ofOperator(docs); len(got) > 0 {
			t.Errorf("%s: %s", kind, got[0])
		}
	}
	if out, err := helm(t, "template", "r", "ortet", "--set", "operator.enabled=true"); err == nil || !strings.Contains(out, "set operator.resourceGroups") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOperatorDeployment(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		root bool
	}{
		"the node's file":   {[]string{"--set", "operator.configSecret="}, true},
		"a secret":          {[]string{"--set", "operator.configSecret=x"}, false},
		"workload identity": {[]string{"--set", "operator.workloadIdentity=11111111-2222-4333-8444-555555555555"}, false},
		"a pull secret":     {[]string{"--set", "image.pullSecrets={a,b},operator.maxRuns=2,operator.otherPools=true"}, false},
	} {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(ofOperator(renderOrtet(t, append(slices.Clone(operating), c.args...)...)["Deployment"])[0], &d); err != nil {
			t.Fatal(err)
		}
		pod := d.Spec.Template.Spec
		container := pod.Containers[0]
		var out, complaint bytes.Buffer
		if code := cli.Run(context.Background(), append(container.Args, "--help"), cli.Process{Out: &out, Err: &complaint, Getenv: func(string) string { return "" }, Version: "test"}); code != 0 {
			t.Errorf("%s: ortet %q: exit %d: %s", name, container.Args, code, complaint.String())
		}
		if root := *container.SecurityContext.RunAsUser == 0; root != c.root {
			t.Errorf("%s: root is %v", name, root)
		}
		if *pod.TerminationGracePeriodSeconds != 900 {
			t.Errorf("%s: it has %d s to return its donors", name, *pod.TerminationGracePeriodSeconds)
		}
	}
}
