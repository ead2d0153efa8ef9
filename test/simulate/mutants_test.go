package simulate

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var plant = flag.Bool("mutants", false, "plant each bug of mutants, and expect that its story breaks its invariant")

// mutants are bugs that break a promise of docs/capture.md, each with the story that shows it.
var mutants = []struct {
	promise, story, invariant string
	file, old, now            string
}{
	{"donor kept from autoscalers", "autoscaler while the donor is empty", "12", "internal/capture/donor.go",
		`{fleet.AnnotationCapture: &c.name, fleet.AnnotationScaleDownDisabled: &value}`,
		`{fleet.AnnotationCapture: &c.name, "none": &value}`},
	{"donor stopped once its pods are evicted", "pods that come late", "12", "internal/cluster/kube/drain.go",
		"\t\tif err := helper.DeleteOrEvictPods(pods); err != nil {\n\t\t\treturn err\n\t\t}\n",
		"\t\treturn helper.DeleteOrEvictPods(pods)\n"},
	{"budgets respected without --force", "budget that allows no eviction", "12", "internal/cluster/kube/drain.go",
		`errors.Is(cause, errDeadline) && options.Force:`,
		`errors.Is(cause, errDeadline) && options.GracePeriod >= 0:`},
	{"drain given three times its grace period", "budget that allows evictions after ten minutes", "10", "internal/capture/donor.go",
		`deadline := max(3*c.req.GracePeriod-p.Since(), time.Second)`,
		`deadline := c.req.GracePeriod`},
	{"donor uncordoned once it is Ready since its boot", "donor that is Ready from before its stop while it boots", "12", "internal/capture/donor.go",
		"\tcase c.get().Stopped:",
		"\tcase !c.get().Stopped:"},
	{"version built once the donor is back", "donor that is Ready from before its stop while it boots", "12", "internal/capture/steps.go",
		`"generalized-snapshot", "start", "uncordon", "unprotect"},`,
		`"generalized-snapshot"},`},
	{"kured's lock kept while the copy is attached", "capture twice a day", "12", "internal/capture/steps.go",
		`When: []string{"save"}, Needs: []string{"detach"}, Do: c.releaseReboots`,
		`When: []string{"save"}, Do: c.releaseReboots`},
	{"extensions deleted once the model is changed", "capture, scale out, capture again, rollback", "4", "internal/capture/steps.go",
		`After: []string{"model"}, Do: c.extensions`,
		`After: []string{"version"}, Do: c.extensions`},
	{"versions that instances use kept", "capture, scale out, capture again, rollback", "6", "internal/azure/arm/uses.go",
		"\t\tif !flexible { //",
		"\t\tif flexible { //"},
	{"history kept", "capture twice a day", "6", "internal/prototype/version.go",
		`(kept < history ||`,
		`(kept < history-1 ||`},
	{"customData goes with the version", "baked, then kept", "5", "internal/capture/model.go",
		"\t\tpatch.CustomData = &kept.Data\n",
		"\t\t_ = kept.Data\n"},
	{"interrupted capture finished though the Node is deleted", "Node of the stopped donor deleted, and killed", "10", "internal/capture/capture.go",
		`err == nil && rec.Open() && rec.Subject == c.asked.Node:`,
		`err == nil && rec.Open() && rec.Subject == "":`},
}

// TestMutants checks that the bugs still apply to the code; with -mutants it plants them.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.promise, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				t.Fatalf("the text to replace stands %d times in %s, not once; carry the bug over to today's code:\n%s", n, m.file, m.old)
			}
			if !*plant {
				return
			}
			folder := t.TempDir()
			changed, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{changed: strings.Replace(string(text), m.old, m.now, 1), overlay: string(replace)} {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			name := regexp.QuoteMeta(strings.ReplaceAll(m.story, " ", "_"))
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=2m", "-run", "^TestStories$/^"+name+"$", ".")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "invariant "+m.invariant+": ") {
				t.Errorf("story %q does not break invariant %s: %v\n%s", m.story, m.invariant, err, out)
			}
		})
	}
}
