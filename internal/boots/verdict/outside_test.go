package verdict

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// signs are what Azure and the cluster show by themselves (Facts.Sign).
var signs = []string{"CNINotReady", "ContainerRuntimeUnavailable", "NodeNotReady", "OSProvisioningTimedOut", "DeletedBeforeReady"}

// onlyInside are reasons for which no line on a console suffices: they are of what the
// node's own programs answered, or did not write.
var onlyInside = []string{
	"NodeNotRegistered", "KubeletUnhealthy", "KubeletCrashLoop", "KubeletConfigMissing", "SentinelMissing", "CloudInitHung", "CloudInitRecovered",
	"UnitMissing", "UnitSkipped", "UnitFailed", "UnitTimedOut", "ContainerdFailed", "K3sAgentFailed",
}

// For every reason: what evidence from outside gives it. All that a fixture's node
// wrote is put on its serial console; its health, units and stages are not known.
func TestReasonsFromOutside(t *testing.T) {
	by := map[string][]string{}
	give := func(reason, evidence string) {
		if !slices.Contains(by[reason], evidence) {
			by[reason] = append(by[reason], evidence)
		}
	}
	for name, f := range fixtures(t) {
		own, _, _ := strings.Cut(name, "-")
		var lines []string
		for _, l := range f.Logs {
			lines = append(lines, l.Lines...)
		}
		j := Judge(Facts{Outside: true, Deadline: true, Logs: []Log{{Source: "serial console", Lines: lines}}})
		if j.Reason != wire.ReasonUnknown {
			give(j.Reason, "console")
		} else if j.Owner != "" || j.Outcome != wire.TimedOut {
			t.Errorf("%s: nothing shows why, and it is %s, owner %q", name, j.Outcome, j.Owner)
		}
		if f.Provision != nil && !f.Windows {
			j = Judge(Facts{Outside: true, Deadline: true, Provision: f.Provision})
			if *f.Provision.code() == 0 && (j.Reason != wire.ReasonUnknown || j.Outcome != wire.TimedOut) {
				t.Errorf("%s: AKS's script succeeded, and it is %s, %s", name, j.Outcome, j.Reason)
			}
			if j.Reason == own {
				give(own, "extension")
			}
		}
	}
	for _, r := range signs {
		if j := Judge(Facts{Outside: true, Sign: r}); j.Reason == r {
			give(r, "Azure or the Node")
		}
	}
	var table strings.Builder
	for _, r := range Reasons() {
		if r.Name == wire.ReasonUnknown {
			continue
		}
		slices.Sort(by[r.Name])
		from := strings.Join(by[r.Name], ", ")
		if from == "" {
			from = "only the node"
		}
		if slices.Contains(onlyInside, r.Name) && from != "only the node" {
			t.Errorf("%s is given from outside, by the %s", r.Name, from)
		}
		fmt.Fprintf(&table, "%s: %s\n", r.Name, from)
	}
	golden := filepath.Join("testdata", "outside.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != table.String() {
		t.Errorf("another table than %s:\n%s", golden, table.String())
	}
}
