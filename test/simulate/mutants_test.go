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
	{"what was there before written ahead", "killed after the cordon", "1", "internal/capture/donor.go",
		`return node.Unschedulable, err`,
		`return node.Unschedulable || c.Cluster.SetUnschedulable(ctx, node.Name, true) != nil, err`},
	{"nothing changed without the pool lock", "laptop that sleeps while another process locks the pool", "11", "internal/workflow/lock.go",
		`return now.Before(l.expires) && now.Round(0).Before(l.expires.Round(0))`,
		`return !now.IsZero()`},
	{"version built once the donor is back", "donor that is Ready from before its stop while it boots", "12", "internal/capture/publish.go",
		`stepGeneralizedSnapshot, undoStart, undoUncordon, undoUnprotect}`,
		`stepGeneralizedSnapshot}`},
	{"snapshot of a stopped donor", "donor started while its disk is copied", "5", "internal/capture/copy.go",
		`if err == nil && !isDown(i) {`,
		`if err == nil && i.ID == "" {`},
	{"donor uncordoned once it is Ready", "donor that is Ready from before its stop while it boots", "12", "internal/capture/donor.go",
		`Needs:  []string{undoStart},`,
		``},
	{"model changed while the scale set is at rest", "deletion that is preempted while the version is built", "13", "internal/azure/writer.go",
		`now.Sub(r.since) >= RestFor {`,
		`now.Sub(r.since) >= 0 {`},
	{"workbench protected while the copy is attached", "capture twice a day", "12", "internal/capture/copy.go",
		`Needs:  []string{undoDetach},
			Do:     c.unprotect,`,
		`Do: c.unprotect,`},
	{"kured's lock given back", "capture twice a day", "7", "internal/capture/copy.go",
		`return done, c.Cluster.ReleaseReboots(ctx, c.rebootHolder())`,
		`return done, ctx.Err()`},
	{"kured's lock of others respected", "kured reboots another node", "12", "internal/cluster/kube/kured/lock.go",
		`if lock.NodeID == holder || lock.expired(now) {`,
		`if lock.NodeID != "" || lock.expired(now) {`},
	{"extensions listed until they are gone", "extension that is deleted at the eleventh time", "4", "internal/capture/publish.go",
		`	if len(toDelete) == 0 {
		return done, nil
	}
	e :=`,
		`	if len(toDelete) == 0 || c.tried[toDelete[0].Name] {
		return done, nil
	}
	c.tried[toDelete[0].Name] = true
	e :=`},
	{"customData kept unless --bootstrap baked", "capture twice a day", "5", "internal/capture/publish.go",
		`	case c.req.Bakes():
		want`,
		`	case c.req.Bakes(), last == "":
		want`},
	{"copy of the disk deleted", "capture twice a day", "7", "internal/capture/copy.go",
		`When:     []string{stepGeneralizedSnapshot},`,
		``},
	{"another donor's snapshot replaced", "left by an earlier capture", "10", "internal/prototype/prototype.go",
		`strings.EqualFold(s.Tags[fleet.TagBuiltFrom], options.Node)`,
		`s.Tags[fleet.TagBuiltFrom] != ""`},
	{"conflict repeated", "conflict at the model's change", "10", "internal/workflow/pass.go",
		`fleet.KindThrottled, fleet.KindConflict,`,
		`fleet.KindThrottled,`},
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
