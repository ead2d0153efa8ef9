package operator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/operator/export"
)

// What the operator asks of an exported object is what the Job's command line asks: testdata/export of the
// charts has both, where a test of the chart compares the first and one of the command line the second.
func TestExportedObjectsAskAsTheJob(t *testing.T) {
	files, err := filepath.Glob("../../charts/testdata/export/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		values, err := export.Read(file, data)
		if err != nil {
			t.Fatal(err)
		}
		text, err := export.YAML(values.Objects([]fleet.ResourceID{fleet.ResourceID(values.Target())})[0])
		if err != nil {
			t.Fatal(err)
		}
		var object v1alpha1.ScaleSetPool
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			t.Fatal(err)
		}
		w, stalls := Config{OtherPools: values.Ortet.OtherPools}.want(object)
		if stalls != nil || w.Capture == nil || w.Suspend || w.Observes || w.Rollout != nil {
			t.Fatalf("%s: stalled %+v, wants %+v", file, stalls, w.Want)
		}
		if w.request = w.request.WithDefaults(); w.request.Canary == 0 {
			w.request.CanaryIfPossible = false
		}
		if w.watch.Pool = ""; !w.Watches {
			w.watch = watch.Request{}
		}
		got, err := json.MarshalIndent(map[string]any{"donors": w.policy, "capture": w.request, "watch": w.watch}, "", " ")
		if err != nil || string(got)+"\n" != string(want) {
			t.Errorf("%s: the operator asks for\n%s\nand the Job for\n%s", file, got, want)
		}
	}
}
