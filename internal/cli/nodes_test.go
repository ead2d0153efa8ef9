package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// aStory is an instance of pool1, some hours old.
func aStory(n int, state assess.State, reason string, owner wire.Owner, node bool) survey.Story {
	host := fmt.Sprintf("k8s-pool1-12345678-vmss%06d", n)
	a := assess.Assessment{
		Instance: pool1.Child("virtualMachines", fmt.Sprint(n)), Pool: pool1, Name: fmt.Sprintf("%s_%d", pool1.Name(), n), HostName: host,
		VMID: fmt.Sprintf("%d1111111-2222-4333-8444-555555555555", n), Created: noon.Add(-time.Duration(n+1) * time.Hour), State: state, Since: noon.Add(-time.Hour),
	}
	if node {
		a.Node = host
	}
	if state.Final() {
		a.Source = assess.FromConsole
		a.Verdict = &wire.Verdict{Outcome: wire.Outcome(state), Reason: reason, Owner: owner, At: noon.Add(-time.Hour), Message: "something happened that takes a while to tell, since it is long"}
	}
	return survey.Story{Assessment: a}
}

func stories() []survey.Story {
	seven := 7
	failed := aStory(2, assess.Failed, "BootstrapTokenUnknown", wire.OwnerUser, false)
	failed.Verdict.Retryable = true
	failed.Verdict.Remedy = "Make a new token (kubeadm token create), and put it into the model's customData."
	failed.Verdict.Stage, failed.Verdict.Module, failed.Verdict.Phase, failed.Verdict.ExitCode = "modules-final", "scripts-user", "preflight", &seven
	failed.Verdict.Stages = []wire.StageTime{{Name: "init-local", Begin: 2100, End: 2900}, {Name: "modules-final", Begin: 9000}}
	failed.Verdict.Evidence = []wire.Excerpt{{Source: "/var/log/cloud-init-output.log", Lines: []string{"error execution phase preflight: token id [redacted] is invalid"}}}
	failed.Boot = &fleet.Boot{ProvisioningState: "Failed", Power: fleet.PowerRunning, Agent: fleet.Agent{Version: "2.15.0.1", Message: "Guest Agent is running"},
		Extensions: []fleet.ExtensionStatus{{Name: "ortet", Statuses: []fleet.BootStatus{{State: "failed", Display: "Provisioning failed", Reason: "7"}}}, {Name: "monitor"}}}
	failed.Console = []string{"[    0.000000] Linux version 6.1.0", "[   14.0] cloud-init[411]: error execution phase preflight"}
	gone := aStory(9, assess.TimedOut, "APIServerCertificateNameMismatch", wire.OwnerUser, false)
	gone.Gone = true
	other := survey.Story{Assessment: assess.Assessment{Node: "control-plane-0", HostName: "control-plane-0", State: assess.Succeeded, Created: noon.Add(-90 * 24 * time.Hour)}}
	return []survey.Story{
		other, aStory(0, assess.Succeeded, "", "", true), aStory(1, assess.Degraded, "CloudInitRecovered", wire.OwnerUser, true), failed,
		aStory(3, assess.Booting, "", "", false), aStory(4, assess.Failed, wire.ReasonUnknown, "", false), gone,
	}
}

func TestNodesShown(t *testing.T) {
	all := stories()
	short := []survey.Story{{Assessment: assess.Assessment{Node: "n1", Pool: pool1.Parent(), State: assess.Succeeded, Created: noon.Add(-time.Minute)}}}
	stopped := slices.Clone(all)
	for i, b := range []*fleet.Boot{nil, {Power: fleet.PowerDeallocating}, {Power: fleet.PowerStopped}, nil, {ProvisioningState: "Creating"}, {ProvisioningState: "Deleting", Power: fleet.PowerRunning}} {
		if b != nil {
			stopped[i].Boot = b
		}
	}
	off := aStory(0, assess.Succeeded, "", "", true)
	off.Node, off.Pool, off.Boot = "n1", pool1.Parent(), &fleet.Boot{Power: fleet.PowerDeallocated}
	for name, show := range map[string]func(io.Writer){
		"nodes-stopped":       func(w io.Writer) { writeNodes(w, stopped, noon) },
		"nodes-stopped-short": func(w io.Writer) { writeNodes(w, append([]survey.Story{off}, short...), noon) },
		"nodes":               func(w io.Writer) { writeNodes(w, all, noon) },
		"nodes-short":         func(w io.Writer) { writeNodes(w, short, noon) },
		"node-failed":         func(w io.Writer) { writeNode(w, all[3], noon) },
		"node-well":           func(w io.Writer) { writeNode(w, all[1], noon) },
		"node-gone":           func(w io.Writer) { writeNode(w, all[6], noon) },
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			show(&b)
			golden(t, name, b.String())
			for l := range strings.Lines(b.String()) {
				if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth && !strings.Contains(l, "/subscriptions/") {
					t.Errorf("%d columns: %s", n, l)
				}
			}
		})
	}
}

// What a verdict quotes of the serial console is not printed again with the console's end.
func TestNodeShowsEachConsoleLineOnce(t *testing.T) {
	const refused = "[   14.0] kubelet: dial tcp 10.0.0.4:6443: connect: connection refused"
	for name, console := range map[string][]string{
		"all of it quoted": {"[    0.000000] Linux version 6.1.0", refused, "[   14.1] end"},
		"quoted in part":   append(slices.Repeat([]string{"[    0.000000] systemd: Started a unit"}, 40), "[   13.9] before", refused, "[   14.1] end"),
	} {
		serial := []byte(strings.Join(console, "\n") + "\n")
		boot := fleet.Boot{Instance: pool1.Child("virtualMachines", "1"), Pool: pool1, HostName: "n1", Created: noon.Add(-time.Hour)}
		n := survey.Story{Boot: &boot, Console: assess.Relevant(serial, 60)}
		n.Assessment = assess.Assess(boot, nil, serial, assess.Assessment{}, noon, assess.Deadlines{Boot: time.Minute})
		var b strings.Builder
		writeNode(&b, n, noon)
		once := strings.Count(b.String(), refused) == 1 && strings.Count(b.String(), console[len(console)-1]) == 1
		if n.Reason() != "APIServerRefused" || !once || !strings.Contains(b.String(), console[0]) {
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}

// A configuration that was not applied is shown at its node, whatever became of the boot.
func TestNodeWithAFailedConfiguration(t *testing.T) {
	node := fleet.Node{Name: "n1", Ready: true, Conditions: []fleet.Condition{
		{Type: wire.ConfigurationCondition, Status: "False", Reason: wire.ReasonUnhealthy, Message: "kubelet.service failed; the node has generation 6"},
	}}
	v := &survey.Surveyor{Nodes: nodeList{node}, Records: recordList{}, Unasked: errors.New("no"), Now: time.Now}
	s, err := v.Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	writeNode(&b, s.Stories[0], noon)
	if !strings.Contains(b.String(), "  config     Unhealthy: kubelet.service failed; the node has generation 6\n") {
		t.Error(b.String())
	}
	node.Conditions[0].Status = "True"
	if v := assess.ViewOf(node); v.Configuration != "" {
		t.Errorf("an applied one: %s", v.Configuration)
	}
}

func TestNodesForPrograms(t *testing.T) {
	for form, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, v any) error { return yaml.Unmarshal(data, v) },
	} {
		var out strings.Builder
		o := &options{output: form, process: Process{Out: &out, Err: io.Discard}}
		if err := o.printNodes(survey.Survey{Stories: stories(), Now: noon}, true); !errors.Is(err, exitError(workflow.ExitNeedsPerson)) {
			t.Fatal(err)
		}
		var back struct {
			Nodes []survey.Story
			Notes []string
		}
		if err := decode([]byte(out.String()), &back); err != nil {
			t.Fatalf("%s: %v\n%s", form, err, out.String())
		}
		if len(back.Nodes) != 4 || back.Nodes[1].Reason() != "BootstrapTokenUnknown" || back.Nodes[1].Sure != "observed" || back.Notes == nil {
			t.Errorf("%s: what comes back:\n%s", form, out.String())
		}
		out.Reset()
		if err := o.printNode(survey.Survey{Stories: stories(), Now: noon}, "K8S-pool1-12345678-VMSS000002"); err != nil || !strings.Contains(out.String(), "init-local") {
			t.Errorf("%s of one: %v\n%s", form, err, out.String())
		}
	}
	o := &options{output: "table", process: Process{Out: io.Discard, Err: io.Discard}}
	err := o.printNode(survey.Survey{Stories: stories(), Unread: []string{"Azure was not asked"}}, "nobody")
	if err == nil || !strings.Contains(err.Error(), "nobody") || !strings.Contains(err.Error(), "Azure was not asked") {
		t.Errorf("of a node that is not there: %v", err)
	}
}

func TestNodesUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"nodes a b", "takes one argument"},
		{"nodes --resource-group /subscriptions/s", "is not the ARM id of a resource group"},
		{"controller x", `controller takes no arguments, not ["x"]`},
		{"controller --pool p", "is not the ARM id of a scale set"},
		{"controller --interval 1ms", "--interval 1ms: want 1s to 1h"},
		{"controller --arm-reads 1", "--arm-reads 1: want 5 to 6000"},
		{"controller --keep 1s", "--keep 1s: want 1m at least"},
		{"controller --boot-deadline 1s", "--boot-deadline 1s: want 1m to 24h"},
		{"controller --max-evidence 0", "--max-evidence 0: want 1 to 10000"},
	} {
		code, out, err := run(t, strings.Fields(c.args)...)
		if code != ExitUsage || out != "" || !strings.Contains(err, c.says) {
			t.Errorf("ortet %s: code %d, want %d with %q\nerr: %s", c.args, code, ExitUsage, c.says, err)
		}
	}
}

// Every flag of the two is on their page.
func TestNodesFlagsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/verdict.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	root := Command(Process{})
	for _, name := range []string{"nodes", "controller"} {
		c, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(c.LocalNonPersistentFlags().FlagUsages()) {
			_, flag, ok := strings.Cut(l, "--")
			flag, _, _ = strings.Cut(flag, " ")
			if ok && flag != "help" && !strings.Contains(page, "`--"+flag) {
				t.Errorf("docs/reference/verdict.md does not tell of ortet %s --%s", name, flag)
			}
		}
	}
}
