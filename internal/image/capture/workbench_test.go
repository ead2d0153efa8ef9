package capture

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
)

const benchSets = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/"

type benchNodes struct {
	cluster.Cluster
	all   []fleet.Node
	fails error
}

func (c benchNodes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range c.all {
			if !yield(n, nil) {
				return
			}
		}
		if c.fails != nil {
			yield(fleet.Node{}, c.fails)
		}
	}
}

type benchCloud struct{ azure.Cloud }

func (benchCloud) Now() time.Time { return time.Now() }
func (benchNodes) Now() time.Time { return time.Now() }

// Instance has the machine SET/ID, whose host name is SET00000ID.
func (benchCloud) Instance(_ context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	if set, n, ok := strings.Cut(id.Name(), "-flex"); ok { // a Flexible set's member, whose id does not name the set
		return fleet.Instance{ID: id, Pool: benchSets + fleet.ResourceID(set), HostName: id.Name(), VMID: benchVM(set, n), Power: fleet.PowerRunning,
			ProvisioningState: plan.Succeeded, Size: "D2"}, nil
	}
	set := id.UniformPool().Name()
	if len(id.Name()) > 1 { // those are not there
		return fleet.Instance{}, &fleet.Error{Op: "get instance", Kind: fleet.KindNotFound}
	}
	if id.Name() == "8" {
		return fleet.Instance{ID: id, Pool: id.UniformPool(), HostName: set + "000008", VMID: benchVM(set, "8"), Power: fleet.PowerRunning, Size: "Z9",
			DataDisks: []fleet.AttachedDisk{{LUN: 1}}}, nil
	}
	return fleet.Instance{ID: id, Pool: id.UniformPool(), HostName: set + "00000" + id.Name(), VMID: benchVM(set, id.Name()), Power: fleet.PowerRunning,
		ProvisioningState: plan.Succeeded, Size: "D2"}, nil
}

// Machines has no scale set: a workbench of a Flexible pool is ranked without it.
func (benchCloud) Machines(context.Context, fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	return nil, nil
}

func (benchCloud) Sizes(context.Context, string, string, ...string) (map[string]fleet.SizeInfo, error) {
	return map[string]fleet.SizeInfo{"d2": {MaxDataDisks: 4}}, nil
}

func benchVM(set, id string) string {
	return "5c5e9f1e-6d5b-4f0e-8a9d-" + map[string]string{"pool": "000000000", "other": "111111111"}[set] + "00" + id
}

func benchNode(name, set, id, uuid string) fleet.Node {
	return fleet.Node{Name: name, OS: "linux", Architecture: "amd64", Ready: true, SystemUUID: uuid, ProviderID: "azure://" + benchSets + set + "/virtualMachines/" + id}
}

// The id of a Flexible set's member does not say of which pool it is: Azure does.
func TestWorkbenchOfFlexiblePool(t *testing.T) {
	member := func(set, id string) fleet.Node {
		n := benchNode(set+"-flex"+id, set, id, benchVM(set, id))
		n.ProviderID = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/" + n.Name
		return n
	}
	donor := member("pool", "0")
	for _, c := range []struct {
		others bool
		nodes  []fleet.Node
		want   string
	}{
		{nodes: []fleet.Node{member("other", "1"), member("pool", "2")}, want: "pool-flex2"},
		{nodes: []fleet.Node{member("other", "1")}},
		{nodes: []fleet.Node{member("other", "1")}, others: true, want: "other-flex1"},
	} {
		k := New(Config{Cloud: benchCloud{}, Cluster: benchNodes{all: append(c.nodes, donor)}, Log: slog.New(slog.DiscardHandler), Now: time.Now}).
			capture(Request{Node: donor.Name, OtherPools: c.others})
		i, _ := benchCloud{}.Instance(t.Context(), fleet.ResourceID(strings.TrimPrefix(donor.ProviderID, "azure://")))
		o := plan.Observed{Donor: &donor, InstanceID: i.ID, Instance: &i, Pool: &fleet.Pool{ID: i.Pool}}
		k.findWorkbench(t.Context(), &o)
		got := ""
		if o.Workbench != nil {
			got = o.Workbench.Node.Name
		}
		if got != c.want {
			t.Errorf("other pools %t: %q, want %q (%s)", c.others, got, c.want, o.NoWorkbench)
		}
	}
}

// TestWorkbench: what works on the copy decides what the image is, so it is a machine of the pool that is
// the one that its Node names, and that no other Node may be.
func TestWorkbench(t *testing.T) {
	own := func(set, id string) fleet.Node { return benchNode(set+"00000"+id, set, id, benchVM(set, id)) }
	donor := own("pool", "0")
	missing := func(n int) (all []fleet.Node) { // they name machines that are not there
		for i := range n {
			all = append(all, benchNode(fmt.Sprintf("gone%02d", i), "pool", fmt.Sprint(10+i), ""))
		}
		return all
	}
	cordoned := own("pool", "1")
	cordoned.Unschedulable = true
	for name, c := range map[string]struct {
		request   Request
		lost      []string
		fails     error
		nodes     []fleet.Node
		want, why string
		note      string
		duplicate bool
	}{
		"one of the pool":                      {nodes: []fleet.Node{own("other", "1"), own("pool", "1")}, want: "pool000001"},
		"a Node of no machine comes first":     {nodes: []fleet.Node{benchNode("batch000007", "pool", "1", benchVM("other", "7")), own("pool", "1")}, want: "pool000001", note: "node batch000007 cannot be the workbench: " + benchSets + "pool/virtualMachines/1 has the host name"},
		"many Nodes name one machine":          {nodes: append(slices.Repeat([]fleet.Node{benchNode("batch000007", "pool", "2", benchVM("other", "7"))}, maxCandidates+1), own("pool", "1")), want: "pool000001", note: "node batch000007 cannot be the workbench: "},
		"it copies the vmId too":               {nodes: []fleet.Node{benchNode("batch000007", "pool", "1", benchVM("pool", "1")), own("pool", "1"), own("pool", "2")}, want: "pool000002"},
		"and none is left":                     {nodes: []fleet.Node{benchNode("batch000007", "pool", "1", benchVM("pool", "1")), own("pool", "1")}, why: "is claimed by another Node (1), is not the machine that it names (1)"},
		"another pool's":                       {nodes: []fleet.Node{own("other", "1")}, why: "is of another pool (1)"},
		"another pool's is allowed":            {request: Request{OtherPools: true}, nodes: []fleet.Node{own("other", "1")}, want: "other000001"},
		"another pool's is named":              {request: Request{Workbench: "other000001"}, nodes: []fleet.Node{own("other", "1"), own("pool", "1")}, want: "other000001"},
		"a Node that may be the donor":         {nodes: []fleet.Node{benchNode("zz", "pool", "0", ""), own("pool", "1")}, want: "pool000001", duplicate: true},
		"a stale Node that names the donor":    {nodes: []fleet.Node{benchNode("zz", "pool", "0", benchVM("other", "9")), own("pool", "1")}, want: "pool000001"},
		"some cannot be read":                  {nodes: append(missing(maxCandidates-1), own("pool", "1")), want: "pool000001"},
		"too many cannot be read":              {nodes: append(missing(maxCandidates), own("pool", "1")), why: "cannot be read in Azure (50)"},
		"the one that is named is not there":   {request: Request{Workbench: "nope"}, nodes: []fleet.Node{own("pool", "1")}, why: "node nope does not exist"},
		"the one that is named cannot serve":   {request: Request{Workbench: "pool000001"}, nodes: []fleet.Node{cordoned, own("pool", "2")}, why: "node pool000001 is cordoned (1)"},
		"the one that was taken first is lost": {nodes: []fleet.Node{own("pool", "1"), own("pool", "2")}, lost: []string{"pool000001"}, want: "pool000002"},
		"all were lost":                        {nodes: []fleet.Node{own("pool", "1")}, lost: []string{"pool000001"}, why: "is the donor (1), was lost (1)"},
		"its size is not known":                {nodes: []fleet.Node{own("pool", "8")}, want: "pool000008"},
		"not all Nodes could be read":          {nodes: []fleet.Node{own("pool", "1")}, fails: &fleet.Error{Op: "list nodes", Kind: fleet.KindTransient}, want: "pool000001", duplicate: true},
		"a Node with another's name and claim": {nodes: []fleet.Node{benchNode("pool000001", "pool", "2", benchVM("pool", "2"))}, why: "is not the machine that it names (1)"},
	} {
		s := New(Config{Cloud: benchCloud{}, Cluster: benchNodes{all: append(c.nodes, donor), fails: c.fails}, Log: slog.New(slog.DiscardHandler), Now: time.Now})
		c.request.Node = donor.Name
		k := s.capture(c.request)
		k.lost = c.lost
		i, _ := benchCloud{}.Instance(t.Context(), benchSets+"pool/virtualMachines/0")
		o := plan.Observed{Donor: &donor, InstanceID: i.ID, Instance: &i, Pool: &fleet.Pool{ID: i.Pool}}
		k.findWorkbench(t.Context(), &o)
		got := ""
		if o.Workbench != nil {
			got = o.Workbench.Node.Name
		}
		notes, _ := k.Recorded()
		if got != c.want || !strings.Contains(o.NoWorkbench, c.why) || (len(o.Unreadable) > 0) != c.duplicate || !strings.HasPrefix(strings.Join(notes, "\n"), c.note) {
			t.Errorf("%s: %q (%s), %v, %q", name, got, o.NoWorkbench, o.Unreadable, notes)
		}
		if o.Workbench != nil && o.Workbench.Instance.Size == "Z9" && o.Workbench.LUN != 0 {
			t.Errorf("%s: LUN %d, but the smallest sizes have two, of which 1 is in use", name, o.Workbench.LUN)
		}
	}
}
