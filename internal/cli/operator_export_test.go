package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/watch"
)

const exportValues = "../../charts/testdata/export/"

// What the Job's command line asks is what the operator asks of the exported object: see
// TestExportedObjectsAskAsTheJob of the operator.
func TestJobAsksAsExportedObjects(t *testing.T) {
	files, err := filepath.Glob(exportValues + "*.args")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Split(strings.TrimSpace(string(text)), "\n")
		var s poolSelection
		policy := s.policyFlags()
		policy.ParseErrorsAllowlist.UnknownFlags = true
		if err := policy.Parse(args); err != nil {
			t.Fatal(err)
		}
		var q capture.Request
		var w watch.Request
		Run(t.Context(), args, Process{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}, Getenv: func(string) string { return "" },
			pools: func(_ context.Context, work work, _ poolShow, config *auto.Config) (survey.Finder, error) {
				q, w = config.Request.WithDefaults(), work.watch
				return survey.Finder{}, errors.New("seen")
			}})
		if q.Canary == 0 {
			q.CanaryIfPossible = false
		}
		if w.RestoreLearned = q.RestoreLearned; w.For == 0 {
			w = watch.Request{}
		}
		got, err := json.MarshalIndent(map[string]any{"donors": s.policy, "capture": q, "watch": w}, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		golden := strings.TrimSuffix(file, ".args") + ".json"
		if *update {
			if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(got)+"\n" {
			t.Errorf("%s asks for\n%s\n%v", file, got, err)
		}
	}
}

// Pools are those of ortet capture --all: Azure shows them, their groups are named, and they are Ortet's
// to change. What a Node reports of another team's scale set gives no object.
func TestOperatorExport(t *testing.T) {
	p := &pooled{}
	p.add("g", "web", 1, nil)
	p.add("victims", "batch", 1, nil)
	p.add("other", "owned", 1, func(s *capture.PoolStatus, _ []fleet.Node) {
		s.Pool.Tags = map[string]string{"aks-managed-poolName": "x"}
	})
	dir := t.TempDir()
	values := filepath.Join(dir, "values.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const auto = ", auto: {maximumImageAge: 14, cronjob: {enabled: true}}}\n"
	web, batch := "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/web", "/subscriptions/s/resourceGroups/victims/providers/Microsoft.Compute/virtualMachineScaleSets/batch"
	for text, c := range map[string]struct {
		args  string
		code  int
		pools []string
		says  string
	}{
		"kamino: {targetVMSS: ALL" + auto: {pools: []string{web}, says: "Left out, as by ortet capture --all: " + "/subscriptions/s/resourceGroups/other/"},
		"kamino: {targetVMSS: ALL" + auto + "ortet: {auto: {resourceGroups: [/subscriptions/s/resourceGroups/victims]}}": {pools: []string{web, batch}},
		"kamino: {targetVMSS: web" + auto:   {pools: []string{web}},
		"kamino: {targetVMSS: batch" + auto: {code: 3, says: "a name is looked for in the named resource groups alone"},
		"kamino: {logLevel: DEBUG}":         {pools: []string{web, batch}, args: " --resource-group /subscriptions/s/resourceGroups/victims", says: "These objects only observe"},
		"kamino: {targetVMSS: ALL}":         {code: 3, says: "kamino.auto.maximumImageAge: is 0"},
	} {
		write(text)
		code, out, complaint := p.run(t, "operator export "+values+c.args)
		var pools []string
		for i, doc := range strings.Split(out, "---\n") {
			if i == 0 {
				continue
			}
			var object v1alpha1.ScaleSetPool
			if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			pools = append(pools, object.Spec.ScaleSet)
		}
		flat := strings.Join(strings.Fields(strings.ReplaceAll(out, "\n#", "")+complaint), " ")
		if code != c.code || strings.Join(pools, " ") != strings.Join(c.pools, " ") || !strings.Contains(flat, c.says) {
			t.Errorf("%s: code %d, pools %q\n%s%s", text, code, pools, out, complaint)
		}
	}
	if code, _, complaint := p.run(t, "operator export"); code != ExitUsage || !strings.Contains(complaint, "name one file with values") {
		t.Errorf("code %d, %s", code, complaint)
	}
	if code, _, complaint := p.run(t, "operator export "+dir+"/none.yaml"); code != 3 || !strings.Contains(complaint, "none.yaml") {
		t.Errorf("code %d, %s", code, complaint)
	}
}
