package distributions

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/workflow"
)

// accepted is the cell of what the code accepts.
const accepted = "✓"

// rows are the README's, by their fixtures in testdata.
func rows() map[string]string {
	return map[string]string{
		"CAPZ AzureMachinePool":       "capz-pool",
		"CAPZ AzureMachineDeployment": "capz-machines",
		"kubeadm on scale sets":       "kubeadm",
		"k3s":                         "k3s",
		"RKE2":                        "rke2",
		"AKS Engine":                  "aks-engine",
		"AKS":                         "aks",
		"Azure Stack Hub":             "azure-stack-hub",
	}
}

// columns are the README's, in their order.
func columns() []string {
	return []string{"capture", "publish", "verdict", "boot", "admission", "config"}
}

// TestDistributions compares each cell of the README's table with what the command line says
// of the row's fixture.
func TestDistributions(t *testing.T) {
	table := readTable(t)
	if read, want := slices.Sorted(maps.Keys(table)), slices.Sorted(maps.Keys(rows())); !slices.Equal(read, want) {
		t.Fatalf("README.md has rows %q, want %q", read, want)
	}
	for row, name := range rows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, readFixture(t, name))
			for column, cell := range w.cells() {
				if got := table[row][column]; got != cell {
					t.Errorf("%s, %s: README.md has %q, and the command line gives %q", row, column, got, cell)
				}
			}
		})
	}
}

// cells are what the commands give. Admission is last: the donor's Node is removed for it.
func (w *world) cells() map[string]string {
	w.t.Helper()
	capture := []string{"capture", w.node(), "--image", "registry.example/ortet:1", "--dry-run"}
	cells := map[string]string{
		"publish": w.refusal(append(capture, "--publish-only")...),
		"verdict": w.verdict(),
		"boot":    w.boot(),
		"config":  w.refusal("config", "plan", w.fixture.pool(), "-f", "testdata/nodeconfig.yaml"),
	}
	if cells["capture"] = w.refusal(capture...); cells["publish"] == accepted && cells["capture"] == "OwnedByClusterAPI" {
		cells["capture"] = "publish"
	}
	cells["admission"] = w.admitted()
	return cells
}

// refusal is the cell of a command: the codes of its refusal, or "fails" where it could not be
// carried out.
func (w *world) refusal(args ...string) string {
	w.t.Helper()
	code, out, errs := w.run(append(args, "-o", "json")...)
	var answer struct{ Problems []struct{ Code, What string } }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		w.t.Fatalf("ortet %q: code %d, no JSON: %v\n%s%s", args, code, err, out, errs)
	}
	var codes []string
	for _, p := range answer.Problems {
		codes = append(codes, p.Code)
	}
	switch {
	case code == workflow.ExitDone && len(codes) == 0:
		return accepted
	case code == workflow.ExitRefused && len(codes) > 0:
		if slices.Contains(codes, "Unreadable") {
			w.oldAPI(errs)
		}
		return strings.Join(codes, " ")
	case code == workflow.ExitFailed:
		w.oldAPI(errs)
		return "fails"
	}
	w.t.Fatalf("ortet %q: code %d\n%s%s", args, code, out, errs)
	return ""
}

// oldAPI fails unless the cloud's API versions are the reason.
func (w *world) oldAPI(errs string) {
	w.t.Helper()
	if w.fixture.NewestCompute == "" || !strings.Contains(errs, "NoRegisteredProviderFound") {
		w.t.Errorf("another reason than the API version: %s", errs)
	}
}

// verdict is the cell of ortet nodes: it is accepted where Azure's side of the donor is there
// beside its Node.
func (w *world) verdict() string {
	w.t.Helper()
	code, out, errs := w.run("nodes", "-o", "json")
	var answer struct {
		Nodes []struct {
			Node, State string
			Boot        *struct{ HostName string }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		w.t.Fatalf("ortet nodes: code %d, no JSON: %v\n%s%s", code, err, out, errs)
	}
	if code == workflow.ExitFailed {
		w.oldAPI(errs)
		return "fails"
	}
	for _, n := range answer.Nodes {
		switch {
		case n.Node != w.node():
		case n.State != "Succeeded":
			w.t.Errorf("%s is %s", n.Node, n.State)
		case n.Boot != nil:
			return accepted
		default:
			return "Node only"
		}
	}
	w.t.Errorf("ortet nodes does not show %s: %s", w.node(), out)
	return ""
}

// boot is the cell of ortet boot show.
func (w *world) boot() string {
	w.t.Helper()
	code, out, errs := w.run("boot", "show", w.node(), "-o", "json")
	var shown struct{ Node, BootID string }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != workflow.ExitDone || shown.Node != w.node() || shown.BootID != bootID {
		w.t.Errorf("ortet boot show: code %d, %v\n%s%s", code, err, out, errs)
		return "fails"
	}
	return accepted
}

// readTable reads the README's table: the cells by row and column, without links and footnotes.
func readTable(t *testing.T) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	must(t, err)
	plain := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(string(page), "$1")
	plain = regexp.MustCompile("[`¹²³⁴⁵]").ReplaceAllString(plain, "")
	table, header := map[string]map[string]string{}, []string(nil)
	for line := range strings.Lines(plain) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case header == nil && cells[0] == "distribution":
			header = cells[1:]
		case header == nil || strings.HasPrefix(cells[0], "---"):
		case !strings.HasPrefix(line, "|"):
			if !slices.Equal(header, columns()) {
				t.Fatalf("README.md has columns %q, want %q", header, columns())
			}
			return table
		case len(cells) != len(header)+1:
			t.Fatalf("README.md: %q has %d cells", line, len(cells))
		default:
			table[cells[0]] = map[string]string{}
			for i, column := range header {
				table[cells[0]][column] = cells[i+1]
			}
		}
	}
	t.Fatal("README.md has no table of distributions")
	return nil
}
