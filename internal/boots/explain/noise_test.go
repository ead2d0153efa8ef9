package explain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of the lines of package verdict that give no reason none says that a node failed, but
// those in which a kubelet says that it ended, or cloud-init that a module failed.
func TestNoiseIsNoFailure(t *testing.T) {
	files, err := filepath.Glob("../verdict/testdata/lines/*.tsv")
	if err != nil || len(files) < 5 {
		t.Fatalf("no lines: %v", err)
	}
	heads := map[string]string{"kubelet": "kubelet[1402]: ", "containerd": "containerd[911]: ", "k3s": "k3s[1402]: ", "kernel": "kernel: ", "cloud-init": "cloud-init[812]: ", "script": "cloud-init[812]: ", "systemd": "systemd[1]: "}
	n := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(text)) {
			cells := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
			if cells[1] != "-" {
				continue
			}
			n++
			head := ""
			if h := heads[strings.TrimSuffix(cells[0], "+joined")]; h != "" {
				head = "Nov 21 06:58:31 pool1000003 " + h
			} else if name, ok := strings.CutPrefix(cells[0], "other "); ok {
				head = "Nov 21 06:58:31 pool1000003 " + name + "[333]: "
			}
			var lines []string
			for part := range strings.SplitSeq(cells[3], "␤") {
				lines = append(lines, head+part)
			}
			if r := explained(t, strings.Join(lines, "\n")); r.Failed() != (strings.Contains(cells[3], `"command failed" err=`) || strings.Contains(cells[3], "Failed to run module")) {
				t.Errorf("%s says that something failed (%s): %s", cells[0], r.Machines[0].Reason, cells[3])
			}
		}
	}
	if n < 150 {
		t.Errorf("only %d lines of noise", n)
	}
}

// What the nodes of package verdict that came up wrote says nothing of a failure.
func TestHealthyNodes(t *testing.T) {
	files, err := filepath.Glob("../verdict/testdata/Succeeded*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, logs, found := strings.Cut("\n"+string(text), "\n-- ")
		if !found {
			continue
		}
		if r := explained(t, logs); r.Failed() {
			t.Errorf("%s: %+v", file, r.Machines)
		}
	}
}

func explained(t testing.TB, texts ...string) Report {
	t.Helper()
	var all []Text
	for i, s := range texts {
		read, err := Read("file"+string(rune('1'+i)), strings.NewReader(s), len(texts))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, read)
	}
	return Explain(all)
}
