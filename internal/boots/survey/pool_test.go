package survey

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// nodeList is a cluster with these Nodes.
type nodeList []fleet.Node

func (l nodeList) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range l {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (l nodeList) Node(_ context.Context, name string) (fleet.Node, error) {
	for _, n := range l {
		if n.Name == name {
			return n, nil
		}
	}
	return fleet.Node{}, &fleet.Error{Op: "read node", Kind: fleet.KindNotFound}
}

// providerNodes are Nodes with these provider ids.
func providerNodes(ids ...string) (l nodeList) {
	for i, id := range ids {
		l = append(l, fleet.Node{Name: string(rune('a' + i)), ProviderID: id})
	}
	return l
}

// flexibles is Azure with a virtual machine in no scale set, and one in flex.
type flexibles struct{ azure.Reader }

func (flexibles) Machines(context.Context, fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	const in = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/"
	return map[fleet.ResourceID]fleet.ResourceID{in + "virtualmachines/alone": "", in + "virtualmachines/flex_1c0ffee0": in + "virtualMachineScaleSets/flex"}, nil
}

func TestPoolIsFoundByItsName(t *testing.T) {
	const set = "/providers/Microsoft.Compute/virtualMachineScaleSets/"
	client := providerNodes(
		"azure:///subscriptions/s/resourceGroups/G"+set+"Pool1/virtualMachines/0",
		"azure:///subscriptions/s/resourcegroups/g"+strings.ToLower(set)+"pool1/virtualmachines/1", // the same, otherwise spelled
		"azure:///subscriptions/s/resourceGroups/g"+set+"pool2/virtualMachines/0",
		"azure:///subscriptions/s/resourceGroups/h"+set+"pool2/virtualMachines/0",
		"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/alone",
		"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/FLEX_1c0ffee0",
		"k3s://server", "",
	)
	find := func(nodes nodeList) Finder { return Finder{Nodes: nodes, Places: &azure.Places{Reader: flexibles{}}} }
	const id = "/subscriptions/s/resourceGroups/g" + set + "pool9"
	for arg, want := range map[string]string{
		"pool1":    "/subscriptions/s/resourceGroups/g" + set + "pool1",
		"POOL1":    "/subscriptions/s/resourceGroups/g" + set + "pool1",
		id:         id,
		id + "/":   id,
		"flex":     "/subscriptions/s/resourceGroups/g" + set + "flex", // as Azure says, not as its machine is named
		"pool1-no": "",
		"pool2":    "",
	} {
		got, err := find(client).ToChange(t.Context(), arg)
		if want == "" && err == nil || want != "" && (err != nil || !got.Equal(fleet.ResourceID(want))) {
			t.Errorf("%s: %s, %v; want %s", arg, got, err, want)
		}
	}
	_, err := find(client).ToRead(t.Context(), "pool2")
	for _, want := range []string{"2 have that name", " /subscriptions/s/resourceGroups/g" + set + "pool2", " /subscriptions/s/resourceGroups/h" + set + "pool2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an ambiguous name does not say %q: %v", want, err)
		}
	}
	if _, err = find(client).ToRead(t.Context(), "pool3"); err == nil || !strings.Contains(err.Error(), "ool1, flex, pool1, pool2") || strings.Contains(err.Error(), "alone") {
		t.Errorf("an unknown name does not list those that exist: %v", err)
	}
	if _, err = find(providerNodes("k3s://a")).ToRead(t.Context(), "pool1"); err == nil || !strings.Contains(err.Error(), "ARM id") {
		t.Errorf("without any scale set: %v", err)
	}
	for arg, want := range map[string]string{"a": "node a", "pool1": "pool " + "/subscriptions/s/resourceGroups/g" + set + "pool1", id: "pool " + id, "nosuch": "node nosuch", "pool2": "2 have that name"} {
		node, pool, err := find(client).NodeOrPool(t.Context(), arg)
		got := "node " + node
		if node == "" {
			got = "pool " + string(pool)
		}
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && !strings.EqualFold(got, want) {
			t.Errorf("%s names %s, %v; want %s", arg, got, err, want)
		}
	}
}

// TestClaimedPool changes only a scale set of which a Node is a machine; of two of one name, that one is read.
func TestClaimedPool(t *testing.T) {
	const set = "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
	ours, theirs := fleet.ResourceID("/subscriptions/s/resourceGroups/g"+set), fleet.ResourceID("/subscriptions/s/resourceGroups/h"+set)
	const is, notIt, gone, away = fleet.KindUnknown, fleet.KindInvalid, fleet.KindNotFound, fleet.KindTransient
	const ofAnother = fleet.KindStale // as the member of a Flexible scale set that its list had in this one
	for what, c := range map[string]struct {
		ours, theirs   fleet.Kind // of the error of a Node's machine, or is
		read, change   fleet.ResourceID
		reads, changes string // of the error
	}{
		"one is claimed":      {is, notIt, ours, ours, "", ""},
		"one is gone":         {gone, is, theirs, theirs, "", ""},
		"both are":            {is, is, "", "", "2 have that name", "2 have that name"},
		"both are claimed":    {notIt, gone, "", "", "2 have that name", PoolNotFound},
		"one is of another":   {ofAnother, is, theirs, theirs, "", ""},
		"Azure is away":       {away, away, "", "", "away", "away"},
		"a machine is denied": {fleet.KindDenied, is, theirs, theirs, "", ""},
	} {
		f := Finder{Nodes: providerNodes("azure://"+string(ours)+"/virtualMachines/0", "azure://"+string(theirs)+"/virtualMachines/0"), Places: &azure.Places{},
			Machine: func(_ context.Context, n fleet.Node) (fleet.ResourceID, error) {
				kind, pool := c.ours, ours
				if strings.Contains(n.ProviderID, string(theirs)) {
					kind, pool = c.theirs, theirs
				}
				if kind == ofAnother {
					return pool + "2", nil
				}
				if kind != is {
					return "", &fleet.Error{Op: "get instance", Kind: kind, Err: errors.New("away")}
				}
				return pool, nil
			}}
		check := func(find func(context.Context, string) (fleet.ResourceID, error), want fleet.ResourceID, says string) {
			t.Helper()
			got, err := find(t.Context(), "pool1")
			if says == PoolNotFound {
				if !IsPoolNotFound(err) || strings.Contains(err.Error(), "give one of these") {
					t.Errorf("%s: %v", what, err)
				}
			} else if got != want || (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %s, %v; want %s or %q", what, got, err, want, says)
			}
		}
		check(f.ToRead, c.read, c.reads)
		check(f.ToChange, c.change, c.changes)
	}
	reads, many := 0, slices.Repeat([]string{"azure://" + string(ours) + "/virtualMachines/0"}, 5000)
	f := Finder{Nodes: providerNodes(many...), Places: &azure.Places{}, Machine: func(context.Context, fleet.Node) (fleet.ResourceID, error) {
		reads++
		return "", &fleet.Error{Op: "get instance", Kind: gone}
	}}
	if _, err := f.ToChange(t.Context(), "pool1"); !IsPoolNotFound(err) || reads != 20 {
		t.Errorf("of 5000 Nodes whose machines are gone %d were read: %v", reads, err)
	}
}
