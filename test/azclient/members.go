package azclient

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// A Member is an instance of a Uniform scale set or a virtual machine of a Flexible one.
type Member struct {
	ID, InstanceID, Computer, VMID, State string
}

// Members lists a scale set's members by the requests of the cloud provider and of
// cluster-autoscaler, which differ by the set's orchestration mode.
func (c *Cloud) Members(ctx context.Context, pool string) (out []Member, err error) {
	set, err := c.Sets.Get(ctx, c.Group, pool, nil)
	if err != nil {
		return nil, err
	}
	if *set.Properties.OrchestrationMode == armcompute.OrchestrationModeFlexible {
		list, err := c.GetVirtualMachineClient().ListVmssFlexVMsWithOutInstanceView(ctx, c.Group, *set.ID)
		for _, vm := range list {
			out = append(out, Member{*vm.ID, *vm.Name, *vm.Properties.OSProfile.ComputerName, *vm.Properties.VMID, *vm.Properties.ProvisioningState})
		}
		return out, err
	}
	list, err := c.GetVirtualMachineScaleSetVMClient().ListVMInstanceView(ctx, c.Group, pool)
	for _, vm := range list {
		out = append(out, Member{*vm.ID, *vm.InstanceID, *vm.Properties.OSProfile.ComputerName, *vm.Properties.VMID, *vm.Properties.ProvisioningState})
	}
	return out, err
}
