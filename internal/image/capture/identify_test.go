package capture_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
)

const (
	vm1 = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"
	vm2 = "6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"
)

// fewNodes is a cluster of Nodes, and theirSet the scale set with the members of them.
type fewNodes struct {
	cluster.Cluster
	all []fleet.Node
}

func (f *fewNodes) Node(_ context.Context, name string) (fleet.Node, error) {
	for _, n := range f.all {
		if n.Name == name {
			return n, nil
		}
	}
	return fleet.Node{}, &fleet.Error{Kind: fleet.KindNotFound}
}

func (f *fewNodes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range f.all {
			if !yield(n, nil) {
				return
			}
		}
	}
}

type theirSet struct {
	azure.Reader
	members []fleet.Instance
	lists   int
	err     error
}

func (s *theirSet) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	s.lists++
	return s.members, s.err
}

// Nodes are given the ids of their instances, one list for all; what is matched is known
// from then on, and what is not is looked for again after a while.
func TestIdentify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const set = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool")
		azures := fleet.Node{Name: "c", ProviderID: "azure://" + string(set) + "/virtualMachines/9"}
		nodes := &fewNodes{all: []fleet.Node{
			{Name: "pool000001", UID: "1", ProviderID: "k3s://pool000001", SystemUUID: vm1}, azures,
			{Name: "elsewhere", UID: "2", ProviderID: "k3s://elsewhere", SystemUUID: "7c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"},
		}}
		azureSet := &theirSet{members: []fleet.Instance{{ID: set.Child("virtualMachines", "1"), HostName: "POOL000001", VMID: vm1}}}
		c := capture.Identify(nodes, azureSet, func(context.Context) ([]fleet.ResourceID, error) { return []fleet.ResourceID{set}, nil }, time.Now)
		all := func() (text string) {
			for n, err := range c.Nodes(t.Context()) {
				id, why := n.Instance()
				text += n.Name + "=" + id.Name() + " "
				if (why == nil) != (id != "") || err != nil {
					t.Errorf("%s: %s, %v, %v", n.Name, id, why, err)
				}
			}
			return text
		}
		if got, want := all(), "pool000001=1 c=9 elsewhere= "; got != want || azureSet.lists != 1 {
			t.Errorf("%q with %d lists, want %q with one", got, azureSet.lists, want)
		}
		if n, err := c.Node(t.Context(), "pool000001"); err != nil || n.ProviderID != "azure://"+string(set)+"/virtualMachines/1" || azureSet.lists != 1 {
			t.Errorf("again: %+v, %v, %d lists", n, err, azureSet.lists)
		}
		n, err := c.Node(t.Context(), "elsewhere")
		if _, why := n.Instance(); err != nil || !fleet.Is(why, fleet.KindInvalid) || !strings.Contains(why.Error(), "the vmId of no member of pool") || azureSet.lists != 1 {
			t.Errorf("elsewhere: %v, %v, %d lists", why, err, azureSet.lists)
		}
		// A member that was added meanwhile.
		azureSet.members = append(azureSet.members, fleet.Instance{ID: set.Child("virtualMachines", "2"), HostName: "pool000002", VMID: vm2})
		nodes.all = append(nodes.all, fleet.Node{Name: "pool000002", UID: "3", SystemUUID: vm2})
		if n, err := c.Node(t.Context(), "pool000002"); err != nil || !strings.HasSuffix(n.ProviderID, "/2") || azureSet.lists != 2 {
			t.Errorf("a new Node: %+v, %v, %d lists", n, err, azureSet.lists)
		}
		time.Sleep(time.Minute)
		if all(); azureSet.lists != 3 {
			t.Errorf("%d lists after a minute, want one more", azureSet.lists)
		}
		// Another machine registers under the name of the first.
		nodes.all[0].SystemUUID = vm2
		if n, _ := c.Node(t.Context(), "pool000001"); n.Unmatched == nil {
			t.Errorf("another machine of that name is %s", n.ProviderID)
		}
		azureSet.err = &fleet.Error{Kind: fleet.KindTransient, Err: errors.New("503")}
		nodes.all[0].UID = "4"
		if n, err := c.Node(t.Context(), "pool000001"); err != nil || !fleet.Is(n.Unmatched, fleet.KindTransient) {
			t.Errorf("while Azure cannot be read: %+v, %v", n, err)
		}
	})
}
