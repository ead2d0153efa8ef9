package azure_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// groups has the virtual machines of resource groups, and counts the lists of them.
type groups struct {
	azure.Cloud
	machines map[string]map[fleet.ResourceID]fleet.ResourceID // by group, in lower case
	lists    int
	err      error
}

func (g *groups) Machines(_ context.Context, group fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	g.lists++
	if g.err != nil {
		return nil, g.err
	}
	list, there := g.machines[strings.ToLower(string(group))]
	if !there {
		return nil, fail(fleet.KindNotFound, 0)
	}
	return list, nil
}

func TestPlaces(t *testing.T) {
	const one, two, compute = "/subscriptions/s/resourceGroups/One", "/subscriptions/s/resourceGroups/two", "/providers/Microsoft.Compute/"
	lower := func(id string) fleet.ResourceID { return fleet.ResourceID(strings.ToLower(id + compute)) }
	g := &groups{machines: map[string]map[fleet.ResourceID]fleet.ResourceID{
		strings.ToLower(one): {lower(one) + "virtualmachines/p_1": one + compute + "virtualMachineScaleSets/P", lower(one) + "virtualmachines/own": ""},
		strings.ToLower(two): {lower(two) + "virtualmachines/p_1": two + compute + "virtualMachineScaleSets/P"},
	}}
	p := azure.Places{Reader: g}
	for _, tc := range []struct {
		id   string
		pool fleet.ResourceID
		kind fleet.Kind
	}{
		{one + compute + "virtualMachineScaleSets/u/virtualMachines/3", one + compute + "virtualMachineScaleSets/u", ""},
		{one + compute + "virtualMachines/P_1", one + compute + "virtualMachineScaleSets/P", ""},
		{strings.ToUpper(one + compute + "virtualMachines/P_1"), one + compute + "virtualMachineScaleSets/P", ""},
		{two + compute + "virtualMachines/P_1", two + compute + "virtualMachineScaleSets/P", ""}, // a set of the same name
		{one + compute + "virtualMachines/own", "", fleet.KindInvalid},
		{one + compute + "virtualMachines/gone", "", fleet.KindNotFound},
		{"k3s://n", "", fleet.KindInvalid},
	} {
		id := tc.id
		if strings.HasPrefix(id, "/") {
			id = "azure://" + id
		}
		got, err := p.Of(t.Context(), fleet.Node{Name: "n", ProviderID: id})
		if fleet.KindOf(err) != tc.kind || !got.Pool.Equal(tc.pool) {
			t.Errorf("%s: %+v, %v; want %s, %q", tc.id, got, err, tc.pool, tc.kind)
		}
	}
	if g.lists != 2 {
		t.Errorf("%d lists of two groups", g.lists)
	}
	_, err := p.Of(t.Context(), fleet.Node{Name: "n", ProviderID: "azure:///subscriptions/s/resourceGroups/none" + compute + "virtualMachines/m"})
	if !fleet.Is(err, fleet.KindNotFound) {
		t.Errorf("a machine of a group that does not exist: %v", err)
	}
}

// A list that Azure refuses is asked for once, however many Nodes wait for it.
func TestPlacesAskOnceForWhatIsRefused(t *testing.T) {
	g, asked := &groups{}, 0
	p := azure.Places{Reader: g, Sets: func(context.Context) ([]fleet.ResourceID, error) {
		asked++
		return nil, fail(fleet.KindDenied, 0)
	}}
	for range 3 {
		for _, n := range []fleet.Node{
			{Name: "m", ProviderID: "azure:///subscriptions/s/resourceGroups/none/providers/Microsoft.Compute/virtualMachines/m"},
			{Name: "k", ProviderID: "k3s://k", SystemUUID: "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"},
		} {
			if _, err := p.Of(t.Context(), n); !fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindDenied) {
				t.Errorf("node %s: %v", n.Name, err)
			}
		}
	}
	if g.lists != 1 || asked != 1 {
		t.Errorf("%d lists of virtual machines and %d of scale sets were asked for, want 1 each", g.lists, asked)
	}
}

// A list that failed for a passing reason is asked for again.
func TestPlacesAskAgainAfterAPassingReason(t *testing.T) {
	const group = "/subscriptions/s/resourceGroups/one"
	id := fleet.ResourceID(strings.ToLower(group + "/providers/Microsoft.Compute/virtualMachines/p_1"))
	g := &groups{err: fail(fleet.KindTransient, 0), machines: map[string]map[fleet.ResourceID]fleet.ResourceID{strings.ToLower(group): {id: group + "/providers/Microsoft.Compute/virtualMachineScaleSets/p"}}}
	p := azure.Places{Reader: g}
	n := fleet.Node{Name: "n", ProviderID: "azure://" + string(id)}
	if _, err := p.Of(t.Context(), n); !fleet.Is(err, fleet.KindTransient) {
		t.Errorf("a list that fails: %v", err)
	}
	g.err = nil
	if got, err := p.Of(t.Context(), n); err != nil || got.Pool.Name() != "p" || g.lists != 2 {
		t.Errorf("%+v, %v after %d lists", got, err, g.lists)
	}
}
