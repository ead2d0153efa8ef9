package arm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// swap writes a vmId as firmware of SMBIOS before 2.6 does.
func swap(id string) string {
	g := strings.Split(id, "-")
	for i := range 3 {
		b := ""
		for j := len(g[i]) - 2; j >= 0; j -= 2 {
			b += g[i][j : j+2]
		}
		g[i] = b
	}
	return strings.Join(g, "-")
}

// A Node without Azure's provider id is the one member whose vmId and host name it has, in
// one list for each candidate; it is none where anything else is so.
func TestNodesWithoutAzuresID(t *testing.T) {
	onAzsim(t, "Nodes", func(t *testing.T, f fixture) {
		flexible := poolBody(1)
		flexible.Properties.OrchestrationMode = ptr(armcompute.OrchestrationModeFlexible)
		flexible.Properties.Overprovision, flexible.Properties.UpgradePolicy = nil, nil
		flexible.Properties.PlatformFaultDomainCount = ptr(int32(1))
		flexible.Properties.VirtualMachineProfile.OSProfile.ComputerNamePrefix = ptr("flex")
		flexible.Properties.VirtualMachineProfile.ExtensionProfile = nil
		p, err := sdk(t, f.s).NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "flex", flexible, nil)
		done(t, p, err)
		group := fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)
		uniform, flex := group.In("virtualMachineScaleSets", "pool1"), group.In("virtualMachineScaleSets", "flex")
		both := []fleet.ResourceID{uniform, flex, group.In("virtualMachineScaleSets", "gone")}
		members := azuretest.Get(t, f.Cloud.Instances, uniform)
		one, two, three := members[0], members[1], azuretest.Get(t, f.Cloud.Instances, flex)[0]
		if one.VMID == "" || three.HostName == strings.ToLower(three.HostName) {
			t.Fatalf("members %+v, %+v", one, three)
		}
		node := func(m fleet.Instance) fleet.Node {
			return fleet.Node{Name: strings.ToLower(m.HostName), ProviderID: "k3s://" + strings.ToLower(m.HostName), SystemUUID: m.VMID}
		}
		other := func(n fleet.Node, change func(*fleet.Node)) fleet.Node { change(&n); return n }
		const zeros = "00000000-0000-0000-0000-000000000000"
		for name, c := range map[string]struct {
			node    fleet.Node
			sets    []fleet.ResourceID
			twin    bool // a second member has the first's vmId
			want    fleet.ResourceID
			because string
		}{
			"its vmId":                 {node: node(one), sets: both, want: one.ID},
			"its vmId, swapped":        {node: other(node(two), func(n *fleet.Node) { n.SystemUUID = strings.ToUpper(swap(two.VMID)) }), sets: both, want: two.ID},
			"of a Flexible set":        {node: node(three), sets: both, want: three.ID},
			"no provider id":           {node: other(node(one), func(n *fleet.Node) { n.ProviderID = "" }), sets: both, want: one.ID},
			"rke2, beside a neighbour": {node: other(node(one), func(n *fleet.Node) { n.ProviderID = "rke2://x" }), sets: both, want: one.ID},
			"another's name":           {node: other(node(one), func(n *fleet.Node) { n.Name = node(two).Name }), sets: both, because: "has its systemUUID as vmId, but the host name"},
			"another machine":          {node: other(node(one), func(n *fleet.Node) { n.SystemUUID = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d" }), sets: both, because: "has its host name and the vmId " + one.VMID},
			"zeros":                    {node: other(node(one), func(n *fleet.Node) { n.SystemUUID = zeros }), sets: both, because: "no machine's"},
			"nothing":                  {node: other(node(one), func(n *fleet.Node) { n.SystemUUID = "" }), sets: both, because: "no systemUUID"},
			"text":                     {node: other(node(one), func(n *fleet.Node) { n.SystemUUID = "Not Settable" }), sets: both, because: "no machine's"},
			"another set":              {node: node(three), sets: both[:1], because: "no member of pool1"},
			"no candidates":            {node: node(one), sets: []fleet.ResourceID{}, because: "AZURE_RESOURCE_GROUP"},
			"two members":              {node: node(one), sets: both, twin: true, because: "is the vmId of"},
			"a bad id of Azure's":      {node: other(node(one), func(n *fleet.Node) { n.ProviderID = "azure:///x" }), sets: both, because: "not the id of a scale set's instance"},
		} {
			reader := &counting{Cloud: f.Cloud, twin: c.twin}
			places := azure.Places{Reader: reader, Sets: func(context.Context) ([]fleet.ResourceID, error) { return c.sets, nil }}
			got, err := places.Of(t.Context(), c.node)
			if got.Instance != c.want || c.want == "" && (!fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), c.because)) {
				t.Errorf("%s: %s, %v, want %q %s", name, got.Instance, err, c.want, c.because)
			}
			if c.want == one.ID && !got.Pool.Equal(uniform) || c.want == three.ID && !got.Pool.Equal(flex) {
				t.Errorf("%s: of pool %s", name, got.Pool)
			}
			lists := reader.lists
			if _, again := places.Of(t.Context(), c.node); reader.lists != lists || lists > len(c.sets) || (again == nil) != (err == nil) {
				t.Errorf("%s: %d lists, and then %d, of %d candidates", name, lists, reader.lists, len(c.sets))
			}
			uniformNode := fleet.Node{Name: "u", ProviderID: "azure://" + string(one.ID)}
			if p, err := places.Of(t.Context(), uniformNode); p.Instance != one.ID || err != nil || reader.lists != lists {
				t.Errorf("%s: with Azure's id %v, %v, %d lists", name, p, err, reader.lists)
			}
		}
		unread := azure.Places{Reader: f.Cloud, Sets: func(context.Context) ([]fleet.ResourceID, error) {
			return nil, &fleet.Error{Op: "list scale sets", Kind: fleet.KindDenied, Err: errors.New("403")}
		}}
		if _, err := unread.Of(t.Context(), node(one)); !fleet.Is(err, fleet.KindDenied) {
			t.Errorf("without the right to list: %v", err)
		}
		if _, err := (&azure.Places{Reader: f.Cloud}).Of(t.Context(), node(one)); !fleet.Is(err, fleet.KindInvalid) {
			t.Errorf("without candidates: %v", err)
		}
	})
}

// counting counts lists of instances.
type counting struct {
	azure.Cloud
	lists int
	twin  bool
}

func (c *counting) Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error) {
	c.lists++
	list, err := c.Cloud.Instances(ctx, pool)
	if c.twin && len(list) > 1 {
		list[1].VMID = list[0].VMID
	}
	return list, err
}
