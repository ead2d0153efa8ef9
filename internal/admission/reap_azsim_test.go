package admission

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
)

// TestReaperOnAzsim: what is scaled in leaves nothing behind; what restarts, is
// deallocated, reimaged or redeployed keeps its Node, however long it takes.
func TestReaperOnAzsim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAzsimWorld(t)
		defer w.sim.Close()
		pool := w.pool("agents", 7, false)
		h := held()
		for _, m := range w.vms(pool) {
			h.nodes[m.NodeName()] = AdmittedNode{Name: m.NodeName(), Instance: m.Instance, Pool: m.Pool, VMID: m.VMID, Admitted: time.Now(), Exists: true, UID: m.VMID, ProviderID: m.ProviderID(), Renewed: time.Now()}
		}
		all := h.names()
		r, err := NewReaper(ReaperConfig{Admissions: h, Members: w.members, Pools: []fleet.ResourceID{pool}})
		if err != nil {
			t.Fatal(err)
		}
		round := func() {
			t.Helper()
			if err := r.Round(t.Context()); err != nil {
				t.Error(err)
			}
		}
		vms := w.compute.NewVirtualMachineScaleSetVMsClient()
		rg := azsim.DefaultResourceGroup
		off, err := vms.BeginDeallocate(t.Context(), rg, "agents", "1", nil)
		settle(w, off, err)
		restart, err := vms.BeginRestart(t.Context(), rg, "agents", "2", nil)
		round() // in the middle of it
		settle(w, restart, err)
		image, err := vms.BeginReimage(t.Context(), rg, "agents", "3", nil)
		round()
		settle(w, image, err)
		redeploy, err := vms.BeginRedeploy(t.Context(), rg, "agents", "4", nil)
		round()
		settle(w, redeploy, err)
		time.Sleep(time.Hour) // nobody heard of any kubelet since
		round()
		wantNodes(t, h, all...)

		for _, id := range []string{"0", "5"} {
			gone, err := vms.BeginDelete(t.Context(), rg, "agents", id, nil)
			round() // it is being deleted: there still
			settle(w, gone, err)
		}
		round()
		left := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == "agents000000" || n == "agents000005" })
		wantNodes(t, h, left...)

		// The scale set itself goes.
		p, err := w.compute.NewVirtualMachineScaleSetsClient().BeginDelete(t.Context(), rg, "agents", &armcompute.VirtualMachineScaleSetsClientBeginDeleteOptions{ForceDeletion: at(true)})
		settle(w, p, err)
		round()
		wantNodes(t, h, left...)
		round()
		wantNodes(t, h)
	})
}
