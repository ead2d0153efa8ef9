package timeline

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/reference/boot-classes.md")

const docs = "../../../docs/reference/boot-classes.md"

// docs/reference/boot-classes.md is the table of rules.
func TestDocs(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the rules say; run go test ./internal/boots/timeline -update", docs)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString("# Where the work of a boot belongs\n\n" +
		"This page is a reference for who builds images: which work of a boot belongs in the\n" +
		"image, and which on the node.\n\n" +
		"`ortet boot` classes each step of a boot's critical path by the rules below, of\n" +
		"which the first that matches counts. A rule names spans by their IDs, in which `*`\n" +
		"stands for anything, without minding small and capital letters, or `-` and `_`.\n\n" +
		"- **base** preparation is the same on every node, so the image can hold it: of these\n" +
		"  steps `ortet boot` says what the boot would save without them.\n" +
		"- **node** preparation has to be done on each node.\n" +
		"- **platform** is Azure's, the kernel's and systemd's own.\n" +
		"- **wait** is what no rule classes: time between steps in which the next one could\n" +
		"  have run, and did not.\n\n" +
		"What no rule matches is node preparation, since " + unclassified.Why + ".\n\n" +
		"The table is made from `internal/boots/timeline/class.go` (go test ./internal/boots/timeline\n" +
		"-update); a test holds them together.\n\n" +
		"| span | class | why | what to change |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`)
	for _, r := range Rules() {
		match := "`" + r.Match + "`"
		if r.Kind != "" {
			match += " (" + string(r.Kind) + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", match, r.Class, cell.Replace(r.Why), cell.Replace(r.Do))
	}
	return b.String()
}

// Each rule can be reached, says why, and what to do where that is the reader's.
func TestRules(t *testing.T) {
	for i, r := range Rules() {
		if r.Why == "" || r.Class == Base && r.Do == "" || r.Class == Platform && r.Do != "" {
			t.Errorf("rule %d (%s) is not whole: %+v", i, r.Match, r)
		}
		if r.Match != plainID(r.Match) {
			t.Errorf("rule %d (%s) can match nothing", i, r.Match)
		}
		id := strings.ReplaceAll(r.Match, "*", "x")
		if got, known := classOf(id, r.Kind); !known || got.Match != r.Match {
			t.Errorf("rule %d (%s) is hidden by %s", i, r.Match, got.Match)
		}
	}
	for id, want := range map[string]Class{
		"unit/kubelet.service": Node, "unit/cloud-config.service": Base, "unit/cloud-final.service": Base, "unit/cloud-init.service": Node,
		"unit/snapd.seeded.service": Base, "unit/mine.service": Node, "unit/systemd-udevd.service": Platform, "unit/sysinit.target": Platform,
		"cloud-init/modules-final/config-package_update_upgrade_install": Base, "cloud-init/modules-final/config-scripts_user#2": Base,
		"cloud-init/init-network/config-set_hostname": Node, "cloud-init/init-local/search-Azure": Node, "cloud-init/modules-config/config-apt_configure": Base,
		"aks/AKS.CSE.installKubelet": Base, "aks/AKS.CSE.ensureKubelet": Node, "aks/AKS.CSE.configureKubelet": Node, "aks/AKS.CSE.cse_start": Base,
		"cse/enable/command": Base, "waagent/extensions": Platform, "machine/kernel": Platform, "systemd/start": Platform,
		"unit/modprobe@dm_mod.service": Platform, `unit/sys-devices-virtual-misc-vmbus\x21hv_kvp.device`: Platform,
	} {
		if rule, _ := classOf(id, ""); rule.Class != want {
			t.Errorf("%s is %s (%s), not %s", id, rule.Class, rule.Match, want)
		}
	}
	if rule, _ := classOf("containerd/pull/registry.k8s.io/pause", KindPull); rule.Class != Base {
		t.Errorf("a pull is %s", rule.Class)
	}
}

// Spans are known here by the names that the readers give them, which are those of
// docs/reference/boot.md.
func TestSourcesAreTheReaders(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/boot.md")
	if err != nil {
		t.Fatal(err)
	}
	_, names, _ := strings.Cut(string(text), "\n## Names\n")
	told := map[string]bool{unitPrefix[:len(unitPrefix)-1]: true, "machine": true, "azure": true, "cluster": true, "*": true}
	for line := range strings.Lines(names) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			told[strings.Trim(cells[1], " `")] = true
		}
	}
	for _, source := range []string{sourceCloudInit, sourceAgent, sourceCSE, sourceAKS, sourceProvision, sourceKubelet, sourceAPT} {
		if !told[source] {
			t.Errorf("no reader tells of %s", source)
		}
	}
	for _, r := range Rules() {
		if source, _, _ := strings.Cut(r.Match, "/"); source[0] != '*' && !told[source] {
			t.Errorf("no reader tells of %s, which the rule %s is for", source, r.Match)
		}
	}
}
