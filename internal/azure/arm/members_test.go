package arm_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// memberPool is a pool of the members' contract: of two network interfaces, the second
// is the primary one, with an address of a pod.
func memberPool(instances int64, mode armcompute.OrchestrationMode) armcompute.VirtualMachineScaleSet {
	subnet := &armcompute.APIEntityReference{ID: ptr("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/subnets/s")}
	conf := func(name string, primary bool) *armcompute.VirtualMachineScaleSetIPConfiguration {
		return &armcompute.VirtualMachineScaleSetIPConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{Primary: ptr(primary), Subnet: subnet}}
	}
	nic := func(name string, primary bool, confs ...*armcompute.VirtualMachineScaleSetIPConfiguration) *armcompute.VirtualMachineScaleSetNetworkConfiguration {
		return &armcompute.VirtualMachineScaleSetNetworkConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(primary), IPConfigurations: confs}}
	}
	p := bootPool(instances, mode)
	p.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
		NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{nic("storage", false, conf("own", true)), nic("eth0", true, conf("pod", false), conf("own", true))},
	}
	if mode == armcompute.OrchestrationModeFlexible {
		p.Properties.VirtualMachineProfile.NetworkProfile.NetworkAPIVersion = ptr(armcompute.NetworkAPIVersion("2020-11-01"))
	}
	return p
}

func (x site) members(t *testing.T, s *azsim.Server, client string) azure.Members {
	t.Helper()
	m, ok := x.cloud(t, s, client).(azure.Members)
	if !ok {
		t.Fatal("the adapter does not know members")
	}
	return m
}

func done[T any](t *testing.T, p *runtime.Poller[T], err error) {
	t.Helper()
	if err == nil {
		_, err = p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (x site) memberFixture(t *testing.T, s *azsim.Server) azuretest.MemberFixture {
	t.Helper()
	factory, err := armcompute.NewClientFactory(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	const rg = azsim.DefaultResourceGroup
	create(t, s, "pool1", memberPool(3, armcompute.OrchestrationModeUniform))
	create(t, s, "flex1", memberPool(3, armcompute.OrchestrationModeFlexible))
	sets := fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + rg + "/providers/Microsoft.Compute/virtualMachineScaleSets/")
	return azuretest.MemberFixture{
		Members: x.members(t, s, azsim.DefaultClientID), Uniform: sets + "pool1", Flexible: sets + "flex1", Each: 3, Interfaces: 2,
		Restricted: func(t *testing.T, actions []string) azure.Members { return x.members(t, s, clientWith(t, s, actions)) },
		Delete: func(t *testing.T, id fleet.ResourceID) {
			if set := id.Segment("virtualMachineScaleSets"); set != "" {
				p, err := factory.NewVirtualMachineScaleSetVMsClient().BeginDelete(t.Context(), rg, set, id.Name(), nil)
				done(t, p, err)
				return
			}
			p, err := factory.NewVirtualMachinesClient().BeginDelete(t.Context(), rg, id.Name(), nil)
			done(t, p, err)
		},
		Stop: func(t *testing.T, id fleet.ResourceID) {
			if set := id.Segment("virtualMachineScaleSets"); set != "" {
				p, err := factory.NewVirtualMachineScaleSetVMsClient().BeginDeallocate(t.Context(), rg, set, id.Name(), nil)
				done(t, p, err)
				return
			}
			p, err := factory.NewVirtualMachinesClient().BeginDeallocate(t.Context(), rg, id.Name(), nil)
			done(t, p, err)
		},
	}
}

func TestMembersContractInProcess(t *testing.T) {
	for _, tc := range azuretest.MemberCases() {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &azsim.Server{Principals: principals()}
				defer s.Close()
				tc.Do(t, inProcess(s).memberFixture(t, s))
			})
		})
	}
}
