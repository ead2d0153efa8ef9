package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

const pool1 = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// aStory is an instance of pool1, some hours old.
func aStory(n int, state assess.State, reason string, owner wire.Owner, node bool) Story {
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
	return Story{Assessment: a}
}

// A distribution with a cloud provider of its own gives its Nodes ids that tell
// nothing of Azure: the machine is shown once, with its Node.
func TestNodesOfOtherProviders(t *testing.T) {
	b := fleet.Boot{Instance: pool1.Child("virtualMachines", "1"), Pool: pool1, Name: "pool1_1", HostName: "pool1000001", VMID: "11111111-2222-4333-8444-555555555555",
		Created: noon.Add(-time.Hour), ProvisioningState: "Succeeded", Power: fleet.PowerRunning}
	for _, provider := range []string{"", "k3s://pool1000001", "rke2://pool1000001", "aws:///eu-west-1a/i-1", "AZURE://" + string(b.Instance)} {
		t.Run(provider, func(t *testing.T) {
			nodes := []assess.NodeView{{Name: "pool1000001", ProviderID: provider, SystemUUID: b.VMID, Ready: true, ReadySince: noon.Add(-50 * time.Minute)}}
			s := Survey{Now: noon}
			s.assess(t.Context(), nil, []fleet.Boot{b}, nodes, nil, assess.Deadlines{}, "")
			s.rest(nodes, nil)
			if len(s.Stories) != 1 {
				t.Fatalf("the machine is shown %d times", len(s.Stories))
			}
			if n := s.Stories[0]; n.State != assess.Succeeded || n.Node != "pool1000001" {
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
	s := Survey{Now: noon}
	s.assess(t.Context(), nil, []fleet.Boot{b}, nodes, nil, assess.Deadlines{}, "")
	s.rest(nodes, nil)
	if len(s.Stories) != 2 || s.Stories[0].Node == "liar" || s.Stories[0].State == assess.Succeeded {
		t.Fatalf("%+v", s.Stories)
	}
	if n := s.Stories[1]; n.Node != "liar" || n.Pool != "" || n.Instance != "" || !strings.HasPrefix(n.Note, string(b.Instance)+` has the host name "pool1000001"`) {
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
	look := func(context.Context, fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
		asked++
		return map[fleet.ResourceID]fleet.ResourceID{
			fleet.ResourceID(strings.ToLower(string(vm("ours")))):   fleet.ResourceID(strings.ToUpper(string(pool1))),
			fleet.ResourceID(strings.ToLower(string(vm("others")))): pool1 + "2", fleet.ResourceID(strings.ToLower(string(vm("alone")))): "",
		}, nil
	}
	for _, pools := range [][]fleet.ResourceID{{pool1}, nil} {
		s := Survey{Now: noon}
		s.rest(nodes, nil)
		s.place(t.Context(), look, pools)
		s.only(pools)
		if pools == nil {
			pools = make([]fleet.ResourceID, len(nodes))
		}
		noted := len(s.Notes) == 1 && strings.HasPrefix(s.Notes[0], "node gone: ")
		if len(s.Stories) != len(pools) || s.Stories[0].Node != "Ours" || asked != 1 || noted != (len(pools) == 1) {
			t.Errorf("%d stories, %q, %d requests", len(s.Stories), s.Notes, asked)
		}
	}
}

func TestNodesOfAPoolThatDoesNotExist(t *testing.T) {
	look, typo := listed{pools: []fleet.Pool{{ID: pool1}}}, pool1+"x"
	if _, _, missing, problems := listBoots(t.Context(), look, []fleet.ResourceID{fleet.ResourceID(strings.ToUpper(string(pool1)))}, nil); len(missing)+len(problems) > 0 {
		t.Errorf("the pool exists: %q %q", missing, problems)
	}
	if _, _, missing, problems := listBoots(t.Context(), look, []fleet.ResourceID{typo}, nil); len(problems) > 0 || len(missing) != 1 || missing[0] != typo {
		t.Errorf("a mistyped pool: %q %q", missing, problems)
	}
	for pool, want := range map[fleet.ResourceID]int{"": 1, pool1: 1, typo: 0} {
		s := Survey{Now: noon}
		s.rest([]assess.NodeView{{Name: "a", Ready: true, ProviderID: "azure://" + string(pool1.Child("virtualMachines", "7"))}}, nil)
		if pool != "" {
			s.only([]fleet.ResourceID{pool})
		}
		if len(s.Stories) != want {
			t.Errorf("--pool %q shows %d nodes, want %d", pool, len(s.Stories), want)
		}
	}
}

func TestSerialLogsThatAreRead(t *testing.T) {
	with := func(n Story, source assess.Source, began time.Duration) Story {
		n.Source, n.Began, n.Boot = source, noon.Add(-began), &fleet.Boot{Console: true}
		return n
	}
	all := []Story{
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
			got = append(got, n.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("with name %q the logs of %v are read, want %s", c.named, got, c.want)
		}
	}
}

// What a controller kept is shown of machines that are gone, and of Nodes that
// Azure was not asked about what the Node tells.
func TestRestOfTheNodes(t *testing.T) {
	kept := aStory(2, assess.Failed, "BootstrapTokenUnknown", wire.OwnerUser, false)
	text, err := json.Marshal(kept.Assessment)
	if err != nil {
		t.Fatal(err)
	}
	n, ok := assess.ReadEvidence(fleet.Record{Data: map[string]string{assess.KeyAssessment: string(text), assess.KeyConsole: "a\nb\n"}})
	if !ok || len(n.Console) != 2 || n.VMID != kept.VMID {
		t.Fatalf("%+v", n)
	}
	if _, ok := assess.ReadEvidence(fleet.Record{Data: map[string]string{assess.KeyAssessment: "{"}}); ok {
		t.Error("half of a piece of evidence is taken")
	}
	s := Survey{Now: noon, Pools: []fleet.Pool{{ID: pool1}}}
	s.rest([]assess.NodeView{
		{Name: "a", Ready: true, ProviderID: "azure://" + string(pool1.Child("virtualMachines", "7"))},
		{Name: "b", Why: "KubeletNotReady"},
		{Name: "c", Why: "NodeStatusUnknown", ProviderID: "azure://" + string(pool1.Child("virtualMachines", "8"))},
	}, []Story{{Assessment: n.Assessment, Gone: true, Console: n.Console}})
	if len(s.Stories) != 4 || s.Failed(s.Stories[3]) || s.Stories[3].Note != "its instance is gone" || !s.Stories[0].Gone || s.Stories[1].State != assess.Succeeded || s.Stories[1].Pool != pool1 || s.Stories[2].State != "" || s.Stories[2].Note != "KubeletNotReady" {
		t.Errorf("%+v", s.Stories)
	}
	late := []assess.NodeView{{Name: "c", Why: "NodeStatusUnknown", ProviderID: "azure://" + string(pool1.Child("virtualMachines", "8"))}}
	for name, s := range map[string]Survey{
		"not all was read":         {Pools: []fleet.Pool{{ID: pool1}}, Unread: []string{"throttled"}},
		"its pool was not listed":  {},
		"its instance has another": {Pools: []fleet.Pool{{ID: pool1}}, Stories: []Story{{Assessment: assess.Assessment{Instance: pool1.Child("virtualMachines", "8"), Node: "d"}, Boot: &fleet.Boot{}}}},
	} {
		s.rest(late, nil)
		if n := s.Stories[len(s.Stories)-1]; n.State != "" || n.Note != "NodeStatusUnknown" {
			t.Errorf("%s: %+v", name, n)
		}
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
