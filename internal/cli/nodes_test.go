package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// aStory is an instance of pool1, some hours old.
func aStory(n int, state assess.State, reason string, owner wire.Owner, node bool) nodeStory {
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
	return nodeStory{Assessment: a}
}

func stories() []nodeStory {
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
	other := nodeStory{Assessment: assess.Assessment{Node: "control-plane-0", HostName: "control-plane-0", State: assess.Succeeded, Created: noon.Add(-90 * 24 * time.Hour)}}
	return []nodeStory{
		other, aStory(0, assess.Succeeded, "", "", true), aStory(1, assess.Degraded, "CloudInitRecovered", wire.OwnerUser, true), failed,
		aStory(3, assess.Booting, "", "", false), aStory(4, assess.Failed, wire.ReasonUnknown, "", false), gone,
	}
}

func TestNodesShown(t *testing.T) {
	all := stories()
	short := []nodeStory{{Assessment: assess.Assessment{Node: "n1", Pool: pool1.Parent(), State: assess.Succeeded, Created: noon.Add(-time.Minute)}}}
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
		"nodes-stopped-short": func(w io.Writer) { writeNodes(w, append([]nodeStory{off}, short...), noon) },
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

// A distribution with a cloud provider of its own gives its Nodes ids that tell
// nothing of Azure: the machine is shown once, with its Node.
func TestNodesOfOtherProviders(t *testing.T) {
	b := fleet.Boot{Instance: pool1.Child("virtualMachines", "1"), Pool: pool1, Name: "pool1_1", HostName: "pool1000001", VMID: "11111111-2222-4333-8444-555555555555",
		Created: noon.Add(-time.Hour), ProvisioningState: "Succeeded", Power: fleet.PowerRunning}
	for _, provider := range []string{"", "k3s://pool1000001", "rke2://pool1000001", "aws:///eu-west-1a/i-1", "AZURE://" + string(b.Instance)} {
		t.Run(provider, func(t *testing.T) {
			nodes := []assess.NodeView{{Name: "pool1000001", ProviderID: provider, SystemUUID: b.VMID, Ready: true, ReadySince: noon.Add(-50 * time.Minute)}}
			s := survey{now: noon}
			s.assess(t.Context(), lookout{}, []fleet.Boot{b}, nodes, nil, assess.Deadlines{}, "")
			s.rest(nodes, nil)
			if len(s.stories) != 1 {
				t.Fatalf("the machine is shown %d times", len(s.stories))
			}
			if n := s.stories[0]; n.State != assess.Succeeded || n.Node != "pool1000001" {
				t.Errorf("it is %s, Node %q: %s", n.State, n.Node, n.Message())
			}
		})
	}
}

// A Node that claims an instance and is not it is shown apart, with the reason, and the instance without it.
func TestHoleNodeOfNoMachineIsShownApart(t *testing.T) {
	b := fleet.Boot{Instance: pool1.Child("virtualMachines", "1"), Pool: pool1, Name: "pool1_1", HostName: "pool1000001", VMID: "11111111-2222-4333-8444-555555555555",
		Created: noon.Add(-time.Hour), ProvisioningState: "Succeeded", Power: fleet.PowerRunning}
	nodes := []assess.NodeView{{Name: "liar", ProviderID: "azure://" + string(b.Instance), SystemUUID: b.VMID, Ready: true, ReadySince: noon.Add(-50 * time.Minute)}}
	s := survey{now: noon}
	s.assess(t.Context(), lookout{}, []fleet.Boot{b}, nodes, nil, assess.Deadlines{}, "")
	s.rest(nodes, nil)
	if len(s.stories) != 2 || s.stories[0].Node == "liar" || s.stories[0].State == assess.Succeeded {
		t.Fatalf("%+v", s.stories)
	}
	if n := s.stories[1]; n.Node != "liar" || n.Pool != "" || n.Instance != "" || !strings.HasPrefix(n.Note, string(b.Instance)+` has the host name "pool1000001"`) {
		t.Errorf("%+v", n)
	}
}

// The Node of a Flexible set's member that was not listed with the others is shown for its scale
// set alone; of a virtual machine that is gone, a note is.
func TestNodesOfUnlistedMembers(t *testing.T) {
	vm := func(name string) fleet.ResourceID { return pool1.In("virtualMachines", name) }
	var nodes []assess.NodeView
	for _, name := range []string{"Ours", "others", "alone", "gone"} {
		nodes = append(nodes, assess.NodeView{Name: name, ProviderID: "azure://" + string(vm(name))})
	}
	asked := 0
	look := lookout{machines: func(context.Context, fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
		asked++
		return map[fleet.ResourceID]fleet.ResourceID{
			fleet.ResourceID(strings.ToLower(string(vm("ours")))):   fleet.ResourceID(strings.ToUpper(string(pool1))),
			fleet.ResourceID(strings.ToLower(string(vm("others")))): pool1 + "2", fleet.ResourceID(strings.ToLower(string(vm("alone")))): "",
		}, nil
	}}
	for _, pools := range [][]fleet.ResourceID{{pool1}, nil} {
		s := survey{now: noon}
		s.rest(nodes, nil)
		s.place(t.Context(), look, pools)
		s.only(pools)
		if pools == nil {
			pools = make([]fleet.ResourceID, len(nodes))
		}
		noted := len(s.notes) == 1 && strings.HasPrefix(s.notes[0], "node gone: ")
		if len(s.stories) != len(pools) || s.stories[0].Node != "Ours" || asked != 1 || noted != (len(pools) == 1) {
			t.Errorf("%d stories, %q, %d requests", len(s.stories), s.notes, asked)
		}
	}
}

// A configuration that was not applied is shown at its node, whatever became of the boot.
func TestNodeWithAFailedConfiguration(t *testing.T) {
	node := &corev1.Node{}
	node.Name, node.Status.Conditions = "n1", []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: wire.ConfigurationCondition, Status: corev1.ConditionFalse, Reason: wire.ReasonUnhealthy, Message: "kubelet.service failed; the node has generation 6"},
	}
	s := survey{now: noon}
	s.rest([]assess.NodeView{*assess.ViewOf(conversion.Node(node))}, nil)
	var b strings.Builder
	writeNode(&b, s.stories[0], noon)
	if !strings.Contains(b.String(), "  config     Unhealthy: kubelet.service failed; the node has generation 6\n") {
		t.Error(b.String())
	}
	node.Status.Conditions[1].Status = corev1.ConditionTrue
	if v := assess.ViewOf(conversion.Node(node)); v.Configuration != "" {
		t.Errorf("an applied one: %s", v.Configuration)
	}
}

type anyBoots = azure.Boots

// listed are the scale sets of a resource group; they have no instances.
type listed struct {
	anyBoots
	pools []fleet.Pool
	err   error
}

func (l listed) Pools(context.Context, fleet.ResourceID) ([]fleet.Pool, error) { return l.pools, l.err }

func (listed) Boots(context.Context, fleet.Pool) ([]fleet.Boot, error) { return nil, nil }

func TestNodesOfAPoolThatDoesNotExist(t *testing.T) {
	look, typo := lookout{boots: listed{pools: []fleet.Pool{{ID: pool1}}}}, pool1+"x"
	if _, _, missing, problems := listBoots(t.Context(), look, []fleet.ResourceID{fleet.ResourceID(strings.ToUpper(string(pool1)))}, nil); len(missing)+len(problems) > 0 {
		t.Errorf("the pool exists: %q %q", missing, problems)
	}
	if _, _, missing, problems := listBoots(t.Context(), look, []fleet.ResourceID{typo}, nil); len(problems) > 0 || len(missing) != 1 || missing[0] != typo {
		t.Errorf("a mistyped pool: %q %q", missing, problems)
	}
	for pool, want := range map[fleet.ResourceID]int{"": 1, pool1: 1, typo: 0} {
		s := survey{now: noon}
		s.rest([]assess.NodeView{{Name: "a", Ready: true, ProviderID: "azure://" + string(pool1.Child("virtualMachines", "7"))}}, nil)
		if pool != "" {
			s.only([]fleet.ResourceID{pool})
		}
		if len(s.stories) != want {
			t.Errorf("--pool %q shows %d nodes, want %d", pool, len(s.stories), want)
		}
	}
}

// A person asks by name for a pool whose nodes never joined.
func TestPoolWithoutNodesByName(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "azure://" + string(pool1.Child("virtualMachines", "7"))}}
	broken := pool1.Group().In("virtualMachineScaleSets", "broken")
	v := &surveyor{o: &options{}, client: kubeclient.NewClientset(node), look: lookout{boots: listed{pools: []fleet.Pool{{ID: pool1}, {ID: broken}}}}}
	for name, want := range map[string]fleet.ResourceID{pool1.Name(): pool1, "BROKEN": broken, "nope": ""} {
		id, err := v.pool(t.Context(), name)
		if id != want || (err != nil) != (want == "") {
			t.Errorf("%s is %q, %v; want %q", name, id, err, want)
		}
	}
	v.look.boots = listed{err: errors.New("throttled")}
	if _, err := v.pool(t.Context(), "nope"); workflow.ExitCode(err) != workflow.ExitFailed || !strings.Contains(err.Error(), "throttled") {
		t.Errorf("where Azure cannot be read: %v", err)
	}
}

func TestSerialLogsThatAreRead(t *testing.T) {
	with := func(n nodeStory, source assess.Source, began time.Duration) nodeStory {
		n.Source, n.Began, n.Boot = source, noon.Add(-began), &fleet.Boot{Console: true}
		return n
	}
	all := []nodeStory{
		with(aStory(0, assess.Succeeded, "", "", true), assess.FromNode, 9*time.Minute),
		with(aStory(1, assess.Booting, "", "", false), "", time.Minute),
		with(aStory(2, assess.Failed, wire.ReasonUnknown, "", false), assess.FromPlatform, 2*time.Hour),
		with(aStory(3, assess.Booting, "", "", false), "", 8*time.Minute),
		with(aStory(4, assess.Succeeded, "", "", true), assess.FromNode, 3*time.Hour),
		with(aStory(5, assess.Failed, "DiskFull", wire.OwnerUser, false), assess.FromConsole, time.Minute),
		with(aStory(6, assess.Succeeded, "", "", true), assess.FromNode, 2*time.Minute),
	}
	off := with(aStory(7, assess.Booting, "", "", false), "", time.Minute)
	off.Boot = &fleet.Boot{}
	all = append(all, off)
	for _, c := range []struct {
		named, want string
	}{
		{"", "pool1_2 pool1_3 pool1_1 pool1_6 pool1_0"}, // failed, booting, Ready lately
		{all[4].HostName, "pool1_4"},
		{"nobody", ""},
	} {
		var got []string
		for _, n := range logsWanted(all, c.named, noon) {
			got = append(got, strings.Replace(n.Name, pool1.Name(), "pool1", 1))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("with name %q the logs of %v are read, want %s", c.named, got, c.want)
		}
	}
}

func TestNodesForPrograms(t *testing.T) {
	for form, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, v any) error { return yaml.Unmarshal(data, v) },
	} {
		var out strings.Builder
		o := &options{output: form, process: Process{Out: &out, Err: io.Discard}}
		if err := o.printNodes(survey{stories: stories(), now: noon}, true); !errors.Is(err, exitError(workflow.ExitNeedsPerson)) {
			t.Fatal(err)
		}
		var back struct {
			Nodes []nodeStory
			Notes []string
		}
		if err := decode([]byte(out.String()), &back); err != nil {
			t.Fatalf("%s: %v\n%s", form, err, out.String())
		}
		if len(back.Nodes) != 4 || back.Nodes[1].Reason() != "BootstrapTokenUnknown" || back.Nodes[1].Sure != "observed" || back.Notes == nil {
			t.Errorf("%s: what comes back:\n%s", form, out.String())
		}
		out.Reset()
		if err := o.printNode(survey{stories: stories(), now: noon}, "K8S-pool1-12345678-VMSS000002"); err != nil || !strings.Contains(out.String(), "init-local") {
			t.Errorf("%s of one: %v\n%s", form, err, out.String())
		}
	}
	o := &options{output: "table", process: Process{Out: io.Discard, Err: io.Discard}}
	err := o.printNode(survey{stories: stories(), unread: []string{"Azure was not asked"}}, "nobody")
	if err == nil || !strings.Contains(err.Error(), "nobody") || !strings.Contains(err.Error(), "Azure was not asked") {
		t.Errorf("of a node that is not there: %v", err)
	}
}

// What a controller kept is shown of machines that are gone, and of Nodes that
// Azure was not asked about what the Node tells.
func TestRestOfTheNodes(t *testing.T) {
	kept := stories()[3]
	text, err := json.Marshal(kept.Assessment)
	if err != nil {
		t.Fatal(err)
	}
	n, ok := readEvidence(&corev1.ConfigMap{Data: map[string]string{assess.KeyAssessment: string(text), assess.KeyConsole: "a\nb\n"}})
	if !ok || len(n.Console) != 2 || n.VMID != kept.VMID {
		t.Fatalf("%+v", n)
	}
	if _, ok := readEvidence(&corev1.ConfigMap{Data: map[string]string{assess.KeyAssessment: "{"}}); ok {
		t.Error("half of a piece of evidence is taken")
	}
	s := survey{now: noon, pools: []fleet.Pool{{ID: pool1}}}
	s.rest([]assess.NodeView{
		{Name: "a", Ready: true, ProviderID: "azure://" + string(pool1.Child("virtualMachines", "7"))},
		{Name: "b", Why: "KubeletNotReady"},
		{Name: "c", Why: "NodeStatusUnknown", ProviderID: "azure://" + string(pool1.Child("virtualMachines", "8"))},
	}, []nodeStory{n})
	if len(s.stories) != 4 || s.failed(s.stories[3]) || s.stories[3].Note != "its instance is gone" || !s.stories[0].Gone || s.stories[1].State != assess.Succeeded || s.stories[1].Pool != pool1 || s.stories[2].State != "" || s.stories[2].Note != "KubeletNotReady" {
		t.Errorf("%+v", s.stories)
	}
	late := []assess.NodeView{{Name: "c", Why: "NodeStatusUnknown", ProviderID: "azure://" + string(pool1.Child("virtualMachines", "8"))}}
	for name, s := range map[string]survey{
		"not all was read":         {pools: []fleet.Pool{{ID: pool1}}, unread: []string{"throttled"}},
		"its pool was not listed":  {},
		"its instance has another": {pools: []fleet.Pool{{ID: pool1}}, stories: []nodeStory{{Assessment: assess.Assessment{Instance: pool1.Child("virtualMachines", "8"), Node: "d"}, Boot: &fleet.Boot{}}}},
	} {
		s.rest(late, nil)
		if n := s.stories[len(s.stories)-1]; n.State != "" || n.Note != "NodeStatusUnknown" {
			t.Errorf("%s: %+v", name, n)
		}
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
