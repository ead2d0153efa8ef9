package donor_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	group   = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute")
	pool    = group + "/virtualMachineScaleSets/pool1"
	machine = group + "/virtualMachines/vm1"
	member  = pool + "/virtualMachines/1"
)

// A cloud has one instance, which answers to each id.
type cloud struct {
	azure.Reader
	there fleet.Instance
}

func (c cloud) Instance(context.Context, fleet.ResourceID) (fleet.Instance, error) {
	return c.there, nil
}

// TestRead believes an instance to be the donor only as Azure shows it.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		used  donor.Used
		there fleet.Instance
		want  fleet.Kind // of the error
	}{
		"member of the scale set":        {donor.Used{Instance: member, VMID: "a", Pool: pool}, fleet.Instance{VMID: "b"}, fleet.KindUnknown},
		"virtual machine":                {donor.Used{Instance: machine, VMID: "a", Pool: pool}, fleet.Instance{VMID: "A", Pool: pool}, fleet.KindUnknown},
		"made again under its name":      {donor.Used{Instance: machine, VMID: "a", Pool: pool}, fleet.Instance{VMID: "b", Pool: pool}, fleet.KindNotFound},
		"of another scale set":           {donor.Used{Instance: machine, VMID: "a", Pool: pool}, fleet.Instance{VMID: "a", Pool: pool + "2"}, fleet.KindInvalid},
		"in no scale set":                {donor.Used{Instance: machine, Pool: pool}, fleet.Instance{}, fleet.KindInvalid},
		"workbench of any pool, or none": {donor.Used{Instance: machine, VMID: "a"}, fleet.Instance{VMID: "a"}, fleet.KindUnknown},
	} {
		if _, err := c.used.Read(t.Context(), cloud{there: c.there}); (err != nil) != (c.want != fleet.KindUnknown) || fleet.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRows takes the donor out of service, or has its disk flushed where it stays in service.
func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		request plan.Request
		skip    string
		runs    []string
	}{
		"out of service":        {plan.Request{}, "", []string{"cordon", "drain", "stop", "snapshot"}},
		"online":                {plan.Request{Online: true}, "", []string{"flush", "snapshot", "confirm-boot"}},
		"its snapshot is there": {plan.Request{}, "there", nil},
		"online, not confirmed": {plan.Request{Online: true}, "there", []string{"confirm-boot"}},
	} {
		var mu sync.Mutex
		taken := donor.Taken{BootID: workflow.SkipIf(c.request.Online, "boot")}
		d := donor.Donor{Machine: workflow.PartOf(&mu, &donor.Machine{}), Taken: workflow.PartOf(&mu, &taken),
			Of: func() donor.Source { return donor.Source{Request: c.request} }}
		var runs []string
		for _, row := range d.Rows(c.skip, false, "version", "protect") {
			if row.Skip == "" {
				runs = append(runs, row.ID)
			}
		}
		if !slices.Equal(runs, c.runs) {
			t.Errorf("%s: %q run, want %q", name, runs, c.runs)
		}
	}
}
