package assess_test

import (
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// TestNodeFor takes no Node for an instance by its name alone, or by what it reports of itself alone.
func TestNodeFor(t *testing.T) {
	const id, vmID = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/1"), "11111111-2222-4333-8444-555555555555"
	b := fleet.Boot{Instance: id, HostName: "pool1000001", VMID: vmID}
	for name, c := range map[string]struct {
		node assess.NodeView
		is   bool
	}{
		"it is":                                {assess.NodeView{Name: "pool1000001", ProviderID: "azure://" + string(id), SystemUUID: vmID}, true},
		"of another cloud provider":            {assess.NodeView{Name: "pool1000001", ProviderID: "k3s://pool1000001", SystemUUID: vmID}, true},
		"of an earlier machine of the name":    {assess.NodeView{Name: "pool1000001", ProviderID: "azure://" + string(id), SystemUUID: "21111111-2222-4333-8444-555555555555"}, false},
		"another's name":                       {assess.NodeView{Name: "liar", ProviderID: "azure://" + string(id), SystemUUID: vmID}, false},
		"its name, and another's machine":      {assess.NodeView{Name: "pool1000001", ProviderID: "azure://" + string(id) + "2", SystemUUID: vmID}, false},
		"its name, and no word of the machine": {assess.NodeView{Name: "pool1000001"}, false},
	} {
		nodes := []assess.NodeView{{Name: "other"}, c.node}
		if got := assess.NodeFor(nodes, b); (got != nil) != c.is || got != nil && got.Name != c.node.Name {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestViewOf has the configuration's reason only where it is not applied, and the boot's only where it came up.
func TestViewOf(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	of := func(kind, status string) *assess.NodeView {
		return assess.ViewOf(fleet.Node{Conditions: []fleet.Condition{{Type: kind, Status: status, Reason: "Why", Message: "this", Since: at, Written: at.Add(time.Hour)}}})
	}
	for status, want := range map[string]string{"True": "", "False": "Why: this", "Unknown": "Why: this"} {
		if got := of(wire.ConfigurationCondition, status).Configuration; got != want {
			t.Errorf("configuration %s: %q, want %q", status, got, want)
		}
	}
	for status, came := range map[string]bool{"True": true, "False": false, "Unknown": false} {
		v := of(fleet.ConditionBootSucceeded, status)
		if v.CameUp != came || came != v.CameUpSince.Equal(at) || came != v.CameUpWritten.Equal(at.Add(time.Hour)) || came != (v.CameUpReason == "Why") {
			t.Errorf("boot %s: %+v", status, v)
		}
	}
}
