package azsim

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func TestSKUsTellWhatASizeIsFor(t *testing.T) {
	const location = "location eq 'westeurope'"
	inVirtualTime(t, func(s *Server) { s.RestrictedSizes = []string{"standard_d4s_v5"} }, func(b *bench) {
		have := map[string]*armcompute.ResourceSKU{}
		for pages := b.f.NewResourceSKUsClient().NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: ptr(location)}); pages.More(); {
			page, err := pages.NextPage(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Value {
				have[val(s.Name)] = s
			}
		}
		for name, want := range map[string][4]string{ // Spot, architecture, temporary disk, vCPUs
			"Standard_D2s_v5": {"True", "x64", "0", "2"}, "Standard_D2ds_v5": {"True", "x64", "76800", "2"}, "Standard_B2s": {"False", "x64", "8192", "2"},
			"Standard_D2ps_v5": {"True", "Arm64", "0", "2"}, "Standard_D4s_v5": {"True", "x64", "0", "4"},
		} {
			if have[name] == nil {
				t.Errorf("no %s", name)
				continue
			}
			caps := map[string]string{}
			for _, c := range have[name].Capabilities {
				caps[val(c.Name)] = val(c.Value)
			}
			if got := [4]string{caps["LowPriorityCapable"], caps["CpuArchitectureType"], caps["MaxResourceVolumeMB"], caps["vCPUs"]}; got != want {
				t.Errorf("%s has %v, want %v", name, got, want)
			}
			if n := len(have[name].Restrictions); (n == 1) != (name == "Standard_D4s_v5") {
				t.Errorf("%s has %d restrictions", name, n)
			}
		}
		if r := have["Standard_D4s_v5"].Restrictions[0]; val(r.Type) != armcompute.ResourceSKURestrictionsTypeLocation || val(r.ReasonCode) != armcompute.ResourceSKURestrictionsReasonCodeNotAvailableForSubscription ||
			val(r.RestrictionInfo.Locations[0]) != "westeurope" || val(r.Values[0]) != "westeurope" {
			t.Errorf("restriction %+v", r)
		}
		network(b)
		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "", ""))
		vm := b.plainVM("nic")
		vm.Properties.HardwareProfile.VMSize = ptr(armcompute.VirtualMachineSizeTypes("Standard_D4s_v5"))
		p, err := b.f.NewVirtualMachinesClient().BeginCreateOrUpdate(b.ctx, b.group, "server", vm, nil)
		awaitRefusal(b, "SkuNotAvailable", p, err)
		b.putVM("server", b.plainVM("nic"))
		u, err := b.f.NewVirtualMachinesClient().BeginUpdate(b.ctx, b.group, "server", armcompute.VirtualMachineUpdate{Properties: &armcompute.VirtualMachineProperties{HardwareProfile: vm.Properties.HardwareProfile}}, nil)
		awaitRefusal(b, "SkuNotAvailable", u, err)
	})
}
