package export_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/api/v1alpha1"
	prototype "github.com/ortet/ortet/charts/vmss-prototype"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/operator/export"
)

const pool = fleet.ResourceID("/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")

// printed is all that export says of values, and how it refuses them.
func printed(t *testing.T, values any) (text string, err error) {
	t.Helper()
	data, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	v, err := export.Read("values", data)
	if err != nil {
		return "", err
	}
	settings, err := v.Operator([]fleet.ResourceID{pool})
	if err != nil {
		t.Fatal(err)
	}
	text = v.Target() + "\n" + v.Ortet.Namespace + "\n" + strings.Join(v.ResourceGroups(), " ") + "\n" + strings.Join(v.Comments(), "\n") + "\n" + string(settings)
	for _, object := range v.Objects([]fleet.ResourceID{pool}) {
		y, err := export.YAML(object)
		if err != nil {
			t.Fatal(err)
		}
		text += "---\n" + string(y)
	}
	return text, nil
}

// No value is dropped silently: each that the chart knows changes what is printed, or is refused.
func TestEachValueIsPrintedOrRefused(t *testing.T) {
	begin := func() map[string]any {
		return map[string]any{"kamino": map[string]any{"targetVMSS": string(pool), "auto": map[string]any{"maximumImageAge": 14, "cronjob": map[string]any{"enabled": true}}}}
	}
	// What the schema does not say by itself.
	values := map[string]any{
		"kamino.targetVMSS": "ALL", "kamino.targetNode": "node", "kamino.name": "other", "kamino.labels": map[string]any{"app": "x"}, "kamino.container.imageHash": strings.Repeat("a", 64),
		"kamino.auto.minimumReadyTime": "3d", "kamino.auto.cronjob.schedule": "0 5 * * *", "kamino.auto.cronjob.enabled": false, "kamino.logLevel": "ERROR", "global": map[string]any{"x": 1},
		"ortet.image": "reg.example/ortet:1", "ortet.namespace": "other", "ortet.bootstrap": "keep", "ortet.extensions": "none", "ortet.watch": "1h", "ortet.auto.timeZone": "Europe/Berlin",
		"ortet.pools": []string{string(pool)}, "ortet.earlierSecrets": []string{"ortet-saved-x"}, "ortet.auto.skipRules": []string{"kernel"}, "ortet.acceptSecrets": []string{"/x"}, "ortet.tune": []string{"ssh-host-key"},
		"ortet.auto.resourceGroups": []string{string(pool.Group())}, "ortet.resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}, "ortet.canary": 1,
		"ortet.auto.startingDeadlineSeconds": 600,
	}
	var schema any
	if err := json.Unmarshal(prototype.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	plain, err := printed(t, begin())
	if err != nil {
		t.Fatal(err)
	}
	leaves := 0
	var walk func(at []string, x map[string]any)
	walk = func(at []string, x map[string]any) {
		key := strings.Join(at, ".")
		if properties, has := x["properties"].(map[string]any); has {
			for name, sub := range properties {
				walk(append(slices.Clone(at), name), sub.(map[string]any))
			}
			return
		}
		leaves++
		value, given := values[key]
		for kind, v := range map[string]any{"boolean": !strings.HasSuffix(key, "acceptPoolCredentials") && key != "ortet.policy", "integer": 77, "string": "x", "array": []string{"x"}} {
			if x["type"] == kind && !given {
				value = v
			}
		}
		all := begin()
		in := all
		for _, name := range at[:len(at)-1] {
			if in[name] == nil {
				in[name] = map[string]any{}
			}
			in = in[name].(map[string]any)
		}
		in[at[len(at)-1]] = value
		got, err := printed(t, all)
		if err != nil && !strings.Contains(err.Error(), ": "+key+": ") {
			t.Errorf("%s %v: refused without its name: %v", key, value, err)
		}
		if err == nil && got == plain {
			t.Errorf("%s %v: nothing that is printed shows it", key, value)
		}
	}
	walk(nil, schema.(map[string]any))
	if leaves < 55 {
		t.Errorf("only %d values were tried", leaves)
	}
}

func TestValuesThatAreRefused(t *testing.T) {
	with := func(text string) string {
		return "kamino: {targetVMSS: pool1, auto: {maximumImageAge: 14, cronjob: {enabled: true}}}\n" + text
	}
	for values, want := range map[string]string{
		"":                        "file is empty; give values of the chart vmss-prototype",
		"kamino: {taget: x}":      "values:1: kamino.taget: unknown field; use one of auto, container, drain,",
		"ortet: {auto: {x: 1}}":   "ortet.auto.x: unknown field; use one of deadlineSeconds,",
		"ortet: {watch: soon}":    `ortet.watch: "soon" is not valid; it has to match ^`,
		"kamino: {targetNode: n}": "is one node, and a ScaleSetPool has rules choose it; delete the line, and set kamino.targetVMSS",
		"kamino: {auto: {cronjob: {enabled: true}}}":                                                       "needs kamino.targetVMSS",
		"kamino: {targetVMSS: pool1, auto: {cronjob: {enabled: true}}}":                                    "kamino.auto.maximumImageAge: is 0, and without kamino.auto.lastPatchAnnotation no second image is ever due",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 400}}":                                        "is 400 days, and a ScaleSetPool has at most 365",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4, cronjob: {schedule: \"@every 1h\"}}}":      "kamino.auto.cronjob.schedule: ",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4, cronjob: {schedule: \"*/10 * * * *\"}}}":   "ortet.auto.startingDeadlineSeconds: is how long after its schedule a capture may begin",
		"kamino: {targetVMSS: pool1, newUpdatedNodes: 2, auto: {maximumImageAge: 4}}":                      "kamino.newUpdatedNodes: adds nodes, which the operator never does",
		with("ortet: {canary: 0, tune: [recommended]}"):                                                    "ortet.tune: needs clones that prove it; set ortet.canary to 1 or more",
		with("ortet: {publishOnly: true}"):                                                                 "ortet.publishOnly: leaves the model as it is",
		with("ortet: {canaryTest: {configMap: c, namespace: n}}"):                                          "ortet.canaryTest.configMap: is a test that the operator cannot run",
		with("ortet: {workbench: n}"):                                                                      "ortet.workbench: is one node",
		with("ortet: {restoreLearned: [customData]}"):                                                      "set ortet.watch too",
		with("ortet: {watch: 30d}"):                                                                        "is not a duration from 1m to 7d",
		with("ortet: {auto: {timeZone: Mars}}"):                                                            "Mars",
		with("ortet: {online: true, deallocate: true}"):                                                    "delete one of them",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4, minimumReadyTime: 500d}}":                  "is not a duration of at most 365d",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4, cronjob: {schedule: \"0 0 30 2 *\"}}}":     "kamino.auto.cronjob.schedule: ",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: many}}":                                       "kamino.auto.maximumImageAge: is text; give a whole number",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4}}\n---\nkamino: {}":                         "second document",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4}, imageHistory: 1}\nortet: {skipRules: []}": "imageHistory: 1 is out of range; use 2 to 100",
		"kamino: {targetVMSS: pool1, auto: {maximumImageAge: 4}}\nortet: {auto: {skipRules: [kernal]}}":    `"kernal" is not known; use ignored, verdict`,
	} {
		if _, err := export.Read("values", []byte(values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, want %s", values, err, want)
		}
	}
}

// kamino's own values name no target: its Job shows the status, and the objects observe.
func TestKaminosValues(t *testing.T) {
	data, err := os.ReadFile("../../../charts/testdata/kamino-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"": "These objects only observe",
		"  targetVMSS: ALL\n  auto: {lastPatchAnnotation: LatestOSPatch, cronjob: {enabled: true}}\n": "",
		"  targetVMSS: ALL\n  auto: {lastPatchAnnotation: LatestOSPatch}\n":                           "spec.suspend is true: kamino.auto.cronjob.enabled is not set, so the Job runs once",
	} {
		text := string(data)
		if target != "" { // beside kamino's own, which has auto already
			before, _, _ := strings.Cut(text, "  auto:\n")
			text = before + target
		}
		v, err := export.Read("kamino-values.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		comments := strings.Join(v.Comments(), "\n")
		if !strings.Contains(comments, want) || !strings.Contains(comments, "kamino.container.imageRepository, kamino.container.imageTag, kamino.container.imageHash, kamino.container.pullByHash: see image.repository") {
			t.Errorf("%s", comments)
		}
		spec := v.Objects([]fleet.ResourceID{pool})[0].Spec
		if observes := spec.Capture == nil && spec.Watch == nil; observes != (target == "") || spec.Suspend != strings.Contains(comments, "suspend") || spec.ScaleSet != string(pool) || v.Target() != export.All {
			t.Errorf("%q: %+v", target, spec)
		}
		if target != "" && (spec.Capture.MaxImageAge.Duration != 0 || spec.Donors.PatchAnnotation != "LatestOSPatch" || spec.Capture.Bootstrap != v1alpha1.BootstrapBaked) {
			t.Errorf("%q: %+v", target, spec)
		}
	}
}

// Objects have names that Kubernetes takes, each its own, and the operator all groups once.
func TestNamesOfObjects(t *testing.T) {
	v, err := export.Read("values", []byte("kamino: {targetVMSS: ALL, auto: {maximumImageAge: 14}}"))
	if err != nil {
		t.Fatal(err)
	}
	in := func(group, name string) fleet.ResourceID {
		return fleet.ResourceID("/subscriptions/s/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + name)
	}
	pools := []fleet.ResourceID{in("a", "k8s_Pool"), in("MC_b", "k8s-pool"), in("A", "other.")}
	var names []string
	for _, o := range v.Objects(pools) {
		names = append(names, o.Name)
	}
	if got := strings.Join(names, " "); got != "a-k8s-pool mc-b-k8s-pool other" {
		t.Error(got)
	}
	settings, err := v.Operator(pools)
	if err != nil || strings.Count(string(settings), "/subscriptions/") != 2 {
		t.Errorf("%v\n%s", err, settings)
	}
}
