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

var plant = flag.Bool("mutants", false, "plant each bug of mutants, and play what TestStories, TestSweep and TestSeeds play by default")

// mutants are bugs that break a promise of docs/capture.md: old is replaced by now.
var mutants = []struct{ name, file, old, now string }{
	{"donor stays cordoned", "internal/engine/donor_return.go", "return t.r.e.cluster.SetUnschedulable(ctx, t.r.donorName(), false)", "return nil"},
	{"uncordoned before it is Ready", "internal/engine/donor_return.go", "case f.booted(node), started && (node.BootID != f.BootID || !maybe):", "case f.booted(node), started && maybe:"},
	{"donor stopped with pods that came late", "internal/cluster/kube/drain.go", "if err := helper.DeleteOrEvictPods(pods); err != nil {\n\t\t\treturn err\n\t\t}", "return helper.DeleteOrEvictPods(pods)"},
	{"copy attached without kured's lock", "internal/prototype/capture.go", "StepAttach: {StepProtectBench, StepHoldReboots, StepWorkDisk}", "StepAttach: {StepProtectBench, StepWorkDisk}"},
	{"version in use deleted", "internal/engine/image.go", "prototype.Prune(versions, uses, f", "prototype.Prune(versions, uses[:0], f"},
	{"snapshot left", "internal/engine/image.go", "failed = append(failed, err)\n\t\t\tcontinue\n\t\t}\n\t\tt.r.drop(s.undo)", "failed = append(failed, err)\n\t\t}\n\t\tt.r.drop(s.undo)"},
	{"nodes added twice", "internal/engine/model.go", "case f.GrowTo != 0 && (earlier || t.asked):", "case f.GrowTo != 0 && earlier:"},
	{"customData of another version", "internal/engine/rollback.go", "c.facts.CustomData, c.had = want, believed(has, went)", "c.facts.CustomData, c.had = believed(has, went), want"},
	{"exit 1 after the model changed", "internal/engine/conclude.go", "case f.ModelChanged:\n\t\tuses :=", "case f.ModelChanged && len(out.left) > 0:\n\t\tuses :="},
	{"model changed while instances are deleted", "internal/engine/quiet.go", "i.ProvisioningState == prototype.Creating || i.ProvisioningState == prototype.Deleting", "i.ProvisioningState == prototype.Creating"},
	{"work without the lock", "internal/engine/run.go", "r.hold != nil && !r.hold.valid(r.e.now())", "r.hold != nil && false"},
	{"lock of another process released", "internal/cluster/kube/leases.go", "if deref(lease.Spec.HolderIdentity) != holder {\n\t\t\treturn nil", "if holder == \"\" {\n\t\t\treturn nil"},
}

var breaks = regexp.MustCompile(`invariant \d+: .*`)

// TestMutants checks that each bug still applies, and with -mutants that it is found.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("../..", m.file))
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if n := strings.Count(string(text), m.old); err != nil || n != 1 {
				t.Fatalf("%s has the text %d times, not once: carry the bug over to today's code (%v)", m.file, n, err)
			}
			if !*plant {
				return
			}
			changed, overlay := filepath.Join(t.TempDir(), "changed.go"), filepath.Join(t.TempDir(), "overlay.json")
			replace, _ := json.Marshal(object{"Replace": object{path: changed}}) // of strings
			if err := os.WriteFile(overlay, replace, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.now, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(t.TempDir(), "simulate.test")
			if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			for _, run := range []string{"TestStories", "TestSweep", "TestSeeds"} {
				out, _ := exec.CommandContext(t.Context(), program, "-test.failfast", "-test.run", run).CombinedOutput()
				if found := breaks.Find(out); found != nil {
					t.Logf("%s: %s", run, found)
					return
				}
			}
			t.Error("no invariant breaks")
		})
	}
}
