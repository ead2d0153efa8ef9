//go:build e2e

package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/test/controlplane"
)

const somePool = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

var scaleSetPools = v1alpha1.GroupVersion.WithResource("scalesetpools")

// operating are the values of a chart with its operator.
var operating = []string{"--set", "operator.enabled=true,operator.resourceGroups={/subscriptions/s/resourceGroups/g},operator.configSecret=azure,azure.configSecret=azure"}

// kubectlOn runs kubectl on the shared control plane as its administrator.
func kubectlOn(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // clean-up uses it, too
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"kubectl", "--kubeconfig", controlplane.Shared(t).Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// scaleSetPoolsOn makes the chart's CRD, and returns a client of its objects.
func scaleSetPoolsOn(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	for _, doc := range renderOrtet(t, operating...)["CustomResourceDefinition"] {
		if out, err := kubectlOn(t, string(doc), "apply", "--server-side", "--filename", "-"); err != nil {
			t.Fatalf("apply the CRD: %v\n%s", err, out)
		}
	}
	if out, err := kubectlOn(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/scalesetpools.ortet.io"); err != nil {
		t.Fatalf("wait for the CRD: %v\n%s", err, out)
	}
	config, err := controlplane.Shared(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pools := c.Resource(scaleSetPools)
	eventually(t, "the API of ScaleSetPools", func() error {
		_, err := pools.List(t.Context(), metav1.ListOptions{})
		return err
	})
	return pools
}

func deleteScaleSetPool(t *testing.T, name string) {
	t.Helper()
	if out, err := kubectlOn(t, "", "delete", "ssp", name); err != nil {
		t.Errorf("delete ScaleSetPool %s: %v\n%s", name, err, out)
	}
}

// poolOf is a ScaleSetPool by the YAML of its spec, for somePool where that names no scale set.
func poolOf(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatalf("%v\n%s", err, spec)
	}
	if _, named := fields["scaleSet"]; !named {
		if fields == nil {
			fields = map[string]any{}
		}
		fields["scaleSet"] = somePool
	}
	text, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ScaleSetPool", "metadata": map[string]any{"name": name}, "spec": fields})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return u
}

// What the real API server refuses, in its words, and what it takes.
func TestScaleSetPoolsAreChecked(t *testing.T) {
	pools := scaleSetPoolsOn(t)
	const capture = `capture: {schedule: "0 2 * * *", `
	for spec, want := range map[string]string{
		``:                                       "",
		`{suspend: true, watch: {}}`:             "",
		capture + `timeZone: Europe/Berlin}`:     "",
		`capture: {schedule: "@daily"}`:          "",
		`capture: {schedule: "*/5 1-3 * JAN 0"}`: "",
		capture + `maxImageAge: 0s}
donors: {patchAnnotation: example.com/patched}`: "",
		capture + `acceptSecrets: [/etc/a, /etc/folder/, /etc/..hidden]}`: "",
		capture + `extensions: {delete: All, keep: ["Azure*"]}}`:          "",
		`donors: {minReady: 0s, skipRules: [kernel, boot-time]}`:          "",
		`rollout: {mode: Proven, maxUnavailable: 10%}`:                    "",
		`rollout: {maxUnavailable: 1000, soak: 0s}`:                       "",
		`rollout: {windows: [{schedule: "0 1 * * 6", duration: 5h}]}`:     "",
		`scaleSet: ` + strings.ToUpper(somePool):                          "",
		`scaleSet: null`:                                                  `spec.scaleSet: Required value`,
		`scaleSet: pool1`:                                                 `spec.scaleSet: Invalid value: "pool1": want the ARM id of a VM scale set: /subscriptions/ID/`,
		`scaleSet: ` + strings.Replace(somePool, "ScaleSets", "s", 1):     `want the ARM id of a VM scale set`,
		`scaleSet: ` + somePool + `/virtualMachines/3`:                    `want the ARM id of a VM scale set`,
		`capture: {}`:                                                       `spec.capture.schedule: Required value`,
		`capture: {schedule: "0 2 * *"}`:                                    `spec.capture.schedule: Invalid value: "0 2 * *": want five fields`,
		`capture: {schedule: "every night"}`:                                `want five fields`,
		`capture: {schedule: "TZ=UTC 0 2 * * *"}`:                           `want five fields`,
		capture + `timeZone: Local}`:                                        `spec.capture.timeZone: Invalid value: "Local": want a name of the IANA time zone database`,
		capture + `timeZone: "+02:00"}`:                                     `want a name of the IANA time zone database`,
		capture + `window: 4 hours}`:                                        `spec.capture.window: Invalid value: "4 hours": want 1m to 744h, in h, m and s, such as 1h30m`,
		capture + `window: 59s}`:                                            `want 1m to 744h`,
		capture + `window: -1h}`:                                            `want 1m to 744h`,
		capture + `window: ""}`:                                             `want 1m to 744h`,
		capture + `maxImageAge: 14d}`:                                       `spec.capture.maxImageAge: Invalid value: "14d": want whole days in hours, 24h to 8760h, such as 336h, or 0s`,
		capture + `maxImageAge: 36h}`:                                       `want whole days in hours`,
		capture + `maxImageAge: 0s}`:                                        `capture.maxImageAge 0s needs donors.patchAnnotation: nothing else makes a second image due`,
		capture + `bootstrap: keep}`:                                        `spec.capture.bootstrap: Unsupported value: "keep": supported values: "Keep", "Baked"`,
		capture + `history: 1}`:                                             `spec.capture.history: Invalid value: 1: spec.capture.history in body should be greater than or equal to 2`,
		capture + `replicas: 101}`:                                          `should be less than or equal to 100`,
		capture + `online: true, deallocate: true}`:                         `online leaves the donor in service, and deallocate stops it: leave out one of them`,
		capture + `gracePeriod: 25h}`:                                       `want 1s to 24h`,
		capture + `acceptSecrets: [etc/a]}`:                                 `spec.capture.acceptSecrets[0]: Invalid value: "etc/a": want the absolute path of a file, or of a folder with / at its end`,
		capture + `acceptSecrets: [/]}`:                                     `want the absolute path of a file`,
		capture + `acceptSecrets: [/etc/../root/]}`:                         `want the absolute path of a file`,
		capture + `acceptSecrets: [/etc//a]}`:                               `want the absolute path of a file`,
		capture + `acceptSecrets: [/etc/a, /etc/a]}`:                        `spec.capture.acceptSecrets[1]: Duplicate value: "/etc/a"`,
		capture + `acceptSecrets: [` + strings.Repeat(`/a, `, 101) + `/b]}`: `must have at most 100 items`,
		capture + `extensions: {delete: None, keep: [a]}}`:                  `delete None keeps all extensions: leave out keep`,
		capture + `image: reg.example/evil}`:                                `unknown field "spec.capture.image"`,
		capture + `workbench: node1}`:                                       `unknown field "spec.capture.workbench"`,
		`donors: {patchAnnotation: "last patch"}`:                           `spec.donors.patchAnnotation: Invalid value: "last patch": want the name of an annotation`,
		`donors: {minReady: 366h0m0.5s}`:                                    `want 0s to 8760h`,
		`donors: {minCandidates: 0}`:                                        `should be greater than or equal to 1`,
		`donors: {skipRules: [ready]}`:                                      `spec.donors.skipRules[0]: Unsupported value: "ready": supported values: "ignored", "verdict"`,
		capture + `tune: [recommended]}`:                                    "",
		capture + `tune: [fast]}`:                                           `spec.capture.tune[0]: Unsupported value: "fast"`,
		capture + `tune: [recommended]}
canary: {clones: 0}`: `capture.tune needs clones that prove it: set canary.clones to 1 or more`,
		`canary: {clones: 11}`:                                          `should be less than or equal to 10`,
		`canary: {soak: 31m}`:                                           `want 1s to 30m`,
		`watch: {nodes: 0}`:                                             `should be greater than or equal to 1`,
		`watch: {duration: 169h}`:                                       `want 1m to 168h`,
		`watch: {badNodes: delete}`:                                     `supported values: "Cordon", "Delete", "Leave"`,
		`rollout: {mode: Always}`:                                       `supported values: "Never", "Proven"`,
		`rollout: {maxUnavailable: 0}`:                                  `spec.rollout.maxUnavailable: Invalid value: 0: want 1 to 1000 nodes, or 1% to 100%`,
		`rollout: {maxUnavailable: 0%}`:                                 `want 1 to 1000 nodes, or 1% to 100%`,
		`rollout: {maxUnavailable: "5"}`:                                `want 1 to 1000 nodes, or 1% to 100%`,
		`rollout: {maxUnavailable: 101%}`:                               `want 1 to 1000 nodes, or 1% to 100%`,
		`rollout: {windows: [{schedule: "0 1 * * 6"}]}`:                 `spec.rollout.windows[0].duration: Required value`,
		`rollout: {windows: [{schedule: "0 1 * * 6", duration: 745h}]}`: `spec.rollout.windows[0].duration: Invalid value: "745h": want 1m to 744h`,
	} {
		_, err := pools.Create(t.Context(), poolOf(t, "checked", spec), metav1.CreateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n: %v\nwant %q", spec, err, want)
		}
	}
}

// Defaults are the server's, an absent part stays absent, and the scale set is for good.
func TestScaleSetPoolsDefaults(t *testing.T) {
	pools := scaleSetPoolsOn(t)
	u, err := pools.Create(t.Context(), poolOf(t, "defaults", `capture: {schedule: "0 2 * * *"}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteScaleSetPool(t, "defaults") })
	var want map[string]any
	if err := yaml.Unmarshal([]byte(`
scaleSet: `+somePool+`
capture: {schedule: "0 2 * * *", timeZone: UTC, window: 4h, maxImageAge: 336h, bootstrap: Keep, history: 3,
  online: false, fresh: false, patch: false, deallocate: false, gracePeriod: 5m, extensions: {delete: Default}}
donors: {minReady: 1h, minCandidates: 1}
canary: {clones: 2, soak: 2m}
rollout: {mode: Never, maxUnavailable: 1, soak: 2m, drainTimeout: 10m}`), &want); err != nil {
		t.Fatal(err)
	}
	if got, want := marshalled(t, u.Object["spec"]), marshalled(t, want); got != want {
		t.Errorf("spec:\n%s\nwant\n%s", got, want)
	}
	if err := unstructured.SetNestedField(u.Object, somePool+"2", "spec", "scaleSet"); err != nil {
		t.Fatal(err)
	}
	const words = "spec.scaleSet: Invalid value: \"" + somePool + "2\": cannot be changed: delete the ScaleSetPool, and create one for the other scale set"
	if _, err := pools.Update(t.Context(), u, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("another scale set: %v; want %s", err, words)
	}
}

func marshalled(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What a Go program writes and reads is what the server keeps, and kubectl shows it within 80 columns.
func TestScaleSetPoolsFit80Columns(t *testing.T) {
	pools := scaleSetPoolsOn(t)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i, p := range []struct{ name, fresh, proven, nodes, kind string }{
		{"k8s-pool1-12345678", "True", "True", "97/100", ""},
		{"system", "False", "Unknown", "7/10", "capture"},
		{"spot-gpu-eu-2", "True", "False", "0/3", "rollback"},
	} {
		u := poolOf(t, p.name, "scaleSet: "+somePool+fmt.Sprint(i))
		if _, err := pools.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteScaleSetPool(t, p.name) })
		status := v1alpha1.ScaleSetPoolStatus{ObservedGeneration: 1, Image: "2026.11.25", ImageBuilt: &now, Nodes: v1alpha1.NodesStatus{Summary: p.nodes}}
		for kind, is := range map[string]string{v1alpha1.ConditionFresh: p.fresh, v1alpha1.ConditionProven: p.proven} {
			status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(is), Reason: "Tested", LastTransitionTime: now})
		}
		if p.kind != "" {
			status.Run = &v1alpha1.RunStatus{Kind: p.kind, Summary: p.kind + " 40%"}
		}
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := kubectlOn(t, "", "patch", "ssp", p.name, "--subresource=status", "--type=merge", "--patch", string(patch)); err != nil {
			t.Fatalf("write the status: %v\n%s", err, out)
		}
	}
	out, err := kubectlOn(t, "", "get", "ssp")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("\n%s", out)
	for line := range strings.Lines(out) {
		if wide := len([]rune(strings.TrimRight(line, " \n"))); wide > 80 {
			t.Errorf("%d columns: %s", wide, line)
		}
	}
	for _, want := range []string{"IMAGE", "FRESH", "PROVEN", "NODES", "DOING", "AGE", "capture 40%"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl get ssp does not show %s", want)
		}
	}
}

// kubectl explain has a description of each field, and no line that a terminal would break.
func TestScaleSetPoolsExplain(t *testing.T) {
	scaleSetPoolsOn(t)
	all, err := kubectlOn(t, "", "explain", "ssp.spec", "--recursive")
	if err != nil {
		t.Fatalf("%v\n%s", err, all)
	}
	t.Logf("\n%s", all)
	for _, path := range []string{"ssp", "ssp.spec", "ssp.spec.capture", "ssp.spec.donors", "ssp.spec.canary", "ssp.spec.watch", "ssp.spec.rollout", "ssp.spec.rollout.windows", "ssp.status", "ssp.status.run"} {
		out, err := kubectlOn(t, "", "explain", path)
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, out)
		}
		t.Logf("%s\n%s", path, out)
		if strings.Contains(out, "<no description>") {
			t.Errorf("kubectl explain %s leaves a field without description:\n%s", path, out)
		}
	}
}

// Helm takes over a CRD that kubectl made, and uninstalling leaves it with its objects. By the chart's
// roles an editor of the whole cluster reads ScaleSetPools, and writes none.
func TestScaleSetPoolsOutliveTheChart(t *testing.T) {
	pools := scaleSetPoolsOn(t)
	i := emptied(t, "scalesetpools")
	release := append([]string{"pools", "ortet", "--namespace", i.namespace}, operating...)
	i.helm(append([]string{"install", "--take-ownership"}, release...)...)
	if _, err := pools.Create(t.Context(), poolOf(t, "stays", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteScaleSetPool(t, "stays") })

	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "scalesetpools-editor"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "editor"}}}
	bindings := i.admin.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
	})
	may := func(verb, resource string) bool {
		out, _ := kubectlOn(t, "", "auth", "can-i", verb, resource, "--as", "editor")
		return strings.HasPrefix(strings.TrimSpace(lastLine(out)), "yes")
	}
	eventually(t, "an editor reads ScaleSetPools", func() error {
		if !may("list", "scalesetpools.ortet.io") {
			return errors.New("not granted")
		}
		return nil
	})
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, resource := range []string{"scalesetpools.ortet.io", "scalesetpools.ortet.io/status"} {
			if may(verb, resource) {
				t.Errorf("an editor may %s %s", verb, resource)
			}
		}
	}

	i.helm("uninstall", "pools", "--namespace", i.namespace)
	if _, err := pools.Get(t.Context(), "stays", metav1.GetOptions{}); err != nil {
		t.Errorf("after helm uninstall: %v", err)
	}
	i.helm(append([]string{"install"}, release...)...)
	i.helm("uninstall", "pools", "--namespace", i.namespace)
	if without := renderOrtet(t)["CustomResourceDefinition"]; len(without) > 0 {
		t.Error("the chart makes the CRD without an operator")
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
